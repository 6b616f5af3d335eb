//! Seeded worlds: cluster, mirror and rollout in virtual time, every write judged.
//!
//! `WORLDS=1000 SEED=1 cargo test --test main worlds` runs that many from that seed on; a failing one prints its seed,
//! its workload and everything that happened.

use std::collections::BTreeMap;

use trunkline::sim::core_run::{core_log, core_run, shortest, workload::Workload};

/// Worlds of the quick test set.
const QUICK: u64 = 40;
/// Worlds in which something was wrong once: a custom resource listed before its ledger; a canary that fell silent; a
/// quarantined wish declared again after another one completed (the law was).
const BROKE: [u64; 3] = [48, 182, 2246];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_invariant_breaks_in_seeded_worlds() {
    let first = number("SEED").unwrap_or(1);
    let mut ends = BTreeMap::<String, u64>::new();
    let mut decisions = 0;
    for seed in first..first + number("WORLDS").unwrap_or(QUICK) {
        match core_run(seed, &Workload::of(seed, None)) {
            Ok(trace) => {
                decisions += trace.decisions;
                *ends.entry(trace.end).or_default() += 1;
            }
            Err(broken) => panic!("{}", shortest(*broken)),
        }
    }
    println!("{decisions} passes");
    for (end, count) in ends {
        println!("{count:6} {end}");
    }
}

#[test]
fn what_was_wrong_once_stays_right() {
    for seed in BROKE {
        if let Err(broken) = core_run(seed, &Workload::of(seed, None)) {
            panic!("{}", shortest(*broken));
        }
    }
}

#[test]
fn one_seed_gives_one_run() {
    for seed in 1..6 {
        let workload = Workload::of(seed, None);
        let (first, second) = (core_log(seed, &workload).unwrap(), core_log(seed, &workload).unwrap());
        assert_eq!(first, second, "seed {seed}");
        assert!(first.writes > 0, "seed {seed} writes something");
    }
}
