//! The patch of images and strategy, as the dry run and the real one share it.

use serde_json::json;

use super::cluster::Guarded;
use crate::{rollout::effect::ImageChange, world::Strategy};

/// Sets `OnDelete`; parameters of the rolling update stay for the way back.
pub(super) fn on_delete(patch: Guarded) -> Guarded {
    patch.add(&["spec", "updateStrategy", "type"], json!(Strategy::OnDelete.as_str()))
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
