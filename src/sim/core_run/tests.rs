//! Every guard of the machine, switched off, makes some seeded world break an invariant.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    workload::{Deed, Trouble},
    *,
};
use crate::{
    rollout::guard::{Guard, without},
    sim::model::{
        Span, Timings,
        cluster::ZONE,
        fault::{Fault, FaultKind},
    },
};

/// Worlds tried for each guard.
const TRIES: u64 = 1000;
/// Guards looked at side by side.
const THREADS: usize = 2;

/// A world that needed the guard when it was written, tried before the others, which only cost time.
const fn known(guard: Guard) -> u64 {
    match guard {
        Guard::Budget | Guard::Observation | Guard::ControllerSeen | Guard::BeforeGone | Guard::Leaked => 1,
        Guard::Scope => 7,
        Guard::VerdictBeforeStart => 145,
        Guard::Baseline => 155,
        Guard::FailOnVerdict => 4,
        Guard::SavedTemplate => 14,
        Guard::StrategyLast => 5,
        Guard::RecordFirst => 152,
        Guard::Mirrored => 136,
        Guard::Brake => 15,
    }
}

/// The world of a seed, led to where this guard matters if chance seldom leads there.
fn workload(seed: u64, guard: Guard) -> Workload {
    let mut workload = Workload::of(seed, Some(9));
    let back = Deed::Declare(Box::new(workload.with_version(workload.versions[0])));
    match guard {
        // The wish is taken back while the first deletions are done and nobody knows it yet.
        Guard::BeforeGone => {
            workload.trouble = Trouble { lose_reply: 50, delay: 3_000, ..Trouble::default() };
            workload.faults.clear();
            workload.deeds = vec![(12 + i64::try_from(seed % 8).unwrap(), back)];
            workload.spec.max_parallel = 4;
            workload.spec.node_selector.clear();
        }
        // A node outside of the scope joins under the new template, and then the canaries fail.
        Guard::Leaked => {
            workload.trouble = Trouble::default();
            let bad = Fault::new(FaultKind::TurnsUnready { after: 25 });
            workload.faults = vec![bad.with_image(format!(":{}", workload.versions[1]))];
            workload.deeds = vec![(25, Deed::AddNode(10))];
            workload.spec.node_selector = BTreeMap::from([(ZONE.to_owned(), "zone-a".to_owned())]);
            workload.spec.auto_rollback = true;
        }
        Guard::Budget
        | Guard::Observation
        | Guard::ControllerSeen
        | Guard::Scope
        | Guard::VerdictBeforeStart
        | Guard::Baseline
        | Guard::FailOnVerdict
        | Guard::SavedTemplate
        | Guard::StrategyLast
        | Guard::RecordFirst
        | Guard::Mirrored
        | Guard::Brake => return Workload::of(seed, None),
    }
    workload
}

/// The first world that breaks an invariant without this guard, and none with it.
fn catches(guard: Guard) -> Option<u64> {
    let breaks = |seed: u64| run(seed, &workload(seed, guard), false, None).is_err();
    let caught = |seed: &u64| without(guard, || breaks(*seed)) && !breaks(*seed);
    std::iter::once(known(guard)).chain(1..=TRIES).find(caught)
}

#[test]
fn each_guard_that_is_switched_off_is_caught() {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(guard) = Guard::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    found.lock().unwrap().insert(*guard, catches(*guard));
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
