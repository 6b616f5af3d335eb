//! Stores the record of an attempt beside the ledger.

use serde_json::Map;

use super::{
    cluster::{Cluster, Performed},
    store::{self, Content},
};
use crate::{
    api::names::{Rv, Uid},
    observe::store::{ATTEMPT, ATTEMPT_KEY},
    world::Record,
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    name: &str,
    seen: Option<&(Uid, Rv)>,
    record: &Record,
) -> Performed {
    let content = Content { name, store: ATTEMPT, annotations: Map::new(), key: ATTEMPT_KEY, is: record };
    store::write(cluster, seen, content).await
}
