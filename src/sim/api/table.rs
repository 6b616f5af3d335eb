//! Objects as the `Table` that `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{custom, render, resources::Resource};
use crate::{
    api::status::Truth,
    sim::model::{body::Body, store::Stored},
};

/// Objects as one table.
pub(super) fn render(resource: &Resource, items: &[&Stored], metadata: &Value, now: Timestamp) -> Value {
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let object = render::object(resource, item);
            let meta = object.get("metadata").cloned().unwrap_or_default();
            json!({
                "cells": cells(resource, item, &object, now),
                "object": { "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta },
            })
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns(resource),
        "rows": rows,
    })
}

fn columns(resource: &Resource) -> Vec<Value> {
    let column = |name: &str, kind: &str, priority: i32| {
        let format = if name == "Name" { "name" } else { "" };
        json!({ "name": name, "type": kind, "format": format, "description": "", "priority": priority })
    };
    let mut columns = vec![column("Name", "string", 0)];
    if resource.custom {
        columns.extend(
            custom::columns(resource).iter().map(|of| column(&of.name, &of.type_, of.priority.unwrap_or(0))),
        );
        return columns;
    }
    let own: &[&str] = match resource.kind {
        "Node" => &["Status"],
        "Pod" => &["Ready", "Status", "Restarts", "Node"],
        "DaemonSet" => &["Desired", "Current", "Ready", "Up-to-date", "Available", "Strategy"],
        "ControllerRevision" => &["Controller", "Revision"],
        _ => &[],
    };
    columns.extend(own.iter().map(|name| column(name, "string", 0)));
    columns.push(column("Age", "string", 0));
    columns
}

fn cells(resource: &Resource, stored: &Stored, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells: Vec<Value> = vec![(*stored.at.name).into()];
    if resource.custom {
        cells.extend(custom::columns(resource).iter().map(|column| {
            let value = at_path(object, &column.json_path).cloned().unwrap_or_default();
            match (column.type_.as_str(), value.as_str().and_then(|text| text.parse().ok())) {
                ("date", Some(then)) => age(then, now).into(),
                _ => value,
            }
        }));
        return cells;
    }
    match &stored.body {
        Body::Node(node) => {
            let ready = if node.ready.status == Truth::True { "Ready" } else { "NotReady" };
            let cordon = if node.unschedulable { ",SchedulingDisabled" } else { "" };
            cells.push(format!("{ready}{cordon}").into());
        }
        Body::Pod(pod) => {
            let running = pod.containers.iter().filter(|container| !container.init);
            let ready = running.clone().filter(|container| container.ready).count();
            let status = if stored.deleting.is_some() { "Terminating" } else { waits_for(object) };
            let restarts: u32 = pod.containers.iter().map(|container| container.restarts).sum();
            cells.push(format!("{ready}/{}", running.count()).into());
            cells.push(if status.is_empty() { pod.phase.as_str() } else { status }.into());
            cells.push(restarts.to_string().into());
            cells.push(pod.node.as_deref().unwrap_or("<none>").into());
        }
        Body::DaemonSet(set) => {
            let of = &set.status;
            let counts = [of.desired, of.current, of.ready, of.updated, of.available];
            cells.extend(counts.map(|count| count.to_string().into()));
            cells.push(set.strategy.as_str().into());
        }
        Body::Revision(revision) => {
            let owner = stored.controller().map(|owner| format!("{}/{}", owner.kind, owner.name));
            cells.push(owner.unwrap_or_default().into());
            cells.push(revision.revision.to_string().into());
        }
        Body::Plain(_) => {}
    }
    cells.push(age(stored.created, now).into());
    cells
}

/// The first reason for which a container of a pod waits.
fn waits_for(pod: &Value) -> &str {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|list| pod.get("status")?.get(list)?.as_array())
        .flatten()
        .find_map(|status| status.pointer("/state/waiting/reason")?.as_str())
        .unwrap_or("")
}

/// A duration as people read it.
fn age(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs() {
        seconds @ ..120 => format!("{}s", seconds.max(0)),
        seconds @ ..7_200 => format!("{}m", seconds / 60),
        seconds @ ..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The value at a printer column's path: keys, `\.` for a dot in a key, and `[?(@.key=="value")]`.
fn at_path<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (test, after) = filter.split_once(")]")?;
            let (key, wanted) = test.split_once("==")?;
            let wanted = wanted.trim_matches('"');
            value = value.as_array()?.iter().find(|item| item.get(key).is_some_and(|is| is == wanted))?;
            rest = after;
        } else {
            let (key, after) = next_key(rest.strip_prefix('.')?);
            value = value.get(&key)?;
            rest = after;
        }
    }
    Some(value)
}

fn next_key(path: &str) -> (String, &str) {
    let mut key = String::new();
    let mut escaped = false;
    for (at, letter) in path.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (key, path.get(at..).unwrap_or("")),
            _ => {
                key.push(letter);
                escaped = false;
            }
        }
    }
    (key, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printer_column_finds_a_condition_and_an_annotation() {
        let object = json!({
            "metadata": { "annotations": { "trunkline.dev/revision": "main" } },
            "status": { "conditions": [{ "type": "A", "status": "x" }, { "type": "Ready", "status": "True" }] },
        });
        let found = |path| at_path(&object, path).and_then(Value::as_str);
        assert_eq!(found(r#".status.conditions[?(@.type=="Ready")].status"#), Some("True"));
        assert_eq!(found(r".metadata.annotations.trunkline\.dev/revision"), Some("main"));
        assert_eq!(found(r#".status.conditions[?(@.type=="Gone")].status"#), None);
    }

    #[test]
    fn an_age_has_one_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |seconds: i64| age(Timestamp::from_second(1_000_000 - seconds).unwrap(), now);
        assert_eq!([ago(-5), ago(119), ago(120), ago(7_200), ago(172_800)], ["0s", "119s", "2m", "2h", "2d"]);
    }
}
