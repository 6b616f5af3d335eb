//! Bodies and annotations of our custom resources.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::{Guarded, Live};
use crate::api::{ClaimKey, names::FINALIZER};

/// A custom resource as it is created.
pub(super) fn body(claim: &ClaimKey, spec: &Value, annotations: &BTreeMap<String, String>) -> Value {
    let mut metadata = json!({ "name": claim.name, "annotations": annotations, "finalizers": [FINALIZER] });
    if let (Some(map), Some(namespace)) = (metadata.as_object_mut(), &claim.namespace) {
        map.insert("namespace".to_owned(), json!(namespace));
    }
    json!({
        "apiVersion": claim.kind.api_version(), "kind": claim.kind.kind(), "metadata": metadata, "spec": spec,
    })
}

/// Adds annotations to a patch; those that are there already and not named stay.
pub(super) fn annotate(patch: Guarded, live: &Live, annotations: &BTreeMap<String, String>) -> Guarded {
    if annotations.is_empty() {
        return patch;
    }
    if !live.has("/metadata/annotations") {
        return patch.add(&["metadata", "annotations"], json!(annotations));
    }
    annotations
        .iter()
        .fold(patch, |patch, (name, value)| patch.add(&["metadata", "annotations", name], json!(value)))
}

/// Position of our finalizer.
pub(super) fn finalizer(live: &Live) -> Option<usize> {
    let finalizers = live.value.pointer("/metadata/finalizers")?.as_array()?;
    finalizers.iter().position(|name| name == FINALIZER)
}
