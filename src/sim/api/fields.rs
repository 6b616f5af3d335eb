//! `metadata.managedFields`: who wrote which field last, and when.
//!
//! Limits: kept for writes to custom resources outside of `status` only; lists are owned whole, and only `Update`
//! entries exist, since server-side apply is refused.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::render::seconds;
use crate::sim::model::store::Manager;

const METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// One write, as its author is recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer<'a> {
    /// Field manager.
    pub(super) name: &'a str,
    /// Whether the status is written, and not everything else.
    pub(super) status: bool,
    /// When.
    pub(super) at: Timestamp,
}

/// The managers after a write that turned `old` into `new`.
pub(super) fn after(
    managers: &[Manager],
    old: Option<&Value>,
    new: &Value,
    writer: Writer<'_>,
) -> Vec<Manager> {
    let before = old.map(|old| leaves(old, writer.status)).unwrap_or_default();
    let now = leaves(new, writer.status);
    let value =
        |of: &Value, path: &[String]| path.iter().try_fold(of, |value, key| value.get(key.as_str())).cloned();
    let set: BTreeSet<Vec<String>> =
        now.iter().filter(|path| old.and_then(|old| value(old, path)) != value(new, path)).cloned().collect();
    let mut after: Vec<Manager> = managers
        .iter()
        .map(|manager| {
            let lost =
                |path: &Vec<String>| set.contains(path) || (before.contains(path) && !now.contains(path));
            let paths = manager.paths.iter().filter(|path| !lost(path)).cloned().collect();
            Manager { paths, ..manager.clone() }
        })
        .collect();
    if !set.is_empty() {
        if let Some(manager) =
            after.iter_mut().find(|of| of.name == writer.name && of.status == writer.status)
        {
            manager.paths.extend(set);
            manager.at = writer.at;
        } else {
            let Writer { name, status, at } = writer;
            after.push(Manager { name: name.to_owned(), status, at, paths: set });
        }
    }
    after.retain(|manager| !manager.paths.is_empty());
    after
}

/// Paths of everything that can be owned: scalars, lists and empty maps; of the status, its parts.
fn leaves(object: &Value, status: bool) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            key if (key == "status") != status => {}
            // A status can be large, and nobody asks who wrote which part of a part.
            "status" => {
                let parts = value.as_object().into_iter().flatten();
                found.extend(parts.map(|(part, _)| vec![key.clone(), part.clone()]));
            }
            "metadata" => {
                for part in METADATA {
                    if let Some(value) = value.get(part) {
                        descend(value, vec![key.clone(), part.to_owned()], &mut found);
                    }
                }
            }
            _ => descend(value, vec![key.clone()], &mut found),
        }
    }
    found
}

fn descend(value: &Value, path: Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                let mut path = path.clone();
                path.push(key.clone());
                descend(value, path, found);
            }
        }
        _ => {
            found.insert(path);
        }
    }
}

/// The list as it stands in metadata.
pub(super) fn render(api_version: &str, managers: &[Manager]) -> Value {
    let entry = |manager: &Manager| {
        let mut tree = Map::new();
        for path in &manager.paths {
            let mut level = &mut tree;
            for key in path {
                let below = level.entry(format!("f:{key}")).or_insert_with(|| json!({}));
                let Some(below) = below.as_object_mut() else { break };
                level = below;
            }
        }
        let mut entry = json!({
            "manager": manager.name,
            "operation": "Update",
            "apiVersion": api_version,
            "time": seconds(manager.at),
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        });
        if let (true, Some(entry)) = (manager.status, entry.as_object_mut()) {
            entry.insert("subresource".to_owned(), "status".into());
        }
        entry
    };
    managers.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(name: &str, second: i64) -> Writer<'_> {
        Writer { name, status: false, at: Timestamp::from_second(second).unwrap() }
    }

    #[test]
    fn the_last_writer_of_an_annotation_is_known_with_its_time() {
        let created = json!({ "metadata": { "name": "x" }, "spec": { "a": 1 } });
        let held =
            json!({ "metadata": { "name": "x", "annotations": { "hold": "why" } }, "spec": { "a": 1 } });
        let first = after(&[], None, &created, writer("trunkline", 1));
        let second = after(&first, Some(&created), &held, writer("kubectl-annotate", 2));
        let rendered = render("v1", &second);
        assert_eq!(rendered[0]["fieldsV1"], json!({ "f:spec": { "f:a": {} } }));
        assert_eq!(rendered[1]["manager"], "kubectl-annotate");
        assert_eq!(rendered[1]["time"], "1970-01-01T00:00:02Z");
        assert_eq!(rendered[1]["fieldsV1"], json!({ "f:metadata": { "f:annotations": { "f:hold": {} } } }));
    }

    #[test]
    fn a_field_changes_hands_and_a_removed_one_has_no_owner() {
        let one = json!({ "spec": { "a": 1, "b": 1 } });
        let two = json!({ "spec": { "a": 2 } });
        let first = after(&[], None, &one, writer("first", 1));
        let second = after(&first, Some(&one), &two, writer("second", 2));
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].name, "second");
        assert_eq!(after(&second, Some(&two), &two, writer("third", 3)), second);
    }
}
