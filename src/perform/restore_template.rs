//! Puts the saved template back whole, under `OnDelete`, and notes the strategy before.

use serde_json::Value;

use super::{
    cluster::{Cluster, Performed},
    template,
};
use crate::{
    api::names::{Rv, Uid},
    world::{AgentKey, ObjectId, Strategy},
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    agent: &AgentKey,
    seen: (&Uid, Rv),
    remember: Option<Strategy>,
    saved: &Value,
) -> Performed {
    let id = ObjectId::Agent(agent.clone());
    let patch = template::hold(cluster, &id, seen, remember).await?;
    cluster.patch(&id, patch.replace(&["spec", "template"], saved.clone())).await
}
