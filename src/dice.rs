//! Chance: one seeded generator, so that a run can be repeated.

use std::time::Duration;

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed; equal seeds give equal throws.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Next number.
    pub const fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Generator of its own for somebody else.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.throw())
    }

    /// A duration up to ten percent away from the given one, in whole milliseconds.
    pub fn jitter(&mut self, around: Duration) -> Duration {
        let tenth = u64::try_from(around.as_millis() / 10).unwrap_or(u64::MAX);
        let spread = tenth.saturating_mul(2).saturating_add(1);
        around.saturating_sub(Duration::from_millis(tenth)) + Duration::from_millis(self.throw() % spread)
    }

    /// Wait before try number `tries` (from 1): doubled each time, jittered, never above `most`.
    pub fn backoff(&mut self, first: Duration, most: Duration, tries: u32) -> Duration {
        let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        self.jitter(first.saturating_mul(factor).min(most)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_throws_and_forks_differ() {
        let (mut a, mut b) = (Dice::new(7), Dice::new(7));
        assert_eq!((a.throw(), a.throw()), (b.throw(), b.throw()));
        assert_ne!(a.fork().throw(), a.fork().throw());
    }

    #[test]
    fn jitter_stays_within_ten_percent() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            let wait = dice.jitter(Duration::from_secs(30));
            assert!((Duration::from_secs(27)..=Duration::from_secs(33)).contains(&wait), "{wait:?}");
        }
    }

    #[test]
    fn backoff_doubles_and_ends_at_its_limit() {
        let mut dice = Dice::new(1);
        let mut wait = |tries| dice.backoff(Duration::from_secs(1), Duration::from_secs(60), tries);
        assert!(wait(1) < Duration::from_millis(1101));
        assert!(wait(4) > Duration::from_millis(7199));
        assert!(wait(40) <= Duration::from_secs(60));
    }
}
