//! Stored objects as the JSON that an API server sends.
//!
//! Guarantees: pod templates are the bytes that were written; fields whose value is zero and which Kubernetes marks
//! `omitempty` are absent.

use serde_json::{Map, Value, json};

use super::{fields, resources::Resource};
use crate::{
    api::status::Truth,
    sim::model::{
        body::{Body, Cond, Container, ContainerState, DaemonSetBody, NodeBody, PodBody, RevisionBody},
        store::{Owner, Stored},
    },
};

/// A whole object.
pub(super) fn object(resource: &Resource, stored: &Stored) -> Value {
    let mut whole = Map::new();
    whole.insert("apiVersion".to_owned(), resource.api_version().into());
    whole.insert("kind".to_owned(), resource.kind.into());
    whole.insert("metadata".to_owned(), metadata(resource, stored));
    match &stored.body {
        Body::Node(node) => put_parts(&mut whole, node_spec(node), node_status(stored, node)),
        Body::Pod(pod) => put_parts(&mut whole, pod_spec(pod), pod_status(stored, pod)),
        Body::DaemonSet(set) => put_parts(&mut whole, daemon_set_spec(set), daemon_set_status(set)),
        Body::Revision(revision) => {
            whole.insert("data".to_owned(), revision_data(revision));
            whole.insert("revision".to_owned(), revision.revision.into());
        }
        Body::Plain(plain) => {
            whole.extend(plain.content.as_object().cloned().unwrap_or_default());
            if let Some(status) = &plain.status {
                whole.insert("status".to_owned(), Value::clone(status));
            }
        }
    }
    Value::Object(whole)
}

fn put_parts(whole: &mut Map<String, Value>, spec: Value, status: Value) {
    whole.insert("spec".to_owned(), spec);
    whole.insert("status".to_owned(), status);
}

fn metadata(resource: &Resource, stored: &Stored) -> Value {
    let meta = &stored.meta;
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("name", (*stored.at.name).into());
    if !stored.at.namespace.is_empty() {
        put("namespace", (*stored.at.namespace).into());
    }
    put("uid", stored.uid.as_str().into());
    if stored.rv > 0 {
        put("resourceVersion", stored.rv.to_string().into());
    }
    put("creationTimestamp", seconds(stored.created));
    if stored.generation > 0 {
        put("generation", stored.generation.into());
    }
    if let Some(deleting) = stored.deleting {
        put("deletionTimestamp", seconds(deleting.at));
        put("deletionGracePeriodSeconds", deleting.grace.into());
    }
    if !meta.labels.is_empty() {
        put("labels", json!(*meta.labels));
    }
    if !meta.annotations.is_empty() {
        put("annotations", json!(*meta.annotations));
    }
    if !meta.finalizers.is_empty() {
        put("finalizers", json!(meta.finalizers));
    }
    if !meta.owners.is_empty() {
        put("ownerReferences", meta.owners.iter().map(owner).collect());
    }
    if !meta.managers.is_empty() {
        put("managedFields", fields::render(&resource.api_version(), &meta.managers));
    }
    Value::Object(map)
}

fn owner(owner: &Owner) -> Value {
    let mut map = json!({
        "apiVersion": *owner.api_version,
        "kind": *owner.kind,
        "name": *owner.name,
        "uid": owner.uid,
    });
    if owner.controller
        && let Some(map) = map.as_object_mut()
    {
        map.insert("controller".to_owned(), true.into());
        map.insert("blockOwnerDeletion".to_owned(), true.into());
    }
    map
}

/// Kubernetes keeps whole seconds in most timestamps.
pub(super) fn seconds(at: jiff::Timestamp) -> Value {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

fn condition(kind: &str, cond: &Cond) -> Value {
    let status = match cond.status {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    };
    let mut map = json!({ "type": kind, "status": status, "lastTransitionTime": seconds(cond.since) });
    if let Some(map) = map.as_object_mut() {
        for (key, text) in [("reason", &cond.reason), ("message", &cond.message)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), (**text).into());
            }
        }
    }
    map
}

fn node_spec(node: &NodeBody) -> Value {
    let mut spec = Map::new();
    if node.unschedulable {
        spec.insert("unschedulable".to_owned(), true.into());
    }
    if !node.taints.is_empty() {
        let taint = |key: &str, value: &str, effect: &str| {
            if value.is_empty() {
                json!({ "key": key, "effect": effect })
            } else {
                json!({ "key": key, "value": value, "effect": effect })
            }
        };
        let taints = node.taints.iter().map(|of| taint(&of.key, &of.value, &of.effect)).collect();
        spec.insert("taints".to_owned(), taints);
    }
    Value::Object(spec)
}

fn node_status(stored: &Stored, node: &NodeBody) -> Value {
    let mut conditions = vec![condition("Ready", &node.ready)];
    conditions.extend(node.network_unavailable.as_ref().map(|cond| condition("NetworkUnavailable", cond)));
    json!({
        "conditions": conditions,
        "addresses": [{ "type": "Hostname", "address": *stored.at.name }],
        "nodeInfo": { "operatingSystem": "linux", "kubeletVersion": super::discovery::VERSION },
    })
}

fn pod_spec(pod: &PodBody) -> Value {
    let mut spec = pod.template.raw.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(node) = &pod.node {
        spec.insert("nodeName".to_owned(), (**node).into());
    }
    if let Some(node) = &pod.wanted_node {
        let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
        if let Some(affinity) = affinity.as_object_mut() {
            affinity.insert("nodeAffinity".to_owned(), pinned_to(node));
        }
    }
    Value::Object(spec)
}

/// The affinity by which the DaemonSet controller pins a pod to its node.
fn pinned_to(node: &str) -> Value {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchFields": [field] }],
    } })
}

fn pod_status(stored: &Stored, pod: &PodBody) -> Value {
    let scheduled = Cond {
        status: if pod.node.is_some() { Truth::True } else { Truth::False },
        reason: if pod.node.is_some() { "" } else { "Unschedulable" }.into(),
        message: "".into(),
        since: stored.created,
    };
    let mut status = json!({
        "phase": pod.phase.as_str(),
        "conditions": [
            condition("Initialized", &pod.initialized),
            condition("Ready", &pod.ready),
            condition("ContainersReady", &containers_ready(pod)),
            condition("PodScheduled", &scheduled),
        ],
        "qosClass": "BestEffort",
    });
    if pod.node.is_none() {
        return status;
    }
    if let Some(status) = status.as_object_mut() {
        status.insert("startTime".to_owned(), seconds(stored.created));
        for (key, init) in [("initContainerStatuses", true), ("containerStatuses", false)] {
            let statuses: Vec<Value> =
                pod.containers.iter().filter(|of| of.init == init).map(container_status).collect();
            if !statuses.is_empty() {
                status.insert(key.to_owned(), statuses.into());
            }
        }
    }
    status
}

/// Unlike `Ready`, it follows the containers alone and stays when the node is lost.
fn containers_ready(pod: &PodBody) -> Cond {
    let all = pod.containers.iter().filter(|container| !container.init).all(|container| container.ready);
    Cond {
        status: if all { Truth::True } else { Truth::False },
        reason: if all { "" } else { "ContainersNotReady" }.into(),
        message: "".into(),
        since: pod.ready.since,
    }
}

fn container_status(container: &Container) -> Value {
    let mut waits = false;
    let state = match &container.state {
        ContainerState::Waiting { reason, message } => {
            waits = true;
            if message.is_empty() {
                json!({ "waiting": { "reason": **reason } })
            } else {
                json!({ "waiting": { "reason": **reason, "message": **message } })
            }
        }
        ContainerState::Running { since } => json!({ "running": { "startedAt": seconds(*since) } }),
        ContainerState::Terminated { code, at } => json!({ "terminated": {
            "exitCode": code,
            "reason": if *code == 0 { "Completed" } else { "Error" },
            "finishedAt": seconds(*at),
        } }),
    };
    let pulled = !waits || container.restarts > 0;
    json!({
        "name": *container.name,
        "image": *container.image,
        "imageID": if pulled { format!("sim://{}", container.image) } else { String::new() },
        "ready": container.ready,
        "restartCount": container.restarts,
        "started": matches!(container.state, ContainerState::Running { .. }),
        "state": state,
        "lastState": {},
    })
}

fn daemon_set_spec(set: &DaemonSetBody) -> Value {
    let mut strategy = json!({ "type": set.strategy.as_str() });
    if let (Some(rolling), Some(strategy)) = (&set.rolling_update, strategy.as_object_mut()) {
        strategy.insert("rollingUpdate".to_owned(), Value::clone(rolling));
    }
    let mut spec = json!({
        "selector": { "matchLabels": *set.selector },
        "template": *set.template.raw,
        "updateStrategy": strategy,
        "revisionHistoryLimit": set.revision_history_limit,
    });
    if let (1.., Some(spec)) = (set.min_ready_seconds, spec.as_object_mut()) {
        spec.insert("minReadySeconds".to_owned(), set.min_ready_seconds.into());
    }
    spec
}

fn daemon_set_status(set: &DaemonSetBody) -> Value {
    let of = &set.status;
    let mut status = json!({
        "currentNumberScheduled": of.current,
        "desiredNumberScheduled": of.desired,
        "numberMisscheduled": of.misscheduled,
        "numberReady": of.ready,
    });
    let unavailable = i64::from(of.desired.saturating_sub(of.available));
    let optional = [
        ("observedGeneration", of.observed_generation),
        ("updatedNumberScheduled", i64::from(of.updated)),
        ("numberAvailable", i64::from(of.available)),
        ("numberUnavailable", unavailable),
    ];
    if let Some(status) = status.as_object_mut() {
        status
            .extend(optional.iter().filter(|(_, n)| *n > 0).map(|(key, n)| ((*key).to_owned(), (*n).into())));
    }
    status
}

fn revision_data(revision: &RevisionBody) -> Value {
    let mut template = Value::clone(&revision.template);
    if let Some(template) = template.as_object_mut() {
        template.insert("$patch".to_owned(), "replace".into());
    }
    json!({ "spec": { "template": template } })
}
