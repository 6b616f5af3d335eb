//! Rest between two tries of one effect, so that nothing that a decision wants again and again becomes a hot loop.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    clock::later,
    dice::Dice,
    rollout::effect::{Effect, EffectId, EffectOutcome, RejectionKind},
};

/// Longest rest.
const LONGEST: Duration = Duration::from_secs(60);
/// Rests kept; older ones that are over go first.
const KEPT: usize = 4096;

#[derive(Debug)]
struct Rest {
    effect: Effect,
    /// Whether a changed effect under the same id rests as well.
    by_id: bool,
    until: Timestamp,
    tries: u32,
}

/// Effects that were tried, and until when each rests.
#[derive(Debug, Default)]
pub(super) struct Rests(BTreeMap<EffectId, Rest>);

impl Rests {
    /// Notes the end of a try.
    pub(super) fn note(
        &mut self,
        id: EffectId,
        effect: Effect,
        outcome: &EffectOutcome,
        now: Timestamp,
        dice: &mut Dice,
    ) {
        let (first, by_id) = match outcome {
            // Wanted again although it was done: what it does is not seen. Look, but not all the time.
            EffectOutcome::Done | EffectOutcome::Moot => (Duration::from_secs(1), false),
            EffectOutcome::Unknown(_) => (Duration::from_millis(500), true),
            EffectOutcome::Rejected(no) => match no.kind {
                // The next decision sees another version; only the same write again would be in vain.
                RejectionKind::Conflict | RejectionKind::NotFound | RejectionKind::RefMoved => {
                    (Duration::from_millis(100), false)
                }
                RejectionKind::Forbidden
                | RejectionKind::Invalid
                | RejectionKind::Unavailable
                | RejectionKind::PushRefused => (Duration::from_millis(500), true),
            },
        };
        let before = self.0.get(&id).filter(|rest| (rest.by_id && by_id) || rest.effect == effect);
        let tries = before.map_or(0, |rest| rest.tries).saturating_add(1);
        let until = later(now, dice.backoff(first, LONGEST, tries));
        self.0.insert(id, Rest { effect, by_id, until, tries });
        if self.0.len() > KEPT {
            self.0.retain(|_, rest| rest.until > now);
        }
    }

    /// Until when the effect rests; `None` = it may start.
    pub(super) fn until(&self, id: &EffectId, effect: &Effect, now: Timestamp) -> Option<Timestamp> {
        let rest = self.0.get(id)?;
        ((rest.by_id || rest.effect == *effect) && rest.until > now).then_some(rest.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{ClaimKey, names::Uid},
        rollout::effect::{Rejection, StepName},
        world::{Key, Target},
    };

    fn id() -> EffectId {
        let key = Key::Rollout(Target::Unresolved(ClaimKey::cni("a")));
        EffectId { key, attempt: None, step: StepName::DeleteClaim, unit: "a".to_owned() }
    }

    fn effect(uid: &str) -> Effect {
        Effect::DeleteClaim { claim: ClaimKey::cni("a"), uid: Uid::new(uid) }
    }

    fn no(kind: RejectionKind) -> EffectOutcome {
        EffectOutcome::Rejected(Rejection { kind, message: String::new() })
    }

    #[test]
    fn after_a_conflict_only_the_same_write_rests() {
        let (mut rests, now) = (Rests::default(), Timestamp::UNIX_EPOCH);
        rests.note(id(), effect("1"), &no(RejectionKind::Conflict), now, &mut Dice::new(1));
        assert!(rests.until(&id(), &effect("1"), now).is_some());
        assert_eq!(rests.until(&id(), &effect("2"), now), None);
    }

    #[test]
    fn an_unavailable_server_makes_every_try_rest_longer() {
        let (mut rests, mut dice) = (Rests::default(), Dice::new(1));
        let mut now = Timestamp::UNIX_EPOCH;
        let mut waits = Vec::new();
        for uid in ["1", "2", "3", "4"] {
            rests.note(id(), effect(uid), &no(RejectionKind::Unavailable), now, &mut dice);
            let until = rests.until(&id(), &effect("other"), now).unwrap();
            waits.push(crate::clock::until(now, until));
            now = until;
        }
        assert!(waits.is_sorted() && waits[3] > Duration::from_secs(3), "{waits:?}");
        assert_eq!(rests.until(&id(), &effect("4"), now), None);
    }
}
