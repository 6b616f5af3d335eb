//! Sets `OnDelete`, notes the strategy before, and changes the images: one patch, so that no pod is replaced between.

use super::{
    cluster::{Cluster, Performed},
    template,
};
use crate::{
    api::names::{Rv, Uid},
    rollout::effect::ImageChange,
    world::{AgentKey, ObjectId, Strategy},
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    agent: &AgentKey,
    seen: (&Uid, Rv),
    remember: Option<Strategy>,
    images: &[ImageChange],
) -> Performed {
    let id = ObjectId::Agent(agent.clone());
    let patch = template::hold(cluster, &id, seen, remember).await?;
    cluster.patch(&id, template::images(patch, images)).await
}
