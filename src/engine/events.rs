//! Events about custom resources: best effort, beside everything else.
//!
//! Guarantees: an Event that was taken, was there already or was refused is not tried again; none takes the place of
//! another write, and none has a say in a decision.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Engine;
use crate::{
    report::events::{YOUNG, events},
    rollout::effect::{Effect, EffectId, EffectOutcome, Event, RejectionKind, StepName},
    world::{Key, Target},
};

/// Events that are being recorded at once.
const AT_ONCE: usize = 4;
/// Names remembered before those that nothing asks for any more are forgotten.
const KEPT: usize = 1024;

/// Events that need no request any more, with the time that they tell.
#[derive(Debug, Default)]
pub(super) struct Recorded(BTreeMap<String, Timestamp>);

impl Recorded {
    fn note(&mut self, name: &str, at: Timestamp, now: Timestamp) {
        if self.0.len() >= KEPT {
            self.0.retain(|_, at| now.duration_since(*at) < YOUNG);
        }
        self.0.insert(name.to_owned(), at);
    }
}

impl Engine {
    /// Wants the Events about a target that were not recorded yet.
    pub(super) fn want_events(&mut self, key: &Key, target: &Target, now: Timestamp) {
        for (claim, seen) in &self.world.claims {
            if self.world.target_of(claim) != *target {
                continue;
            }
            for event in events(claim, seen, now) {
                if self.recorded.0.contains_key(&event.name) {
                    continue;
                }
                let unit = event.name.clone();
                let id = EffectId { key: key.clone(), attempt: None, step: StepName::RecordEvent, unit };
                let (claim, uid) = (claim.clone(), seen.uid.clone());
                self.wanted.insert(id, Effect::RecordEvent { claim, uid, event: Box::new(event) });
            }
        }
    }

    /// Whether there is room for one more, beside `starting` others.
    pub(super) fn may_record(&self, starting: usize) -> bool {
        let running = self.running.iter().filter(|id| id.step == StepName::RecordEvent).count();
        running + starting < AT_ONCE
    }

    /// An Event was recorded or not; only where nobody answered it is tried again.
    pub(super) fn event_ended(
        &mut self,
        id: EffectId,
        effect: Effect,
        outcome: &EffectOutcome,
        now: Timestamp,
    ) {
        let Effect::RecordEvent { event, claim, .. } = &effect else { return };
        let unheard = match outcome {
            EffectOutcome::Done => {
                let Event { attempt, revision, reason, message, .. } = &**event;
                tracing::info!(object = %claim, attempt, revision, reason, "{message}");
                false
            }
            EffectOutcome::Moot => false,
            EffectOutcome::Unknown(_) => true,
            EffectOutcome::Rejected(no) => {
                tracing::warn!(effect = %id, object = %claim, kind = ?no.kind, why = no.message, "the event is not recorded");
                no.kind == RejectionKind::Unavailable
            }
        };
        if unheard {
            self.rests.note(id.clone(), effect, outcome, now, &mut self.dice);
            self.queue.hurry(id.key, now);
        } else {
            self.recorded.note(&event.name, event.at, now);
        }
    }
}
