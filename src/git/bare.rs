//! Bare repositories on local paths, for the demo and the tests: made, written to as a person would, and read back.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use git2::{BranchType, Repository, RepositoryInitOptions, Sort};
use jiff::Timestamp;

use super::{Git2Remote, GitError, Pushed, Remote, read};
use crate::{
    api::names::Oid,
    world::git::{Change, CommitInfo, NewCommit, Signature},
};

/// Makes an empty bare repository whose default branch is `branch`.
pub fn create(path: &Path, branch: &str) -> Result<(), GitError> {
    let mut options = RepositoryInitOptions::new();
    options.bare(true).initial_head(branch).external_template(false);
    Repository::init_opts(path, &options).map(drop).map_err(|error| broken(&error))
}

/// Commits of a branch, newest first, at most `max`; none if the branch does not exist.
pub fn log(path: &Path, branch: &str, max: usize) -> Result<Vec<CommitInfo>, GitError> {
    let repository = open(path)?;
    let Some(tip) = tip(&repository, branch) else { return Ok(Vec::new()) };
    let mut walk = repository.revwalk().map_err(|error| broken(&error))?;
    walk.set_sorting(Sort::TOPOLOGICAL).map_err(|error| broken(&error))?;
    walk.push(tip).map_err(|error| broken(&error))?;
    let mut commits = Vec::new();
    for oid in walk.take(max) {
        let oid = oid.map_err(|error| broken(&error))?;
        let commit = repository.find_commit(oid).map_err(|error| broken(&error))?;
        commits.push(read::info(&commit));
    }
    Ok(commits)
}

/// Tip of a branch; `None` if it does not exist.
pub fn head(path: &Path, branch: &str) -> Result<Option<Oid>, GitError> {
    Ok(tip(&open(path)?, branch).map(|oid| Oid::new(oid.to_string())))
}

/// Bytes of one file at the tip of a branch; `None` if there is no such file or branch.
pub fn file(path: &Path, branch: &str, name: &str) -> Result<Option<Vec<u8>>, GitError> {
    let repository = open(path)?;
    let Some(tip) = tip(&repository, branch) else { return Ok(None) };
    at(&repository, tip, name).map_err(|error| broken(&error))
}

fn open(path: &Path) -> Result<Repository, GitError> {
    Repository::open_bare(path).map_err(|error| broken(&error))
}

fn tip(repository: &Repository, branch: &str) -> Option<git2::Oid> {
    repository.find_branch(branch, BranchType::Local).ok()?.get().target()
}

fn at(repository: &Repository, commit: git2::Oid, name: &str) -> Result<Option<Vec<u8>>, git2::Error> {
    let tree = repository.find_commit(commit)?.tree()?;
    let Ok(entry) = tree.get_path(Path::new(name)) else { return Ok(None) };
    Ok(Some(repository.find_blob(entry.id())?.content().to_vec()))
}

fn broken(error: &git2::Error) -> GitError {
    GitError::Clone(error.message().to_owned())
}

/// Somebody who pushes to a bare repository: commits go on top of the branch, without force.
pub struct Author {
    remote: Git2Remote,
    path: std::path::PathBuf,
    branch: String,
    by: Signature,
}

impl Author {
    /// Pushes to `branch` of the repository at `path` through `remote`.
    pub fn new(remote: Git2Remote, path: &Path, branch: &str, by: Signature) -> Self {
        Self { remote, path: path.to_owned(), branch: branch.to_owned(), by }
    }

    /// Commits these files (`None` removes one) and pushes.
    pub fn commit(
        &mut self,
        files: &BTreeMap<String, Option<String>>,
        message: &str,
        at: Timestamp,
    ) -> Result<Oid, GitError> {
        let change = |text: &Option<String>| match text {
            Some(text) => Change::Write(Arc::from(text.as_bytes())),
            None => Change::Remove,
        };
        let changes = files.iter().map(|(path, text)| (path.clone(), change(text))).collect();
        self.push(changes, message, at)
    }

    /// Commits the opposite of a commit with one parent, as `git revert` does, and pushes.
    pub fn revert(&mut self, of: &Oid, at: Timestamp) -> Result<Oid, GitError> {
        let repository = open(&self.path)?;
        let undo = || -> Result<_, git2::Error> {
            let commit = repository.find_commit(git2::Oid::from_str(of.as_str())?)?;
            let parent = commit.parent(0)?;
            let diff = repository.diff_tree_to_tree(Some(&parent.tree()?), Some(&commit.tree()?), None)?;
            let mut changes = BTreeMap::new();
            for delta in diff.deltas() {
                let Some(path) = delta.new_file().path().or(delta.old_file().path()) else { continue };
                let name = path.to_string_lossy().into_owned();
                let change = match self::at(&repository, parent.id(), &name)? {
                    Some(bytes) => Change::Write(Arc::from(bytes)),
                    None => Change::Remove,
                };
                changes.insert(name, change);
            }
            Ok((changes, read::info(&commit)))
        };
        let (changes, commit) = undo().map_err(|error| broken(&error))?;
        let subject = commit.message.lines().next().unwrap_or_default().to_owned();
        let message = format!("Revert \"{subject}\"\n\nThis reverts commit {of}.\n");
        self.push(changes, &message, at)
    }

    fn push(
        &mut self,
        changes: BTreeMap<String, Change>,
        message: &str,
        at: Timestamp,
    ) -> Result<Oid, GitError> {
        let parent = head(&self.path, &self.branch)?;
        let query = super::TrackedQuery { branch: self.branch.clone(), paths: Vec::new(), since: None };
        self.remote.tracked(&query)?;
        let commit = NewCommit {
            branch: self.branch.clone(),
            parent,
            again: false,
            changes,
            message: message.to_owned(),
            by: self.by.clone(),
            at,
        };
        match self.remote.push(&commit)? {
            Pushed::Done(oid) => Ok(oid),
            Pushed::Moved(now) => {
                let now = now.map_or_else(|| "nowhere".to_owned(), |oid| oid.to_string());
                Err(GitError::Unreachable(format!("branch {} moved to {now} meanwhile", self.branch)))
            }
            Pushed::Refused(text) => Err(GitError::Unreachable(text)),
        }
    }
}
