//! Projection of a DaemonSet. The template stays raw: typed structs would drop newer fields.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::wire::Meta;
use crate::{
    api::names::ORIGINAL_STRATEGY,
    world::{Agent, AgentKey, Mark, Object, ObjectId, Shape, Strategy, Template, digest},
};

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    template: Value,
    #[serde(default)]
    update_strategy: UpdateStrategy,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UpdateStrategy {
    r#type: String,
    rolling_update: RollingUpdate,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RollingUpdate {
    max_surge: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    desired_number_scheduled: i32,
    current_number_scheduled: i32,
    updated_number_scheduled: i32,
}

impl Wire {
    pub(super) fn object(mut self) -> Object {
        let marks = marks(&self.metadata);
        let strategy = match self.spec.update_strategy.r#type.as_str() {
            "OnDelete" => Strategy::OnDelete,
            _ => Strategy::RollingUpdate,
        };
        let agent = Agent {
            original_strategy: self.metadata.annotations.remove(ORIGINAL_STRATEGY),
            generation: self.metadata.generation,
            observed_generation: self.status.observed_generation,
            strategy,
            surge: strategy == Strategy::RollingUpdate
                && above_zero(&self.spec.update_strategy.rolling_update.max_surge),
            template: Template {
                digest: digest::of_template(&self.spec.template),
                raw: Arc::new(self.spec.template),
            },
            desired: self.status.desired_number_scheduled,
            current: self.status.current_number_scheduled,
            updated: self.status.updated_number_scheduled,
            marks,
            deleting: self.metadata.deleting(),
            labels: std::mem::take(&mut self.metadata.labels),
        };
        let key = AgentKey { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() };
        self.metadata.object(ObjectId::Agent(key), Shape::Agent(agent))
    }
}

/// An IntOrString: a number or a percentage.
fn above_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_some_and(|n| n > 0),
        Value::String(text) => text.trim_end_matches('%').parse::<i64>().is_ok_and(|n| n > 0),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

fn marks(meta: &Meta) -> Vec<Mark> {
    let mut marks: Vec<Mark> = meta
        .owner_references
        .iter()
        .filter(|owner| owner.controller)
        .map(|owner| Mark::Owner(format!("{}/{}", owner.kind, owner.name)))
        .collect();
    let managed_by = meta.labels.get("app.kubernetes.io/managed-by").map(String::as_str);
    let kops = meta.has_label_under("addon.kops.k8s.io/") || managed_by == Some("kops");
    let eks = meta.has_label_under("eks.amazonaws.com/") || managed_by == Some("EKS");
    for (seen, mark) in [
        (meta.helm(), Mark::Helm),
        (meta.flux(), Mark::Flux),
        (meta.argo_cd(), Mark::ArgoCD),
        (meta.labels.contains_key("addonmanager.kubernetes.io/mode"), Mark::AddonManager),
        (kops, Mark::Kops),
        (eks, Mark::EksAddon),
    ] {
        if seen {
            marks.push(mark);
        }
    }
    // Operators sign their objects: `tigera-operator`, `cilium-operator`, `network-operator`.
    if let Some(by) = managed_by.filter(|by| by.ends_with("-operator")) {
        marks.push(Mark::Operator(by.to_owned()));
    }
    marks.sort();
    marks
}
