//! Which declaration acts: J2, J26, J28, J42, J44, J47.

use super::lab::{Lab, agent, calico, cni, service, wish, with_token};
use crate::{
    api::{ClaimKey, names::REPOSITORY},
    config::FirstContact,
    mirror::ledger::Standing,
    rollout::{ledger_entry, waiting::Waiting},
    world::{Target, digest},
};

fn key(name: &str) -> ClaimKey {
    ClaimKey::cni(name)
}

#[test]
fn the_first_manifest_pushed_to_an_empty_repository_acts_j42() {
    let mut lab = Lab::empty();
    assert!(lab.ledger().started);
    assert_eq!(lab.ledger().accepted, None);
    let c1 = lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    assert_eq!(lab.settle(), ["WriteLedger infra", "CreateClaim CNIUpgrade/calico"]);
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    assert_eq!(lab.entry(&calico()).introduced, c1);
    assert_eq!(lab.entry(&calico()).before, None);
    assert_eq!(lab.target().in_force, Some(calico()));
}

#[test]
fn both_first_manifests_of_a_folder_act_each_on_its_target_j7_j42() {
    let mut lab = Lab::empty();
    let web = service("a", "web", "web-service", "v2");
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0"))), ("web.yaml", Some(&web))]);
    lab.settle();
    let web = ClaimKey::service("a", "web");
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    assert_eq!(*lab.standing(&web), Standing::InForce);
    assert_eq!(lab.entry(&web).target, Target::Service("a".to_owned(), "web-service".to_owned()));
}

#[test]
fn thirty_old_manifests_start_nothing_and_the_one_that_runs_is_adopted_j26a() {
    let mut lab = Lab::new();
    let old: Vec<(String, String)> =
        (0..30).map(|n| (format!("c-{n}.yaml"), cni(&format!("c-{n}"), &format!("v3.{n}.2")))).collect();
    let files: Vec<(&str, Option<&str>)> = old.iter().map(|(p, m)| (p.as_str(), Some(m.as_str()))).collect();
    lab.push("c0", &files);
    lab.settle();
    assert_eq!(lab.target().in_force, Some(key("c-27")));
    assert_eq!(*lab.standing(&key("c-27")), Standing::InForce);
    assert_eq!(*lab.standing(&key("c-3")), Standing::Superseded { by: key("c-27") });
}

#[test]
fn a_template_that_is_not_rolled_out_yet_is_not_what_runs_j26() {
    let mut lab = Lab::new();
    lab.agent_rolls("v3.28.0");
    lab.push("c0", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::FirstContact);
    // Counts of a generation that the controller has not seen yet are those of before.
    lab.agent_is(|agent| {
        (agent.generation, agent.updated) = (2, agent.desired);
    });
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::FirstContact);
    lab.agent_runs("v3.28.0");
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
}

#[test]
fn an_adopted_manifest_that_is_removed_lets_no_old_one_act() {
    let mut lab = Lab::new();
    lab.push("c0", &[("a.yaml", Some(&cni("a", "v3.27.2"))), ("b.yaml", Some(&cni("b", "v3.20.0")))]);
    lab.settle();
    lab.push("c1", &[("a.yaml", None)]);
    lab.settle();
    assert_eq!(lab.target().in_force, None);
    assert_eq!(*lab.standing(&key("b")), Standing::FirstContact);
}

#[test]
fn a_first_contact_waits_for_another_wish_or_a_token_j26b() {
    for lift in [cni("b", "v3.28.0"), with_token(&cni("b", "v3.25.0"), "t1")] {
        let mut lab = Lab::new();
        lab.push("c0", &[("a.yaml", Some(&cni("a", "v3.20.0"))), ("b.yaml", Some(&cni("b", "v3.25.0")))]);
        lab.settle();
        assert_eq!(*lab.standing(&key("a")), Standing::FirstContact);
        assert_eq!(*lab.standing(&key("b")), Standing::FirstContact);
        assert_eq!(lab.target().in_force, None);
        lab.push("a setting lifts nothing", &[("a.yaml", Some(&(cni("a", "v3.20.0") + "  paused: true\n")))]);
        lab.settle();
        assert_eq!(*lab.standing(&key("a")), Standing::FirstContact);
        lab.push("lift", &[("b.yaml", Some(&lift))]);
        lab.settle();
        assert_eq!(*lab.standing(&key("b")), Standing::InForce);
        assert_eq!(*lab.standing(&key("a")), Standing::Superseded { by: key("b") });
    }
}

#[test]
fn first_contact_act_lets_the_only_old_manifest_act() {
    let mut lab = Lab::new();
    lab.repo.first_contact = FirstContact::Act;
    lab.push("c0", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    let mut later = Lab::with("calico.yaml", &cni("calico", "v3.28.0"));
    assert_eq!(*later.standing(&calico()), Standing::FirstContact);
    later.repo.first_contact = FirstContact::Act;
    later.settle();
    assert_eq!(*later.standing(&calico()), Standing::InForce);
}

#[test]
fn a_path_added_to_the_config_is_first_contact_also_beside_a_new_commit_j26d() {
    for commit in [false, true] {
        let mut lab = Lab::new();
        lab.repo.paths = vec!["one".to_owned()];
        lab.push("c0", &[("one/README", Some("x"))]);
        lab.settle();
        lab.repo.paths.push("two".to_owned());
        let files = [("two/calico.yaml", Some(cni("calico", "v3.28.0")))];
        lab.push("old", &[(files[0].0, files[0].1.as_deref())]);
        if commit {
            lab.push("o", &[("one/README", Some("y"))]);
        }
        lab.settle();
        assert_eq!(*lab.standing(&calico()), Standing::FirstContact);
        lab.push("new", &[("two/calico.yaml", Some(&cni("calico", "v3.29.0")))]);
        lab.settle();
        assert_eq!(*lab.standing(&calico()), Standing::InForce);
    }
}

#[test]
fn a_second_declaration_is_ambiguous_and_what_was_in_force_stays_j2() {
    let mut lab = Lab::with("c-327.yaml", &cni("c-327", "v3.27.2"));
    lab.push("M12", &[("c-328.yaml", Some(&cni("c-328", "v3.28.0")))]);
    lab.settle();
    assert_eq!(lab.target().in_force, Some(key("c-327")));
    assert_eq!(*lab.standing(&key("c-327")), Standing::InForce);
    assert_eq!(*lab.standing(&key("c-328")), Standing::Ambiguous { others: vec![key("c-327")] });
    assert!(lab.entry(&key("c-328")).order > lab.entry(&key("c-327")).order);
}

#[test]
fn two_new_wishes_in_one_commit_name_each_other_and_the_one_left_alone_acts_j47() {
    let mut lab = Lab::empty();
    lab.push("c1", &[("a.yaml", Some(&cni("c-328", "v3.28.0"))), ("b.yaml", Some(&cni("c-329", "v3.29.0")))]);
    lab.settle();
    assert_eq!(lab.target().in_force, None);
    assert_eq!(*lab.standing(&key("c-328")), Standing::Ambiguous { others: vec![key("c-329")] });
    assert_eq!(*lab.standing(&key("c-329")), Standing::Ambiguous { others: vec![key("c-328")] });
    lab.push("c2", &[("a.yaml", None)]);
    lab.settle();
    assert_eq!(*lab.standing(&key("c-329")), Standing::InForce);
}

#[test]
fn two_new_wishes_beside_one_in_force_change_nothing_in_force_j47() {
    let mut lab = Lab::with("c-327.yaml", &cni("c-327", "v3.27.2"));
    lab.push("c1", &[("a.yaml", Some(&cni("c-328", "v3.28.0"))), ("b.yaml", Some(&cni("c-329", "v3.29.0")))]);
    lab.settle();
    assert_eq!(lab.target().in_force, Some(key("c-327")));
    let others = vec![key("c-327"), key("c-329")];
    assert_eq!(*lab.standing(&key("c-328")), Standing::Ambiguous { others });
}

#[test]
fn many_declarations_of_one_target_leave_the_ledger_small_and_name_what_acts() {
    let mut lab = Lab::with("z-327.yaml", &cni("z-327", "v3.27.2"));
    let many: Vec<String> = (0..300).map(|n| cni(&format!("c-{n}"), &format!("v3.28.{n}"))).collect();
    lab.push("c1", &[("many.yaml", Some(&many.join("---\n")))]);
    lab.settle();
    let Standing::Ambiguous { others } = lab.standing(&key("c-7")) else { panic!("ambiguous") };
    assert_eq!(others.first(), Some(&key("z-327")));
    let bytes = serde_json::to_string(lab.ledger()).unwrap().len();
    assert!(bytes < 1024 * 1024 / 3, "{bytes}");
}

#[test]
fn a_target_that_appears_later_is_taken_with_all_that_was_wished_j44a() {
    let mut lab = Lab::new();
    lab.agent_gone();
    lab.settle();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(lab.entry(&calico()).target, Target::Unresolved(calico()));
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    lab.agent_runs("v3.27.2");
    lab.settle();
    assert_eq!(lab.entry(&calico()).target, agent());
    assert_eq!(lab.target().in_force, Some(calico()));
    assert_eq!(lab.target().wishes.last().unwrap().wish, wish("3.28.0"));
    assert_eq!(lab.ledger().target(&Target::Unresolved(calico())), None);
}

#[test]
fn a_target_that_vanishes_keeps_its_claim_and_its_record() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.agent_gone();
    lab.settle();
    assert_eq!(lab.entry(&calico()).target, agent());
}

#[test]
fn an_unknown_provider_stands_for_itself_j44c() {
    let mut lab = Lab::empty();
    lab.push("c1", &[("calico.yaml", Some(&(cni("calico", "v3.28.0") + "  provider: calicoo\n")))]);
    lab.settle();
    assert_eq!(lab.entry(&calico()).target, Target::Unresolved(calico()));
    lab.push("c2", &[("calico.yaml", Some(&(cni("calico", "v3.28.0") + "  provider: calico\n")))]);
    lab.settle();
    assert_eq!(lab.entry(&calico()).target, agent());
    assert_eq!(lab.target().wishes.len(), 2);
}

#[test]
fn wishes_are_kept_in_the_order_of_acceptance_with_their_bytes() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    for minor in 0..60 {
        lab.push("edit", &[("calico.yaml", Some(&cni("calico", &format!("v3.{minor}.9"))))]);
        lab.settle();
    }
    let wishes = &lab.target().wishes;
    assert_eq!(wishes.len(), 50);
    assert_eq!(wishes.first().unwrap().wish, wish("3.10.9"));
    let newest = wishes.last().unwrap();
    assert_eq!((&newest.wish, newest.written["targetVersion"].as_str()), (&wish("3.59.9"), "v3.59.9"));
}

#[test]
fn a_target_that_another_repository_has_in_force_is_ambiguous_here_and_first_contact_once_it_is_let_go() {
    let rival = key("theirs");
    let mut lab = Lab::empty();
    lab.push("o", &[("service.yaml", Some(&service("a", "web", "web-service", "v2")))]);
    lab.settle();
    lab.rival("other", false, Some(&rival));
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::Ambiguous { others: vec![rival.clone()] });
    assert_eq!(lab.target().in_force, None);
    lab.rival("other", false, None);
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::FirstContact);
    lab.push("c2", &[("calico.yaml", Some(&cni("calico", "v3.28.1")))]);
    lab.settle();
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
}

#[test]
fn what_is_in_force_stays_when_a_later_repository_claims_its_target_and_yields_to_an_earlier_one() {
    for first in [false, true] {
        let mut lab = Lab::empty();
        lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
        lab.settle();
        lab.rival("other", first, Some(&key("theirs")));
        lab.settle();
        assert_eq!(*lab.standing(&calico()) == Standing::InForce, !first);
    }
}

#[test]
fn a_target_that_two_repositories_have_in_force_at_once_is_acted_on_by_none() {
    let mut lab = Lab::empty();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    assert_eq!(lab.roll_out().statuses.len(), 1);
    lab.rival("other", false, Some(&key("theirs")));
    let spec = lab.claim(&calico()).spec.clone();
    lab.put(&key("theirs"), None, |claim| {
        (claim.digest, claim.spec) = (digest::of(&spec), spec);
        claim.annotations.insert(REPOSITORY.to_owned(), "other".to_owned());
    });
    let decision = lab.roll_out();
    assert_eq!((decision.statuses.len(), decision.effects.len()), (0, 0));
    assert!(matches!(decision.waiting[..], [Waiting::OtherAttempt { .. }]), "{:?}", decision.waiting);
}

#[test]
fn of_two_repositories_that_declare_one_object_the_one_that_its_resource_was_made_for_counts() {
    for rival in ["another", "other"] {
        let mut lab = Lab::empty();
        lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
        lab.settle();
        lab.rival(rival, false, Some(&calico()));
        let (ledger, _) = ledger_entry(&lab.world, &calico()).unwrap();
        assert_eq!(ledger.repository.as_str(), "infra");
    }
}
