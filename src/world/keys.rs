//! What an observation concerns: which keys have to be looked at again.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{AgentKey, Key, Target, World};
use crate::api::{ClaimKey, names::Uid};

impl World {
    /// Notes that there is no decision about a key; the same words once more are no news.
    pub(super) fn note_undecided(&mut self, key: Key, why: String, now: Timestamp) -> BTreeSet<Key> {
        let since = self.undecided.get(&key).map_or(now, |(_, since)| *since);
        let keys = self.keys_that_tell(&key);
        let before = self.undecided.insert(key, (why.clone(), since));
        if before == Some((why, since)) { BTreeSet::new() } else { keys }
    }

    /// Where people are told that there is no decision about a key: what its repository publishes, and the conditions of
    /// its objects. Not the key itself, which is not tried again because it failed.
    pub(super) fn keys_that_tell(&self, key: &Key) -> BTreeSet<Key> {
        let mut keys = match key {
            Key::Mirror(repo) | Key::Publish(repo) => self.keys_of_ledger(repo),
            // Its own halt tells of it.
            Key::Rollout(_) => BTreeSet::new(),
        };
        keys.remove(key);
        keys
    }

    /// An agent concerns its own target, the targets that could not be resolved, and the resolution itself.
    pub(super) fn keys_of_agent(&self, key: AgentKey) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = self
            .all_keys()
            .into_iter()
            .filter(|key| matches!(key, Key::Mirror(_) | Key::Rollout(Target::Unresolved(_))))
            .collect();
        keys.insert(Key::Rollout(Target::Agent(key)));
        keys
    }

    pub(super) fn keys_of_owner(&self, owner: Option<&Uid>) -> BTreeSet<Key> {
        let Some(owner) = owner else { return BTreeSet::new() };
        self.agents
            .iter()
            .filter(|(_, agent)| agent.uid == *owner)
            .map(|(key, _)| Key::Rollout(Target::Agent(key.clone())))
            .collect()
    }

    pub(super) fn keys_of_claim(&self, claim: &ClaimKey) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([Key::Rollout(self.target_of(claim))]);
        for repo in self.ledgers.keys().chain(self.git.keys()) {
            keys.insert(Key::Mirror(repo.clone()));
            keys.insert(Key::Publish(repo.clone()));
        }
        keys
    }
}
