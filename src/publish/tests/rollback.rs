//! When a rollback commit is made, and what it changes.

use super::*;

const MANIFEST: &str = "apiVersion: cni.example.com/v1\r\nkind: CNIUpgrade\r\nmetadata:\r\n  name: calico\r\nspec:\r\n  \
     targetVersion: v3.28.0 # bump\r\n  maxParallel: 5\r\n";

fn tracked(head: &str, files: &[(&str, &str)]) -> Tracked {
    let at_head: Files = files
        .iter()
        .map(|(path, text)| {
            let bytes: Arc<[u8]> = text.as_bytes().into();
            ((*path).to_owned(), Blob { oid: Oid::from(digest::hex(&bytes)), bytes })
        })
        .collect();
    Tracked {
        branches: Vec::new(),
        head: Some(Oid::from(head)),
        since: Some(Oid::from(head)),
        descent: Descent::Descends,
        steps: Vec::new(),
        at_head,
        skipped: Vec::new(),
        missing_paths: Vec::new(),
    }
}

/// The canary of v3.28.0 failed, the cluster is back, and the ledger wants the commit.
pub(super) fn with_rollback() -> Lab {
    let mut lab = started();
    let mut status = went(&[Pending, Canary, RollingBack, Failed]);
    status.attempt.as_mut().unwrap().outcome = Some(Outcome::RolledBack);
    lab.claim(&calico(), status);
    lab.now = at(300);
    let entry = RollbackEntry {
        attempt: "a1".into(),
        claim: calico(),
        from: wish("3.28.0").hash(),
        from_version: "v3.28.0".to_owned(),
        to_version: "v3.27.2".to_owned(),
        to: Some(wish("3.27.2").hash()),
        to_wish: Some(wish("3.27.2")),
        written: BTreeMap::from([("targetVersion".to_owned(), "v3.27.2".to_owned())]),
        reason: "CanaryUnhealthy".to_owned(),
        evidence: "2 of 2 canaries crash-loop".to_owned(),
        left: Vec::new(),
        introduced: Some(Oid::from("c1")),
        others: vec!["values.yaml".to_owned()],
        at: at(240),
        state: RollbackState::Due,
    };
    let wishes = ["3.27.2", "3.28.0"].map(|version| WishEntry {
        wish: wish(version).hash(),
        wished: wish(version),
        claim: calico(),
        introduced: Oid::from("c1"),
        written: BTreeMap::new(),
        others: Vec::new(),
    });
    let target = TargetEntry { rollbacks: vec![entry], wishes: wishes.into(), ..TargetEntry::default() };
    lab.ledger().targets.insert(agent(), target);
    head(&mut lab, "c1", &[("calico.yaml", MANIFEST)]);
    lab
}

fn head(lab: &mut Lab, head: &str, files: &[(&str, &str)]) {
    lab.git().tracked = Some(tracked(head, files));
    lab.ledger().accepted = Some(Oid::from(head));
}

/// Somebody pushed the manifest with another version.
pub(super) fn head_names(lab: &mut Lab, version: &str) {
    head(lab, "c2", &[("calico.yaml", &MANIFEST.replace("v3.28.0", version))]);
}

#[test]
fn the_rollback_commit_changes_the_bytes_of_the_wish_on_the_present_head_only() {
    let lab = with_rollback();
    let commit = lab.rollback().unwrap();
    assert_eq!((commit.branch.as_str(), commit.parent.as_ref().unwrap().as_str()), ("main", "c1"));
    assert_eq!(commit.at, at(240), "the time at which the cluster was back");
    assert_eq!(commit.changes.len(), 1);
    let Change::Write(bytes) = &commit.changes["calico.yaml"] else { panic!("written") };
    let expected = MANIFEST.replace("v3.28.0", "v3.27.2");
    assert_eq!(std::str::from_utf8(bytes).unwrap(), expected, "comments, line ends and settings stay");
    assert!(commit.message.starts_with("Roll back CNIUpgrade/calico to v3.27.2 on prod-1\n"));
    assert!(commit.message.contains("\n  values.yaml\n"));
    assert!(commit.message.contains("\nCommit whose wish is undone:\n  c1\n"), "{}", commit.message);
    assert!(commit.message.contains("\nFile that is changed for it:\n  calico.yaml\n"), "{}", commit.message);
    assert!(commit.message.ends_with("Trunkline-From: v3.28.0\nTrunkline-Reason: CanaryUnhealthy\n"));
}

#[test]
fn a_retry_makes_the_same_commit_and_a_moved_head_another_one_on_it() {
    let mut lab = with_rollback();
    let first = lab.rollback().unwrap();
    lab.now = at(9_000);
    assert_eq!(lab.rollback().unwrap(), first, "a function of parent, tree and attempt");
    head(&mut lab, "c2", &[("calico.yaml", MANIFEST), ("other.txt", "theirs")]);
    let second = lab.rollback().unwrap();
    assert_eq!(second.parent, Some(Oid::from("c2")));
    assert_eq!(second.changes, first.changes, "bytes of others are not touched");
}

#[test]
fn a_head_that_was_not_accepted_yet_is_not_built_on() {
    let mut lab = with_rollback();
    lab.ledger().accepted = Some(Oid::from("c0"));
    assert_eq!(lab.rollback(), None);
    assert_eq!(lab.published().1, Reason::Publishing);
}

#[test]
fn no_commit_is_made_when_head_names_another_wish_or_asks_for_another_try() {
    let mut lab = with_rollback();
    head(&mut lab, "v1", &[("calico.yaml", &MANIFEST.replace("v3.28.0", "v3.27.2"))]);
    assert_eq!(lab.rollback(), None);
    head(&mut lab, "c2", &[("calico.yaml", &MANIFEST.replace("v3.28.0", "v3.28.1"))]);
    assert_eq!(lab.rollback(), None);
    let token = MANIFEST.replace(
        "  name: calico\r\n",
        "  name: calico\r\n  annotations:\r\n    trunkline.dev/retry: again\r\n",
    );
    head(&mut lab, "c3", &[("calico.yaml", &token)]);
    assert_eq!(lab.rollback(), None);
    lab.ledger().targets.get_mut(&agent()).unwrap().tokens.push("again".to_owned());
    assert!(lab.rollback().is_some(), "the token was used by the attempt that failed");
    head(&mut lab, "c4", &[]);
    assert_eq!(lab.rollback(), None, "the document is gone");
}

#[test]
fn no_commit_is_made_when_another_document_carries_a_newer_wish_of_the_target() {
    let mut lab = with_rollback();
    let newer = ClaimKey::cni("c-329");
    lab.declare(&newer, "3.29.0");
    let wish = WishEntry {
        wish: wish("3.29.0").hash(),
        wished: wish("3.29.0"),
        claim: newer.clone(),
        introduced: Oid::from("c2"),
        written: BTreeMap::new(),
        others: Vec::new(),
    };
    lab.ledger().targets.get_mut(&agent()).unwrap().wishes.push(wish);
    assert_eq!(lab.rollback(), None);
    let refused = Standing::Ambiguous { others: vec![calico()] };
    lab.ledger().objects.get_mut(&newer).unwrap().standing = refused;
    assert!(lab.rollback().is_some(), "a newer wish that may not act does not count");
    lab.ledger().objects.remove(&newer);
    assert!(lab.rollback().is_some(), "a newer wish that was removed again does not count");
}

#[test]
fn at_most_one_commit_per_attempt_and_none_where_they_are_switched_off() {
    let mut lab = with_rollback();
    for state in [RollbackState::Recorded(Oid::from("r1")), RollbackState::Moot] {
        lab.ledger().targets.get_mut(&agent()).unwrap().rollbacks[0].state = state;
        assert_eq!(lab.rollback(), None);
    }
    lab.ledger().targets.get_mut(&agent()).unwrap().rollbacks[0].state = RollbackState::Due;
    lab.config.repositories[0].rollback_commit = false;
    assert_eq!(lab.rollback(), None);
}

#[test]
fn a_document_that_was_not_there_before_goes_and_the_file_keeps_a_comment_line() {
    let mut lab = with_rollback();
    let entry = &mut lab.ledger().targets.get_mut(&agent()).unwrap().rollbacks[0];
    entry.to = None;
    entry.to_wish = None;
    let commit = lab.rollback().unwrap();
    let Change::Write(bytes) = &commit.changes["calico.yaml"] else { panic!("the file stays") };
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.starts_with("# ") && text.lines().count() == 1, "{text}");
    assert!(commit.message.replace('\n', " ").contains("so its document is removed"));
}

#[test]
fn a_rewritten_history_holds_the_rollback_commit_and_not_the_status_branch() {
    let mut lab = with_rollback();
    lab.git().tracked.as_mut().unwrap().descent = Descent::Rewritten;
    assert_eq!(lab.rollback(), None);
    assert!(!lab.drain().is_empty());
    assert_eq!((lab.published().0, lab.published().1), (Truth::False, Reason::HistoryRewritten));
}

#[test]
fn a_document_that_cannot_be_read_gets_no_commit_and_the_condition_names_the_place() {
    let mut lab = with_rollback();
    head(&mut lab, "c2", &[("calico.yaml", &MANIFEST.replace("  maxParallel", "\tmaxParallel"))]);
    assert_eq!(lab.rollback(), None);
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::InvalidManifest));
    assert!(text.contains("calico.yaml:7:"), "{text}");
    head(&mut lab, "c3", &[("calico.yaml", MANIFEST)]);
    assert!(lab.rollback().is_some(), "readable again, and it still names the wish");
}

#[test]
fn a_refused_rollback_commit_is_tried_again_with_backoff_and_at_once_on_a_new_head() {
    let mut lab = with_rollback();
    lab.drain();
    let refused = |count| Refused {
        what: "a1".to_owned(),
        expect: Some(Oid::from("c1")),
        message: "protected branch hook declined".to_owned(),
        at: at(400),
        count,
    };
    lab.now = at(400);
    for (count, wait) in [(1, 10), (2, 20), (6, 320), (7, 600), (99, 600)] {
        lab.git().refused.insert("a1".to_owned(), refused(count));
        let decision = lab.decide();
        assert_eq!(lab.rollback(), None);
        let until = at(400 + wait);
        assert!(decision.waiting.iter().any(|why| why.until() == Some(until)), "refusal {count}");
    }
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::PushRefused));
    assert!(text.contains("protected branch hook declined"), "{text}");
    assert!(text.contains("set CNIUpgrade/calico back to v3.27.2"), "{text}");
    assert_eq!(lab.step().unwrap(), "1 problem: PushRefused", "the words of the server are a problem, too");
    lab.now = at(1_000);
    assert!(lab.rollback().is_some());
    lab.now = at(401);
    head(&mut lab, "c2", &[("calico.yaml", MANIFEST)]);
    assert_eq!(lab.rollback().unwrap().parent, Some(Oid::from("c2")));
}

#[test]
fn the_status_branch_is_read_before_anything_is_written() {
    let mut lab = with_rollback();
    lab.git().status = None;
    assert!(lab.decide().effects.is_empty());
    lab.config.repositories[0].status_branch = false;
    assert!(lab.rollback().is_some(), "without a status branch there is nothing to read");
}
