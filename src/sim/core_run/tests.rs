//! Every guard of the machine, switched off, makes some seeded world break an invariant.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::Deserialize as _;

use super::{
    workload::{Deed, Trouble},
    *,
};
use crate::{
    api::{
        CniUpgradeSpec, CniUpgradeStatus,
        cni_upgrade::CniCanary,
        status::{AttemptKind, Outcome},
    },
    rollout::{
        effect::Effect,
        guard::{Guard, without},
    },
    sim::model::{
        Span, Timings,
        cluster::{ClusterSpec, ZONE},
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

/// A world without trouble: so many nodes in three zones whose one declaration is the second version, a fifth of them
/// first.
fn calm(nodes: usize) -> Workload {
    let mut workload = Workload::of(1, Some(nodes));
    workload.cluster =
        ClusterSpec { zones: 3, control_planes: 0, timings: Timings::default(), ..workload.cluster.clone() };
    workload.spec = CniUpgradeSpec {
        canary: Some(CniCanary {
            percentage: 20,
            node_labels: BTreeMap::new(),
            observation_minutes: 1,
            health_threshold: 1.0,
        }),
        node_selector: BTreeMap::new(),
        max_parallel: 2,
        timeout_seconds: 120,
        ..workload.spec.clone()
    };
    (workload.deeds, workload.faults, workload.trouble) = (Vec::new(), Vec::new(), Trouble::default());
    workload.adopted = false;
    workload.calm_after = 1500;
    workload
}

/// A commit that declares this version, for one zone or for all nodes.
fn declare(workload: &Workload, version: usize, zone: Option<&str>) -> Deed {
    let node_selector = zone.map(|zone| (ZONE.to_owned(), zone.to_owned())).into_iter().collect();
    let spec = workload.with_version(workload.versions[version]);
    Deed::Declare(Box::new(CniUpgradeSpec { node_selector, ..spec }))
}

/// Every status that was wanted, in order.
fn statuses(workload: &Workload) -> Vec<CniUpgradeStatus> {
    let mut statuses = Vec::new();
    let mut watch = |moment: &Moment<'_>| {
        let written = moment.decision.statuses.iter();
        statuses.extend(written.map(|write| CniUpgradeStatus::deserialize(&*write.status).unwrap()));
    };
    core_watch(1, workload, &mut watch).unwrap_or_else(|broken| panic!("{broken}"));
    statuses
}

/// Outcome, kind and failures of the last attempt.
fn end(statuses: &[CniUpgradeStatus]) -> (Option<Outcome>, AttemptKind, usize) {
    let last = statuses.last().unwrap();
    let attempt = last.attempt.as_ref().unwrap();
    (attempt.outcome, attempt.kind, last.nodes.failures.len())
}

#[test]
fn a_fifth_of_twelve_nodes_are_three_canaries_and_a_fifth_of_two_is_one() {
    for (nodes, canaries) in [(12, 3), (11, 3), (10, 2), (2, 1)] {
        let statuses = statuses(&calm(nodes));
        let most = statuses.iter().map(|status| status.nodes.canaries).max();
        assert_eq!((most, end(&statuses).0), (Some(canaries), Some(Outcome::Completed)), "{nodes} nodes");
    }
}

#[test]
fn a_clock_that_jumps_ahead_while_nodes_are_in_flight_fails_none() {
    let mut workload = calm(5);
    workload.cluster.timings.ready = Span::millis(30_000, 40_000);
    workload.deeds = vec![(30, Deed::ClockJump(7200)), (120, Deed::ClockJump(7200))];
    let statuses = statuses(&workload);
    assert!(statuses.iter().any(|status| status.nodes.open.iter().any(|intent| intent.spent > 0)));
    assert_eq!(end(&statuses), (Some(Outcome::Completed), AttemptKind::Upgrade, 0));
}

#[test]
fn time_in_which_nobody_watched_is_not_taken_from_a_node_in_flight() {
    let mut workload = calm(5);
    workload.cluster.timings.ready = Span::millis(60_000, 70_000);
    // The process is down for an hour, again and again, and looks only a moment in between.
    let down = |at| [(at, Deed::ClockJump(3600)), (at, Deed::Crash)];
    workload.deeds = (0..12).flat_map(|time| down(25 + 3 * time)).collect();
    let statuses = statuses(&workload);
    assert_eq!(end(&statuses), (Some(Outcome::Completed), AttemptKind::Upgrade, 0));
}

#[test]
fn what_ran_before_is_returned_to_though_it_was_never_declared() {
    let mut workload = calm(5);
    workload.deeds = vec![(60, declare(&workload, 0, None))];
    assert_eq!(end(&statuses(&workload)), (Some(Outcome::Returned), AttemptKind::Return, 0));
}

#[test]
fn another_upgrade_of_one_zone_takes_the_place_of_the_one_before_in_last_good() {
    let mut workload = calm(9);
    let Deed::Declare(first) = declare(&workload, 1, Some("zone-a")) else { panic!("declared") };
    workload.deeds =
        vec![(400, declare(&workload, 2, Some("zone-a"))), (800, declare(&workload, 0, Some("zone-a")))];
    workload.spec = *first;
    let statuses = statuses(&workload);
    assert_eq!(end(&statuses).0, Some(Outcome::Completed));
    let layers = statuses.last().unwrap().last_good.as_ref().unwrap().beneath.len();
    assert_eq!(layers, 1, "what runs in the other zones");
}

#[test]
fn what_others_roll_out_is_waited_for_though_the_controller_has_not_counted_it_yet() {
    let mut workload = calm(5);
    workload.cluster.timings.controller = Span::millis(40_000, 40_000);
    workload.deeds = vec![(2, Deed::Restart)];
    let agent = workload.cluster.agent.key();
    let mut begun = 0;
    let mut watch = |moment: &Moment<'_>| {
        let seen = &moment.case.world.agents[&agent].is;
        let begins = |effect: &Effect| {
            matches!(effect, Effect::PatchTemplate { .. }) && seen.original_strategy.is_none()
        };
        if moment.decision.effects.values().any(begins) {
            begun += 1;
            assert!(seen.observed_generation >= seen.generation, "over what nobody has counted");
        }
    };
    core_watch(1, &workload, &mut watch).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(begun > 0);
}

#[test]
fn on_the_way_back_to_several_templates_no_more_nodes_are_in_flight_than_may_be() {
    for reverted in [440, 450, 460] {
        let mut workload = calm(12);
        workload.cluster.timings.ready = Span::millis(10_000, 20_000);
        workload.spec = CniUpgradeSpec { canary: None, max_parallel: 4, ..workload.spec };
        let zone = declare(&workload, 1, Some("zone-a"));
        workload.deeds = vec![(400, declare(&workload, 2, None)), (reverted, zone.clone())];
        let Deed::Declare(first) = zone else { panic!("declared") };
        workload.spec = *first;
        let statuses = statuses(&workload);
        assert_eq!(end(&statuses), (Some(Outcome::Returned), AttemptKind::Return, 0));
        let most = statuses.iter().map(|status| status.nodes.open.len()).max();
        assert_eq!(most, Some(4), "reverted after {reverted} s");
    }
}

#[test]
fn nodes_of_the_control_plane_go_last_and_one_at_a_time() {
    let mut workload = calm(8);
    workload.cluster.control_planes = 3;
    workload.spec = CniUpgradeSpec { canary: None, max_parallel: 3, ..workload.spec };
    let mut order = Vec::new();
    let mut watch = |moment: &Moment<'_>| {
        let deleted = moment.decision.effects.values().filter_map(|effect| {
            let Effect::DeletePod { pod, .. } = effect else { return None };
            moment.case.world.pods.get(pod)?.is.node.clone()
        });
        let ranks = deleted.map(|node| moment.case.world.nodes[&node].is.labels.topology().control_plane);
        let now: Vec<bool> = ranks.collect();
        assert!(now.len() == 1 || !now.contains(&true), "beside others");
        order.extend(now);
    };
    core_watch(1, &workload, &mut watch).unwrap_or_else(|broken| panic!("{broken}"));
    order.dedup();
    assert_eq!(order, [false, true]);
}

#[test]
fn a_clock_that_is_set_back_gives_a_node_that_never_gets_ready_no_more_time() {
    let mut workload = calm(5);
    let never = Fault::new(FaultKind::NeverReady);
    workload.faults = vec![never.with_image(format!(":{}", workload.versions[1]))];
    workload.spec.auto_rollback = true;
    workload.deeds = vec![(40, Deed::ClockJump(-7200))];
    assert_eq!(end(&statuses(&workload)).0, Some(Outcome::RolledBack));
}

#[test]
fn a_version_with_a_line_break_after_it_is_told_without_it() {
    let mut workload = calm(3);
    workload.spec.target_version = format!(" {}\n", workload.versions[1]);
    let told = statuses(&workload);
    assert_eq!(end(&told).0, Some(Outcome::Completed));
    assert!(told.iter().all(|status| status.target_version.as_deref() == Some(workload.versions[1])));
}
