//! One object on the status branch: `CNIUpgrade/<name>.yaml`, `ServiceUpgrade/<namespace>/<name>.yaml`.
//!
//! Guarantees: equal state gives equal bytes; what only the machine needs (the saved template, clocks of open
//! intents, the epoch) and what publishing itself changes (`GitPublished`) is left out, so a commit never
//! causes the next one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::{
        ClaimKey, ClaimKind, CniUpgradeStatus, ServiceUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{PATH, REVISION, WISH},
        reasons::Reason,
        service_upgrade::ServicePhase,
        status::{Attempt, Condition, Outcome, Transition, Truth, WaitingFor},
    },
    manifest::yaml::{self, YamlError},
    mirror::ledger::AttemptEntry,
    world::{Claim, ClaimStatus},
};

/// The condition that publishing itself changes.
pub const GIT_PUBLISHED: &str = "GitPublished";
/// Transitions kept in a file, as in a status.
const TRANSITIONS: usize = 40;

/// One object as the status branch tells of it.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusFile {
    /// A `CNIUpgrade`.
    Cni(Box<Document<CniUpgradeStatus>>),
    /// A `ServiceUpgrade`.
    Service(Box<Document<ServiceUpgradeStatus>>),
}

/// The document in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<S> {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name and origin.
    pub metadata: Metadata,
    /// The status.
    pub status: S,
}

/// Name and origin of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Path, revision and wish of the manifest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Path of an object's file on the status branch.
pub fn path(claim: &ClaimKey) -> String {
    format!("{claim}.yaml")
}

/// The object whose file this is; absent when the path is none of ours.
pub fn claim_of(path: &str) -> Option<ClaimKey> {
    path.strip_suffix(".yaml")?.parse().ok()
}

fn document<S>(key: &ClaimKey, claim: &Claim, status: S) -> Document<S> {
    let annotations = [PATH, REVISION, WISH]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), claim.annotations.get(name)?.clone())))
        .collect();
    Document {
        api_version: key.kind.api_version().to_owned(),
        kind: key.kind.kind().to_owned(),
        metadata: Metadata { name: key.name.clone(), namespace: key.namespace.clone(), annotations },
        status,
    }
}

impl StatusFile {
    /// The present state of a custom resource; absent while it has no status that can be read.
    pub fn of(key: &ClaimKey, claim: &Claim) -> Option<Self> {
        match &claim.status {
            ClaimStatus::Cni(status) => {
                Some(Self::Cni(Box::new(document(key, claim, published_cni(status)))))
            }
            ClaimStatus::Service(status) => {
                let mut status = (**status).clone();
                status.epoch = None;
                status.conditions.retain(|condition| condition.r#type != GIT_PUBLISHED);
                Some(Self::Service(Box::new(document(key, claim, status))))
            }
            ClaimStatus::None | ClaimStatus::Unreadable(_) => None,
        }
    }

    /// Reads a file of the status branch; absent when it is not the document of that object.
    pub fn read(key: &ClaimKey, bytes: &[u8]) -> Option<Self> {
        fn document<S: DeserializeOwned>(key: &ClaimKey, text: &str) -> Option<Box<Document<S>>> {
            let document: Document<S> = yaml::typed(text).ok()?;
            let named = document.metadata.name == key.name && document.metadata.namespace == key.namespace;
            (named && document.kind == key.kind.kind()).then(|| Box::new(document))
        }
        let text = std::str::from_utf8(bytes).ok()?;
        match key.kind {
            ClaimKind::CniUpgrade => document(key, text).map(Self::Cni),
            ClaimKind::ServiceUpgrade => document(key, text).map(Self::Service),
        }
    }

    /// The bytes of the file.
    pub fn write(&self) -> Result<String, YamlError> {
        match self {
            Self::Cni(document) => yaml::write(document),
            Self::Service(document) => yaml::write(document),
        }
    }

    /// Revision of the tracked branch that it is about: that of the attempt, else the accepted form's.
    pub fn revision(&self) -> Option<&str> {
        let (metadata, attempt) = match self {
            Self::Cni(document) => (&document.metadata, document.status.attempt.as_ref()),
            Self::Service(document) => (&document.metadata, None),
        };
        let accepted = metadata.annotations.get(REVISION);
        attempt.and_then(|attempt| attempt.revision.as_ref()).or(accepted).map(String::as_str)
    }

    /// Phase, as on the wire.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Cni(document) => document.status.phase.as_str(),
            Self::Service(document) => match document.status.phase {
                ServicePhase::Deploying => "Deploying",
                ServicePhase::Canary => "Canary",
                ServicePhase::Promoting => "Promoting",
                ServicePhase::Completed => "Completed",
                ServicePhase::Rollback => "Rollback",
                ServicePhase::Failed => "Failed",
            },
        }
    }

    /// The status of a `CNIUpgrade`; absent for the other kind.
    pub fn cni(&self) -> Option<&CniUpgradeStatus> {
        match self {
            Self::Cni(document) => Some(&document.status),
            Self::Service(_) => None,
        }
    }

    /// Phase changes in order.
    pub fn transitions(&self) -> &[Transition] {
        self.cni().map_or(&[], |status| &status.transitions)
    }

    /// Conditions.
    pub fn conditions(&self) -> &[Condition] {
        match self {
            Self::Cni(document) => &document.status.conditions,
            Self::Service(document) => &document.status.conditions,
        }
    }

    /// Reasons for waiting.
    pub fn waiting_for(&self) -> &[WaitingFor] {
        match self {
            Self::Cni(document) => &document.status.waiting_for,
            Self::Service(document) => &document.status.waiting_for,
        }
    }

    /// Why nothing (more) is being done: stalled, not in force, the reasons for waiting, or what became of an
    /// attempt that did not end as wanted; empty when there is none.
    pub fn why(&self) -> String {
        let says = |name: &str, truth: Truth| {
            self.conditions().iter().find(|condition| condition.r#type == name && condition.status == truth)
        };
        if let Some(condition) = says("Stalled", Truth::True).or_else(|| says("InForce", Truth::False)) {
            return format!("{}: {}", condition.reason, condition.message);
        }
        let messages: Vec<&str> = self.waiting_for().iter().map(|waiting| waiting.message.as_str()).collect();
        if messages.is_empty() {
            let ready = self.conditions().iter().find(|condition| condition.r#type == "Ready");
            let under_way = says("Reconciling", Truth::True).is_some();
            let tells = |condition: &&Condition| {
                condition.reason == Reason::RolledBack.as_str()
                    || (condition.status == Truth::False && !under_way)
            };
            return ready
                .filter(tells)
                .map(|condition| format!("{}: {}", condition.reason, condition.message))
                .unwrap_or_default();
        }
        messages.join(" ")
    }

    /// Reason name of what stands in the way, or of what went wrong; absent while all goes its way.
    pub fn reason(&self) -> Option<&str> {
        let says = |name: &str, truth: Truth| {
            self.conditions().iter().find(|condition| condition.r#type == name && condition.status == truth)
        };
        let settled = says("Ready", Truth::True).filter(|ready| ready.reason == Reason::RolledBack.as_str());
        let known = says("Stalled", Truth::True).or_else(|| says("InForce", Truth::False)).or(settled);
        if let Some(condition) = known {
            return Some(&condition.reason);
        }
        let failed = self.cni().and_then(|status| status.rollback.as_ref());
        let brake = || self.waiting_for().iter().map(|waiting| waiting.reason.as_str());
        let brake = || brake().find(|reason| ["Paused", "Held", "HoldOverdue"].contains(reason));
        failed.map(|rollback| rollback.reason.as_str()).or_else(brake)
    }

    /// Phase changes that `before`, the file as published, does not tell of yet: their positions.
    pub fn missing_since(&self, before: Option<&Self>) -> Vec<usize> {
        let all = self.transitions();
        let Some(last) = before.and_then(|before| before.transitions().last()) else {
            return (0..all.len()).collect();
        };
        match all.iter().rposition(|transition| transition == last) {
            Some(position) => (position + 1..all.len()).collect(),
            None => (0..all.len())
                .filter(|index| all.get(*index).is_some_and(|transition| transition.at > last.at))
                .collect(),
        }
    }

    /// The file as it stood right after one of its phase changes: only what is known of that moment.
    #[must_use]
    pub fn as_of(&self, index: usize) -> Self {
        match self {
            Self::Cni(document) => {
                let status = cni_as_of(&document.status, index).unwrap_or_else(|| document.status.clone());
                Self::Cni(Box::new(Document { status, ..(**document).clone() }))
            }
            Self::Service(_) => self.clone(),
        }
    }

    /// The file after the end of an attempt that only the ledger still tells of, and when that was; absent
    /// when the file tells of it already or its phase does not change by it.
    pub fn ended(&self, attempt: &AttemptEntry) -> Option<(Self, Timestamp)> {
        let Self::Cni(document) = self else { return None };
        let (outcome, at) = (attempt.outcome?, attempt.finished_at?);
        let phase = phase_of(outcome)?;
        let known = document.status.attempt.as_ref();
        let told = known.is_some_and(|known| {
            known.number > attempt.number || (known.id == attempt.id && document.status.phase == phase)
        });
        if told {
            return None;
        }
        let mut status = document.status.clone();
        status.transitions.push(Transition { phase: phase.as_str().to_owned(), attempt: attempt.number, at });
        let surplus = status.transitions.len().saturating_sub(TRANSITIONS);
        status.transitions.drain(..surplus);
        let mut end = cni_as_of(&status, status.transitions.len().saturating_sub(1))?;
        end.target_version = Some(attempt.target_version.clone());
        if let Some(known) = &mut end.attempt {
            known.outcome = Some(outcome);
            known.finished_at = Some(at);
        }
        Some((Self::Cni(Box::new(Document { status: end, ..(**document).clone() })), at))
    }
}

const fn phase_of(outcome: Outcome) -> Option<CniPhase> {
    match outcome {
        Outcome::Completed | Outcome::AlreadyRuns | Outcome::CompletedWithFailures | Outcome::Returned => {
            Some(CniPhase::Completed)
        }
        Outcome::RolledBack | Outcome::RollbackIncomplete | Outcome::Held => Some(CniPhase::Failed),
        Outcome::Superseded | Outcome::Reverted => None,
    }
}

/// A status as it was right after one of its phase changes, without what was found out later.
fn cni_as_of(now: &CniUpgradeStatus, index: usize) -> Option<CniUpgradeStatus> {
    let transition = now.transitions.get(index)?;
    let phase = serde_json::from_value(Value::String(transition.phase.clone())).ok()?;
    let mut then = CniUpgradeStatus {
        phase,
        phase_started_at: Some(transition.at),
        transitions: now.transitions.iter().take(index + 1).cloned().collect(),
        history: now.history.iter().filter(|past| past.number < transition.attempt).cloned().collect(),
        ..CniUpgradeStatus::default()
    };
    if let Some(attempt) = now.attempt.as_ref().filter(|attempt| attempt.number == transition.attempt) {
        then.target_version.clone_from(&now.target_version);
        then.last_good.clone_from(&now.last_good);
        then.attempt = Some(Attempt { outcome: None, finished_at: None, ..attempt.clone() });
    } else {
        let past = now.history.iter().find(|past| past.number == transition.attempt);
        then.target_version = past.map(|past| past.target_version.clone());
    }
    Some(then)
}

/// A status without what only the machine needs.
fn published_cni(status: &CniUpgradeStatus) -> CniUpgradeStatus {
    let mut status = status.clone();
    status.epoch = None;
    status.conditions.retain(|condition| condition.r#type != GIT_PUBLISHED);
    status.nodes.baseline.clear();
    for intent in &mut status.nodes.open {
        intent.spent = 0;
        intent.as_of = intent.started_at;
    }
    // Observed time moves every few seconds; `waitingFor` says until when it is watched.
    status.observed = None;
    if let Some(last_good) = &mut status.last_good {
        last_good.template = None;
        last_good.beneath.iter_mut().for_each(|layer| layer.template = None);
    }
    status
}
