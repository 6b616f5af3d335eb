//! `CNIUpgrade`: one version of the node network agent, rolled out node by node.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{
    Attempt, Condition, LastGood, Nodes, Observed, PastAttempt, Rollback, Transition, WaitingFor,
};

/// What shall run on the nodes (`provider`, `targetVersion`, `nodeSelector`) and how carefully (the rest).
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cni.example.com",
    version = "v1",
    kind = "CNIUpgrade",
    plural = "cniupgrades",
    singular = "cniupgrade",
    shortname = "cniup",
    status = "CniUpgradeStatus",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Progress","type":"string","jsonPath":".status.progress"}"#,
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".status.targetVersion"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".metadata.annotations.trunkline\\.dev/revision"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Current","type":"string","priority":1,"jsonPath":".status.currentVersion"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","priority":1,"jsonPath":".status.failedNodes"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CniUpgradeSpec {
    /// Version wanted on the selected nodes, as people write it: `v3.28.0` or `3.28.0`.
    #[schemars(length(min = 1, max = 128), extend("x-kubernetes-validations" = [{
        "rule": "self.trim().matches('^[A-Za-z0-9._+-]+$')",
        "message": "must be a version: letters, digits, `.`, `_`, `-` and `+`, such as `v3.28.0`",
    }]))]
    pub target_version: String,
    /// A few nodes first. Absent: no canary, every node still checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CniCanary>,
    /// Nodes in scope; empty = every node the agent runs on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Most nodes in flight at any moment: canary, rollout and rollback alike.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_parallel: i32,
    /// Seconds per node, from the first action on it until healthy, in observed time.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 30, max = 604_800))]
    pub timeout_seconds: i32,
    /// On failure: true = put back and commit the rollback; false = stop, keep, phase `Failed`.
    #[serde(default)]
    pub auto_rollback: bool,
    /// Profile name; without it the provider is detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub provider: Option<String>,
    /// Start nothing new; nodes in flight finish.
    #[serde(default)]
    pub paused: bool,
    /// How a node is upgraded; absent = as the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    /// What a removal of a completed declaration that is no revert means.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

const fn one() -> i32 {
    1
}
const fn ten_minutes() -> i32 {
    600
}

/// The nodes tried first, and how long and how well they must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CniCanary {
    /// Percent of all selected nodes tried first, rounded up, at least one.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    pub percentage: i32,
    /// Narrows who can be a canary; does not change the count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_labels: BTreeMap<String, String>,
    /// Minutes that the canary must stay good, in observed time.
    #[serde(default = "five")]
    #[schemars(range(min = 0, max = 10_080))]
    pub observation_minutes: i32,
    /// Healthy ÷ counted nodes that must hold, in canary and afterwards.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub health_threshold: f64,
}

const fn ten() -> i32 {
    10
}
const fn five() -> i32 {
    5
}
const fn all() -> f64 {
    1.0
}

/// How a node is upgraded (`daemonSet` is the one whose rules are built).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Driver {
    /// One patch sets `OnDelete` and the template; then agent pods are deleted one by one.
    #[serde(rename = "daemonSet")]
    DaemonSet,
    /// The owner changes the template; trunkline orders, checks and deletes pods.
    #[serde(rename = "ownedTemplate")]
    OwnedTemplate,
    /// Plug-in binaries are replaced by a Job on each node.
    #[serde(rename = "nodeJob")]
    NodeJob,
}

/// What a removal of a completed declaration that is no revert means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Nothing that runs changes.
    #[default]
    Keep,
    /// Back to the wish that ran before it.
    Rollback,
}

/// Phases of a `CNIUpgrade`; edges: `rollout::lifecycle`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum CniPhase {
    /// Preflight: nothing on nodes.
    #[default]
    Pending,
    /// The first nodes, and their observed time.
    Canary,
    /// All other nodes, in a sliding window.
    RollingOut,
    /// Every node in scope is healthy on the target.
    Completed,
    /// Touched nodes go back.
    Rollback,
    /// Ended badly: put back, or held.
    Failed,
}

impl CniPhase {
    /// Reads the word on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        let all =
            [Self::Pending, Self::Canary, Self::RollingOut, Self::Completed, Self::Rollback, Self::Failed];
        all.into_iter().find(|phase| phase.as_str() == text)
    }
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Canary => "Canary",
            Self::RollingOut => "RollingOut",
            Self::Completed => "Completed",
            Self::Rollback => "Rollback",
            Self::Failed => "Failed",
        }
    }
}

/// What happened and what is waited for. Working memory of the rollout machine: everything needed after a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.epoch) || !has(self.epoch) || self.epoch >= oldSelf.epoch",
    "message": "a newer leader has written the status",
    "reason": "FieldValueForbidden",
    "fieldPath": ".epoch",
}]))]
pub struct CniUpgradeStatus {
    /// Where the attempt stands.
    pub phase: CniPhase,
    /// Version the nodes in scope ran before this attempt; the target once completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Target of this attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// Nodes healthy on target.
    pub upgraded_nodes: i32,
    /// Nodes that failed.
    pub failed_nodes: i32,
    /// All other nodes in scope, skipped ones included.
    pub remaining_nodes: i32,
    /// `12/40`: healthy on target of all in scope (a printer column).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// `Ready`, `Reconciling`, `Stalled` (kstatus), `CanaryHealthy`, `RolledBack`, `GitPublished`, `InForce`, `StrategyHeld`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The try that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// Entry into the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_started_at: Option<jiff::Timestamp>,
    /// Time for which the canary was seen to hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// Counts, open intents, failures, skips.
    pub nodes: Nodes,
    /// At most 10 typed reasons why nothing (more) is being done now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub waiting_for: Vec<WaitingFor>,
    /// What ran when the attempt started, with the saved template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<LastGood>,
    /// Why and how the attempt was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// Last 10 attempts before this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<PastAttempt>,
    /// Phase changes in order, the newest 40, so that each becomes one commit even when Git was away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40))]
    pub transitions: Vec<Transition>,
    /// Leader epoch of the last writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
}
