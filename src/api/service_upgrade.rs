//! `ServiceUpgrade`: selector, ports and type of one live Service, changed through a canary.
//!
//! Limits: the spec is complete; no rule of it is built yet, so the kind is mirrored and refused with `NotSupported`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    cni_upgrade::DeletionPolicy,
    status::{Condition, WaitingFor},
};

/// What the Service shall be (`serviceName`, `targetService`) and how carefully (the rest).
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.canary) || ((self.serviceName + '-' + self.canary.serviceSuffix).size() <= 63 && \
             (self.serviceName + '-' + self.canary.serviceSuffix).matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
    "message": "the canary Service `<serviceName>-<serviceSuffix>` needs a name of at most 63 small letters, digits and `-`",
    "fieldPath": ".serviceName",
}]))]
#[kube(
    group = "service.example.com",
    version = "v1",
    kind = "ServiceUpgrade",
    plural = "serviceupgrades",
    singular = "serviceupgrade",
    shortname = "svcup",
    namespaced,
    status = "ServiceUpgradeStatus",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Service","type":"string","jsonPath":".spec.serviceName"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".metadata.annotations.trunkline\\.dev/revision"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceUpgradeSpec {
    /// Existing Service in the same namespace.
    #[schemars(length(min = 1, max = 63))]
    pub service_name: String,
    /// What it shall be; absent parts keep the live value.
    pub target_service: TargetService,
    /// Absent: no canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<ServiceCanary>,
    /// What to do on failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<ServiceRollback>,
    /// Start nothing new.
    #[serde(default)]
    pub paused: bool,
    /// What a removal of a completed declaration that is no revert means.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The wanted part of a Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetService {
    /// The full list of wanted ports; absent = the live ones stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), extend("x-kubernetes-validations" = [{
        "rule": "self.size() < 2 || self.all(port, has(port.name))",
        "message": "each of several ports needs a name",
        "reason": "FieldValueRequired",
    }]))]
    pub ports: Option<Vec<TargetPort>>,
    /// Wanted selector.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 64))]
    pub selector: BTreeMap<String, String>,
    /// Wanted type; absent = the live one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<ServiceType>,
    /// Drop the `<name>-old` ports of an earlier renumbering.
    #[serde(default)]
    pub contract: bool,
}

/// One wanted port; absent parts keep the live value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetPort {
    /// Port name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// Port number.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// Number or name of the container port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,
    /// TCP, UDP or SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

/// Protocols of a Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// TCP.
    TCP,
    /// UDP.
    UDP,
    /// SCTP.
    SCTP,
}

/// Service types that trunkline moves between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Inside the cluster only.
    ClusterIP,
    /// On every node too.
    NodePort,
    /// Through a load balancer too.
    LoadBalancer,
}

/// The canary Service, its weight and its checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.steps) || (self.steps.isSorted() && self.steps.all(step, self.steps.exists_one(other, other == step)))",
        "message": "every weight must be above the one before",
        "fieldPath": ".steps",
    },
    {
        "rule": "!has(self.steps) || self.steps.all(step, step < self.weight)",
        "message": "every weight must be below the final `weight`",
        "fieldPath": ".steps",
    },
]))]
pub struct ServiceCanary {
    /// Percent of new connections wanted on the canary; 0 = probes only.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub weight: i32,
    /// The canary Service is `<serviceName>-<suffix>`.
    #[serde(default = "canary_suffix")]
    #[schemars(length(min = 1, max = 62))]
    pub service_suffix: String,
    /// Observed time at the full weight: `10m`, `1h30m`.
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub observation_period: String,
    /// HTTP path checked on each canary endpoint; absent = TCP connect per port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub health_endpoint: Option<String>,
    /// Port name or number of the check; default: the first TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_port: Option<IntOrString>,
    /// Scheme of the check.
    #[serde(default)]
    pub health_scheme: HealthScheme,
    /// Weights on the way to `weight`, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(range(min = 0, max = 100)))]
    pub steps: Vec<i32>,
    /// Ready target endpoints, in percent of the ready live ones, that promotion needs.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_ready_percent: i32,
    /// Seconds for the canary to have ready endpoints.
    #[serde(default = "hour")]
    #[schemars(range(min = 30, max = 604_800))]
    pub deadline_seconds: i32,
    /// Gates beside the probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub metrics: Vec<MetricGate>,
    /// What to do when the exact share does not exist.
    #[serde(default)]
    pub rounding: Rounding,
}

fn canary_suffix() -> String {
    "canary".to_owned()
}
const fn hundred() -> i32 {
    100
}
const fn hour() -> i32 {
    3600
}

/// Scheme of a health check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HealthScheme {
    /// Plain HTTP.
    #[default]
    HTTP,
    /// HTTPS without verification.
    HTTPS,
    /// gRPC health checking protocol.
    GRPC,
}

/// What to do when the exact share does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rounding {
    /// Never above the request.
    #[default]
    Down,
    /// The nearest reachable share.
    Nearest,
    /// Never below the request.
    Up,
}

/// One PromQL gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.min) || has(self.max)",
        "message": "`min` or `max` is needed",
        "reason": "FieldValueRequired",
    },
    {
        "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
        "message": "`min` must not be above `max`",
    },
]))]
pub struct MetricGate {
    /// Name in reports.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// PromQL.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// Highest good value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Lowest good value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Samples needed for a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_samples: Option<i32>,
}

/// What to do on failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRollback {
    /// True = put back and commit the rollback.
    #[serde(default)]
    pub auto_rollback: bool,
    /// Failed check rounds among the last 60 that stop it: a count, not a percent.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 60))]
    pub error_threshold: i32,
}

const fn three() -> i32 {
    3
}

/// Phases of a `ServiceUpgrade`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ServicePhase {
    /// Preflight and canary Service.
    #[default]
    Deploying,
    /// Probes and weight.
    Canary,
    /// The live Service changes.
    Promoting,
    /// Done.
    Completed,
    /// Going back.
    Rollback,
    /// Ended badly.
    Failed,
}

/// What happened and what is waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.epoch) || !has(self.epoch) || self.epoch >= oldSelf.epoch",
    "message": "a newer leader has written the status",
    "reason": "FieldValueForbidden",
    "fieldPath": ".epoch",
}]))]
pub struct ServiceUpgradeStatus {
    /// Where it stands.
    pub phase: ServicePhase,
    /// The live Service.
    #[serde(rename = "currentSVC", skip_serializing_if = "Option::is_none")]
    pub current_svc: Option<String>,
    /// The canary Service.
    #[serde(rename = "canarySVC", skip_serializing_if = "Option::is_none")]
    pub canary_svc: Option<String>,
    /// Cleared when no longer true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// `Ready`, `Stalled` and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// At most 10 typed reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub waiting_for: Vec<WaitingFor>,
    /// Leader epoch of the last writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
}
