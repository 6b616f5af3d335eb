//! Which course is taken, as sentences.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::{
    api::{
        ClaimKey,
        names::{Digest, Oid},
        status::LastGood,
    },
    manifest::wish::Wish,
    mirror::ledger::{Removal, Standing},
    world::Target,
};

const WINDOW: Duration = Duration::from_secs(72 * 3600);

fn at(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hours)
}

fn entry(version: &str) -> ObjectEntry {
    let wished = Wish::Cni {
        provider: None,
        target_version: version.to_owned(),
        node_selector: std::collections::BTreeMap::new(),
    };
    ObjectEntry {
        path: "calico.yaml".to_owned(),
        wish: WishHash::new(version),
        wished,
        spec: Digest::new("spec"),
        introduced: Oid::new("c1"),
        accepted: Oid::new("c1"),
        order: 1,
        before: None,
        first_contact: false,
        hidden_in: BTreeSet::new(),
        token: None,
        asked: None,
        hold: None,
        standing: Standing::InForce,
        removed: None,
        target: Target::Unresolved(ClaimKey::cni("calico")),
    }
}

/// An attempt at `version` over last good `1`.
fn status(version: &str, phase: CniPhase, outcome: Option<Outcome>) -> CniUpgradeStatus {
    let attempt = Attempt {
        id: AttemptId::new("a"),
        number: 2,
        kind: AttemptKind::Upgrade,
        wish: WishHash::new(version),
        revision: None,
        node_selector: std::collections::BTreeMap::new(),
        retry_token: None,
        started_at: at(0),
        finished_at: outcome.map(|_| at(1)),
        outcome,
        canary_cut: std::collections::BTreeMap::new(),
        canaries_until: None,
        template: None,
    };
    let last_good = LastGood {
        version: "1".to_owned(),
        wish: WishHash::new("1"),
        revision: None,
        template: Some("{}".to_owned()),
        template_digest: None,
        node_selector: std::collections::BTreeMap::new(),
        beneath: Vec::new(),
        strategy: None,
    };
    CniUpgradeStatus {
        phase,
        attempt: Some(attempt),
        last_good: Some(last_good),
        ..CniUpgradeStatus::default()
    }
}

fn quarantined(wish: &str) -> TargetEntry {
    TargetEntry { quarantine: vec![WishHash::new(wish)], ..TargetEntry::default() }
}

fn taken(status: &CniUpgradeStatus, entry: &ObjectEntry, target: &TargetEntry) -> Course {
    course(status, entry, target, WINDOW, at(2))
}

#[test]
fn a_setting_starts_nothing() {
    let target = TargetEntry::default();
    for phase in [CniPhase::Pending, CniPhase::Canary, CniPhase::RollingOut] {
        assert_eq!(taken(&status("2", phase, None), &entry("2"), &target), Course::Continue);
    }
}

#[test]
fn a_newer_wish_supersedes_at_any_moment() {
    let target = TargetEntry::default();
    for phase in [CniPhase::Pending, CniPhase::Canary, CniPhase::RollingOut, CniPhase::Rollback] {
        assert_eq!(taken(&status("2", phase, None), &entry("3"), &target), Course::Start);
    }
}

#[test]
fn a_wish_equal_to_last_good_returns_while_the_attempt_is_unfinished() {
    let target = TargetEntry::default();
    assert_eq!(taken(&status("2", CniPhase::Canary, None), &entry("1"), &target), Course::Return);
}

#[test]
fn a_revert_while_a_failed_verdict_is_put_back_changes_nothing() {
    let target = TargetEntry::default();
    assert_eq!(taken(&status("2", CniPhase::Rollback, None), &entry("1"), &target), Course::Continue);
}

#[test]
fn a_revert_after_completion_returns_within_the_window_and_is_an_upgrade_later() {
    let (target, done) = (TargetEntry::default(), status("2", CniPhase::Completed, Some(Outcome::Completed)));
    assert_eq!(course(&done, &entry("1"), &target, WINDOW, at(73)), Course::Return);
    assert_eq!(course(&done, &entry("1"), &target, WINDOW, at(74)), Course::Start);
}

#[test]
fn what_a_complete_rollback_restored_starts_no_attempt() {
    let failed = status("2", CniPhase::Failed, Some(Outcome::RolledBack));
    assert_eq!(taken(&failed, &entry("1"), &quarantined("2")), Course::Continue);
}

#[test]
fn a_failed_wish_is_not_tried_again_without_a_fresh_token() {
    let failed = status("2", CniPhase::Failed, Some(Outcome::RolledBack));
    let mut again = entry("2");
    assert_eq!(taken(&failed, &again, &quarantined("2")), Course::Continue);
    again.token = Some("t1".to_owned());
    assert_eq!(taken(&failed, &again, &quarantined("2")), Course::Start);
    let used = TargetEntry { tokens: vec!["t1".to_owned()], ..quarantined("2") };
    assert_eq!(taken(&failed, &again, &used), Course::Continue);
}

#[test]
fn the_token_of_the_attempt_that_failed_starts_no_other_before_the_ledger_has_noted_it() {
    let mut failed = status("2", CniPhase::Failed, Some(Outcome::RolledBack));
    failed.attempt.as_mut().unwrap().retry_token = Some("t1".to_owned());
    let again = ObjectEntry { token: Some("t1".to_owned()), ..entry("2") };
    assert_eq!(taken(&failed, &again, &TargetEntry::default()), Course::Continue);
    assert_eq!(taken(&failed, &again, &quarantined("2")), Course::Continue);
}

#[test]
fn a_quarantined_wish_declared_by_another_object_is_passed_over() {
    let none = CniUpgradeStatus::default();
    assert_eq!(taken(&none, &entry("2"), &quarantined("2")), Course::Quarantined);
}

#[test]
fn a_held_failure_goes_on_with_another_wish_and_returns_with_the_old_one() {
    let (target, held) = (TargetEntry::default(), status("2", CniPhase::Failed, Some(Outcome::Held)));
    assert_eq!(taken(&held, &entry("3"), &target), Course::Start);
    assert_eq!(taken(&held, &entry("1"), &target), Course::Return);
    assert_eq!(taken(&held, &entry("2"), &target), Course::Continue);
}

#[test]
fn a_removal_returns_what_is_unfinished_and_leaves_what_completed() {
    let target = TargetEntry::default();
    let gone = ObjectEntry { removed: Some(Removal { by: Oid::new("c2") }), ..entry("2") };
    assert_eq!(taken(&status("2", CniPhase::Canary, None), &gone, &target), Course::Return);
    assert_eq!(taken(&status("2", CniPhase::Failed, Some(Outcome::Held)), &gone, &target), Course::Return);
    let done = status("2", CniPhase::Completed, Some(Outcome::Completed));
    assert_eq!(taken(&done, &gone, &target), Course::Continue);
}

#[test]
fn an_attempt_that_never_acted_just_ends_when_its_declaration_is_removed() {
    let gone = ObjectEntry { removed: Some(Removal { by: Oid::new("c2") }), ..entry("2") };
    let fresh = CniUpgradeStatus { last_good: None, ..status("2", CniPhase::Pending, None) };
    assert_eq!(taken(&fresh, &gone, &TargetEntry::default()), Course::End);
}

#[test]
fn phases_move_along_declared_edges_only() {
    assert!(edge(CniPhase::Canary, CniPhase::RollingOut));
    assert!(!edge(CniPhase::Canary, CniPhase::Completed));
    assert!(!edge(CniPhase::Completed, CniPhase::RollingOut));
    assert!(!edge(CniPhase::Failed, CniPhase::Completed));
}
