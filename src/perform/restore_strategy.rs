//! Gives the update strategy back and removes our note of it.

use serde_json::json;

use super::cluster::{Cluster, Guarded, Performed};
use crate::{
    api::names::{ORIGINAL_STRATEGY, Rv, Uid},
    world::{AgentKey, ObjectId, Strategy},
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    agent: &AgentKey,
    seen: (&Uid, Rv),
    strategy: Strategy,
) -> Performed {
    let id = ObjectId::Agent(agent.clone());
    let live = cluster.read(&id).await?;
    live.expect(seen.0, seen.1)?;
    let mut patch =
        Guarded::new(seen.0, seen.1).add(&["spec", "updateStrategy", "type"], json!(strategy.as_str()));
    let noted = live.value.pointer("/metadata/annotations").and_then(|all| all.get(ORIGINAL_STRATEGY));
    if noted.is_some() {
        patch = patch.remove(&["metadata", "annotations", ORIGINAL_STRATEGY]);
    }
    cluster.patch(&id, patch).await
}
