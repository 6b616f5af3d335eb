//! What trunkline asked of the API server, from the audit log, and the laws that it must hold there.
//!
//! The laws are about what was written, in the order in which the API server took it, whatever processes wrote it:
//! restarts, failovers and lost answers change nothing about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// One request that was answered.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    #[serde(default)]
    pub(crate) object_ref: Object,
    #[serde(default)]
    pub(crate) request_object: Value,
    #[serde(default)]
    pub(crate) response_object: Value,
    #[serde(default)]
    response_status: Code,
    /// When it came in.
    #[serde(rename = "requestReceivedTimestamp")]
    #[allow(dead_code, reason = "the bench of figures needs it")]
    pub(crate) began: Timestamp,
    /// When it was answered.
    #[serde(rename = "stageTimestamp")]
    #[allow(dead_code, reason = "the bench of figures needs it")]
    pub(crate) ended: Timestamp,
}

/// What a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct Object {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "apiGroup")]
    pub(crate) group: String,
    pub(crate) subresource: String,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

impl Entry {
    /// Whether the API server did what was asked.
    pub(crate) fn is_done(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Whether it asks for a change.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// What it is about: `pods`, `cniupgrades/status`.
    pub(crate) fn what(&self) -> String {
        match self.object_ref.subresource.as_str() {
            "" => self.object_ref.resource.clone(),
            sub => format!("{}/{sub}", self.object_ref.resource),
        }
    }
}

/// All requests of trunkline that were answered, in the order of their ends.
pub(crate) fn entries(log: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(log).unwrap();
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parsed = whole.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
    let mut known = BTreeSet::new();
    // A watch is logged at its start and at its end.
    parsed.filter(|entry| entry.stage != "Panic" && known.insert(entry.id.clone())).collect()
}

/// What the log shows, for a test to compare with what it expects.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Pods that were deleted, by UID, with the node whose intent stood before.
    pub(crate) deleted: BTreeMap<String, String>,
    /// Most intents open in one status.
    pub(crate) most_open: usize,
    /// Phases of each attempt in order.
    pub(crate) phases: BTreeMap<String, Vec<String>>,
}

/// Checks the laws; `Err` names the first that is broken.
pub(crate) fn check(entries: &[Entry], most_in_flight: usize) -> Result<Facts, String> {
    let mut facts = Facts::default();
    let mut statuses: BTreeMap<String, Value> = BTreeMap::new();
    let mut confirmed = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.writes()) {
        preconditioned(entry)?;
        // Who died before the answer is logged with 504, whether it was done or not.
        let unknown = entry.response_status.code == 504 && entry.what() == "pods";
        if !entry.is_done() && !unknown {
            continue;
        }
        match entry.what().as_str() {
            "cniupgrades/status" => {
                // One that is made anew by deletion counts its generations anew.
                let uid = entry.response_object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let status = entry.response_object["status"].clone();
                let before = statuses.insert(uid, status.clone()).unwrap_or(Value::Null);
                follows(&entry.object_ref.name, &before, &status)?;
                let open = status["nodes"]["open"].as_array().map_or(0, Vec::len);
                facts.most_open = facts.most_open.max(open);
                // On the way back nodes that failed already go at once, up to ten.
                let most =
                    if status["phase"] == "Rollback" { most_in_flight.max(10) } else { most_in_flight };
                if open > most {
                    return Err(format!("{open} nodes in flight: {status}"));
                }
                if let (Some(attempt), Some(phase)) =
                    (status["attempt"]["id"].as_str(), status["phase"].as_str())
                {
                    let phases = facts.phases.entry(attempt.to_owned()).or_default();
                    if phases.last().is_none_or(|last| last != phase) {
                        phases.push(phase.to_owned());
                    }
                }
            }
            "pods" => {
                let uid = entry.request_object["preconditions"]["uid"].as_str().unwrap_or_default();
                let node = intended(&statuses, uid)
                    .ok_or_else(|| format!("pod {uid} was deleted without an intent: {entry:?}"))?;
                facts.deleted.insert(uid.to_owned(), node);
                if !unknown && !confirmed.insert(uid) {
                    return Err(format!("pod {uid} was deleted twice"));
                }
            }
            _ => {}
        }
    }
    Ok(facts)
}

/// Every write says what it expects to find, none forces anything.
fn preconditioned(entry: &Entry) -> Result<(), String> {
    let body = &entry.request_object;
    let fine = match entry.verb.as_str() {
        "create" => true,
        "update" => body["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()),
        "patch" => body.as_array().is_some_and(|operations| {
            let tests = |path: &str| operations.iter().any(|of| of["op"] == "test" && of["path"] == path);
            tests("/metadata/uid") || tests("/metadata/resourceVersion")
        }),
        "delete" => body["preconditions"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()),
        _ => false,
    };
    let forced = entry.uri.contains("force=true");
    if fine && !forced { Ok(()) } else { Err(format!("a write without a precondition: {entry:?}")) }
}

/// A status may only go on from the one before.
fn follows(name: &str, before: &Value, after: &Value) -> Result<(), String> {
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
    for field in ["observedGeneration", "epoch"] {
        if number(after, field) < number(before, field) {
            return Err(format!("{field} of {name} went back: {before} -> {after}"));
        }
    }
    let (from, to) = (before["phase"].as_str().unwrap_or("Pending"), after["phase"].as_str().unwrap_or(""));
    let another = before["attempt"]["id"] != after["attempt"]["id"];
    let along = match from {
        _ if another || from == to => true,
        "Pending" => matches!(to, "Canary" | "RollingOut" | "Completed" | "Rollback"),
        "Canary" => matches!(to, "RollingOut" | "Rollback" | "Failed"),
        "RollingOut" => matches!(to, "Completed" | "Rollback" | "Failed"),
        "Rollback" => matches!(to, "Failed" | "Completed"),
        _ => false,
    };
    if along { Ok(()) } else { Err(format!("{name} went from {from} to {to} in one attempt")) }
}

/// The node of the open intent that is about this pod.
fn intended(statuses: &BTreeMap<String, Value>, uid: &str) -> Option<String> {
    let open = statuses.values().filter_map(|status| status["nodes"]["open"].as_array()).flatten();
    open.filter(|intent| intent["before"] == uid).find_map(|intent| Some(intent["node"].as_str()?.to_owned()))
}
