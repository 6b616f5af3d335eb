//! Our ConfigMaps: created when they were not there, replaced at the version that was seen.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cluster::{Cluster, Failure, Performed};
use crate::{
    api::names::{MANAGED_BY, Rv, STORE, Uid},
    rollout::effect::RejectionKind,
    world::ObjectId,
};

/// What goes into a store.
pub(super) struct Content<'a, T> {
    pub(super) name: &'a str,
    /// Value of the label `STORE`.
    pub(super) store: &'a str,
    pub(super) annotations: Map<String, Value>,
    /// Key in the ConfigMap.
    pub(super) key: &'a str,
    pub(super) is: &'a T,
}

pub(super) async fn write<T: Serialize>(
    cluster: &Cluster<'_>,
    seen: Option<&(Uid, Rv)>,
    content: Content<'_, T>,
) -> Performed {
    let text = serde_json::to_string(content.is)
        .map_err(|error| Failure::no(RejectionKind::Invalid, &error.to_string()))?;
    let mut metadata = json!({
        "name": content.name,
        "namespace": cluster.namespace,
        "labels": { MANAGED_BY: "trunkline", STORE: content.store },
        "annotations": content.annotations,
    });
    if let (Some(map), Some((uid, rv))) = (metadata.as_object_mut(), seen) {
        map.insert("uid".to_owned(), json!(uid));
        map.insert("resourceVersion".to_owned(), json!(rv.to_string()));
    }
    let mut data = Map::new();
    data.insert(content.key.to_owned(), Value::String(text));
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
    let id = ObjectId::Store(cluster.namespace.to_owned(), content.name.to_owned());
    match seen {
        None => cluster.create(&id, &body).await,
        Some(_) => cluster.replace(&id, &body).await,
    }
}
