//! Every guard of the machine, switched off, makes some seeded world break an invariant.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{workload::Trouble, *};
use crate::{
    rollout::guard::{Guard, without},
    sim::model::{Span, Timings},
};

/// Worlds tried for each guard.
const TRIES: u64 = 3000;
/// Guards looked at side by side.
const THREADS: usize = 2;

/// Seeds of worlds that are known to need a guard: tried before the others, which only cost time.
const fn known(guard: Guard) -> &'static [u64] {
    match guard {
        Guard::Budget
        | Guard::Scope
        | Guard::VerdictBeforeStart
        | Guard::Observation
        | Guard::Baseline
        | Guard::FailOnVerdict
        | Guard::SavedTemplate
        | Guard::ControllerSeen
        | Guard::BeforeGone
        | Guard::StrategyLast
        | Guard::RecordFirst
        | Guard::Brake
        | Guard::Mirrored
        | Guard::Leaked => &[],
    }
}

/// The first world that breaks an invariant without this guard.
fn catches(guard: Guard) -> Option<u64> {
    let caught = |seed: &u64| without(guard, || run(*seed, &Workload::of(*seed, None), false, None)).is_err();
    known(guard).iter().copied().chain(1..=TRIES).find(caught)
}

#[test]
fn each_guard_that_is_switched_off_is_caught() {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(guard) = Guard::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seed = catches(*guard);
                    println!("{guard:?} is caught by {seed:?}");
                    found.lock().unwrap().insert(*guard, seed);
                }
            });
        }
    });
    let missed: Vec<Guard> = found
        .into_inner()
        .unwrap()
        .into_iter()
        .filter(|(_, seed)| seed.is_none())
        .map(|(guard, _)| guard)
        .collect();
    assert_eq!(missed, [], "no invariant tells that they are off");
}

#[test]
fn the_first_deletion_waits_for_a_controller_that_learns_of_the_patch_late() {
    let mut workload = Workload::of(1, Some(5));
    workload.cluster.timings = Timings { view: Span::millis(25_000, 25_000), ..Timings::default() };
    (workload.deeds, workload.faults, workload.trouble) = (Vec::new(), Vec::new(), Trouble::default());
    let caught = without(Guard::ControllerSeen, || run(1, &workload, false, None)).unwrap_err();
    assert_eq!(caught.violation.law, Law::ControllerSeen);
    assert!(run(1, &workload, false, None).is_ok());
}
