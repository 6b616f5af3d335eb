//! Keys whose decision panicked: each is tried again by itself, and never in a hot loop.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{clock::later, dice::Dice, world::Key};

/// First wait, and the least time between two tries however often something changes.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longest wait when nothing changes.
const LONGEST: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
struct Halt {
    why: String,
    tries: u32,
    tried: Timestamp,
    until: Timestamp,
}

/// Halted keys, with what the last panic of each said.
#[derive(Debug, Default)]
pub(super) struct Halts(BTreeMap<Key, Halt>);

impl Halts {
    /// Notes a panic; returns how many there were in a row.
    pub(super) fn note(&mut self, key: &Key, why: String, now: Timestamp, dice: &mut Dice) -> u32 {
        let tries = self.0.get(key).map_or(0, |halt| halt.tries).saturating_add(1);
        let until = later(now, dice.backoff(SHORTEST, LONGEST, tries));
        self.0.insert(key.clone(), Halt { why, tries, tried: now, until });
        tries
    }

    /// Something about the key changed, so that the next try need not wait for long.
    pub(super) fn touch(&mut self, key: &Key) {
        if let Some(halt) = self.0.get_mut(key) {
            halt.until = halt.until.min(later(halt.tried, SHORTEST));
        }
    }

    /// Until when the key rests, and why; absent = it may be decided about.
    pub(super) fn rest(&self, key: &Key, now: Timestamp) -> Option<(Timestamp, &str)> {
        let halt = self.0.get(key)?;
        // A try in the future means that the clock was set back.
        (halt.tried <= now && now < halt.until).then_some((halt.until, halt.why.as_str()))
    }

    /// A decision came; true if the key was halted until then.
    pub(super) fn lift(&mut self, key: &Key) -> bool {
        self.0.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::ClaimKey, clock::until, world::Target};

    fn key() -> Key {
        Key::Rollout(Target::Unresolved(ClaimKey::cni("a")))
    }

    #[test]
    fn each_panic_in_a_row_makes_the_key_rest_longer_up_to_half_an_hour() {
        let (mut halts, mut dice, mut now) = (Halts::default(), Dice::new(1), Timestamp::UNIX_EPOCH);
        let mut rests = Vec::new();
        for tries in 1..=8 {
            assert_eq!(halts.note(&key(), "why".to_owned(), now, &mut dice), tries);
            let (end, why) = halts.rest(&key(), now).unwrap();
            assert_eq!(why, "why");
            rests.push(until(now, end));
            now = end;
            assert_eq!(halts.rest(&key(), now), None);
        }
        assert!(rests[..5].is_sorted() && rests[0] >= Duration::from_secs(54), "{rests:?}");
        assert!(rests.iter().all(|rest| *rest <= LONGEST) && rests[7] > LONGEST * 8 / 10, "{rests:?}");
        assert!(halts.lift(&key()) && !halts.lift(&key()));
    }

    #[test]
    fn a_change_brings_the_next_try_forward_but_not_before_a_minute_has_passed() {
        let (mut halts, mut dice, now) = (Halts::default(), Dice::new(1), Timestamp::UNIX_EPOCH);
        for _ in 0..6 {
            halts.note(&key(), "why".to_owned(), now, &mut dice);
        }
        halts.touch(&key());
        assert!(halts.rest(&key(), later(now, Duration::from_secs(59))).is_some());
        assert_eq!(halts.rest(&key(), later(now, SHORTEST)), None);
    }
}
