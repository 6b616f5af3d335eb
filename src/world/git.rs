//! What is known of a Git repository: plain data that the Git shell fills in and the pure modules read.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::api::names::{Oid, RepoName};

/// Plain files by path, relative to the root of the repository.
pub type Files = BTreeMap<String, Blob>;

/// One plain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its object id.
    pub oid: Oid,
    /// Its bytes, shared between snapshots.
    pub bytes: Arc<[u8]>,
}

/// A commit without its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id.
    pub oid: Oid,
    /// First parent first.
    pub parents: Vec<Oid>,
    /// Author name, as written.
    pub author: String,
    /// Committer time.
    pub at: Timestamp,
    /// Whole message.
    pub message: String,
}

/// One commit on the way from the last accepted revision to the head, with our files as they stood at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStep {
    /// The commit.
    pub commit: CommitInfo,
    /// Files under the configured paths at it.
    pub files: Files,
    /// Tree entries that were skipped and why (symlinks, submodules, limits): path and reason.
    pub skipped: Vec<(String, String)>,
    /// Paths that it changed against its first parent, ours or not, the first 50.
    pub changed: Vec<String>,
}

/// How the head relates to the last accepted revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// Nothing was accepted before.
    First,
    /// Equal or a descendant.
    Descends,
    /// Not a descendant.
    Rewritten,
}

/// The tracked branch as last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// Head; absent = the branch does not exist.
    pub head: Option<Oid>,
    /// The last accepted revision that `steps` start after.
    pub since: Option<Oid>,
    /// Relation of head to `since`.
    pub descent: Descent,
    /// Commits after `since` up to head, oldest first, along the path that reaches `since` (first parent where both
    /// do); with `Descent::First` only head. Empty when head equals `since`; `at_head` still has the files.
    pub steps: Vec<CommitStep>,
    /// Files at head (also when there is no new step).
    pub at_head: Files,
    /// Skipped entries at head.
    pub skipped: Vec<(String, String)>,
    /// Configured paths that are absent at head.
    pub missing_paths: Vec<String>,
    /// Other branches, the first hundred by name; empty where head exists.
    pub branches: Vec<String>,
}

/// The status branch as last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusBranch {
    /// Tip; absent = the branch does not exist.
    pub tip: Option<Oid>,
    /// Last tip that the clone knows of a branch that does not exist any more.
    pub lost: Option<Oid>,
    /// All files at the tip, or at the last one known.
    pub files: Files,
    /// Committer time of that commit.
    pub at: Option<Timestamp>,
}

/// A failed look at, or push to, a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitTrouble {
    /// Error text without secrets.
    pub message: String,
    /// Since when without success in between.
    pub since: Timestamp,
    /// How often in a row.
    pub count: u32,
}

/// A push that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which push: `status` or the attempt id of the rollback.
    pub what: String,
    /// Expected old value of the ref when it was refused.
    pub expect: Option<Oid>,
    /// The server's text, bounded and without control characters.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// How often in a row.
    pub count: u32,
}

/// All that is known of one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSeen {
    /// Name in the config.
    pub repo: RepoName,
    /// Counts what this process was told of it; what was told before is older, in whatever order it arrives.
    pub told: u64,
    /// The tracked branch; absent = never read in this process.
    pub tracked: Option<Tracked>,
    /// The status branch; absent = never read in this process.
    pub status: Option<StatusBranch>,
    /// The last look failed.
    pub trouble: Option<GitTrouble>,
    /// Pushes refused and not superseded by a success, by `what`.
    pub refused: BTreeMap<String, Refused>,
}

impl GitSeen {
    /// Whether it tells anything that is not known, and was not overtaken by something newer.
    pub fn is_news(&self, known: Option<&Self>) -> bool {
        known.is_none_or(|known| {
            let told = self.told.max(known.told);
            known.told <= self.told && Self { told, ..known.clone() } != *self
        })
    }

    /// A repository that was never looked at.
    pub fn unread(repo: RepoName) -> Self {
        Self { repo, told: 0, tracked: None, status: None, trouble: None, refused: BTreeMap::new() }
    }
}

/// Who a commit is by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    /// Name.
    pub name: String,
    /// E-mail address.
    pub email: String,
}

/// A change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Write these bytes; the file mode of an existing file stays.
    Write(Arc<[u8]>),
    /// Remove the file.
    Remove,
}

/// A commit to make. Its id is a function of its fields: author and committer time are `at`, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// Branch it goes to, without `refs/heads/`.
    pub branch: String,
    /// Parent; absent = an orphan, its tree starts empty.
    pub parent: Option<Oid>,
    /// The branch vanished and is made again with the history of the parent.
    pub again: bool,
    /// Changes against the parent's tree, by path.
    pub changes: BTreeMap<String, Change>,
    /// Whole message.
    pub message: String,
    /// Author and committer.
    pub by: Signature,
    /// Author and committer time, whole seconds.
    pub at: Timestamp,
}

impl NewCommit {
    /// Where the branch has to stand for the push; absent = it must not exist.
    pub fn expects(&self) -> Option<&Oid> {
        self.parent.as_ref().filter(|_| !self.again)
    }
}
