//! Every guard of the machine, switched off, makes some seeded world break an invariant.

use super::*;
use crate::rollout::guard::{Guard, without};

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
