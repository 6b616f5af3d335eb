//! One repository: is it there, may it be read, may it be written.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::super::run::git_options;
use crate::{
    api::names::Oid,
    clock::{Clock, later},
    config::Repository,
    git::{
        GitError, Probe,
        url::{Place, RemoteUrl},
    },
    report::doctor::{self, Finding, GitFault},
};

/// Longest wait for a repository: ssh has only rough time-outs of its own.
const LIMIT: Duration = Duration::from_secs(90);

/// Looks at one repository.
pub(super) async fn examine(of: &Repository, cluster: &str, allow_local: bool, clock: Clock) -> Vec<Finding> {
    let own = of.clone();
    let asking = tokio::task::spawn_blocking(move || ask(&own, allow_local));
    let answers = match clock.before(later(clock.now(), LIMIT), asking).await {
        Some(Ok(answers)) => answers,
        None => Err(GitError::Unreachable(format!("no answer within {} s", LIMIT.as_secs()))),
        Some(Err(_)) => Err(GitError::Clone("the look ended unexpectedly".to_owned())),
    };
    let no = |error: &GitError| (fault(error, &of.url, allow_local), error.to_string());
    match answers {
        Err(error) => {
            let (fault, why) = no(&error);
            vec![doctor::unread(of, &fault, &why)]
        }
        Ok((branches, push)) => {
            let push = push.map(|answer| answer.map_err(|error| no(&error)));
            vec![
                doctor::read(of, &branches),
                doctor::push(of, push),
                doctor::status_branch(of, cluster, &branches),
            ]
        }
    }
}

/// Branches, and whether a push is let in; absent = nothing is pushed there.
type Answers = (BTreeMap<String, Oid>, Option<Result<(), GitError>>);

fn ask(of: &Repository, allow_local: bool) -> Result<Answers, GitError> {
    let probe = Probe::open(git_options(of, PathBuf::new(), allow_local))?;
    let branches = probe.branches()?;
    let pushes = of.status_branch || of.rollback_commit;
    Ok((branches, pushes.then(|| probe.may_push())))
}

fn fault(error: &GitError, url: &str, allow_local: bool) -> GitFault {
    match error {
        GitError::Unreachable(_) => GitFault::Unreachable,
        GitError::Unauthorised(_) => {
            match RemoteUrl::parse(url, allow_local).as_ref().map(RemoteUrl::place) {
                Ok(Place::Ssh(server)) if error.is_unknown_host() => {
                    GitFault::UnknownHost { host: server.host.clone(), port: server.port }
                }
                _ => GitFault::Credentials,
            }
        }
        GitError::UrlNotAllowed(_) | GitError::Clone(_) => GitFault::Here,
    }
}
