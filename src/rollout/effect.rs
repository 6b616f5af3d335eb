//! Effects: every write to cluster and Git, as a value; and how a write can end.
//!
//! One effect is one variant here, one file in `perform/`, one fault point. Each carries a UID or resourceVersion
//! precondition and is harmless when repeated.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{
        ClaimKey,
        names::{AttemptId, Oid, RepoName, Rv, Uid},
    },
    mirror::ledger::Ledger,
    world::{AgentKey, Key, PodKey, Record, Strategy, git::NewCommit},
};

/// Which write. Two effects with one id never run at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectId {
    /// The pass that wants it; a later pass of the same key replaces what has not started.
    pub key: Key,
    /// The attempt it belongs to, where there is one.
    pub attempt: Option<AttemptId>,
    /// What it does.
    pub step: StepName,
    /// What it does it to: a UID, a claim key, a template digest.
    pub unit: String,
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.step, self.unit)
    }
}

/// Names of effects, in the order in which one pass starts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StepName {
    /// Create or replace the ledger.
    WriteLedger,
    /// Create a custom resource.
    CreateClaim,
    /// Replace spec and annotations of a custom resource.
    ReplaceClaim,
    /// Delete a custom resource.
    DeleteClaim,
    /// Take our finalizer off a custom resource that is being deleted.
    ReleaseClaim,
    /// Write status of a custom resource.
    WriteStatus,
    /// Store the attempt beside the ledger before its first effect.
    RecordAttempt,
    /// Delete such a record.
    ForgetAttempt,
    /// Ask the API server whether the template patch would pass.
    DryRunTemplate,
    /// Set `OnDelete` and the images in one patch.
    PatchTemplate,
    /// Put the saved template back, under `OnDelete`.
    RestoreTemplate,
    /// Give the update strategy back.
    RestoreStrategy,
    /// Delete one agent pod.
    DeletePod,
    /// Push one commit to the status branch.
    PushStatus,
    /// Push one rollback commit to the tracked branch.
    PushRollback,
    /// Record one Event about a custom resource.
    RecordEvent,
}

impl StepName {
    /// All effects.
    pub const ALL: [Self; 16] = [
        Self::WriteLedger,
        Self::CreateClaim,
        Self::ReplaceClaim,
        Self::DeleteClaim,
        Self::ReleaseClaim,
        Self::WriteStatus,
        Self::RecordAttempt,
        Self::ForgetAttempt,
        Self::DryRunTemplate,
        Self::PatchTemplate,
        Self::RestoreTemplate,
        Self::RestoreStrategy,
        Self::DeletePod,
        Self::PushStatus,
        Self::PushRollback,
        Self::RecordEvent,
    ];
}

/// One image field of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageChange {
    /// In `initContainers` (true) or `containers` (false).
    pub init: bool,
    /// Position in that list.
    pub index: usize,
    /// Container name, tested by the patch.
    pub container: String,
    /// Image now, tested by the patch.
    pub from: String,
    /// Image wanted.
    pub to: String,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Create (without `seen`) or replace the ledger ConfigMap.
    WriteLedger {
        /// UID and version that is replaced.
        seen: Option<(Uid, Rv)>,
        /// New content.
        ledger: Arc<Ledger>,
    },
    /// Create a custom resource with our finalizer and annotations.
    CreateClaim {
        /// Its identity.
        claim: ClaimKey,
        /// Spec as stored.
        spec: Arc<Value>,
        /// Annotations of ours.
        annotations: BTreeMap<String, String>,
    },
    /// Replace spec and our annotations by JSON patch with `test` on UID and resourceVersion.
    ReplaceClaim {
        /// Its identity.
        claim: ClaimKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
        /// Spec as stored.
        spec: Arc<Value>,
        /// Annotations of ours to set; others stay.
        annotations: BTreeMap<String, String>,
        /// Put our finalizer on as well.
        finalizer: bool,
    },
    /// Delete a custom resource by UID.
    DeleteClaim {
        /// Its identity.
        claim: ClaimKey,
        /// UID it must have.
        uid: Uid,
    },
    /// Take our finalizer off.
    ReleaseClaim {
        /// Its identity.
        claim: ClaimKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
    },
    /// Replace the status.
    WriteStatus(StatusWrite),
    /// Create or replace the attempt record of a target.
    RecordAttempt {
        /// Name of the ConfigMap (`record_name`).
        name: String,
        /// UID and version that is replaced.
        seen: Option<(Uid, Rv)>,
        /// Content.
        record: Arc<Record>,
    },
    /// Delete an attempt record.
    ForgetAttempt {
        /// Name of the ConfigMap.
        name: String,
        /// UID it must have.
        uid: Uid,
    },
    /// The patch of `PatchTemplate`, as a server-side dry run.
    DryRunTemplate {
        /// DaemonSet.
        agent: AgentKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
        /// Image fields.
        images: Vec<ImageChange>,
    },
    /// One JSON patch: strategy `OnDelete`, annotation with the strategy before (if `remember`), all image fields.
    PatchTemplate {
        /// DaemonSet.
        agent: AgentKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
        /// Strategy to note in the annotation; absent when it is noted already.
        remember: Option<Strategy>,
        /// Image fields that change; may be empty to set the strategy only.
        images: Vec<ImageChange>,
    },
    /// Replace the whole template; strategy `OnDelete`.
    RestoreTemplate {
        /// DaemonSet.
        agent: AgentKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
        /// Strategy to note in the annotation; absent when it is noted already.
        remember: Option<Strategy>,
        /// The template, byte-equal to the saved one.
        template: Arc<Value>,
    },
    /// Set the strategy and remove the annotation.
    RestoreStrategy {
        /// DaemonSet.
        agent: AgentKey,
        /// UID it must have.
        uid: Uid,
        /// Version it must have.
        rv: Rv,
        /// Strategy to set.
        strategy: Strategy,
    },
    /// Delete one agent pod with a UID precondition.
    DeletePod {
        /// The pod.
        pod: PodKey,
        /// UID it must have.
        uid: Uid,
    },
    /// Push one commit to the status branch, compare-and-swap on its parent.
    PushStatus {
        /// Repository.
        repo: RepoName,
        /// The commit.
        commit: Box<NewCommit>,
    },
    /// Push one rollback commit to the tracked branch, compare-and-swap on its parent.
    PushRollback {
        /// Repository.
        repo: RepoName,
        /// Attempt it records.
        attempt: AttemptId,
        /// The commit.
        commit: Box<NewCommit>,
        /// Head it is built on.
        head: Oid,
    },
    /// Record one Event; its name is a function of what it tells, so that it is there once however often it is tried.
    RecordEvent {
        /// The custom resource it is about.
        claim: ClaimKey,
        /// UID of that.
        uid: Uid,
        /// What it tells.
        event: Box<Event>,
    },
}

/// What one Event tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `metadata.name`.
    pub name: String,
    /// PascalCase word.
    pub reason: String,
    /// Sentences for people.
    pub message: String,
    /// `Warning` rather than `Normal`.
    pub warning: bool,
    /// When that was.
    pub at: Timestamp,
    /// Number of the attempt it belongs to, for the log.
    pub attempt: Option<i64>,
    /// Revision that caused that attempt, for the log.
    pub revision: Option<String>,
}

/// A status to write, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusWrite {
    /// Claim.
    pub claim: ClaimKey,
    /// UID it must have.
    pub uid: Uid,
    /// Version it must have.
    pub rv: Rv,
    /// Status as JSON; absent options are absent, never `null`.
    pub status: Arc<Value>,
}

/// A write that the API server (or Git server) said no to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// What kind of no.
    pub kind: RejectionKind,
    /// The server's text, bounded.
    pub message: String,
}

/// Kinds of no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionKind {
    /// 409: another version or UID; look again.
    Conflict,
    /// 404: it is gone.
    NotFound,
    /// 403.
    Forbidden,
    /// 422 or 400: it will never pass as it is.
    Invalid,
    /// 429, 5xx or no answer known to be a no; try again.
    Unavailable,
    /// Git: the ref moved.
    RefMoved,
    /// Git: a hook or rule refused.
    PushRefused,
}

/// Result of one performed effect.
#[derive(Debug, Clone, PartialEq)]
pub enum EffectOutcome {
    /// Done; the observations are the server's answer.
    Done,
    /// Nothing was left to do.
    Moot,
    /// The server said no.
    Rejected(Rejection),
    /// Nobody knows whether it was done (time-out, cut connection); look before trying again.
    Unknown(String),
}
