//! A look at a remote repository without a clone: what it has, and whether it lets us in to push.
//!
//! Limits: a server says at the door of a push whether it knows us as one who may write to the repository. What it
//! refuses later (a protected branch, a hook) only a push shows.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use git2::Direction;

use super::{
    GitError, GitOptions,
    credentials::Credentials,
    read,
    remote::{admit, proxy},
    url::RemoteUrl,
};
use crate::api::names::Oid;

/// One remote repository; all calls block, for as long as the network does.
#[derive(Debug)]
pub struct Probe {
    url: RemoteUrl,
    credentials: Option<PathBuf>,
}

impl Probe {
    /// Checks the URL; the network is not used, and neither is the folder of the clone.
    pub fn open(options: GitOptions) -> Result<Self, GitError> {
        Ok(Self { url: admit(&options)?, credentials: options.credentials })
    }

    /// Reads which branches there are and where they stand.
    pub fn branches(&self) -> Result<BTreeMap<String, Oid>, GitError> {
        let credentials = Credentials::read(self.credentials.as_deref())?;
        branches(self.remote()?, &self.url, &credentials)
    }

    /// Asks to be let in to push, and leaves again without having sent anything.
    pub fn may_push(&self) -> Result<(), GitError> {
        let credentials = Credentials::read(self.credentials.as_deref())?;
        connect(&mut self.remote()?, Direction::Push, &self.url, &credentials).map(drop)
    }

    fn remote(&self) -> Result<git2::Remote<'static>, GitError> {
        git2::Remote::create_detached(self.url.as_str())
            .map_err(|error| GitError::Clone(error.message().to_owned()))
    }
}

/// Branches that a remote has; a name that is not UTF-8 is left out, since nobody can configure such a one.
pub(super) fn branches(
    mut remote: git2::Remote<'_>,
    url: &RemoteUrl,
    credentials: &Credentials,
) -> Result<BTreeMap<String, Oid>, GitError> {
    let connection = connect(&mut remote, Direction::Fetch, url, credentials)?;
    let heads = connection.list().map_err(|error| credentials.network_error(&error))?;
    let branch = |head: &git2::RemoteHead<'_>| {
        // git2 panics on such a name.
        let name = catch_unwind(AssertUnwindSafe(|| head.name())).ok()?;
        Some((name.strip_prefix("refs/heads/")?.to_owned(), read::name(head.oid())))
    };
    Ok(heads.iter().filter_map(branch).collect())
}

fn connect<'r, 'c>(
    remote: &'c mut git2::Remote<'r>,
    direction: Direction,
    url: &'c RemoteUrl,
    credentials: &'c Credentials,
) -> Result<git2::RemoteConnection<'r, 'c, 'c>, GitError> {
    remote
        .connect_auth(direction, Some(credentials.callbacks(url)), Some(proxy(url)))
        .map_err(|error| credentials.network_error(&error))
}
