//! Discovery: which groups, versions and resources there are.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    failure::Failure,
    resources::{self, Resource},
};

/// Version that the embedded cluster says it is.
pub(super) const VERSION: &str = "v1.33.0";

/// `/version`.
pub(super) fn version() -> Value {
    json!({ "major": "1", "minor": "33", "gitVersion": VERSION, "platform": "linux/amd64" })
}

/// `/api`.
pub(super) fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"] })
}

/// `/apis`; `served` says which resources there are now.
pub(super) fn groups(served: impl Fn(&Resource) -> bool) -> Value {
    let names: BTreeSet<(&str, &str)> = resources::all()
        .filter(|resource| !resource.group.is_empty() && served(resource))
        .map(|resource| (resource.group, resource.version))
        .collect();
    let groups: Vec<Value> = names.into_iter().map(|(name, version)| group_of(name, version)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/<group>`.
pub(super) fn group(name: &str, served: impl Fn(&Resource) -> bool) -> Result<Value, Failure> {
    let found = resources::all()
        .find(|resource| resource.group == name && !name.is_empty() && served(resource))
        .ok_or(Failure::NoSuchPath)?;
    let mut group = group_of(name, found.version);
    if let Some(group) = group.as_object_mut() {
        group.insert("kind".to_owned(), "APIGroup".into());
        group.insert("apiVersion".to_owned(), "v1".into());
    }
    Ok(group)
}

fn group_of(name: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

/// `/api/v1` or `/apis/<group>/<version>`.
pub(super) fn group_version(
    group: &str,
    version: &str,
    served: impl Fn(&Resource) -> bool,
) -> Result<Value, Failure> {
    let of: Vec<&Resource> = resources::all()
        .filter(|resource| resource.group == group && resource.version == version && served(resource))
        .collect();
    let first = of.first().ok_or(Failure::NoSuchPath)?;
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": first.api_version(),
        "resources": of.iter().flat_map(|resource| entries(resource)).collect::<Vec<Value>>(),
    }))
}

fn entries(resource: &Resource) -> Vec<Value> {
    let mut entries = vec![json!({
        "name": resource.plural,
        "singularName": resource.kind.to_lowercase(),
        "namespaced": resource.namespaced(),
        "kind": resource.kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "shortNames": resource.short,
    })];
    if resource.status {
        entries.push(json!({
            "name": format!("{}/status", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced(),
            "kind": resource.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
    entries
}
