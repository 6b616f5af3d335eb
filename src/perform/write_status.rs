//! Replaces the status of a custom resource through its status subresource.

use serde_json::json;

use super::cluster::{Cluster, Performed};
use crate::{rollout::effect::StatusWrite, world::ObjectId};

pub(super) async fn perform(cluster: &Cluster<'_>, write: &StatusWrite) -> Performed {
    let claim = &write.claim;
    let mut body = json!({
        "apiVersion": claim.kind.api_version(),
        "kind": claim.kind.kind(),
        "metadata": { "name": claim.name, "uid": write.uid, "resourceVersion": write.rv.to_string() },
        "status": &*write.status,
    });
    if let (Some(metadata), Some(namespace)) =
        (body.get_mut("metadata").and_then(serde_json::Value::as_object_mut), &claim.namespace)
    {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    cluster.replace_status(&ObjectId::Claim(claim.clone()), &body).await
}
