//! One repository, one server before it and one remote under test.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tempfile::TempDir;
use trunkline::{
    api::names::Oid,
    git::{Git2Remote, GitError, GitOptions, Remote, TrackedQuery},
    world::git::{Change, NewCommit, Signature, Tracked},
};

use super::{bare::Bare, server::GitServer, ssh::SshServer};

/// How the remote is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// By its path.
    Path,
    /// By HTTP.
    Http,
    /// By ssh.
    Ssh,
}

/// Every way that this machine has, for tests that must hold for all of them.
pub(crate) fn every_way() -> Vec<Over> {
    let mut ways = vec![Over::Path, Over::Http];
    if SshServer::is_available() {
        ways.push(Over::Ssh);
    }
    ways
}

/// What a test works with.
pub(crate) struct Lab {
    pub(crate) over: Over,
    pub(crate) server: GitServer,
    /// In front of the same repository, where it is reached by ssh.
    pub(crate) ssh: Option<SshServer>,
    pub(crate) bare: Bare,
    pub(crate) clones: TempDir,
}

impl Lab {
    /// An empty repository and no clone.
    pub(crate) fn new(over: Over) -> Self {
        let server = GitServer::start();
        let ssh = (over == Over::Ssh).then(SshServer::start);
        Self { over, bare: server.repository(), server, ssh, clones: tempfile::tempdir().unwrap() }
    }

    /// Options for a clone of this name.
    pub(crate) fn options(&self, clone: &str) -> GitOptions {
        let url = match &self.ssh {
            Some(ssh) => ssh.url(self.bare.path()),
            None if self.over == Over::Http => self.server.url(),
            None => self.bare.path().to_str().unwrap().to_owned(),
        };
        let credentials = self.ssh.as_ref().map_or_else(|| self.server.credentials(), SshServer::credentials);
        GitOptions {
            url,
            clone_dir: self.clones.path().join(clone),
            credentials: Some(credentials),
            allow_local: true,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(20),
        }
    }

    /// Opens the clone of this name.
    pub(crate) fn open(&self, clone: &str) -> Git2Remote {
        Git2Remote::open(self.options(clone)).unwrap()
    }
}

/// Reads `main` below `paths`.
pub(crate) fn read(
    remote: &mut Git2Remote,
    paths: &[&str],
    since: Option<&str>,
) -> Result<Tracked, GitError> {
    remote.tracked(&TrackedQuery {
        branch: "main".into(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        since: since.map(Oid::new),
    })
}

/// A commit that writes text files.
pub(crate) fn writes(branch: &str, parent: Option<&str>, files: &[(&str, &str)]) -> NewCommit {
    NewCommit {
        branch: branch.into(),
        parent: parent.map(Oid::new),
        again: false,
        changes: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), Change::Write(Arc::from(text.as_bytes()))))
            .collect::<BTreeMap<_, _>>(),
        message: "Roll back\n\nTrunkline-Cluster: prod-1\n".into(),
        by: Signature { name: "trunkline".into(), email: "trunkline@example.com".into() },
        at: "2026-03-01T10:00:00Z".parse().unwrap(),
    }
}

/// Ids of the steps, oldest first.
pub(crate) fn ids(read: &Tracked) -> Vec<&str> {
    read.steps.iter().map(|step| step.commit.oid.as_str()).collect()
}
