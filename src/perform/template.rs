//! Parts of the patches of an agent's DaemonSet, as the dry run and the real ones share them.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    claim,
    cluster::{Cluster, Failure, Guarded},
};
use crate::{
    api::names::{ORIGINAL_STRATEGY, Rv, Uid},
    rollout::effect::ImageChange,
    world::{ObjectId, Strategy},
};

/// Sets `OnDelete`; parameters of the rolling update stay for the way back.
pub(super) fn on_delete(patch: Guarded) -> Guarded {
    patch.add(&["spec", "updateStrategy", "type"], json!(Strategy::OnDelete.as_str()))
}

/// Sets `OnDelete` and notes the strategy before, where it is not noted yet.
pub(super) async fn hold(
    cluster: &Cluster<'_>,
    id: &ObjectId,
    seen: (&Uid, Rv),
    remember: Option<Strategy>,
) -> Result<Guarded, Failure> {
    let patch = on_delete(Guarded::new(seen.0, seen.1));
    let Some(strategy) = remember else { return Ok(patch) };
    let live = cluster.read(id).await?;
    live.expect(seen.0, seen.1)?;
    let noted = BTreeMap::from([(ORIGINAL_STRATEGY.to_owned(), strategy.as_str().to_owned())]);
    Ok(claim::annotate(patch, &live, &noted))
}

/// Changes image fields whose container and image are still as decided on.
pub(super) fn images(patch: Guarded, images: &[ImageChange]) -> Guarded {
    images.iter().fold(patch, |patch, change| {
        let list = if change.init { "initContainers" } else { "containers" };
        let index = change.index.to_string();
        let field = |name| ["spec", "template", "spec", list, index.as_str(), name];
        patch
            .test(&field("name"), json!(change.container))
            .test(&field("image"), json!(change.from))
            .replace(&field("image"), json!(change.to))
    })
}
