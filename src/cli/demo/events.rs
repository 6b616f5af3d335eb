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
    let phases = phases(object, old, new);
    // Nodes that are done with may be why the phase changed, and the phase why others are acted on.
    let before = phases.iter().map(|phase| phase.at).min().map_or(now, |at| at.min(now));
    let mut events = done_with(old, new, before);
    events.extend(phases);
    events.extend(acted_on(old, new, now));
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

fn node(at: Timestamp, node: &NodeName, state: &str, text: &str) -> Event {
    Event {
        at,
        kind: "node",
        text: format!("  {node} {text}"),
        data: json!({ "node": node, "state": state, "text": text }),
    }
}

fn open(status: &CniUpgradeStatus) -> BTreeMap<&NodeName, IntentKind> {
    status.nodes.open.iter().map(|intent| (&intent.node, intent.kind)).collect()
}

/// Nodes that failed or became healthy.
fn done_with(old: &CniUpgradeStatus, new: &CniUpgradeStatus, at: Timestamp) -> Vec<Event> {
    let failed = |status: &CniUpgradeStatus| -> BTreeSet<(NodeName, bool)> {
        status.nodes.failures.iter().map(|failure| (failure.node.clone(), failure.in_rollback)).collect()
    };
    let (after, known, failures, back) = (open(new), failed(old), failed(new), back(old, new));
    let settled = open(old).into_iter().filter(|(name, kind)| {
        !after.contains_key(name) && !failures.contains(&((*name).clone(), *kind == IntentKind::PutBack))
    });
    let settled = settled.map(|(name, kind)| match kind {
        IntentKind::Upgrade => node(at, name, "settled", "healthy"),
        IntentKind::PutBack => node(at, name, "settled", &format!("healthy again on {back}")),
    });
    let fresh = |failure: &&NodeFailure| !known.contains(&(failure.node.clone(), failure.in_rollback));
    let failed = new.nodes.failures.iter().filter(fresh).map(|failure| {
        let text = format!("failed: {} ({})", failure.reason, failure.message);
        node(at, &failure.node, "failed", &text)
    });
    settled.chain(failed).collect()
}

/// Nodes that are acted on from now on.
fn acted_on(old: &CniUpgradeStatus, new: &CniUpgradeStatus, now: Timestamp) -> Vec<Event> {
    let (before, back) = (open(old), back(old, new));
    let fresh = open(new).into_iter().filter(|(name, kind)| before.get(name) != Some(kind));
    fresh
        .map(|(name, kind)| match kind {
            IntentKind::Upgrade => node(now, name, "acting", "its agent pod is replaced"),
            IntentKind::PutBack => {
                node(now, name, "acting", &format!("its agent pod is replaced, back to {back}"))
            }
        })
        .collect()
}

/// What nodes are put back to.
fn back<'s>(old: &'s CniUpgradeStatus, new: &'s CniUpgradeStatus) -> &'s str {
    version_back(new).or_else(|| version_back(old)).unwrap_or("what ran before")
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
