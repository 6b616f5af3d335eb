//! Parts of a status that both kinds share.
//!
//! Limits: every list and text is bounded, so that a status stays far below the size limit of an object.
//! Durations are whole seconds; times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::{AttemptId, Digest, NodeName, Uid, WishHash};

/// `True`, `False` or `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say.
    Unknown,
}

/// A condition as in `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Ready`, `Stalled` and so on; one entry per type.
    #[schemars(length(max = 64))]
    pub r#type: String,
    /// Whether it holds.
    pub status: Truth,
    /// PascalCase reason from `api::reasons`.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Full sentences for people.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
    /// Generation that the condition is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Why an attempt is what it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AttemptKind {
    /// Forward, with canary and observation as declared.
    #[default]
    Upgrade,
    /// Back to last good: all checks, no canary, no observation.
    Return,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Every node in scope is healthy on the target.
    Completed,
    /// What was declared ran already; nothing was written.
    AlreadyRuns,
    /// Failures within the threshold are left.
    CompletedWithFailures,
    /// Back on last good after a revert.
    Returned,
    /// Failed and put back everywhere.
    RolledBack,
    /// Failed and put back, but not everywhere.
    RollbackIncomplete,
    /// Failed and held as it is.
    Held,
    /// Overtaken by a newer wish.
    Superseded,
    /// Taken back by a revert or removal.
    Reverted,
}

impl Outcome {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::AlreadyRuns => "AlreadyRuns",
            Self::CompletedWithFailures => "CompletedWithFailures",
            Self::Returned => "Returned",
            Self::RolledBack => "RolledBack",
            Self::RollbackIncomplete => "RollbackIncomplete",
            Self::Held => "Held",
            Self::Superseded => "Superseded",
            Self::Reverted => "Reverted",
        }
    }
}

/// One try to reach one wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Hash of target UID, number, wish and retry token.
    pub id: AttemptId,
    /// Counts from 1 per target.
    pub number: i64,
    /// Forward or return.
    #[serde(default)]
    pub kind: AttemptKind,
    /// Hash of the wish.
    pub wish: WishHash,
    /// `main@sha1:<hex>`: the commit that caused it, by its wish or, for another try, by its retry token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Scope of the wish.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Retry token used by this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_token: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Canaries are the eligible nodes whose order value is at most the one of their group (architecture and zone);
    /// set once, so that a thousand canaries cost one line per group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub canary_cut: BTreeMap<String, String>,
    /// Newest creation among the nodes there were when the canaries were chosen, by the API server's clock: a node
    /// created later is no canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canaries_until: Option<Timestamp>,
    /// What this attempt does to the template; absent before its first effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateIntent>,
}

/// The template patch of an attempt, recorded before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateIntent {
    /// UID of the DaemonSet that it is about; absent in statuses of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Uid>,
    /// Digest of the live template that the patch starts from.
    pub base: Digest,
    /// Digest of the template that the patch leaves.
    pub wrote: Digest,
    /// The patch was seen in the cluster.
    #[serde(default)]
    pub applied: bool,
    /// The patch was made once more after another manager had undone it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reasserted: bool,
    /// `OnDelete` was set once more after another manager had changed the strategy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strategy_reset: bool,
}

/// Observed time: accumulated in quanta, only while it was watched and held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// Seconds accumulated.
    pub total: i64,
    /// Up to when; absent while it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
}

/// Counts by state, open intents, failures, skips.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Nodes {
    /// Nodes in scope.
    pub in_scope: i32,
    /// Canaries among them.
    pub canaries: i32,
    /// Acting, Verifying or RollingBack.
    pub in_flight: i32,
    /// Not yet acted on.
    pub waiting: i32,
    /// Skipped with a reason.
    pub skipped: i32,
    /// Effects recorded before they are done, and not settled yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200))]
    pub open: Vec<Intent>,
    /// Complete list: the 51st failure ends the attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 51))]
    pub failures: Vec<NodeFailure>,
    /// The first 50 skips.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub skips: Vec<NodeSkip>,
    /// Skips beyond the list.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: i32,
    /// UIDs of nodes that were unhealthy before the first attempt since last good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub baseline: Vec<Uid>,
    /// Since when untouched nodes are bad while nothing is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_since: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// What an intent is about to do to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum IntentKind {
    /// Bring the node onto the target.
    Upgrade,
    /// Bring the node back onto last good.
    PutBack,
}

/// An effect recorded in status before it is done: the agent pod of one node is to be replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Node acted on.
    pub node: NodeName,
    /// Its UID: a node of the same name with another UID is another node.
    pub node_uid: Uid,
    /// What it is for.
    pub kind: IntentKind,
    /// Agent pod seen before; the node cannot settle while it is still there.
    pub before: Uid,
    /// When the intent was stored.
    pub started_at: Timestamp,
    /// Observed seconds spent of `timeoutSeconds`.
    #[serde(default)]
    pub spent: i64,
    /// Up to when `spent` counts.
    pub as_of: Timestamp,
}

/// A node that failed, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFailure {
    /// Node that failed.
    pub node: NodeName,
    /// Its UID.
    pub node_uid: Uid,
    /// `NodeTimedOut`, `AgentCrashLooping`, `ImagePullFailed`, `InitFailed`, `AgentNotReady`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What was seen.
    #[schemars(length(max = 512))]
    pub message: String,
    /// When it was judged.
    pub at: Timestamp,
    /// Tries so far on this node in this attempt.
    #[serde(default)]
    pub tries: i32,
    /// While putting back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_rollback: bool,
}

/// A node in scope that is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSkip {
    /// Node left alone.
    pub node: NodeName,
    /// Why.
    #[schemars(length(max = 64))]
    pub reason: String,
}

/// One typed reason why nothing (more) is being done now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingFor {
    /// PascalCase name of the `Waiting` variant.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Full sentence with absolute times.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When it ends by itself, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What ran when an attempt started while none was unfinished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastGood {
    /// Version that ran, normalised.
    #[schemars(length(max = 128))]
    pub version: String,
    /// Hash of the wish it amounts to.
    pub wish: WishHash,
    /// Commit of that wish, if it was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// JSON text of `spec.template` as it was read, labels and annotations included (at most 128 KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub template: Option<String>,
    /// Digest of that template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<Digest>,
    /// Nodes that it runs on; empty = all that no older layer has for itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// What runs on the other nodes, oldest first, while attempts of narrower scopes left several templates running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub beneath: Vec<Layer>,
    /// Update strategy before the first such attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub strategy: Option<String>,
}

/// What runs on the nodes that no later layer selects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Layer {
    /// Nodes that it runs on, apart from those of later layers; empty = all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// JSON text of `spec.template`; absent = that of the next layer with the same digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub template: Option<String>,
    /// Digest of that template.
    pub template_digest: Digest,
}

/// Why and how an attempt was put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// `CanaryUnhealthy`, `RolloutUnhealthy`, `CorrelatedLoss`, `TooManyFailures`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What was seen, bounded.
    #[schemars(length(max = 4096))]
    pub evidence: String,
    /// When the verdict failed.
    pub at: Timestamp,
    /// Commit on the tracked branch that recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// One line of history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastAttempt {
    /// Its id.
    pub id: AttemptId,
    /// Its number.
    pub number: i64,
    /// Version it was about.
    #[schemars(length(max = 128))]
    pub target_version: String,
    /// Its wish.
    pub wish: WishHash,
    /// Commit that brought the wish in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Reason of a bad end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// One phase change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// Phase entered.
    #[schemars(length(max = 32))]
    pub phase: String,
    /// Attempt number.
    pub attempt: i64,
    /// When.
    pub at: Timestamp,
}
