//! Conditions by kstatus' rules: `Ready` always, `Reconciling` and `Stalled` only while true.

use jiff::Timestamp;

use crate::api::{
    reasons::Reason,
    status::{Condition, Truth},
};

/// Longest message of a condition, in characters.
const MESSAGE: usize = 1500;

/// The conditions of one status, for one generation and time.
#[derive(Debug)]
pub(super) struct Conditions<'a> {
    list: &'a mut Vec<Condition>,
    generation: i64,
    now: Timestamp,
}

impl<'a> Conditions<'a> {
    /// Opens a list of conditions for changes.
    pub(super) fn of(list: &'a mut Vec<Condition>, generation: i64, now: Timestamp) -> Self {
        Self { list, generation, now }
    }

    /// Sets one condition; the time of transition moves only when its status does.
    pub(super) fn set(&mut self, kind: &str, status: Truth, reason: Reason, message: impl Into<String>) {
        let message: String = message.into().chars().take(MESSAGE).collect();
        let old = self.list.iter().find(|condition| condition.r#type == kind);
        let since = old.filter(|old| old.status == status).map_or(self.now, |old| old.last_transition_time);
        let new = Condition {
            r#type: kind.to_owned(),
            status,
            reason: reason.as_str().to_owned(),
            message,
            last_transition_time: since,
            observed_generation: Some(self.generation),
        };
        self.list.retain(|condition| condition.r#type != kind);
        self.list.push(new);
        self.list.sort_by(|a, b| a.r#type.cmp(&b.r#type));
    }

    /// Whether a condition is true.
    pub(super) fn holds(&self, kind: &str) -> bool {
        self.list.iter().any(|condition| condition.r#type == kind && condition.status == Truth::True)
    }

    /// Whether a condition is there, whatever it says.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.list.iter().any(|condition| condition.r#type == kind)
    }

    /// Takes conditions out that are not true any more.
    pub(super) fn clear(&mut self, kinds: &[&str]) {
        self.list.retain(|condition| !kinds.contains(&condition.r#type.as_str()));
    }

    /// Ready: all is as declared.
    pub(super) fn ready(&mut self, reason: Reason, message: impl Into<String>) {
        self.set("Ready", Truth::True, reason, message);
        self.clear(&["Reconciling", "Stalled"]);
    }

    /// On the way: not ready, reconciling.
    pub(super) fn reconciling(&mut self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        self.set("Ready", Truth::False, reason, message.clone());
        self.set("Reconciling", Truth::True, reason, message);
        self.clear(&["Stalled"]);
    }

    /// Stuck until people change something.
    pub(super) fn stalled(&mut self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        self.set("Ready", Truth::False, reason, message.clone());
        self.set("Stalled", Truth::True, reason, message);
        self.clear(&["Reconciling"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of the conditions that are true after these steps, one second apart.
    fn after(steps: &[fn(&mut Conditions<'_>)]) -> Vec<String> {
        let mut list = Vec::new();
        for (second, step) in (0..).zip(steps) {
            let now = Timestamp::from_second(second).unwrap();
            step(&mut Conditions::of(&mut list, 1, now));
        }
        let is_true = |condition: &&Condition| condition.status == Truth::True;
        list.iter().filter(is_true).map(|condition| condition.r#type.clone()).collect()
    }

    const READY: fn(&mut Conditions<'_>) = |conditions| conditions.ready(Reason::Completed, "done");
    const ON_THE_WAY: fn(&mut Conditions<'_>) =
        |conditions| conditions.reconciling(Reason::Progressing, "1/3");
    const STUCK: fn(&mut Conditions<'_>) = |conditions| conditions.stalled(Reason::Ambiguous, "two");

    #[test]
    fn of_ready_reconciling_and_stalled_only_the_last_that_was_said_is_true() {
        for before in [READY, ON_THE_WAY, STUCK] {
            assert_eq!(after(&[before, READY]), ["Ready"]);
            assert_eq!(after(&[before, ON_THE_WAY]), ["Reconciling"]);
            assert_eq!(after(&[before, STUCK]), ["Stalled"]);
        }
    }

    #[test]
    fn the_time_of_a_transition_moves_with_the_status_and_not_with_the_text() {
        let mut list = Vec::new();
        for (second, truth, text) in [(1, Truth::True, "a"), (2, Truth::True, "b"), (3, Truth::False, "b")] {
            let now = Timestamp::from_second(second).unwrap();
            Conditions::of(&mut list, second, now).set("Ready", truth, Reason::Completed, text);
            let moved = if truth == Truth::True { 1 } else { 3 };
            assert_eq!(list[0].last_transition_time.as_second(), moved);
            assert_eq!((list.len(), list[0].observed_generation), (1, Some(second)));
        }
    }
}
