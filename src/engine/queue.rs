//! What has to be looked at again, and when.
//!
//! Guarantees: a key is due at once after quiet, then at most every `SPACING`; hurrying a key many times makes it due
//! once; equal due times leave in key order, so that runs repeat.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

use crate::clock::later;

/// Least time between two takes of one key.
pub const SPACING: Duration = Duration::from_millis(5);

/// Keys by the time at which they are due.
#[derive(Debug, Clone)]
pub struct Queue<K> {
    due: BTreeMap<K, Timestamp>,
    order: BTreeSet<(Timestamp, K)>,
    taken: BTreeMap<K, Timestamp>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), order: BTreeSet::new(), taken: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Makes a key due as soon as its spacing allows.
    pub fn hurry(&mut self, key: K, now: Timestamp) {
        // A take in the future means that the clock was set back.
        let free = self.taken.get(&key).filter(|taken| **taken <= now).map(|taken| later(*taken, SPACING));
        self.after(key, free.map_or(now, |free| free.max(now)));
    }

    /// Makes every key that waits due now; for a clock that was set back.
    pub fn hurry_all(&mut self, now: Timestamp) {
        for key in self.due.keys().cloned().collect::<Vec<_>>() {
            self.after(key, now);
        }
    }

    /// Makes a key due at `at`, unless it is due before.
    pub fn after(&mut self, key: K, at: Timestamp) {
        if let Some(due) = self.due.get(&key) {
            if *due <= at {
                return;
            }
            self.order.remove(&(*due, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// Takes the key that has been due longest.
    pub fn take(&mut self, now: Timestamp) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        self.taken.retain(|_, taken| later(*taken, SPACING) > now);
        self.taken.insert(key.clone(), now);
        Some(key)
    }

    /// How many keys are due.
    pub fn depth(&self, now: Timestamp) -> usize {
        self.order.iter().take_while(|(at, _)| *at <= now).count()
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn a_key_is_due_at_once_after_quiet_and_then_once_per_spacing() {
        let mut queue = Queue::default();
        queue.hurry("a", at(100));
        queue.hurry("a", at(100));
        assert_eq!(queue.take(at(100)), Some("a"));
        assert_eq!(queue.take(at(100)), None);
        queue.hurry("a", at(101));
        assert_eq!(queue.take(at(104)), None);
        assert_eq!(queue.next_due(), Some(at(105)));
        assert_eq!(queue.take(at(105)), Some("a"));
        queue.hurry("a", at(500));
        assert_eq!(queue.take(at(500)), Some("a"));
    }

    #[test]
    fn the_earliest_wish_for_a_key_wins() {
        let mut queue = Queue::default();
        queue.after("a", at(900));
        queue.after("a", at(300));
        queue.after("a", at(700));
        assert_eq!(queue.next_due(), Some(at(300)));
        queue.hurry("a", at(200));
        assert_eq!(queue.take(at(200)), Some("a"));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_no_key() {
        let mut queue = Queue::default();
        queue.hurry("a", at(9000));
        assert_eq!(queue.take(at(9000)), Some("a"));
        queue.after("b", at(9500));
        queue.hurry("a", at(10));
        queue.hurry_all(at(10));
        assert_eq!((queue.take(at(10)), queue.take(at(10))), (Some("a"), Some("b")));
    }

    #[test]
    fn keys_leave_in_order_of_time_and_then_of_name() {
        let mut queue = Queue::default();
        queue.after("c", at(1));
        queue.after("b", at(2));
        queue.after("a", at(2));
        assert_eq!((queue.depth(at(0)), queue.depth(at(1)), queue.depth(at(2))), (0, 1, 3));
        let order: Vec<_> = std::iter::from_fn(|| queue.take(at(5))).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }
}
