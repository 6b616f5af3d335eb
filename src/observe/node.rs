//! Projection of a Node.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::wire::{Condition, Meta};
use crate::{
    api::{names::NodeName, status::Truth},
    world::{Labels, Node, Object, ObjectId, Shape},
};

/// Taints of nodes that are going away by themselves.
const LEAVING: [&str; 5] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Taint {
    key: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

impl Wire {
    pub(super) fn object(mut self) -> Object {
        let condition = |r#type: &str| self.status.conditions.iter().find(|c| c.r#type == r#type);
        let ready = condition("Ready");
        let truth = match ready.map(|c| c.status.as_str()) {
            Some("True") => Truth::True,
            Some("False") => Truth::False,
            Some(_) | None => Truth::Unknown,
        };
        let network = |text: &str| {
            text.contains("NetworkPluginNotReady")
                || text.contains("NetworkReady=false")
                || text.contains("network plugin")
        };
        let node = Node {
            labels: Labels::new(Arc::new(std::mem::take(&mut self.metadata.labels))),
            created: self.metadata.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            ready: truth,
            network_unavailable: condition("NetworkUnavailable").is_some_and(|c| c.status == "True"),
            network_not_ready: truth != Truth::True
                && ready.is_some_and(|c| network(&c.reason) || network(&c.message)),
            cordoned: self.spec.unschedulable,
            leaving: self.metadata.deleting()
                || self.spec.taints.iter().any(|taint| LEAVING.contains(&taint.key.as_str())),
        };
        self.metadata.object(ObjectId::Node(NodeName::new(&self.metadata.name)), Shape::Node(node))
    }
}
