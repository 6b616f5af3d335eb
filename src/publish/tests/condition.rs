//! Condition `GitPublished`.

use super::*;

#[test]
fn the_condition_follows_the_branch() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending]));
    assert_eq!(lab.published().1, Reason::Publishing);
    lab.now = at(70);
    lab.drain();
    assert_eq!((lab.published().0, lab.published().1), (Truth::True, Reason::Published));
    lab.git().trouble = Some(GitTrouble { message: "no route".to_owned(), since: at(80), count: 1 });
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::Unreachable));
    assert!(text.contains("no route") && text.contains("2026-01-01T00:01:20Z"), "{text}");
}

#[test]
fn a_rollback_commit_is_waited_for_until_head_names_another_wish() {
    let mut lab = super::rollback::with_rollback();
    lab.drain();
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::Publishing));
    assert!(text.contains("rollback commit"), "{text}");
    super::rollback::head_names(&mut lab, "v3.28.1");
    assert_eq!(lab.rollback(), None);
    assert_eq!((lab.published().0, lab.published().1), (Truth::True, Reason::Published));
}
