//! Creates a custom resource with our finalizer and annotations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    claim,
    cluster::{Cluster, Performed},
};
use crate::{api::ClaimKey, world::ObjectId};

pub(super) async fn perform(
    cluster: &Cluster<'_>,
    key: &ClaimKey,
    spec: &Value,
    annotations: &BTreeMap<String, String>,
) -> Performed {
    cluster.create(&ObjectId::Claim(key.clone()), &claim::body(key, spec, annotations)).await
}
