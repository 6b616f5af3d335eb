//! Tier 1: whole seeded worlds through the real core, typed, without JSON between and without `async`.
//!
//! The world machine, the mirror pass and the rollout machine run in virtual time; between them stands what an engine
//! does (statuses first, then effects) and what can go wrong there: lost, late and repeated events, rejected writes,
//! lost answers, crashes, clock jumps. Every write and every status is judged by the invariants of `laws`. First come
//! faults, for safety; then they end, and everything has to come to rest within a bound.

mod harness;
mod laws;
mod repository;
mod witness;
pub mod workload;

use std::fmt;

pub use laws::{Law, Violation};

use crate::{
    rollout::{Case, Decision, Now},
    sim::model::Model,
};
use harness::Harness;
use workload::Workload;

/// What a run left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Digest over everything that was written, in order.
    pub hash: u64,
    /// Passes of the core.
    pub decisions: u64,
    /// Writes that were done.
    pub writes: u64,
    /// How it ended: phase, outcome and reasons for waiting.
    pub end: String,
    /// Everything that happened, if it was asked for.
    pub log: Vec<String>,
}

/// A run that broke an invariant.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// Seed of everything between the core and the cluster.
    pub seed: u64,
    /// What the world went through.
    pub workload: Box<Workload>,
    /// Which invariant.
    pub violation: Violation,
    /// Everything that happened.
    pub log: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        writeln!(f, "{:#?}", self.workload)?;
        self.log.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// One pass of the rollout machine, as a watcher sees it.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// What it looked at.
    pub case: Case<'a>,
    /// When.
    pub now: Now,
    /// What it decided.
    pub decision: &'a Decision,
    /// The cluster at that time, which the world may be behind.
    pub model: &'a Model,
}

type Watch<'w> = &'w mut dyn FnMut(&Moment<'_>);

/// Runs a workload to its end.
pub fn core_run(seed: u64, workload: &Workload) -> Result<Trace, Box<Broken>> {
    run(seed, workload, false, None).map_err(|_| {
        // The same again, this time with the log: a run depends on nothing but seed and workload.
        core_log(seed, workload).err().unwrap_or_else(|| Box::new(unstable(seed, workload)))
    })
}

/// Runs a workload and keeps the log.
pub fn core_log(seed: u64, workload: &Workload) -> Result<Trace, Box<Broken>> {
    run(seed, workload, true, None)
}

/// Runs a workload and shows every pass of the rollout machine to a watcher.
pub fn core_watch(
    seed: u64,
    workload: &Workload,
    watch: &mut dyn FnMut(&Moment<'_>),
) -> Result<Trace, Box<Broken>> {
    run(seed, workload, false, Some(watch))
}

/// The shortest run that can be found that still breaks the same invariant: without the deeds, faults and trouble
/// that it does not need.
pub fn shortest(broken: Broken) -> Broken {
    let (seed, law) = (broken.seed, broken.violation.law);
    let mut best = broken;
    'again: loop {
        for smaller in best.workload.smaller() {
            if let Err(found) = run(seed, &smaller, true, None)
                && found.violation.law == law
            {
                best = *found;
                continue 'again;
            }
        }
        return best;
    }
}

fn run(seed: u64, workload: &Workload, log: bool, watch: Option<Watch<'_>>) -> Result<Trace, Box<Broken>> {
    let mut harness = Harness::new(seed, workload, log, watch);
    match harness.run() {
        Ok(()) => Ok(harness.trace()),
        Err(violation) => Err(Box::new(Broken {
            seed,
            workload: Box::new(workload.clone()),
            violation,
            log: harness.trace().log,
        })),
    }
}

fn unstable(seed: u64, workload: &Workload) -> Broken {
    let what = "the same run did not fail again: it depends on more than its seed".to_owned();
    let violation = Violation { law: Law::Agreement, what, at: workload.cluster.now };
    Broken { seed, workload: Box::new(workload.clone()), violation, log: Vec::new() }
}

#[cfg(test)]
mod tests;
