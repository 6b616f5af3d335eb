//! Projection of a ControllerRevision; only those of DaemonSets are kept.

use serde::Deserialize;
use serde_json::Value;

use super::wire::Meta;
use crate::{
    api::names::REVISION_HASH,
    world::{Object, ObjectId, Revision, Shape, digest},
};

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    data: Value,
}

impl Wire {
    pub(super) fn object(self) -> Option<Object> {
        let owner = self.metadata.daemon_set()?;
        let revision = Revision {
            owner: Some(owner),
            hash: self.metadata.labels.get(REVISION_HASH)?.as_str().into(),
            template: digest::of_template(self.data.pointer("/spec/template")?),
        };
        let id = ObjectId::Revision(self.metadata.namespace.clone(), self.metadata.name.clone());
        Some(self.metadata.object(id, Shape::Revision(revision)))
    }
}
