//! Creates or replaces the ledger of a repository.

use serde_json::{Map, Value};

use super::{
    cluster::{Cluster, Performed},
    store::{self, Content},
};
use crate::{
    api::names::{REPOSITORY, Rv, Uid},
    mirror::ledger::Ledger,
    observe::store::{LEDGER, LEDGER_KEY, ledger_name},
};

pub(super) async fn perform(cluster: &Cluster<'_>, seen: Option<&(Uid, Rv)>, ledger: &Ledger) -> Performed {
    let repo = &ledger.repository;
    let mut annotations = Map::new();
    annotations.insert(REPOSITORY.to_owned(), Value::from(repo.as_str()));
    let name = ledger_name(repo);
    let content = Content { name: &name, store: LEDGER, annotations, key: LEDGER_KEY, is: ledger };
    store::write(cluster, seen, content).await
}
