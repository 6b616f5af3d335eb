//! What an observation concerns: which keys have to be looked at again.

use std::collections::BTreeSet;

use super::{AgentKey, Key, Target, World};
use crate::api::{ClaimKey, names::Uid};

impl World {
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
