//! The configuration and its repositories.

use std::collections::BTreeMap;

use super::Finding;
use crate::{
    api::names::Oid,
    config::{Config, Repository},
    report::{
        escape::line,
        words::{NAME, QUOTE, names},
    },
};

const CONFIGURATION: &str = "configuration";

/// What kind of no a repository gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitFault {
    /// No way leads there: its name is unknown, nobody listens, or nothing is at the path.
    Unreachable,
    /// It does not take the credentials, or there are none.
    Credentials,
    /// The key of the ssh server is not known.
    UnknownHost {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// This machine cannot ask.
    Here,
}

/// Says that the Git side is left out.
pub fn no_configuration() -> Finding {
    Finding::skipped(CONFIGURATION, "Nothing about Git was looked at; name the configuration with --config.")
}

/// Says that the configuration cannot be used.
pub fn unusable_configuration(why: &str) -> Finding {
    let mend = "Correct it; a daemon that runs goes on with the version before.";
    Finding::fault(CONFIGURATION, format!("{}.", line(why, QUOTE)), mend)
}

/// Says what the configuration is about.
pub fn configuration(config: &Config) -> Finding {
    let repositories = config.repositories.iter().map(|repository| repository.name.to_string());
    let text = format!("Cluster {}, repositories: {}.", line(&config.cluster, NAME), names(repositories));
    Finding::ok(CONFIGURATION, text)
}

/// Says that the repository cannot be read; nothing else is asked of it then.
pub fn unread(of: &Repository, fault: &GitFault, why: &str) -> Finding {
    refused(of, check(of, "read"), "It cannot be read", (fault, why))
}

/// Says where the tracked branch stands, out of all branches.
pub fn read(of: &Repository, branches: &BTreeMap<String, Oid>) -> Finding {
    let check = check(of, "read");
    let branch = line(&of.branch, NAME);
    match branches.get(&of.branch) {
        Some(head) => Finding::ok(check, format!("{branch} is at {}.", head.short())),
        None if branches.is_empty() => {
            let text = format!("There is no commit yet; trunkline waits for branch {branch}.");
            Finding::warning(check, text, format!("Push the first commit to {branch}."))
        }
        None => {
            let there = names(branches.keys().cloned());
            let text = format!("There is no branch {branch}; there are {there}.");
            Finding::fault(check, text, "Push it, or correct `branch` of the repository.")
        }
    }
}

/// Says whether the server lets us in to push; absent = nothing is pushed there.
pub fn push(of: &Repository, answer: Option<Result<(), (GitFault, String)>>) -> Finding {
    let check = check(of, "push");
    match answer {
        None => Finding::skipped(check, "The configuration has nothing pushed there."),
        Some(Ok(())) => Finding::ok(
            check,
            "The server lets us in to push. What it refuses later, such as a protected branch, only a push shows.",
        ),
        Some(Err((fault, why))) => {
            refused(of, check, "The server does not let us in to push", (&fault, &why))
        }
    }
}

/// Says where the status branch stands.
pub fn status_branch(of: &Repository, cluster: &str, branches: &BTreeMap<String, Oid>) -> Finding {
    let check = check(of, "status branch");
    let name = Repository::status_branch_name(cluster);
    match branches.get(&name) {
        _ if !of.status_branch => Finding::skipped(check, "The configuration wants none."),
        Some(head) => Finding::ok(check, format!("{} is at {}.", line(&name, NAME), head.short())),
        None => {
            Finding::ok(check, format!("{} is not there yet; the first status makes it.", line(&name, NAME)))
        }
    }
}

fn check(of: &Repository, what: &str) -> String {
    format!("{}: {what}", of.name)
}

fn refused(of: &Repository, check: String, what: &str, (fault, why): (&GitFault, &str)) -> Finding {
    let folder = of.credentials.as_deref().map(|folder| line(folder, QUOTE));
    let mend = match (fault, folder) {
        (GitFault::Unreachable, _) => {
            "Check `url`, the name in it, and the way from this machine to it.".to_owned()
        }
        (GitFault::Here, _) => "Correct the repository in the configuration.".to_owned(),
        (GitFault::UnknownHost { host, port }, folder) => format!(
            "ssh-keyscan -p {port} {} prints its keys; compare them with those that its owner publishes, and add them \
             to known_hosts in {}.",
            line(host, NAME),
            folder.as_deref().unwrap_or("the folder that `credentials` names")
        ),
        (GitFault::Credentials, Some(folder)) => format!(
            "Put a token, a username and password, or an ssh-privatekey that may read and push into {folder}."
        ),
        (GitFault::Credentials, None) => "Set `credentials` of the repository.".to_owned(),
    };
    Finding::fault(check, format!("{what}: {}.", line(why, QUOTE)), mend)
}
