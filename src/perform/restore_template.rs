//! Puts the saved template back whole, under `OnDelete`.

use serde_json::Value;

use super::{
    cluster::{Cluster, Guarded, Performed},
    template,
};
use crate::{
    api::names::{Rv, Uid},
    world::{AgentKey, ObjectId},
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    agent: &AgentKey,
    seen: (&Uid, Rv),
    saved: &Value,
) -> Performed {
    let patch = template::on_delete(Guarded::new(seen.0, seen.1));
    cluster.patch(&ObjectId::Agent(agent.clone()), patch.replace(&["spec", "template"], saved.clone())).await
}
