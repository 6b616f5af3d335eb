//! OpenAPI v3 as far as `kubectl` reads it: that writes can be validated by the server, and the fields of our kinds.
//!
//! Limits: built-in kinds have no schema here, so `kubectl explain` knows our kinds only.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    custom, discovery,
    failure::Failure,
    resources::{self, Resource},
};

/// `/openapi/v3`: where the document of each group and version is.
pub(super) fn index(served: impl Fn(&Resource) -> bool) -> Value {
    let parts: BTreeSet<String> = resources::all().filter(|resource| served(resource)).map(place).collect();
    let entry = |part: String| {
        let url = json!({ "serverRelativeURL": format!("/openapi/v3/{part}") });
        (part, url)
    };
    json!({ "paths": parts.into_iter().map(entry).collect::<Map<String, Value>>() })
}

fn place(resource: &Resource) -> String {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", resource.api_version())
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/<group>/<version>`.
pub(super) fn document(
    group: &str,
    version: &str,
    served: impl Fn(&Resource) -> bool,
) -> Result<Value, Failure> {
    let of = || {
        let all = resources::all();
        all.filter(|resource| resource.group == group && resource.version == version && served(resource))
    };
    if of().next().is_none() {
        return Err(Failure::NoSuchPath);
    }
    Ok(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": discovery::VERSION },
        "paths": of().flat_map(paths).collect::<Map<String, Value>>(),
        "components": { "schemas": of().filter_map(schema).collect::<Map<String, Value>>() },
    }))
}

/// Paths of the list and of one object.
fn paths(resource: &'static Resource) -> [(String, Value); 2] {
    let within = if resource.namespaced() { "namespaces/{namespace}/" } else { "" };
    let list = format!("/{}/{within}{}", place(resource), resource.plural);
    let parameter = json!({ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } });
    let operation = |action: &str| {
        json!({
            "parameters": [parameter],
            "responses": { "200": { "description": "OK" } },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind(resource),
        })
    };
    let one = format!("{list}/{{name}}");
    [
        (list, json!({ "get": operation("list"), "post": operation("post") })),
        (one, json!({ "get": operation("get"), "put": operation("put"), "patch": operation("patch") })),
    ]
}

fn kind(resource: &Resource) -> Value {
    json!({ "group": resource.group, "version": resource.version, "kind": resource.kind })
}

fn schema(resource: &'static Resource) -> Option<(String, Value)> {
    let mut schema = serde_json::to_value(custom::schema(resource)?).ok()?;
    // Names of definitions begin with the group, its largest domain first.
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    let name = format!("{}.{}.{}", group.join("."), resource.version, resource.kind);
    schema.as_object_mut()?.insert("x-kubernetes-group-version-kind".to_owned(), json!([kind(resource)]));
    Some((name, schema))
}
