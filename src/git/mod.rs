//! The Git shell: fetches, reads and pushes over git2; decides nothing.

mod commit;
mod credentials;
mod known_hosts;
mod process_options;
mod read;
mod remote;
mod store;
pub mod url;

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
    /// The branch is at this commit now (also when it was before: a repeated push).
    Done(Oid),
    /// The branch was not at the expected commit; it is here now.
    Moved(Option<Oid>),
    /// The ref did not move, and the server said no; its text, bounded, without control characters.
    Refused(String),
}

/// Why Git could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// No connection, time-out, 5xx.
    #[error("{0}")]
    Unreachable(String),
    /// 401 or 403, or no usable credentials.
    #[error("{0}")]
    Unauthorised(String),
    /// The URL is not allowed.
    #[error("{0}")]
    UrlNotAllowed(String),
    /// The clone cannot be used, even after making it anew.
    #[error("{0}")]
    Clone(String),
}

/// One remote repository, with a bare clone as cache.
pub trait Remote: Send {
    /// Looks at the remote refs and fetches what moved; then reads the tracked branch.
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError>;
    /// Reads the status branch, fetched by the last `tracked` or `push`.
    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError>;
    /// Makes the commit and pushes it, compare-and-swap on its parent (absent = the branch must not exist).
    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError>;
}
