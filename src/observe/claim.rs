//! Projection of our custom resources, typed one by one: a bad status stops only its own object.

use std::sync::Arc;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::wire::Meta;
use crate::{
    api::{
        ClaimKey, ClaimKind,
        names::{FINALIZER, HOLD},
    },
    world::{Claim, ClaimStatus, Hold, Object, ObjectId, Shape, digest},
};

/// Prefix of the annotations that are ours.
const OURS: &str = "trunkline.dev/";

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Option<Value>,
}

impl Wire {
    pub(super) fn object(mut self, kind: ClaimKind) -> Object {
        let key = ClaimKey {
            kind,
            namespace: kind.namespaced().then(|| self.metadata.namespace.clone()),
            name: self.metadata.name.clone(),
        };
        let hold = hold(&self.metadata);
        let foreign = self.metadata.helm() || self.metadata.flux() || self.metadata.argo_cd();
        let mut annotations = std::mem::take(&mut self.metadata.annotations);
        annotations.retain(|name, _| name.starts_with(OURS));
        let claim = Claim {
            generation: self.metadata.generation,
            annotations,
            hold,
            foreign,
            finalizer: self.metadata.finalizers.iter().any(|name| name == FINALIZER),
            deleting: self.metadata.deleting(),
            digest: digest::of(&self.spec),
            spec: Arc::new(self.spec),
            status: status(kind, self.status),
        };
        self.metadata.object(ObjectId::Claim(key), Shape::Claim(claim))
    }
}

fn status(kind: ClaimKind, value: Option<Value>) -> ClaimStatus {
    let Some(value) = value else { return ClaimStatus::None };
    match kind {
        ClaimKind::CniUpgrade => typed(value, ClaimStatus::Cni),
        ClaimKind::ServiceUpgrade => typed(value, ClaimStatus::Service),
    }
}

fn typed<T: DeserializeOwned>(value: Value, wrap: impl FnOnce(Box<T>) -> ClaimStatus) -> ClaimStatus {
    match serde_json::from_value(value) {
        Ok(status) => wrap(Box::new(status)),
        Err(error) => ClaimStatus::Unreadable(error.to_string()),
    }
}

/// The brake, with who set it and when as `managedFields` tell.
fn hold(meta: &Meta) -> Option<Hold> {
    let reason = meta.annotations.get(HOLD)?.clone();
    let writer = meta.managed_fields.iter().find(|entry| {
        let annotations = entry.fields_v1.pointer("/f:metadata/f:annotations");
        annotations.is_some_and(|fields| fields.get(format!("f:{HOLD}")).is_some())
    });
    Some(Hold {
        reason,
        by: writer.and_then(|entry| entry.manager.clone()),
        since: writer.and_then(|entry| entry.time),
    })
}
