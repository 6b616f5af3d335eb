//! Every guard of the machine, switched off, makes some seeded world break an invariant.

use super::{workload::Trouble, *};
use crate::{
    rollout::guard::{Guard, without},
    sim::model::{Span, Timings},
};

/// Worlds tried for each guard.
const TRIES: u64 = 1000;

#[test]
fn each_guard_that_is_switched_off_is_caught() {
    let missed: Vec<Guard> = Guard::ALL
        .iter()
        .copied()
        .filter(|guard| {
            let caught =
                |seed| without(*guard, || run(seed, &Workload::of(seed, None), false, None)).is_err();
            !(1..=TRIES).any(caught)
        })
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
