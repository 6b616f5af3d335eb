//! Parts of the wire format that several kinds share. Unknown fields are ignored: newer objects stay readable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::names::{Rv, Uid},
    world::{Object, ObjectId, Shape},
};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) generation: i64,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) owner_references: Vec<Owner>,
    #[serde(default)]
    pub(super) finalizers: Vec<String>,
    #[serde(default)]
    pub(super) creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub(super) deletion_timestamp: Option<String>,
    #[serde(default)]
    pub(super) managed_fields: Vec<Managed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    #[serde(default)]
    pub(super) controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Managed {
    pub(super) manager: Option<String>,
    pub(super) time: Option<Timestamp>,
    pub(super) fields_v1: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Meta {
    pub(super) fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The controller, if it is a DaemonSet.
    pub(super) fn daemon_set(&self) -> Option<Uid> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller && owner.kind == "DaemonSet")
            .map(|owner| Uid::new(&owner.uid))
    }

    pub(super) fn has_label_under(&self, prefix: &str) -> bool {
        self.labels.keys().any(|label| label.starts_with(prefix))
    }

    pub(super) fn helm(&self) -> bool {
        self.annotations.contains_key("meta.helm.sh/release-name")
            || self.labels.get("app.kubernetes.io/managed-by").is_some_and(|by| by == "Helm")
    }

    pub(super) fn flux(&self) -> bool {
        self.has_label_under("kustomize.toolkit.fluxcd.io/")
            || self.has_label_under("helm.toolkit.fluxcd.io/")
    }

    pub(super) fn argo_cd(&self) -> bool {
        self.annotations.contains_key("argocd.argoproj.io/tracking-id")
            || self.labels.contains_key("argocd.argoproj.io/instance")
    }

    pub(super) fn object(&self, id: ObjectId, shape: Shape) -> Object {
        Object { id, uid: Uid::new(&self.uid), rv: Rv::parse(&self.resource_version), shape }
    }
}
