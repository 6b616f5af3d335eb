//! What statuses leave in the ledger: J4, J5, J8, J11, J21, J22, J32, J34, J35, J38, J50.

use std::{collections::BTreeSet, time::Duration};

use super::lab::{Lab, agent, calico, cni, wish, with_token};
use crate::{
    api::{
        names::{AttemptId, Oid},
        status::{AttemptKind, Outcome},
    },
    manifest,
    mirror::ledger::RollbackState,
    rollout::{effect::StepName, plan::plan, waiting::Refusal},
    world::{
        ObjectId, Observation, Record, Shape, Target,
        git::{Blob, Files},
    },
};

/// One manifest on v3.27.2, then v3.28.0, whose attempt 1 runs.
fn upgrading() -> Lab {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    lab.attempt(&calico(), 1, None);
    lab.settle();
    lab
}

fn failed() -> Lab {
    let mut lab = upgrading();
    lab.rolls_back(&calico(), 1);
    lab.settle();
    lab
}

fn rollback_commit(lab: &mut Lab) -> crate::api::names::Oid {
    let message = "Roll back CNIUpgrade/calico to v3.27.2 on prod-1\n\nTrunkline-Attempt: a1\n";
    lab.push(message, &[("calico.yaml", Some(&cni("calico", "v3.27.2")))])
}

#[test]
fn an_attempt_is_one_line_from_its_start_to_its_end() {
    let mut lab = upgrading();
    let start = lab.target().attempts.clone();
    assert_eq!((start.len(), start[0].outcome, start[0].target_version.as_str()), (1, None, "3.28.0"));
    lab.ends(&calico(), 1, Outcome::Completed);
    lab.settle();
    let end = &lab.target().attempts;
    assert_eq!((end.len(), end[0].outcome), (1, Some(Outcome::Completed)));
    assert!(lab.target().quarantine.is_empty() && lab.target().rollbacks.is_empty());
}

#[test]
fn only_the_newest_attempts_are_kept_and_an_old_status_brings_none_back() {
    let mut lab = upgrading();
    for number in 2..=25 {
        lab.attempt(&calico(), number, Some(Outcome::Completed));
        lab.settle();
    }
    assert_eq!(lab.target().attempts.len(), 20);
    assert_eq!(lab.target().attempts[0].number, 6);
    lab.attempt(&calico(), 3, Some(Outcome::RolledBack));
    lab.settle();
    assert_eq!(lab.target().attempts[0].number, 6);
    assert!(lab.target().quarantine.is_empty());
}

#[test]
fn a_failed_wish_that_is_put_in_again_before_its_rollback_commit_is_read_is_declared_by_the_later_commit() {
    let mut lab = failed();
    let r1 = rollback_commit(&mut lab);
    let again = lab.push("again", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Recorded(r1));
    assert_eq!(lab.entry(&calico()).introduced, again);
    assert_eq!(lab.target().attempts.len(), 1);
}

#[test]
fn a_failed_wish_is_quarantined_and_its_rollback_is_due_with_the_bytes_of_before_j3() {
    let lab = failed();
    assert_eq!(lab.target().quarantine, [wish("3.28.0")]);
    let rollback = lab.rollback();
    assert_eq!(rollback.state, RollbackState::Due);
    assert_eq!((&rollback.from, rollback.to.as_ref()), (&wish("3.28.0"), Some(&wish("3.27.2"))));
    assert_eq!(rollback.written["targetVersion"], "v3.27.2");
    assert_eq!((rollback.reason.as_str(), rollback.at), ("CanaryUnhealthy", lab.now));
    assert_eq!(rollback.introduced.as_ref(), Some(&lab.entry(&calico()).introduced));
}

#[test]
fn our_own_commit_on_the_branch_records_the_rollback_and_starts_nothing_new_j3() {
    let mut lab = failed();
    let r1 = rollback_commit(&mut lab);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Recorded(r1));
    assert!(lab.mirrors(&calico(), "v3.27.2"));
    assert_eq!(lab.target().rollbacks.len(), 1);
}

#[test]
fn a_commit_that_copies_our_trailer_but_leaves_the_wish_records_nothing() {
    let mut lab = failed();
    lab.push("notes\n\nTrunkline-Attempt: a1\n", &[("notes.txt", Some("cherry-picked words\n"))]);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Due);
    let r1 = rollback_commit(&mut lab);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Recorded(r1));
}

#[test]
fn an_object_that_was_not_there_before_loses_its_document_j4() {
    let mut lab = Lab::empty();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    lab.attempt(&calico(), 1, None);
    lab.rolls_back(&calico(), 1);
    lab.settle();
    assert_eq!((&lab.rollback().to, &lab.rollback().to_wish), (&None, &None));
    assert_eq!(lab.rollback().state, RollbackState::Due);
    let r1 = lab.push("Roll back\n\nTrunkline-Attempt: a1", &[("calico.yaml", Some("# rolled back\n"))]);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Recorded(r1));
    assert!(!lab.has(&calico()));
    assert_eq!(lab.target().attempts.len(), 1);
}

#[test]
fn what_ran_counts_where_the_document_said_another_version_j32() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.0"));
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    lab.attempt(&calico(), 1, None);
    lab.rolls_back(&calico(), 1);
    lab.settle();
    let rollback = lab.rollback();
    assert_eq!((rollback.to.as_ref(), rollback.to_version.as_str()), (Some(&wish("3.27.2")), "3.27.2"));
    assert!(!rollback.written.contains_key("targetVersion"), "those bytes were never written");
}

#[test]
fn a_revert_while_we_roll_back_leaves_no_commit_to_make_j50() {
    let mut lab = upgrading();
    lab.push("v1", &[("calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    lab.settle();
    lab.rolls_back(&calico(), 1);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Moot);
    assert_eq!(lab.target().quarantine, [wish("3.28.0")]);
}

#[test]
fn a_revert_a_newer_wish_or_a_token_makes_a_due_commit_moot_j33() {
    let retry = with_token(&cni("calico", "v3.28.0"), "t1");
    for newer in [cni("calico", "v3.27.2"), cni("calico", "v3.28.1"), retry] {
        let mut lab = failed();
        lab.push("people", &[("calico.yaml", Some(&newer))]);
        lab.settle();
        assert_eq!(lab.rollback().state, RollbackState::Moot, "{newer}");
    }
}

#[test]
fn a_setting_or_a_broken_document_leaves_the_commit_due_j32() {
    for other in [cni("calico", "v3.28.0") + "  maxParallel: 5\n", "\tbroken: [".to_owned()] {
        let mut lab = failed();
        lab.push("people", &[("calico.yaml", Some(&other))]);
        lab.settle();
        assert_eq!(lab.rollback().state, RollbackState::Due, "{other}");
    }
}

#[test]
fn without_rollback_commits_nothing_is_due_but_the_wish_is_quarantined() {
    let mut lab = upgrading();
    lab.repo.rollback_commit = false;
    lab.rolls_back(&calico(), 1);
    lab.settle();
    assert_eq!(lab.target().quarantine.len(), 1);
    assert!(lab.target().rollbacks.is_empty());
}

#[test]
fn a_held_failure_a_return_and_a_failed_return_quarantine_nothing_j5_j38() {
    for (kind, outcome) in [
        (AttemptKind::Upgrade, Outcome::Held),
        (AttemptKind::Return, Outcome::Returned),
        (AttemptKind::Return, Outcome::RollbackIncomplete),
        (AttemptKind::Upgrade, Outcome::Reverted),
    ] {
        let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
        lab.attempt(&calico(), 1, None);
        lab.status(&calico(), |status| status.attempt.as_mut().unwrap().kind = kind);
        lab.rolls_back(&calico(), 1);
        lab.ends(&calico(), 1, outcome);
        lab.settle();
        assert!(lab.target().quarantine.is_empty(), "{outcome:?}");
        assert!(lab.target().rollbacks.is_empty(), "{outcome:?}");
    }
}

#[test]
fn the_failed_wish_that_comes_back_stays_quarantined_without_a_second_rollback_j21_j22() {
    let mut lab = failed();
    rollback_commit(&mut lab);
    lab.settle();
    lab.push("w1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(lab.target().quarantine, [wish("3.28.0")]);
    assert_eq!(lab.target().rollbacks.len(), 1);
    assert!(matches!(lab.rollback().state, RollbackState::Recorded(_)));
}

#[test]
fn a_token_is_used_by_the_attempt_that_starts_beside_it_j35() {
    let mut lab = failed();
    rollback_commit(&mut lab);
    lab.settle();
    lab.push("w1", &[("calico.yaml", Some(&with_token(&cni("calico", "v3.28.0"), "t1")))]);
    lab.settle();
    assert!(lab.ledger().token_is_fresh(&agent(), "t1"));
    lab.attempt(&calico(), 2, None);
    lab.settle();
    assert!(!lab.ledger().token_is_fresh(&agent(), "t1"));
    lab.rolls_back(&calico(), 2);
    lab.settle();
    assert_eq!(lab.target().rollbacks.len(), 2, "each attempt has its own rollback commit");
    assert_eq!(lab.target().quarantine.len(), 1);
}

#[test]
fn a_retry_that_completes_ends_the_quarantine_j10_j11() {
    let mut lab = failed();
    lab.push("w1", &[("calico.yaml", Some(&with_token(&cni("calico", "v3.28.0"), "t1")))]);
    lab.settle();
    lab.attempt(&calico(), 2, Some(Outcome::Completed));
    lab.settle();
    assert!(lab.target().quarantine.is_empty());
}

#[test]
fn a_rollback_that_was_incomplete_and_is_complete_later_has_one_commit_j62() {
    let mut lab = upgrading();
    lab.rolls_back(&calico(), 1);
    lab.ends(&calico(), 1, Outcome::RollbackIncomplete);
    lab.settle();
    let first = lab.rollback().clone();
    lab.ends(&calico(), 1, Outcome::RolledBack);
    lab.settle();
    assert_eq!(lab.target().rollbacks, [first]);
    assert_eq!(lab.target().attempts[0].outcome, Some(Outcome::RolledBack));
}

#[test]
fn a_lost_ledger_takes_quarantine_tokens_and_outcome_from_the_status_j34() {
    let mut lab = failed();
    lab.push("v1", &[("calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    lab.settle();
    lab.lose_ledger();
    lab.settle();
    assert_eq!(lab.target().quarantine, [wish("3.28.0")]);
    assert_eq!(lab.rollback().state, RollbackState::Moot);
}

#[test]
fn a_rollback_whose_commit_the_status_names_is_not_due_again_when_the_ledger_is_lost() {
    let mut lab = failed();
    let r1 = rollback_commit(&mut lab);
    lab.settle();
    lab.status(&calico(), |status| status.rollback.as_mut().unwrap().commit = Some(r1.to_string()));
    lab.lose_ledger();
    lab.push("again", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!((lab.target().rollbacks.len(), &lab.target().quarantine), (0, &vec![wish("3.28.0")]));
}

#[test]
fn a_wish_that_failed_before_another_one_completed_is_planned_as_quarantined() {
    let mut lab = failed();
    lab.push("c2", &[("calico.yaml", Some(&cni("calico", "v3.29.0")))]);
    lab.settle();
    lab.attempt(&calico(), 2, Some(Outcome::Completed));
    lab.settle();
    let blob = Blob { oid: Oid::from("c3"), bytes: cni("calico", "v3.28.0").into_bytes().into() };
    let files = Files::from([("calico.yaml".to_owned(), blob)]);
    let declared = manifest::read(&files, &BTreeSet::new()).declarations;
    let planned = plan(&lab.world, &lab.profiles, &declared, lab.now);
    let refusals = &planned[0].refusals;
    assert!(matches!(refusals[..], [Refusal::Quarantined { .. }]), "{:?}", planned[0]);
}

#[test]
fn an_attempt_overtaken_between_two_passes_ends_as_its_history_says_j49() {
    let mut lab = upgrading();
    lab.push("c2", &[("calico.yaml", Some(&cni("calico", "v3.28.1")))]);
    lab.settle();
    let finished_at = lab.now;
    lab.status(&calico(), |status| {
        status.history.push(crate::api::status::PastAttempt {
            id: AttemptId::from("a1"),
            number: 1,
            target_version: "3.28.0".to_owned(),
            wish: wish("3.28.0"),
            revision: None,
            outcome: Outcome::Superseded,
            reason: None,
            finished_at,
        });
    });
    lab.attempt(&calico(), 2, None);
    lab.settle();
    let outcomes: Vec<_> = lab.target().attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Superseded), None]);
}

#[test]
fn the_record_of_an_attempt_is_forgotten_when_the_revert_window_is_over() {
    let mut lab = upgrading();
    let attempt = match &lab.claim(&calico()).status {
        crate::world::ClaimStatus::Cni(status) => status.attempt.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    lab.rolls_back(&calico(), 1);
    lab.ends(&calico(), 1, Outcome::Completed);
    let last_good = match &lab.claim(&calico()).status {
        crate::world::ClaimStatus::Cni(status) => status.last_good.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let record = Record {
        claim: calico(),
        target: Target::clone(&agent()),
        attempt,
        phase: crate::api::cni_upgrade::CniPhase::Canary,
        last_good,
        rollback: None,
        baseline: Vec::new(),
    };
    let object = crate::world::Object {
        id: ObjectId::Store("trunkline".to_owned(), "attempt-1".to_owned()),
        uid: "rec-1".into(),
        rv: crate::api::names::Rv(9000),
        shape: Shape::Record(Ok(Box::new(record))),
    };
    let _ = lab.world.apply(Observation::Answered(Box::new(object)), lab.now);
    lab.settle();
    lab.hours(71);
    let decision = lab.pass();
    assert!(decision.effects.is_empty());
    assert_eq!(decision.recheck, Some(Duration::from_secs(3600)));
    lab.hours(1);
    let steps: Vec<StepName> = lab.pass().effects.keys().map(|id| id.step).collect();
    assert_eq!(steps, [StepName::ForgetAttempt]);
}

#[test]
fn naming_the_provider_that_was_found_anyway_is_no_other_wish() {
    let named = |version: &str| cni("calico", version) + "  provider: calico\n";
    let mut lab = failed();
    let wishes = lab.target().wishes.len();
    let before = lab.entry(&calico()).clone();
    lab.push("named", &[("calico.yaml", Some(&named("v3.28.0")))]);
    lab.settle();
    let after = lab.entry(&calico()).clone();
    assert_eq!((&after.wish, &after.introduced), (&before.wish, &before.introduced));
    assert_eq!(lab.target().wishes.len(), wishes);
    assert_eq!(lab.rollback().state, RollbackState::Due);
    let written = &lab.target().wishes.last().unwrap().written;
    assert_eq!(written.get("provider").map(String::as_str), Some("calico"), "{written:?}");
    lab.push("back\n\nTrunkline-Attempt: a1\n", &[("calico.yaml", Some(&named("v3.27.2")))]);
    lab.settle();
    assert!(matches!(lab.rollback().state, RollbackState::Recorded(_)));
    lab.push("again", &[("calico.yaml", Some(&named("v3.28.0")))]);
    lab.settle();
    assert!(lab.target().quarantine.contains(&lab.entry(&calico()).wish));
}

#[test]
fn a_refused_push_of_a_rollback_that_is_not_needed_any_more_is_no_problem() {
    let mut lab = failed();
    lab.refuse("a1");
    lab.settle();
    assert_eq!(lab.ledger().states.len(), 1);
    lab.push("by hand", &[("calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    lab.settle();
    assert_eq!(lab.rollback().state, RollbackState::Moot);
    assert!(lab.ledger().states.is_empty(), "{:?}", lab.ledger().states);
}

#[test]
fn the_commit_that_put_the_token_there_is_known_apart_from_the_one_that_brought_the_wish() {
    let mut lab = failed();
    rollback_commit(&mut lab);
    lab.settle();
    let wish = cni("calico", "v3.28.0");
    let w1 = lab.push("w1", &[("calico.yaml", Some(&wish))]);
    let t1 = lab.push("t1", &[("calico.yaml", Some(&with_token(&wish, "t1")))]);
    lab.push("paused", &[("calico.yaml", Some(&(with_token(&wish, "t1") + "  paused: true\n")))]);
    lab.settle();
    let entry = lab.entry(&calico());
    assert_eq!((&entry.introduced, entry.asked.as_ref()), (&w1, Some(&t1)));
    lab.push("another wish", &[("calico.yaml", Some(&with_token(&cni("calico", "v3.28.1"), "t1")))]);
    lab.settle();
    assert_eq!(lab.entry(&calico()).asked, None, "the token stood there before the wish");
}
