//! Repository mishaps and people who edit the cluster: J16, J23, J24, J34.

use crate::{
    api::{ClaimKey, names::REPOSITORY, status::Outcome},
    mirror::{
        dropped,
        ledger::Standing,
        tests::lab::{Lab, calico, cni, hold},
    },
    rollout::{Now, effect::Effect},
    world::git::GitTrouble,
};

fn in_canary() -> Lab {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    lab.attempt(&calico(), 1, None);
    lab.settle();
    lab
}

#[test]
fn a_rewritten_history_only_holds_and_names_both_heads_j16() {
    let mut lab = in_canary();
    let c1 = lab.ledger().accepted.clone().unwrap();
    let before = lab.ledger().objects.clone();
    lab.reset(1);
    lab.push("c1'", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    let v1 = lab.push("v1", &[("calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    let ledger = lab.ledger();
    assert_eq!(
        (&ledger.objects, &ledger.accepted, &ledger.seen),
        (&before, &Some(c1.clone()), &Some(v1.clone()))
    );
    let state = ledger.states.first().unwrap();
    assert_eq!(state.reason, "HistoryRewritten");
    assert!(state.message.contains(c1.as_str()) && state.message.contains(v1.as_str()), "{}", state.message);
}

#[test]
fn the_old_head_again_goes_on_as_if_nothing_was_j16() {
    let mut lab = in_canary();
    let accepted = lab.ledger().accepted.clone();
    let lost = lab.reset(1);
    lab.settle();
    assert_eq!(lab.ledger().accepted, accepted);
    lab.push_again(lost);
    lab.settle();
    assert!(lab.ledger().states.is_empty());
    let c2 = lab.push("c2", &[("calico.yaml", Some(&cni("calico", "v3.28.1")))]);
    lab.settle();
    assert_eq!(lab.ledger().accepted, Some(c2));
    assert!(lab.mirrors(&calico(), "v3.28.1"));
}

#[test]
fn a_branch_that_vanishes_later_holds_and_removes_nothing() {
    let mut lab = in_canary();
    let lost = lab.reset(2);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(lab.ledger().states.first().unwrap().reason, "HistoryRewritten");
    assert!(lab.has(&calico()));
    lab.push_again(lost);
    lab.settle();
    assert!(lab.ledger().states.is_empty());
}

#[test]
fn a_repository_that_cannot_be_read_is_unreachable_and_removes_nothing_j7() {
    let mut lab = in_canary();
    let since = lab.now;
    lab.trouble = Some(GitTrouble { message: "connection refused".to_owned(), since, count: 1 });
    lab.unread = true;
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    let state = lab.ledger().states.first().unwrap().clone();
    assert_eq!((state.reason.as_str(), state.since), ("Unreachable", since));
    lab.hours(1);
    lab.trouble = Some(GitTrouble { message: "connection refused".to_owned(), since: lab.now, count: 9 });
    assert_eq!(lab.settle(), Vec::<String>::new());
    assert!(lab.has(&calico()));
    lab.trouble = None;
    lab.unread = false;
    lab.settle();
    assert!(lab.ledger().states.is_empty());
}

#[test]
fn nothing_is_written_before_everything_was_listed_and_git_was_read() {
    let mut lab = Lab::new();
    lab.unread = true;
    assert_eq!(lab.settle(), Vec::<String>::new());
    lab.unread = false;
    lab.world.feeds.clear();
    lab.look();
    let decision = lab.pass();
    assert!(decision.effects.is_empty());
    assert_eq!(decision.waiting.len(), 1);
}

#[test]
fn a_kubectl_edit_is_put_back_with_the_accepted_form_j23a() {
    let mut lab = in_canary();
    let before = lab.entry(&calico()).clone();
    lab.edit(&calico(), |claim| {
        claim.spec = std::sync::Arc::new(serde_json::json!({"targetVersion": "v9.9.9"}));
        claim.digest = crate::world::digest::of(&claim.spec);
    });
    assert_eq!(lab.settle(), ["ReplaceClaim CNIUpgrade/calico"]);
    assert!(lab.mirrors(&calico(), "v3.28.0"));
    assert_eq!(*lab.entry(&calico()), before);
}

#[test]
fn a_resource_made_by_hand_is_neither_taken_nor_overwritten_j23c() {
    let mut lab = Lab::empty();
    lab.by_hand(&calico());
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    assert_eq!(lab.settle_claims(), Vec::<String>::new());
    assert!(lab.mirrors(&calico(), "v9.9.9"));
    lab.push("removed", &[("calico.yaml", None)]);
    assert_eq!(lab.settle_claims(), Vec::<String>::new());
    assert!(lab.has(&calico()));
    assert_eq!(lab.ledger().entry(&calico()), None);
}

#[test]
fn foreign_marks_stop_writes_but_the_attempt_under_way_is_still_told_j23de() {
    let mut lab = in_canary();
    lab.edit(&calico(), |claim| claim.foreign = true);
    lab.push("c2", &[("calico.yaml", Some(&cni("calico", "v3.28.1")))]);
    assert_eq!(lab.settle_claims(), Vec::<String>::new());
    assert!(lab.mirrors(&calico(), "v3.28.0"));
    lab.ends(&calico(), 1, Outcome::Completed);
    lab.settle();
    assert_eq!(lab.target().attempts.first().unwrap().outcome, Some(Outcome::Completed));
}

#[test]
fn a_resource_deleted_by_hand_is_released_and_made_again_j24a() {
    let mut lab = in_canary();
    let before = lab.entry(&calico()).clone();
    lab.kubectl_delete(&calico());
    assert_eq!(lab.settle(), ["ReleaseClaim CNIUpgrade/calico", "CreateClaim CNIUpgrade/calico"]);
    assert!(lab.mirrors(&calico(), "v3.28.0") && lab.claim(&calico()).finalizer);
    assert_eq!(*lab.entry(&calico()), before);
}

#[test]
fn a_resource_that_vanished_is_made_again_and_its_attempt_is_still_known_j24bc() {
    let mut lab = in_canary();
    lab.vanish(&calico());
    assert_eq!(lab.settle(), ["CreateClaim CNIUpgrade/calico"]);
    assert_eq!(lab.target().attempts.len(), 1);
    assert_eq!(lab.target().in_force, Some(calico()));
}

#[test]
fn the_brake_is_left_alone_and_kept_when_the_resource_is_made_again_j48() {
    let mut lab = in_canary();
    lab.edit(&calico(), |claim| claim.hold = Some(hold("DNS is odd")));
    assert_eq!(lab.settle_claims(), Vec::<String>::new());
    lab.kubectl_delete(&calico());
    lab.settle();
    assert_eq!(lab.claim(&calico()).hold, Some(hold("DNS is odd")));
    lab.edit(&calico(), |claim| claim.hold = None);
    lab.settle();
    lab.vanish(&calico());
    lab.settle();
    assert_eq!(lab.claim(&calico()).hold, None);
}

#[test]
fn a_stripped_finalizer_is_put_back() {
    let mut lab = in_canary();
    lab.edit(&calico(), |claim| claim.finalizer = false);
    assert_eq!(lab.settle(), ["ReplaceClaim CNIUpgrade/calico"]);
    assert!(lab.claim(&calico()).finalizer);
}

#[test]
fn a_resource_deleted_while_git_is_away_is_kept_until_it_can_be_made_again() {
    let mut lab = in_canary();
    lab.unread = true;
    lab.kubectl_delete(&calico());
    assert_eq!(lab.settle(), Vec::<String>::new());
    lab.unread = false;
    assert_eq!(lab.settle(), ["ReleaseClaim CNIUpgrade/calico", "CreateClaim CNIUpgrade/calico"]);
}

#[test]
fn a_lost_ledger_is_no_first_contact_for_what_was_acted_on_and_keeps_quarantine_and_tokens_j34d() {
    let mut lab = in_canary();
    lab.lose_ledger();
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    assert_eq!(lab.target().attempts.len(), 1);
}

#[test]
fn a_resource_of_ours_that_nothing_declares_goes() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.lose_ledger();
    lab.push("removed", &[("calico.yaml", None)]);
    lab.settle();
    assert!(!lab.has(&calico()));
}

#[test]
fn a_missing_path_is_named_until_something_of_ours_stood_in_it_j42() {
    let mut lab = Lab::new();
    lab.repo.paths = vec!["clusters/prod-1".to_owned()];
    lab.push("o", &[("README.md", Some("hello"))]);
    lab.settle();
    assert_eq!(lab.ledger().diagnostics.first().unwrap().path, "clusters/prod-1");
    lab.push("c1", &[("clusters/prod-1/calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    lab.settle();
    lab.push("folder gone", &[("clusters/prod-1/calico.yaml", None)]);
    lab.settle();
    assert!(lab.ledger().diagnostics.is_empty());
    assert!(!lab.has(&calico()));
}

#[test]
fn a_branch_that_does_not_exist_is_named_with_five_that_do() {
    let mut lab = Lab::empty();
    lab.settle();
    assert_eq!(lab.ledger().states, [], "a repository without branches is only empty");
    lab.repo.branch = "maim".to_owned();
    let branches = ["a", "b", "c", "d", "main", "z", "trunkline/status/prod-1"];
    lab.branches = branches.map(str::to_owned).to_vec();
    lab.settle();
    let [state] = &lab.ledger().states[..] else { panic!("{:?}", lab.ledger().states) };
    assert_eq!(state.reason, "BranchMissing");
    assert!(
        state.message.contains("Branch maim does not exist in repository infra")
            && state.message.contains("a, b, c, d, main and 1 more. Did you mean main?"),
        "{}",
        state.message
    );
    lab.branches.clear();
    lab.settle();
    assert_eq!(lab.ledger().states, []);
}

#[test]
fn a_refused_push_says_what_to_look_at() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.refuse("status");
    lab.settle();
    let message = &lab.ledger().states[0].message;
    for place in ["hook", "protection rules", "token"] {
        assert!(message.contains(place), "{message}");
    }
}

#[test]
fn what_people_delete_of_a_repository_that_is_not_followed_goes_once_its_attempt_has_ended() {
    let mut lab = in_canary();
    lab.kubectl_delete(&calico());
    let released = |lab: &Lab| {
        let now = Now { at: lab.now, epoch: 1 };
        let decision = dropped(&lab.repo.name, &lab.world, now);
        decision.effects.into_values().any(|effect| matches!(effect, Effect::ReleaseClaim { .. }))
    };
    assert!(!released(&lab), "nodes are in flight");
    lab.ends(&calico(), 1, Outcome::Completed);
    assert!(released(&lab));
}

#[test]
fn a_resource_that_another_followed_repository_names_as_its_own_is_left_to_it() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.rival("other", false, None);
    lab.edit(&calico(), |claim| drop(claim.annotations.insert(REPOSITORY.to_owned(), "other".to_owned())));
    assert_eq!(lab.settle_claims(), [""; 0]);
}

#[test]
fn a_resource_of_ours_that_nothing_declares_and_others_manage_stays() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.put(&ClaimKey::cni("left"), None, |claim| {
        claim.annotations.insert(REPOSITORY.to_owned(), "infra".to_owned());
        (claim.finalizer, claim.foreign) = (true, true);
    });
    assert_eq!(lab.settle(), [""; 0]);
    lab.edit(&ClaimKey::cni("left"), |claim| claim.foreign = false);
    assert_eq!(lab.settle_claims().first().unwrap(), "DeleteClaim CNIUpgrade/left");
}
