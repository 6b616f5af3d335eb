//! Observed time: accumulated in quanta, only while something was watched and held.
//!
//! Guarantees: neither clock jumps nor downtime shorten a period; a crash loses at most one quantum; one step never
//! adds more than two quanta.

use jiff::{SignedDuration, Timestamp};

use crate::api::status::Observed;

/// Seconds in which observed time is stored: a twentieth of the goal, at least 15.
pub const fn quantum(goal: i64) -> i64 {
    if goal / 20 > 15 { goal / 20 } else { 15 }
}

/// Seconds from one time to another, never negative.
pub fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs().max(0)
}

/// A time some seconds after another.
pub fn later(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// One step: the new value, and when the next step is due while it goes on holding.
///
/// `live` is since when all feeds have been live without a gap; `None` while one is not.
pub fn advance(
    observed: Option<Observed>,
    holds: bool,
    live: Option<Timestamp>,
    goal: i64,
    now: Timestamp,
) -> (Observed, Option<Timestamp>) {
    let old = observed.unwrap_or(Observed { total: 0, as_of: None });
    let (true, Some(live)) = (holds, live) else {
        return (Observed { total: old.total, as_of: None }, None);
    };
    // A time that has not come yet is of a clock that was set back, or of an edit: counting begins anew.
    let Some(as_of) = old.as_of.filter(|as_of| *as_of <= now) else {
        let fresh = Observed { total: old.total, as_of: Some(now) };
        return (fresh, Some(later(now, quantum(goal).min(goal.saturating_sub(old.total).max(0)))));
    };
    let quantum = quantum(goal);
    let from = as_of.max(live);
    let elapsed = seconds(from, now);
    let missing = goal.saturating_sub(old.total).max(0);
    if missing == 0 {
        // Full: writing its time again in every pass would be a loop of writes.
        return (old, None);
    }
    if elapsed < quantum.min(missing) {
        return (old, Some(later(from, quantum.min(missing))));
    }
    let counted = elapsed.min(2 * quantum);
    let total = old.total.saturating_add(counted);
    // Whole seconds are counted, so their remainder goes on counting and the end does not move.
    let as_of = if counted == elapsed { later(from, counted) } else { now };
    let new = Observed { total, as_of: Some(as_of) };
    (new, (total < goal).then(|| later(as_of, quantum.min(goal.saturating_sub(total)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn a_period_is_full_only_after_all_its_time_was_watched() {
        let (mut observed, mut due) = advance(None, true, Some(at(0)), 1800, at(100));
        let mut steps = 0;
        while let Some(next) = due {
            (observed, due) = advance(Some(observed), true, Some(at(0)), 1800, next);
            steps += 1;
        }
        assert_eq!((observed.total, steps), (1800, 20));
        assert_eq!(observed.as_of, Some(at(1900)));
    }

    #[test]
    fn a_full_period_is_not_written_again_while_something_else_is_waited_for() {
        let full = Observed { total: 60, as_of: Some(at(60)) };
        assert_eq!(advance(Some(full), true, Some(at(0)), 60, at(500)), (full, None));
    }

    #[test]
    fn time_without_watching_does_not_count() {
        let old = Observed { total: 90, as_of: Some(at(0)) };
        let (new, _) = advance(Some(old), true, Some(at(10_000)), 1800, at(10_090));
        assert_eq!(new.total, 180);
    }

    #[test]
    fn a_clock_that_jumps_ahead_adds_two_quanta_at_most() {
        let old = Observed { total: 0, as_of: Some(at(0)) };
        let (new, _) = advance(Some(old), true, Some(at(0)), 1800, at(1_000_000));
        assert_eq!(new.total, 180);
    }

    #[test]
    fn a_clock_that_jumps_back_takes_nothing_away_and_delays_nothing() {
        let old = Observed { total: 90, as_of: Some(at(5000)) };
        let (new, due) = advance(Some(old), true, Some(at(0)), 1800, at(100));
        assert_eq!(new, Observed { total: 90, as_of: Some(at(100)) });
        assert_eq!(due, Some(at(190)));
    }

    #[test]
    fn what_does_not_hold_keeps_its_total_and_loses_its_running_time() {
        let old = Observed { total: 90, as_of: Some(at(0)) };
        let (new, due) = advance(Some(old), false, Some(at(0)), 1800, at(500));
        assert_eq!((new, due), (Observed { total: 90, as_of: None }, None));
    }
}
