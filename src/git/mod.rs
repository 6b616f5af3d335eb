//! The Git shell: fetches, reads and pushes over git2; decides nothing.
//!
//! Guarantees: trees and blobs only, never a work tree, hook, filter, submodule or setting of the machine; no forced
//! push; an outcome is told by reading the ref again, never by the server's words; no secret in any error or log.
//!
//! Assumptions: a clone belongs to one process; who calls has a deadline of its own, since ssh has only rough time-outs.

pub mod bare;
mod commit;
mod credentials;
mod known_hosts;
mod probe;
mod process_options;
mod read;
mod remote;
mod store;
pub mod url;

pub use probe::Probe;
pub use remote::{Git2Remote, GitOptions};

use crate::{
    api::names::Oid,
    world::git::{NewCommit, StatusBranch, Tracked},
};

/// What to read of the tracked branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedQuery {
    /// Branch.
    pub branch: String,
    /// Folders or files; `""` or `.` = all.
    pub paths: Vec<String>,
    /// Last accepted revision.
    pub since: Option<Oid>,
}

/// How a push ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// The commit is on the branch, by this push or an earlier one whose reply was lost.
    Done(Oid),
    /// The branch was not at the expected commit; it is here now.
    Moved(Option<Oid>),
    /// The ref did not move, and the server said no; its text, bounded, without control characters.
    Refused(String),
}

/// Why Git could not be asked; no text holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// No connection, time-out, 5xx.
    #[error("{0}")]
    Unreachable(String),
    /// 401 or 403, no usable credentials, or an ssh server whose key is not in `known_hosts`.
    #[error("{0}")]
    Unauthorised(String),
    /// The URL is not allowed.
    #[error("{0}")]
    UrlNotAllowed(String),
    /// The clone cannot be used, even after making it anew; or a branch name is not valid.
    #[error("{0}")]
    Clone(String),
}

impl GitError {
    /// Whether the key of an ssh server is not in `known_hosts`.
    pub fn is_unknown_host(&self) -> bool {
        matches!(self, Self::Unauthorised(text) if text == credentials::UNKNOWN_HOST)
    }
}

/// One remote repository, with a bare clone as cache. All calls block, for as long as the network does.
pub trait Remote: Send {
    /// Looks at the remote refs and fetches what moved; then reads the tracked branch.
    ///
    /// Only `*.yaml` and `*.yml` are read below a folder, plain files of at most 1 MiB, 10,000 files, 64 levels; other
    /// entries that could hide a document are listed as skipped. Of more than 500 steps the newest are kept. After
    /// `Descent::Rewritten` the one step is head.
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError>;
    /// Reads all plain files of a branch as of the last `tracked` or `push`; the first time it looks at the remote.
    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError>;
    /// Makes the commit and pushes it, compare-and-swap on its parent (absent = the branch must not exist).
    ///
    /// Never forces. After an error the same commit can be pushed again: its id is a function of its fields.
    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError>;
}
