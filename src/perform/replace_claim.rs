//! Replaces spec and our annotations of a custom resource.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    claim,
    cluster::{Cluster, Guarded, Performed},
};
use crate::{
    api::{
        ClaimKey,
        names::{FINALIZER, Rv, Uid},
    },
    world::ObjectId,
};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    key: &ClaimKey,
    seen: (&Uid, Rv),
    spec: &Value,
    annotations: &BTreeMap<String, String>,
    with_finalizer: bool,
) -> Performed {
    let id = ObjectId::Claim(key.clone());
    let live = cluster.read(&id).await?;
    live.expect(seen.0, seen.1)?;
    let patch = Guarded::new(seen.0, seen.1).add(&["spec"], spec.clone());
    let mut patch = claim::annotate(patch, &live, annotations);
    if with_finalizer && claim::finalizer(&live).is_none() {
        patch = if live.has("/metadata/finalizers") {
            patch.add(&["metadata", "finalizers", "-"], json!(FINALIZER))
        } else {
            patch.add(&["metadata", "finalizers"], json!([FINALIZER]))
        };
    }
    cluster.patch(&id, patch).await
}
