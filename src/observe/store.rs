//! Projection of our ConfigMaps: ledgers and attempt records.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::wire::Meta;
use crate::{
    api::names::{REPOSITORY, RepoName, STORE},
    mirror::ledger::Ledger,
    world::{Object, ObjectId, Record, Shape},
};

/// Value of the label `STORE` on a ledger.
pub const LEDGER: &str = "ledger";
/// Value of the label `STORE` on an attempt record.
pub const ATTEMPT: &str = "attempt";
/// Key of the ledger in its ConfigMap.
pub const LEDGER_KEY: &str = "ledger.json";
/// Key of the record in its ConfigMap.
pub const ATTEMPT_KEY: &str = "attempt.json";

/// Name of the ConfigMap that holds a repository's ledger.
pub fn ledger_name(repo: &RepoName) -> String {
    format!("trunkline-ledger-{repo}")
}

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Wire {
    pub(super) fn object(self) -> Option<Object> {
        let shape = match self.metadata.labels.get(STORE)?.as_str() {
            LEDGER => {
                let ledger = self.read::<Ledger>(LEDGER_KEY);
                let named = self.metadata.annotations.get(REPOSITORY).map(RepoName::new);
                let repo = ledger.as_ref().map_or(named, |ledger| Some(ledger.repository.clone()))?;
                Shape::Ledger(repo, ledger.map(Box::new))
            }
            ATTEMPT => Shape::Record(self.read::<Record>(ATTEMPT_KEY).map(Box::new)),
            _ => return None,
        };
        let id = ObjectId::Store(self.metadata.namespace.clone(), self.metadata.name.clone());
        Some(self.metadata.object(id, shape))
    }

    fn read<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, String> {
        let text = self.data.get(key).ok_or_else(|| format!("the ConfigMap has no key `{key}`"))?;
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}
