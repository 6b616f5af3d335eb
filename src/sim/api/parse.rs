//! JSON bodies as objects to store.
//!
//! Limits: of Nodes, Pods and DaemonSets only the fields that the world machine knows are kept; a Pod's spec does not
//! change after its creation.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    failure::{Cause, Failure},
    resources::Resource,
};
use crate::{
    api::{names::Uid, status::Truth},
    sim::model::{
        body::{
            Body, Cond, Container, ContainerState, DaemonSetBody, DaemonSetStatus, NodeBody, Plain, PodBody,
            PodPhase, RevisionBody, Taint,
        },
        store::{Kind, Meta, Owner},
    },
    world::{Strategy, Template, digest},
};

/// What a body says of its metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetaWire {
    /// Name; empty = none.
    pub(super) name: String,
    /// Namespace; empty = that of the path.
    pub(super) namespace: String,
    /// Start of a name that the server completes.
    pub(super) generate_name: String,
    /// UID that a replaced object must have.
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: String,
    /// Version that a replaced object must have; empty = any.
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: String,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    finalizers: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    owner_references: Vec<OwnerWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerWire {
    api_version: String,
    kind: String,
    name: String,
    uid: Uid,
    #[serde(default)]
    controller: bool,
}

/// A `null` is an absent field, as in Go.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(wire: D) -> Result<T, D::Error> {
    Option::deserialize(wire).map(Option::unwrap_or_default)
}

impl MetaWire {
    /// The part of it that writers set.
    pub(super) fn into_meta(self) -> Meta {
        let owner = |wire: OwnerWire| Owner {
            api_version: wire.api_version.into(),
            kind: wire.kind.into(),
            name: wire.name.into(),
            uid: wire.uid,
            controller: wire.controller,
        };
        Meta {
            labels: Arc::new(self.labels),
            annotations: Arc::new(self.annotations),
            finalizers: self.finalizers,
            owners: self.owner_references.into_iter().map(owner).collect(),
            ..Meta::default()
        }
    }
}

/// Metadata of an object.
pub(super) fn metadata(resource: &Resource, object: &Value) -> Result<MetaWire, Failure> {
    part(resource, object, "metadata")
}

fn part<T: DeserializeOwned + Default>(resource: &Resource, object: &Value, key: &str) -> Result<T, Failure> {
    let Some(value) = object.get(key).filter(|value| !value.is_null()) else { return Ok(T::default()) };
    T::deserialize(value).map_err(|error| {
        Failure::BadRequest(format!(
            "{} in version \"{}\" cannot be handled: {key}: {error}",
            resource.kind,
            { resource.version }
        ))
    })
}

/// Everything of an object but its metadata. `old` is what it replaces, `now` the time of new conditions.
pub(super) fn body(
    resource: &'static Resource,
    name: &str,
    object: &Value,
    old: Option<&Body>,
    now: Timestamp,
) -> Result<Body, Failure> {
    match resource.stored {
        Kind::Node => {
            Ok(Body::Node(node(part(resource, object, "spec")?, &part(resource, object, "status")?, now)))
        }
        Kind::Pod => {
            let body = match old {
                Some(Body::Pod(old)) => PodBody::clone(old),
                _ => new_pod(object, now),
            };
            Ok(Body::Pod(Box::new(with_pod_status(body, &part(resource, object, "status")?))))
        }
        Kind::DaemonSet => daemon_set(resource, name, object, old),
        Kind::ControllerRevision => {
            let template = object.pointer("/data/spec/template").cloned().unwrap_or_else(|| json!({}));
            let revision = object.get("revision").and_then(Value::as_i64).unwrap_or(0);
            Ok(Body::Revision(revision_of(template, revision)))
        }
        Kind::Namespace
        | Kind::ConfigMap
        | Kind::Service
        | Kind::Event
        | Kind::Lease
        | Kind::CustomResourceDefinition
        | Kind::CniUpgrade
        | Kind::ServiceUpgrade => Ok(Body::Plain(plain(object))),
    }
}

/// A kind that is kept as it was written.
pub(super) fn plain(object: &Value) -> Plain {
    let mut content = object.as_object().cloned().unwrap_or_default();
    let status = content.remove("status").filter(|status| !status.is_null());
    content.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    Plain { content: Arc::new(Value::Object(content)), status: status.map(Arc::new) }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    taints: Vec<TaintWire>,
}

#[derive(Deserialize)]
struct TaintWire {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire {
    phase: String,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<CondWire>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerWire>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CondWire {
    r#type: String,
    status: Truth,
    #[serde(default, deserialize_with = "or_default")]
    reason: String,
    #[serde(default, deserialize_with = "or_default")]
    message: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerWire {
    name: String,
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    restart_count: u32,
    #[serde(default)]
    state: StateWire,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateWire {
    waiting: Option<WaitingWire>,
    running: Option<RunningWire>,
    terminated: Option<TerminatedWire>,
}

#[derive(Deserialize)]
struct WaitingWire {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunningWire {
    started_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatedWire {
    exit_code: i32,
    finished_at: Option<Timestamp>,
}

fn condition(status: &StatusWire, kind: &str) -> Option<Cond> {
    let wire = status.conditions.iter().find(|wire| wire.r#type == kind)?;
    Some(Cond {
        status: wire.status,
        reason: wire.reason.as_str().into(),
        message: wire.message.as_str().into(),
        since: wire.last_transition_time.unwrap_or_default(),
    })
}

fn node(spec: NodeSpec, status: &StatusWire, now: Timestamp) -> NodeBody {
    let never = || Cond {
        status: Truth::Unknown,
        reason: "NodeStatusNeverUpdated".into(),
        message: "".into(),
        since: now,
    };
    NodeBody {
        unschedulable: spec.unschedulable,
        taints: spec
            .taints
            .into_iter()
            .map(|wire| Taint { key: wire.key, value: wire.value, effect: wire.effect })
            .collect(),
        ready: condition(status, "Ready").unwrap_or_else(never),
        network_unavailable: condition(status, "NetworkUnavailable"),
    }
}

fn template_of(raw: Value) -> Template {
    let digest = digest::of_template(&raw);
    Template { raw: Arc::new(raw), digest }
}

fn revision_of(mut template: Value, revision: i64) -> RevisionBody {
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    let digest = digest::of_template(&template);
    RevisionBody { template: Arc::new(template), digest, revision }
}

fn new_pod(object: &Value, now: Timestamp) -> PodBody {
    let mut spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
    let node = spec.as_object_mut().and_then(|spec| spec.remove("nodeName"));
    let containers = [("initContainers", true), ("containers", false)]
        .into_iter()
        .flat_map(|(key, init)| {
            spec.get(key).and_then(Value::as_array).into_iter().flatten().map(move |of| (of, init))
        })
        .map(|(of, init)| {
            let text = |key: &str| of.get(key).and_then(Value::as_str).unwrap_or("").into();
            let state = ContainerState::Waiting { reason: "ContainerCreating".into(), message: "".into() };
            Container { name: text("name"), image: text("image"), init, state, ready: false, restarts: 0 }
        })
        .collect();
    let not_yet = Cond { status: Truth::False, reason: "".into(), message: "".into(), since: now };
    PodBody {
        node: node.as_ref().and_then(Value::as_str).map(Arc::from),
        wanted_node: None,
        template: template_of(json!({ "spec": spec })),
        phase: PodPhase::Pending,
        initialized: not_yet.clone(),
        ready: not_yet,
        containers,
    }
}

fn with_pod_status(mut pod: PodBody, status: &StatusWire) -> PodBody {
    pod.phase = match status.phase.as_str() {
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Pending,
    };
    if let Some(cond) = condition(status, "Initialized") {
        pod.initialized = cond;
    }
    if let Some(cond) = condition(status, "Ready") {
        pod.ready = cond;
    }
    let wires = |init: bool| if init { &status.init_container_statuses } else { &status.container_statuses };
    for container in &mut pod.containers {
        if let Some(wire) = wires(container.init).iter().find(|wire| *wire.name == *container.name) {
            container.ready = wire.ready;
            container.restarts = wire.restart_count;
            container.state = state_of(&wire.state);
        }
    }
    pod
}

fn state_of(wire: &StateWire) -> ContainerState {
    match wire {
        StateWire { running: Some(running), .. } => {
            ContainerState::Running { since: running.started_at.unwrap_or_default() }
        }
        StateWire { terminated: Some(ended), .. } => {
            ContainerState::Terminated { code: ended.exit_code, at: ended.finished_at.unwrap_or_default() }
        }
        StateWire { waiting, .. } => {
            let text = |of: fn(&WaitingWire) -> &str| waiting.as_ref().map_or("", of).into();
            ContainerState::Waiting { reason: text(|of| &of.reason), message: text(|of| &of.message) }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonSetSpec {
    selector: SelectorWire,
    template: Value,
    update_strategy: StrategyWire,
    min_ready_seconds: i32,
    revision_history_limit: usize,
}

impl Default for DaemonSetSpec {
    fn default() -> Self {
        Self {
            selector: SelectorWire::default(),
            template: Value::Null,
            update_strategy: StrategyWire::default(),
            min_ready_seconds: 0,
            revision_history_limit: 10,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectorWire {
    match_labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StrategyWire {
    r#type: Option<String>,
    rolling_update: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonSetStatusWire {
    observed_generation: i64,
    desired_number_scheduled: i32,
    current_number_scheduled: i32,
    updated_number_scheduled: i32,
    number_ready: i32,
    number_available: i32,
    number_misscheduled: i32,
}

fn daemon_set(
    resource: &'static Resource,
    name: &str,
    object: &Value,
    old: Option<&Body>,
) -> Result<Body, Failure> {
    let spec: DaemonSetSpec = part(resource, object, "spec")?;
    let status: DaemonSetStatusWire = part(resource, object, "status")?;
    let mut causes = wrong_with(&spec);
    if let Some(Body::DaemonSet(old)) = old
        && *old.selector != spec.selector.match_labels
    {
        causes.push(cause("FieldValueInvalid", "spec.selector", "field is immutable"));
    }
    let strategy = match spec.update_strategy.r#type.as_deref() {
        None | Some("RollingUpdate") => Strategy::RollingUpdate,
        Some("OnDelete") => Strategy::OnDelete,
        Some(other) => {
            let message = format!(
                "Unsupported value: {{\"Type\":{other:?},\"RollingUpdate\":null}}: supported values: \
                 \"RollingUpdate\", \"OnDelete\""
            );
            causes.push(cause("FieldValueNotSupported", "spec.updateStrategy", &message));
            Strategy::OnDelete
        }
    };
    if !causes.is_empty() {
        return Err(Failure::Invalid { resource, name: name.to_owned(), causes });
    }
    let rolling = match strategy {
        Strategy::RollingUpdate => Some(json!({ "maxSurge": 0, "maxUnavailable": 1 })),
        Strategy::OnDelete => None,
    };
    Ok(Body::DaemonSet(Box::new(DaemonSetBody {
        selector: Arc::new(spec.selector.match_labels),
        template: template_of(spec.template),
        strategy,
        rolling_update: spec.update_strategy.rolling_update.or(rolling).map(Arc::new),
        min_ready_seconds: spec.min_ready_seconds,
        revision_history_limit: spec.revision_history_limit,
        status: DaemonSetStatus {
            observed_generation: status.observed_generation,
            desired: status.desired_number_scheduled,
            current: status.current_number_scheduled,
            updated: status.updated_number_scheduled,
            ready: status.number_ready,
            available: status.number_available,
            misscheduled: status.number_misscheduled,
        },
    })))
}

fn wrong_with(spec: &DaemonSetSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let labels = spec.template.pointer("/metadata/labels");
    let selected =
        spec.selector.match_labels.iter().all(|(key, value)| {
            labels.and_then(|labels| labels.get(key)).is_some_and(|label| label == value)
        });
    if spec.selector.match_labels.is_empty() {
        causes.push(cause("FieldValueRequired", "spec.selector", "Required value"));
    } else if !selected {
        let message = "Invalid value: `selector` does not match template `labels`";
        causes.push(cause("FieldValueInvalid", "spec.template.metadata.labels", message));
    }
    let lists = [("initContainers", false), ("containers", true)];
    for (list, wanted) in lists {
        let path = format!("spec.template.spec.{list}");
        let containers = spec.template.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
        if wanted && containers.is_none_or(Vec::is_empty) {
            causes.push(cause("FieldValueRequired", &path, "Required value"));
        }
        for (at, container) in containers.into_iter().flatten().enumerate() {
            for key in ["name", "image"] {
                if container.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                    causes.push(cause(
                        "FieldValueRequired",
                        &format!("{path}[{at}].{key}"),
                        "Required value",
                    ));
                }
            }
        }
    }
    causes
}

/// One wrong field.
pub(super) fn cause(reason: &'static str, field: &str, message: &str) -> Cause {
    Cause { reason, message: message.to_owned(), field: field.to_owned() }
}
