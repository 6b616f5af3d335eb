//! Records one Event about a custom resource.

use serde_json::json;

use super::cluster::{Cluster, Performed};
use crate::{
    api::{
        ClaimKey,
        names::{FIELD_MANAGER, Uid},
    },
    rollout::effect::Event,
};

/// Where Events about objects without a namespace are.
const DEFAULT: &str = "default";

pub(super) async fn perform(cluster: &Cluster<'_>, claim: &ClaimKey, uid: &Uid, event: &Event) -> Performed {
    let namespace = claim.namespace.as_deref().unwrap_or(DEFAULT);
    let mut involved = json!({
        "apiVersion": claim.kind.api_version(), "kind": claim.kind.kind(), "name": claim.name, "uid": uid,
    });
    if let (Some(involved), Some(namespace)) = (involved.as_object_mut(), &claim.namespace) {
        involved.insert("namespace".to_owned(), json!(namespace));
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": event.name, "namespace": namespace },
        "involvedObject": involved,
        "reason": event.reason,
        "message": event.message,
        "type": if event.warning { "Warning" } else { "Normal" },
        "source": { "component": FIELD_MANAGER },
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": event.at,
        "lastTimestamp": event.at,
        "count": 1,
    });
    cluster.record(namespace, &body).await
}
