//! Seeded randomness (SplitMix64): the same seed gives the same run, on every machine.

/// A stream of numbers that depends on its seed only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// Starts a stream.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, over the whole range.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included; `low` when the range is empty.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low);
        match width.checked_add(1) {
            Some(span) => low + self.draw() % span,
            None => self.draw(),
        }
    }

    /// True in `percent` of a hundred draws.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// One element, or none of an empty slice.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let last = u64::try_from(of.len()).ok()?.checked_sub(1)?;
        of.get(usize::try_from(self.between(0, last)).ok()?)
    }

    /// A stream of its own, so that more draws here do not shift draws there.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_stream() {
        let (mut a, mut b) = (Seed::new(7), Seed::new(7));
        assert_eq!((a.draw(), a.draw(), a.draw()), (b.draw(), b.draw(), b.draw()));
        assert_ne!(Seed::new(8).draw(), Seed::new(7).draw());
    }

    #[test]
    fn a_range_includes_both_ends_and_nothing_else() {
        let mut seed = Seed::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| seed.between(3, 5)).collect();
        assert_eq!(drawn, [3, 4, 5].into());
        assert_eq!(seed.between(9, 2), 9);
    }
}
