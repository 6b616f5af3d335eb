//! What changed between two looks at a status, as lines for people and values for programs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{
    CniUpgradeStatus,
    names::NodeName,
    status::{AttemptKind, IntentKind, NodeFailure, Truth},
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// When it is known to have happened, in virtual time.
    pub(super) at: Timestamp,
    /// `phase`, `node`, `waiting`, `condition`, `commit`.
    pub(super) kind: &'static str,
    /// One line.
    pub(super) text: String,
    /// The same for programs.
    pub(super) data: Value,
}

/// Differences of two statuses of one object.
pub(super) fn between(
    object: &str,
    old: &CniUpgradeStatus,
    new: &CniUpgradeStatus,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = phases(object, old, new);
    events.extend(nodes(old, new, now));
    events.extend(waiting(old, new, now));
    events.extend(conditions(object, old, new, now));
    events
}

fn phases(object: &str, old: &CniUpgradeStatus, new: &CniUpgradeStatus) -> Vec<Event> {
    let known = |at: Timestamp, attempt, phase: &str| {
        old.transitions.iter().any(|t| t.at == at && t.attempt == attempt && t.phase == phase)
    };
    let fresh = new.transitions.iter().filter(|t| !known(t.at, t.attempt, &t.phase));
    fresh
        .map(|t| {
            let target = new.target_version.clone().unwrap_or_default();
            Event {
                at: t.at,
                kind: "phase",
                text: format!("{object} {} (attempt {}, {target})", t.phase, t.attempt),
                data: json!({ "object": object, "phase": t.phase, "attempt": t.attempt, "target": target }),
            }
        })
        .collect()
}

fn nodes(old: &CniUpgradeStatus, new: &CniUpgradeStatus, now: Timestamp) -> Vec<Event> {
    let open = |status: &CniUpgradeStatus| -> BTreeMap<NodeName, IntentKind> {
        status.nodes.open.iter().map(|intent| (intent.node.clone(), intent.kind)).collect()
    };
    let failed = |status: &CniUpgradeStatus| -> BTreeSet<(NodeName, bool)> {
        status.nodes.failures.iter().map(|failure| (failure.node.clone(), failure.in_rollback)).collect()
    };
    let event = |node: &NodeName, state: &str, text: String| Event {
        at: now,
        kind: "node",
        text: format!("  {node} {text}"),
        data: json!({ "node": node, "state": state, "text": text }),
    };
    let (before, after, failures) = (open(old), open(new), failed(new));
    let back = version_back(new).or_else(|| version_back(old)).unwrap_or("what ran before");
    let mut events = Vec::new();
    let known = failed(old);
    let fresh = |failure: &&NodeFailure| !known.contains(&(failure.node.clone(), failure.in_rollback));
    for failure in new.nodes.failures.iter().filter(fresh) {
        let text = format!("failed: {} ({})", failure.reason, failure.message);
        events.push(event(&failure.node, "failed", text));
    }
    for (node, kind) in after.iter().filter(|(node, kind)| before.get(*node) != Some(kind)) {
        let text = match kind {
            IntentKind::Upgrade => "its agent pod is replaced".to_owned(),
            IntentKind::PutBack => format!("its agent pod is replaced, back to {back}"),
        };
        events.push(event(node, "acting", text));
    }
    for (node, kind) in before.iter().filter(|(node, _)| !after.contains_key(*node)) {
        let text = match kind {
            IntentKind::Upgrade => "healthy".to_owned(),
            IntentKind::PutBack => format!("healthy again on {back}"),
        };
        if !failures.contains(&(node.clone(), *kind == IntentKind::PutBack)) {
            events.push(event(node, "settled", text));
        }
    }
    events
}

/// The version that nodes are put back to.
fn version_back(status: &CniUpgradeStatus) -> Option<&str> {
    let returns = status.attempt.as_ref().is_some_and(|attempt| attempt.kind == AttemptKind::Return);
    let last_good = || status.last_good.as_ref().map(|good| good.version.as_str());
    if returns { status.target_version.as_deref() } else { last_good() }
}

fn waiting(old: &CniUpgradeStatus, new: &CniUpgradeStatus, now: Timestamp) -> Vec<Event> {
    let quiet = ["Settling", "Budget", "Controller", "DryRun", "Record", "Revision"];
    let known: BTreeSet<&str> = old.waiting_for.iter().map(|waiting| waiting.reason.as_str()).collect();
    let fresh = new.waiting_for.iter().filter(|waiting| {
        !known.contains(waiting.reason.as_str()) && !quiet.contains(&waiting.reason.as_str())
    });
    fresh
        .map(|waiting| Event {
            at: now,
            kind: "waiting",
            text: format!("  waits: {}", waiting.message),
            data: json!({ "reason": waiting.reason, "message": waiting.message, "until": waiting.until }),
        })
        .collect()
}

fn conditions(object: &str, old: &CniUpgradeStatus, new: &CniUpgradeStatus, now: Timestamp) -> Vec<Event> {
    let told = ["Ready", "RolledBack", "Stalled", "StrategyHeld"];
    let fresh = new.conditions.iter().filter(|condition| {
        let before = old.conditions.iter().find(|old| old.r#type == condition.r#type);
        let changed =
            before.is_none_or(|old| old.status != condition.status || old.reason != condition.reason);
        let waited_for = new.waiting_for.iter().any(|waiting| waiting.message == condition.message);
        let told = told.contains(&condition.r#type.as_str()) && !waited_for;
        told && condition.status == Truth::True && changed
    });
    fresh
        .map(|condition| Event {
            at: now,
            kind: "condition",
            text: format!("{object} {}: {}. {}", condition.r#type, condition.reason, condition.message),
            data: json!({
                "object": object, "type": condition.r#type, "reason": condition.reason, "message": condition.message
            }),
        })
        .collect()
}
