//! A Git remote in the small: branches as lists of commits, moved by compare-and-swap on the tip.

use std::collections::BTreeMap;

use crate::{
    api::names::{Oid, RepoName},
    world::{digest, git::NewCommit},
};

/// All repositories.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remotes {
    branches: BTreeMap<(RepoName, String), Vec<(Oid, NewCommit)>>,
}

impl Remotes {
    /// Commits of a branch, oldest first.
    pub fn log(&self, repo: &RepoName, branch: &str) -> &[(Oid, NewCommit)] {
        self.branches.get(&(repo.clone(), branch.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Tip of a branch.
    pub fn tip(&self, repo: &RepoName, branch: &str) -> Option<&Oid> {
        self.log(repo, branch).last().map(|(oid, _)| oid)
    }

    /// Puts a commit on its branch; the tip that is there when it is not the commit's parent.
    pub fn push(&mut self, repo: &RepoName, commit: NewCommit) -> Result<Oid, Option<Oid>> {
        let tip = self.tip(repo, &commit.branch).cloned();
        let oid = oid_of(&commit);
        if tip.as_ref() == Some(&oid) {
            return Ok(oid);
        }
        if tip != commit.parent {
            return Err(tip);
        }
        let branch = self.branches.entry((repo.clone(), commit.branch.clone())).or_default();
        branch.push((oid.clone(), commit));
        Ok(oid)
    }
}

/// An id that is a function of the commit's fields.
fn oid_of(commit: &NewCommit) -> Oid {
    let hex = digest::hex(format!("{commit:?}").as_bytes());
    Oid::new(hex.get(..40).unwrap_or(&hex))
}
