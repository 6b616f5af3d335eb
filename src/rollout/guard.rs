//! Guards by name, so that a test can switch one off and show that an invariant catches it.
//!
//! Outside tests `on` is always true and costs nothing.

/// One safety rule of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// Never more in flight than `maxParallel` (I1).
    Budget,
    /// Only nodes in scope are started (I2).
    Scope,
    /// Nobody new starts while the verdict fails or untouched nodes turn bad (I3).
    VerdictBeforeStart,
    /// The canary must hold for the whole period (I4).
    Observation,
    /// Nodes that were unhealthy before are no canaries and no failures (I5).
    Baseline,
    /// A failed verdict starts rollback or hold (I6).
    FailOnVerdict,
    /// The rollback goes to the saved template (I7).
    SavedTemplate,
    /// The first deletion waits for the controller to have seen the patch.
    ControllerSeen,
    /// A node settles only when the pod of before is gone (I8).
    BeforeGone,
    /// The strategy goes back only when every pod is on the template's revision.
    StrategyLast,
    /// The attempt record stands before the first effect (I7).
    RecordFirst,
    /// Paused or held: nothing new starts (I14).
    Brake,
    /// Only the accepted form of a declaration acts.
    Mirrored,
    /// Rollback also puts back pods outside the scope that took the template.
    Leaked,
}

impl Guard {
    /// All guards.
    pub const ALL: &'static [Self] = &[
        Self::Budget,
        Self::Scope,
        Self::VerdictBeforeStart,
        Self::Observation,
        Self::Baseline,
        Self::FailOnVerdict,
        Self::SavedTemplate,
        Self::ControllerSeen,
        Self::BeforeGone,
        Self::StrategyLast,
        Self::RecordFirst,
        Self::Brake,
        Self::Mirrored,
        Self::Leaked,
    ];
}

#[cfg(not(any(test, feature = "mutants")))]
#[inline]
pub(crate) const fn on(_guard: Guard) -> bool {
    true
}

#[cfg(any(test, feature = "mutants"))]
mod switch {
    use std::cell::Cell;

    use super::Guard;

    thread_local! {
        static OFF: Cell<Option<Guard>> = const { Cell::new(None) };
    }

    pub(crate) fn on(guard: Guard) -> bool {
        OFF.with(|off| off.get() != Some(guard))
    }

    /// Runs `body` on this thread with one guard switched off.
    pub fn without<T>(guard: Guard, body: impl FnOnce() -> T) -> T {
        OFF.with(|off| off.set(Some(guard)));
        let result = body();
        OFF.with(|off| off.set(None));
        result
    }
}

#[cfg(any(test, feature = "mutants"))]
pub(crate) use switch::on;
#[cfg(any(test, feature = "mutants"))]
pub use switch::without;
