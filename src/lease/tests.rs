use jiff::SignedDuration;
use serde_json::json;

use super::*;

mod replicas;

const PERIODS: LeaderElection = LeaderElection::ASSUMED;

fn at(seconds: u64) -> Moment {
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Moment {
        wall: crate::clock::later(begin, Duration::from_secs(seconds)),
        steady: Duration::from_secs(seconds),
    }
}

fn lease(version: u64, spec: &Value) -> Lease {
    let metadata =
        json!({ "uid": "u", "resourceVersion": version.to_string(), "annotations": { "team": "net" } });
    Lease::parse(&json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap()
}

fn held_by(holder: &str, version: u64) -> Lease {
    lease(version, &json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4 }))
}

fn watching(lease: Option<Lease>) -> Candidate {
    let mut candidate = Candidate::new("a".to_owned(), PERIODS);
    candidate.saw(lease, at(0));
    candidate
}

/// One that won the lease with epoch 5 by a request that was sent at that second.
fn leading(second: u64) -> Candidate {
    let mut candidate = watching(Some(held_by("b", 1)));
    let step = Step::Acquire { epoch: 5, vacancy: Vacancy::Expired { holder: Some("b".to_owned()) } };
    let spec = json!({ "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 5 });
    candidate.wrote(&step, lease(2, &spec), at(second), at(second + 1));
    candidate
}

fn waits_until(step: &Step) -> Option<u64> {
    if let Step::Wait { until: Some(until), held: Held::By { .. } } = step {
        Some(until.as_secs())
    } else {
        None
    }
}

#[test]
fn a_lease_is_free_after_nothing_about_it_changed_for_its_duration() {
    let mut candidate = watching(Some(held_by("b", 1)));
    candidate.saw(Some(held_by("b", 1)), at(9));
    assert_eq!(waits_until(&candidate.evaluate(Some(0), at(14))), Some(15));
    let vacancy = Vacancy::Expired { holder: Some("b".to_owned()) };
    assert_eq!(candidate.evaluate(Some(0), at(15)), Step::Acquire { epoch: 5, vacancy });
    candidate.saw(Some(held_by("b", 2)), at(15));
    assert_eq!(waits_until(&candidate.evaluate(Some(0), at(29))), Some(30));
}

#[test]
fn times_that_others_wrote_are_not_compared_with_a_clock_of_ours() {
    for renewed in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let spec = json!({ "holderIdentity": "b", "leaseDurationSeconds": 15, "renewTime": renewed });
        assert_eq!(waits_until(&watching(Some(lease(1, &spec))).evaluate(Some(0), at(14))), Some(15));
    }
}

#[test]
fn a_lease_that_was_given_back_is_free_at_once() {
    let back = watching(Some(held_by("b", 1)));
    let given = json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 4 });
    let mut next = watching(Some(lease(2, &given)));
    assert_eq!(next.evaluate(Some(0), at(0)), Step::Acquire { epoch: 5, vacancy: Vacancy::Released });
    assert_eq!(back.given_back(at(1)), None, "what is not held cannot be given back");
    next = leading(1);
    let written = Lease::parse(&next.given_back(at(3)).unwrap().to_string()).unwrap();
    assert!(written.released() && written.transitions == 5);
    next.resign();
    assert_eq!(next.fence(at(3)), None);
}

#[test]
fn a_lease_without_a_holder_or_without_fields_is_waited_for_like_any_other() {
    for spec in [
        json!(null),
        json!({}),
        json!({ "holderIdentity": "", "leaseDurationSeconds": 15 }),
        json!({ "holderIdentity": "people", "leaseDurationSeconds": 0, "leaseTransitions": -3 }),
        json!({ "holderIdentity": "people", "leaseDurationSeconds": 2 }),
    ] {
        let candidate = watching(Some(lease(1, &spec)));
        assert_eq!(waits_until(&candidate.evaluate(Some(0), at(14))), Some(15), "{spec}");
        let free = candidate.evaluate(Some(0), at(15));
        assert!(
            matches!(free, Step::Acquire { epoch: 1, vacancy: Vacancy::Expired { .. } }),
            "{spec}: {free:?}"
        );
        assert!(candidate.written(&free, "home", at(15)).unwrap().pointer("/spec/renewTime").is_some());
    }
    let long = json!({ "holderIdentity": "people", "leaseDurationSeconds": 600 });
    assert_eq!(waits_until(&watching(Some(lease(1, &long))).evaluate(Some(0), at(599))), Some(600));
}

#[test]
fn a_lease_that_is_not_there_is_put_there_without_a_holder_first() {
    let candidate = watching(None);
    let step = candidate.evaluate(None, at(0));
    assert_eq!(step, Step::Create);
    let text = candidate.written(&step, "home", at(0)).unwrap();
    assert_eq!(
        text,
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "trunkline",
                "namespace": "home",
                "labels": { "app.kubernetes.io/managed-by": "trunkline" },
            },
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z",
                "leaseTransitions": 0,
            },
        })
    );
}

#[test]
fn nothing_is_acquired_before_the_epochs_in_all_statuses_are_known_and_then_a_higher_one() {
    let candidate = watching(Some(held_by("b", 1)));
    assert_eq!(candidate.evaluate(None, at(60)), Step::Wait { until: None, held: Held::EpochsUnknown });
    let epoch = |epochs| {
        let Step::Acquire { epoch, .. } = candidate.evaluate(Some(epochs), at(60)) else { panic!("waits") };
        epoch
    };
    assert_eq!((epoch(0), epoch(4), epoch(11)), (5, 5, 12));
    assert_eq!(epoch(i64::MAX), i64::from(i32::MAX), "leaseTransitions has 32 bits");
    assert_eq!(
        Candidate::new("a".to_owned(), PERIODS).evaluate(Some(0), at(60)),
        Step::Wait { until: None, held: Held::Unread }
    );
}

#[test]
fn what_is_taken_and_renewed_is_written_as_client_go_does_and_keeps_what_is_not_ours() {
    let candidate = watching(Some(held_by("b", 7)));
    let step = candidate.evaluate(Some(0), at(20));
    let taken = candidate.written(&step, "home", at(20)).unwrap();
    assert_eq!(
        taken["metadata"],
        json!({ "uid": "u", "resourceVersion": "7", "annotations": { "team": "net" } })
    );
    let time = "2026-01-01T00:00:20.000000Z";
    assert_eq!(
        taken["spec"],
        json!({
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 5,
            "acquireTime": time,
            "renewTime": time,
        })
    );
    let leader = leading(1);
    let step = leader.evaluate(Some(5), at(3));
    assert_eq!(step, Step::Renew { epoch: 5 });
    let renewed = leader.written(&step, "home", at(3)).unwrap();
    assert_eq!(renewed["spec"]["renewTime"], "2026-01-01T00:00:03.000000Z");
    assert_eq!(renewed["metadata"]["resourceVersion"], "2");
}

#[test]
fn a_right_counts_from_before_the_renewal_was_sent_and_nothing_begins_after_the_renew_deadline() {
    let leader = leading(1);
    let fence = leader.fence(at(2)).unwrap();
    assert_eq!((fence.epoch(), fence.left(at(2)).as_secs()), (5, 14));
    assert_eq!(fence.grants(at(10)), Some(Duration::from_secs(6)));
    assert_eq!(fence.grants(at(11)), None);
    assert_eq!(leader.role(at(15)), Role::Leader { epoch: 5 });
    assert_eq!(
        (leader.fence(at(16)), leader.role(at(16))),
        (None, Role::Standby { holder: Some("a".to_owned()) })
    );
}

#[test]
fn neither_a_wall_clock_that_is_set_back_nor_a_suspended_machine_makes_a_right_longer() {
    let fence = leading(100).fence(at(101)).unwrap();
    let set_back = Moment { wall: at(1).wall, ..at(114) };
    assert_eq!(fence.left(set_back).as_secs(), 1);
    let suspended = Moment { wall: at(900).wall, ..at(102) };
    assert_eq!((fence.left(suspended), fence.grants(suspended)), (Duration::ZERO, None));
}

#[test]
fn a_leader_that_sees_another_holder_or_none_stops_at_once() {
    for seen in [Some(held_by("b", 9)), None] {
        let mut leader = leading(1);
        leader.saw(seen, at(3));
        assert_eq!(leader.fence(at(3)), None);
        assert!(leader.must_look(at(3)));
    }
    let mut leader = leading(1);
    assert!(!leader.must_look(at(3)));
    leader.doubt();
    assert!(leader.must_look(at(3)));
    let annotated =
        lease(9, &json!({ "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 5 }));
    leader.saw(Some(annotated), at(3));
    assert_eq!(leader.evaluate(Some(5), at(3)), Step::Renew { epoch: 5 });
}

#[test]
fn a_leader_that_finds_a_higher_epoch_in_a_status_goes_on_under_a_higher_one() {
    let step = Step::Acquire { epoch: 9, vacancy: Vacancy::Ours };
    assert_eq!(leading(1).evaluate(Some(8), at(3)), step);
}

#[test]
fn a_lease_lost_and_won_again_has_another_epoch() {
    let mut candidate = leading(1);
    let seen = lease(2, &json!({ "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 5 }));
    candidate.saw(Some(seen), at(30));
    let vacancy = Vacancy::Expired { holder: Some("a".to_owned()) };
    assert_eq!(candidate.evaluate(Some(5), at(30)), Step::Acquire { epoch: 6, vacancy });
}
