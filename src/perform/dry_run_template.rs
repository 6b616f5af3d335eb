//! Asks the API server whether the template patch would pass, admission included.

use super::{
    cluster::{Cluster, Guarded, Performed},
    template,
};
use crate::{
    api::names::{Rv, Uid},
    rollout::effect::ImageChange,
    world::{AgentKey, ObjectId},
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    agent: &AgentKey,
    seen: (&Uid, Rv),
    images: &[ImageChange],
) -> Performed {
    let patch = template::images(template::on_delete(Guarded::new(seen.0, seen.1)), images);
    cluster.dry_run(&ObjectId::Agent(agent.clone()), patch).await
}
