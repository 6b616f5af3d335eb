//! Whether the engine lives and what it is not ready for, as others in the process may ask at any time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use crate::clock::{later, until};

/// The engine turns at least this often, also when nothing happens.
pub(super) const TURN: Duration = Duration::from_secs(10);
/// An engine that has not turned for so long is stuck; longer than it may take to end.
const STUCK: Duration = Duration::from_secs(60);

/// What is known of the engine of this process; a clone is the same knowledge.
#[derive(Debug, Clone, Default)]
pub struct Vitals(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Absent before the first turn.
    turned: Option<Timestamp>,
    unready: Vec<String>,
    /// What said last words, by name.
    ended: BTreeMap<String, String>,
    stopping: bool,
}

impl Vitals {
    /// What is wrong with the process itself, one line each, so that only a new one can help; empty = it is healthy.
    pub fn faults(&self, now: Timestamp) -> Vec<String> {
        let state = self.state();
        let mut faults: Vec<String> =
            state.ended.iter().map(|(task, why)| format!("{task} ended unexpectedly: {why}")).collect();
        if let Some(turned) = state.turned.filter(|turned| until(*turned, now) > STUCK) {
            faults.push(format!("the engine has not turned since {turned}"));
        }
        faults
    }

    /// What is not ready, one line each; empty = everything is.
    pub fn unready(&self) -> Vec<String> {
        let state = self.state();
        if state.stopping {
            return vec!["the process is stopping".to_owned()];
        }
        if state.turned.is_none() {
            return vec!["the engine has not started yet".to_owned()];
        }
        state.unready.clone()
    }

    /// From now on nothing is ready: the process ends.
    pub fn stop(&self) {
        self.state().stopping = true;
    }

    /// The engine turned; it is not ready for these.
    pub(crate) fn turned(&self, now: Timestamp, unready: Vec<String>) {
        let mut state = self.state();
        state.turned = Some(now);
        state.unready = unready;
    }

    /// A task that should live as long as the engine ended.
    pub(super) fn ended(&self, task: String, why: String) {
        self.state().ended.insert(task, why);
    }

    /// When the engine turns next at the latest.
    pub(super) fn next_turn(now: Timestamp) -> Timestamp {
        later(now, TURN)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_engine_that_has_not_turned_for_a_minute_is_stuck() {
        let vitals = Vitals::default();
        assert_eq!(vitals.faults(at(1000)), Vec::<String>::new());
        vitals.turned(at(1000), Vec::new());
        assert_eq!(vitals.faults(at(1060)), Vec::<String>::new());
        assert_eq!(vitals.faults(at(1061)), ["the engine has not turned since 1970-01-01T00:16:40Z"]);
    }

    #[test]
    fn a_task_that_ended_is_told_until_the_process_is_another() {
        let vitals = Vitals::default();
        vitals.turned(at(1), Vec::new());
        vitals.ended("feed Nodes".to_owned(), "it panicked".to_owned());
        vitals.turned(at(2), Vec::new());
        assert_eq!(vitals.faults(at(2)), ["feed Nodes ended unexpectedly: it panicked"]);
    }

    #[test]
    fn nothing_is_ready_before_the_first_turn_and_after_the_stop() {
        let vitals = Vitals::default();
        assert_eq!(vitals.unready(), ["the engine has not started yet"]);
        vitals.turned(at(1), vec!["a".to_owned()]);
        assert_eq!(vitals.unready(), ["a"]);
        vitals.turned(at(2), Vec::new());
        assert_eq!(vitals.unready(), Vec::<String>::new());
        vitals.stop();
        assert_eq!(vitals.unready(), ["the process is stopping"]);
    }
}
