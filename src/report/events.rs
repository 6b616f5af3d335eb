//! What is told as Events about custom resources: progress, failures, refusals, the brake.

use jiff::{SignedDuration, Timestamp};

use super::{escape::line, waiting::hold_ahead, words::time};
use crate::{
    api::{
        ClaimKey, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::Uid,
        status::{Transition, Truth},
    },
    rollout::effect::Event,
    world::{Claim, ClaimStatus, Seen, digest},
};

/// Events are kept by the API server for an hour, so what is older is not told anew.
pub const YOUNG: SignedDuration = SignedDuration::from_hours(1);
/// Longest message of an Event, in bytes.
const MESSAGE: usize = 1024;
/// Longest part of an Event's name that is the name of its object.
const NAME: usize = 200;

/// Events that a `CNIUpgrade` should have had within the last hour; equal statuses give equal names.
pub fn events(key: &ClaimKey, claim: &Seen<Claim>, now: Timestamp) -> Vec<Event> {
    let ClaimStatus::Cni(status) = &claim.is.status else { return Vec::new() };
    let of = Subject { key, uid: &claim.uid };
    let phases = status.transitions.iter().map(|transition| of.phase(status, transition));
    let hold = claim
        .is
        .hold
        .as_ref()
        .and_then(|hold| Some(of.event("Held", true, hold.since?, None, &hold_ahead(key, hold).message)));
    let told = phases.chain(of.refusal(status)).chain(hold);
    told.filter(|event| event.at <= now && now.duration_since(event.at) < YOUNG).collect()
}

/// The object that Events are about.
struct Subject<'a> {
    key: &'a ClaimKey,
    uid: &'a Uid,
}

impl Subject<'_> {
    /// A phase that was entered; the present one says how it stands.
    fn phase(&self, status: &CniUpgradeStatus, transition: &Transition) -> Event {
        let Transition { phase, attempt, at } = transition;
        let entered = format!("Attempt {attempt} entered {phase}.");
        let present = status.transitions.last() == Some(transition);
        let ready = status.conditions.iter().find(|condition| present && condition.r#type == "Ready");
        let message = ready.map_or_else(|| entered.clone(), |ready| format!("{entered} {}", ready.message));
        let bad = matches!(CniPhase::parse(phase), Some(CniPhase::Rollback | CniPhase::Failed));
        let revision = status.attempt.as_ref().filter(|of| of.number == *attempt);
        let revision = revision.and_then(|of| of.revision.clone());
        Event { revision, ..self.event(phase, bad, *at, Some(*attempt), &message) }
    }

    /// What people have to change; the end of a failed attempt is told as its phase.
    fn refusal(&self, status: &CniUpgradeStatus) -> Option<Event> {
        let stalled = status.conditions.iter().find(|condition| condition.r#type == "Stalled")?;
        let refused = stalled.status == Truth::True && status.phase != CniPhase::Failed;
        let at = stalled.last_transition_time;
        refused.then(|| self.event(&stalled.reason, true, at, None, &stalled.message))
    }

    fn event(
        &self,
        reason: &str,
        warning: bool,
        at: Timestamp,
        attempt: Option<i64>,
        message: &str,
    ) -> Event {
        let identity = format!("{} {attempt:?} {reason} {}", self.uid, time(at));
        let hex = digest::hex(identity.as_bytes());
        let name: String = self.key.name.chars().take(NAME).collect();
        let name = format!("{}.{}", name.trim_end_matches(['.', '-']), hex.get(..16).unwrap_or(&hex));
        let mut message = line(message, MESSAGE);
        while message.len() > MESSAGE {
            message.pop();
        }
        Event { name, reason: reason.to_owned(), message, warning, at, attempt, revision: None }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::names::{Digest, Rv},
        world::Hold,
    };

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn claim(status: Value, hold: Option<Hold>) -> Seen<Claim> {
        let is = Claim {
            generation: 1,
            annotations: BTreeMap::new(),
            hold,
            foreign: false,
            finalizer: true,
            deleting: false,
            spec: Arc::new(json!({})),
            digest: Digest::new("d"),
            status: ClaimStatus::Cni(Box::new(serde_json::from_value(status).unwrap())),
        };
        Seen { uid: Uid::new("u-1"), rv: Rv(1), since: Timestamp::UNIX_EPOCH, is }
    }

    fn failed() -> Value {
        json!({
            "phase": "Failed",
            "transitions": [
                { "phase": "Pending", "attempt": 2, "at": "2026-03-01T09:00:00Z" },
                { "phase": "Canary", "attempt": 2, "at": "2026-03-01T10:00:00Z" },
                { "phase": "Rollback", "attempt": 2, "at": "2026-03-01T10:10:00Z" },
                { "phase": "Failed", "attempt": 2, "at": "2026-03-01T10:20:00Z" },
            ],
            "conditions": [
                { "type": "Ready", "status": "False", "reason": "FailedAndHeld", "message": "v3.28.0 failed: x\ny.",
                  "lastTransitionTime": "2026-03-01T10:20:00Z" },
                { "type": "Stalled", "status": "True", "reason": "FailedAndHeld", "message": "v3.28.0 failed: x\ny.",
                  "lastTransitionTime": "2026-03-01T10:20:00Z" },
            ],
        })
    }

    #[test]
    fn each_phase_of_the_last_hour_is_told_once_and_the_bad_ones_warn() {
        let (key, now) = (ClaimKey::cni("calico"), at("2026-03-01T10:30:00Z"));
        let told = events(&key, &claim(failed(), None), now);
        let shown: Vec<_> = told.iter().map(|event| (event.reason.as_str(), event.warning)).collect();
        assert_eq!(shown, [("Canary", false), ("Rollback", true), ("Failed", true)]);
        assert_eq!(told[0].message, "Attempt 2 entered Canary.");
        assert_eq!(told[2].message, "Attempt 2 entered Failed. v3.28.0 failed: x y.");
        assert_eq!(events(&key, &claim(failed(), None), now), told);
        let names: std::collections::BTreeSet<_> = told.iter().map(|event| &event.name).collect();
        assert!(names.len() == 3 && names.iter().all(|name| name.starts_with("calico.")), "{names:?}");
        assert_eq!(events(&key, &claim(failed(), None), at("2026-03-01T11:20:00Z")), []);
    }

    #[test]
    fn a_refusal_and_the_brake_warn_with_what_to_do() {
        let status = json!({
            "phase": "Pending",
            "conditions": [{ "type": "Stalled", "status": "True", "reason": "VersionSkew", "message": "Too far.",
                "lastTransitionTime": "2026-03-01T10:00:00Z" }],
        });
        let hold =
            Hold { reason: "wait\nfor me".to_owned(), by: None, since: Some(at("2026-03-01T10:05:00Z")) };
        let told = events(&ClaimKey::cni("calico"), &claim(status, Some(hold)), at("2026-03-01T10:06:00Z"));
        let shown: Vec<_> = told.iter().map(|event| (event.reason.as_str(), event.warning)).collect();
        assert_eq!(shown, [("VersionSkew", true), ("Held", true)]);
        assert!(told[1].message.contains("\"wait for me\"") && told[1].message.contains("kubectl annotate"));
    }

    #[test]
    fn a_name_and_a_message_fit_into_an_event() {
        let key = ClaimKey::cni(&format!("{}-{}", "a".repeat(199), "b".repeat(53)));
        let mut status = failed();
        status["conditions"][0]["message"] = json!("ä".repeat(1500));
        let told = events(&key, &claim(status, None), at("2026-03-01T10:30:00Z"));
        assert!(told[2].message.len() <= 1024, "{}", told[2].message.len());
        assert!(told[0].name.starts_with(&format!("{}.", "a".repeat(199))), "{}", told[0].name);
    }
}
