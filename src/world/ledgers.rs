//! What ledgers say of claims and targets, also while one of them cannot be read.

use std::collections::BTreeSet;

use super::{
    Target,
    state::{Key, Seen, World, put},
};
use crate::{
    api::{ClaimKey, names::RepoName},
    mirror::ledger::Ledger,
};

impl World {
    /// Ledgers as they were last read: one that cannot be read counts as it was before, if this process saw that.
    pub fn last_read(&self) -> impl Iterator<Item = &Ledger> {
        self.ledgers
            .iter()
            .filter_map(|(repo, seen)| seen.is.as_ref().ok().or_else(|| self.readable.get(repo)))
            .map(|ledger| &**ledger)
    }

    /// Whether the ledger of a repository is there and cannot be read.
    pub fn is_unreadable(&self, repo: &RepoName) -> bool {
        self.ledgers.get(repo).is_some_and(|seen| seen.is.is_err())
    }

    /// Target that the ledgers give for a claim; a claim that no ledger knows stands for itself.
    pub fn target_of(&self, claim: &ClaimKey) -> Target {
        self.last_read()
            .find_map(|ledger| ledger.objects.get(claim).map(|entry| entry.target.clone()))
            .unwrap_or_else(|| Target::Unresolved(claim.clone()))
    }

    pub(super) fn see_ledger(
        &mut self,
        repo: &RepoName,
        seen: Seen<Result<Box<Ledger>, String>>,
    ) -> BTreeSet<Key> {
        let mut keys = self.keys_of_ledger(repo);
        let unreadable = seen.is.is_err();
        let before = self.ledgers.get(repo).filter(|_| unreadable).and_then(|old| old.is.clone().ok());
        if !put(&mut self.ledgers, repo.clone(), seen) {
            return BTreeSet::new();
        }
        if !unreadable {
            self.readable.remove(repo);
        } else if let Some(before) = before {
            self.readable.insert(repo.clone(), before);
        }
        keys.append(&mut self.keys_of_ledger(repo));
        keys
    }

    /// Every key there is, for changes that concern everything.
    pub fn all_keys(&self) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> =
            self.claims.keys().map(|claim| Key::Rollout(self.target_of(claim))).collect();
        keys.extend(self.declared().map(Key::Rollout));
        for repo in self.ledgers.keys().chain(self.git.keys()) {
            keys.insert(Key::Mirror(repo.clone()));
            keys.insert(Key::Publish(repo.clone()));
        }
        keys
    }

    pub(super) fn agent_keys(&self) -> BTreeSet<Key> {
        self.declared().filter(|target| matches!(target, Target::Agent(_))).map(Key::Rollout).collect()
    }

    pub(super) fn keys_of_ledger(&self, repo: &RepoName) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([Key::Mirror(repo.clone()), Key::Publish(repo.clone())]);
        // What one repository lets go, another may take.
        keys.extend(self.ledgers.keys().cloned().map(Key::Mirror));
        keys.extend(self.claims.keys().map(|claim| Key::Rollout(self.target_of(claim))));
        let ledger = self.last_read().find(|ledger| ledger.repository == *repo);
        let declared = ledger.into_iter().flat_map(|ledger| ledger.objects.values());
        keys.extend(declared.map(|entry| Key::Rollout(entry.target.clone())));
        keys
    }

    /// Targets that the ledgers name.
    fn declared(&self) -> impl Iterator<Item = Target> {
        self.last_read().flat_map(|ledger| ledger.objects.values()).map(|entry| entry.target.clone())
    }
}
