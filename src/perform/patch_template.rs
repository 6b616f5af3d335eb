//! Sets `OnDelete`, notes the strategy before, and changes the images: one patch, so that no pod is replaced between.

use std::collections::BTreeMap;

use super::{
    claim,
    cluster::{Cluster, Guarded, Performed},
    template,
};
use crate::{
    api::names::{ORIGINAL_STRATEGY, Rv, Uid},
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
    let live = cluster.read(&id).await?;
    live.expect(seen.0, seen.1)?;
    let noted: BTreeMap<String, String> = remember
        .map(|strategy| (ORIGINAL_STRATEGY.to_owned(), strategy.as_str().to_owned()))
        .into_iter()
        .collect();
    let patch = template::on_delete(Guarded::new(seen.0, seen.1));
    let patch = template::images(claim::annotate(patch, &live, &noted), images);
    cluster.patch(&id, patch).await
}
