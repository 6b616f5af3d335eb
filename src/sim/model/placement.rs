//! What a pod template says about nodes and containers, read once per template.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::body::{Container, ContainerState, NodeBody, Taint};
use crate::api::names::REVISION_HASH;

/// A pod template, taken apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// Labels of its pods, the revision hash included.
    pub(super) labels: Arc<BTreeMap<String, String>>,
    /// Containers as they are before the kubelet has done anything.
    pub(super) containers: Vec<Container>,
    selector: Vec<(String, String)>,
    expressions: Vec<Vec<Expression>>,
    tolerations: Vec<Toleration>,
}

#[derive(Debug, Clone)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Debug, Clone)]
struct Toleration {
    key: String,
    exists: bool,
    value: String,
    effect: String,
}

/// Tolerations that the DaemonSet controller gives to all its pods, by key.
const ALWAYS: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

impl Parts {
    /// Takes a template apart.
    pub(super) fn of(template: &Value, hash: &str) -> Self {
        let mut labels = strings(template.pointer("/metadata/labels"));
        labels.insert(REVISION_HASH.to_owned(), hash.to_owned());
        let spec = template.get("spec").unwrap_or(&Value::Null);
        let init = containers(spec.get("initContainers"), true);
        let main = containers(spec.get("containers"), false);
        let terms = spec.pointer(
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
        );
        Self {
            labels: Arc::new(labels),
            containers: init.chain(main).collect(),
            selector: strings(spec.get("nodeSelector")).into_iter().collect(),
            expressions: list(terms).map(|term| expressions(term).collect()).collect(),
            tolerations: list(spec.get("tolerations")).map(toleration).collect(),
        }
    }

    /// Whether a pod of it belongs on the node.
    pub(super) fn runs_on(&self, labels: &BTreeMap<String, String>, node: &NodeBody) -> bool {
        self.matches(labels) && node.taints.iter().all(|taint| self.tolerates(taint))
    }

    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let selected = self.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let wanted = self.expressions.is_empty()
            || self.expressions.iter().any(|term| term.iter().all(|expression| expression.holds(labels)));
        selected && wanted
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        taint.effect == "PreferNoSchedule"
            || ALWAYS.contains(&taint.key.as_str())
            || self.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

impl Expression {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

impl Toleration {
    fn covers(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = if self.exists {
            self.key.is_empty() || self.key == taint.key
        } else {
            self.key == taint.key && self.value == taint.value
        };
        effect && key
    }
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn strings(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn expressions(term: &Value) -> impl Iterator<Item = Expression> {
    list(term.get("matchExpressions")).map(|expression| Expression {
        key: text(expression, "key"),
        operator: text(expression, "operator"),
        values: list(expression.get("values")).filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

fn toleration(value: &Value) -> Toleration {
    Toleration {
        key: text(value, "key"),
        exists: text(value, "operator") == "Exists",
        value: text(value, "value"),
        effect: text(value, "effect"),
    }
}

fn containers(value: Option<&Value>, init: bool) -> impl Iterator<Item = Container> {
    list(value).map(move |container| Container {
        name: text(container, "name").into(),
        image: text(container, "image").into(),
        init,
        state: ContainerState::Waiting {
            reason: if init { "PodInitializing" } else { "ContainerCreating" }.into(),
            message: "".into(),
        },
        ready: false,
        restarts: 0,
    })
}
