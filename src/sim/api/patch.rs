//! Patches: JSON patch, JSON merge patch, and the part of strategic merge patch that `kubectl` sends.
//!
//! Limits: of strategic merge, lists of maps merge by the keys in [`MERGE_KEYS`], `$patch: delete` and
//! `$patch: replace` are obeyed, and order directives are dropped; server-side apply is refused.

use serde_json::{Map, Value};

use super::failure::Failure;

/// The formats of a patch body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own; not for custom resources.
    Strategic,
}

const FOR_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json";

/// Lists that strategic merge joins item by item, with the field that identifies an item.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("conditions", "type"),
    ("ownerReferences", "uid"),
];

impl Format {
    /// Reads a `Content-Type`.
    pub(super) fn of(content_type: &str, custom: bool) -> Result<Self, Failure> {
        match content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            _ if custom => Err(Failure::UnsupportedMediaType { accepted: FOR_CUSTOM }),
            _ => Err(Failure::UnsupportedPatch),
        }
    }
}

/// The object after the patch.
pub(super) fn apply(format: Format, object: &Value, body: &[u8]) -> Result<Value, Failure> {
    let unreadable = |error: serde_json::Error| Failure::BadRequest(format!("error decoding patch: {error}"));
    let mut patched = object.clone();
    match format {
        Format::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(unreadable)?;
            json_patch::patch(&mut patched, &patch).map_err(|_| Failure::PatchRejected)?;
        }
        Format::Merge => {
            let patch: Map<String, Value> = serde_json::from_slice(body).map_err(unreadable)?;
            json_patch::merge(&mut patched, &Value::Object(patch));
        }
        Format::Strategic => {
            let patch: Map<String, Value> = serde_json::from_slice(body).map_err(unreadable)?;
            merge_map(&mut patched, &patch);
        }
    }
    Ok(patched)
}

fn merge_map(into: &mut Value, patch: &Map<String, Value>) {
    if patch.get("$patch").is_some_and(|directive| directive == "replace") || !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Some(map) = into.as_object_mut() else { return };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            remove_items(map.get_mut(list), value);
        } else if key.starts_with('$') {
            // `$setElementOrder/...`, `$retainKeys` and `$patch` itself are no fields.
        } else if value.is_null() {
            map.remove(key);
        } else {
            merge_value(map.entry(key.clone()).or_insert(Value::Null), key, value);
        }
    }
}

fn merge_value(into: &mut Value, key: &str, patch: &Value) {
    let merge_key = MERGE_KEYS.iter().find(|(list, _)| *list == key).map(|(_, by)| *by);
    match (patch, merge_key) {
        (Value::Object(patch), _) => merge_map(into, patch),
        (Value::Array(items), Some(by)) => merge_list(into, by, items),
        (Value::Array(items), None) if key == "finalizers" => add_items(into, items),
        _ => *into = patch.clone(),
    }
}

fn merge_list(into: &mut Value, by: &str, items: &[Value]) {
    if !into.is_array() {
        *into = Value::Array(Vec::new());
    }
    let Some(list) = into.as_array_mut() else { return };
    for item in items.iter().filter_map(Value::as_object) {
        let id = item.get(by);
        let place = list.iter().position(|old| old.get(by) == id);
        if item.get("$patch").is_some_and(|directive| directive == "delete") {
            list.retain(|old| old.get(by) != id);
        } else if let Some(old) = place.and_then(|place| list.get_mut(place)) {
            merge_map(old, item);
        } else {
            let mut new = Value::Null;
            merge_map(&mut new, item);
            list.push(new);
        }
    }
}

fn add_items(into: &mut Value, items: &[Value]) {
    if !into.is_array() {
        *into = Value::Array(Vec::new());
    }
    let Some(list) = into.as_array_mut() else { return };
    for item in items {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn remove_items(list: Option<&mut Value>, items: &Value) {
    if let (Some(list), Some(items)) = (list.and_then(Value::as_array_mut), items.as_array()) {
        list.retain(|item| !items.contains(item));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(format: Format, object: &Value, patch: &Value) -> Result<Value, Failure> {
        apply(format, object, patch.to_string().as_bytes())
    }

    #[test]
    fn a_json_patch_whose_test_fails_is_rejected_whole() {
        let object = json!({ "a": 1, "b": 2 });
        let patch = json!([
            { "op": "replace", "path": "/b", "value": 3 },
            { "op": "test", "path": "/a", "value": 2 },
        ]);
        assert_eq!(patched(Format::Json, &object, &patch), Err(Failure::PatchRejected));
    }

    #[test]
    fn a_body_that_is_no_patch_is_a_bad_request() {
        for (format, body) in [(Format::Json, "{}"), (Format::Merge, "[]"), (Format::Strategic, "{")] {
            assert!(matches!(apply(format, &json!({}), body.as_bytes()), Err(Failure::BadRequest(_))));
        }
    }

    #[test]
    fn a_strategic_merge_changes_one_container_by_name() {
        let object = json!({ "spec": { "containers": [
            { "name": "a", "image": "a:1", "args": ["x"] }, { "name": "b", "image": "b:1" },
        ] } });
        let patch = json!({ "spec": {
            "$setElementOrder/containers": [{ "name": "a" }, { "name": "b" }],
            "containers": [{ "name": "a", "image": "a:2", "args": null }],
        } });
        assert_eq!(
            patched(Format::Strategic, &object, &patch).unwrap(),
            json!({ "spec": { "containers": [
                { "name": "a", "image": "a:2" }, { "name": "b", "image": "b:1" },
            ] } })
        );
    }

    #[test]
    fn a_strategic_merge_takes_a_finalizer_off() {
        let object = json!({ "metadata": { "finalizers": ["a", "b"] } });
        let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } });
        assert_eq!(
            patched(Format::Strategic, &object, &patch).unwrap(),
            json!({ "metadata": { "finalizers": ["b"] } })
        );
    }

    #[test]
    fn a_custom_resource_takes_no_strategic_merge() {
        let strategic = "application/strategic-merge-patch+json";
        assert_eq!(Format::of(strategic, false), Ok(Format::Strategic));
        assert!(matches!(Format::of(strategic, true), Err(Failure::UnsupportedMediaType { .. })));
        assert!(matches!(
            Format::of("application/apply-patch+yaml", true),
            Err(Failure::UnsupportedMediaType { .. })
        ));
        assert_eq!(Format::of("application/merge-patch+json; charset=utf-8", true), Ok(Format::Merge));
    }
}
