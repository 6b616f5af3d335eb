//! Removal of declarations: J6, J7, J9, J10, J29.

use super::lab::{Lab, calico, cni, service};
use crate::{
    api::{ClaimKey, status::Outcome},
    mirror::ledger::{Removal, Standing},
};

fn upgrading() -> Lab {
    let mut lab = Lab::empty();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    lab.attempt(&calico(), 1, None);
    lab.settle();
    lab
}

#[test]
fn a_removal_while_the_attempt_is_unfinished_keeps_the_resource_until_it_returned_j6_j7() {
    let mut lab = upgrading();
    let v1 = lab.push("v1", &[("calico.yaml", None)]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(lab.entry(&calico()).removed, Some(Removal { by: v1 }));
    assert_eq!(lab.target().in_force, Some(calico()));
    assert_eq!(*lab.standing(&calico()), Standing::InForce);
    lab.push("o", &[("README.md", Some("hello"))]);
    lab.settle();
    assert!(lab.has(&calico()));
    lab.attempt(&calico(), 2, Some(Outcome::Returned));
    let written = lab.settle();
    assert_eq!(
        written,
        [
            "WriteLedger infra",
            "DeleteClaim CNIUpgrade/calico",
            "ReleaseClaim CNIUpgrade/calico",
            "WriteLedger infra",
        ]
    );
    assert!(!lab.has(&calico()));
    assert_eq!(lab.ledger().entry(&calico()), None);
    assert_eq!(lab.target().in_force, None);
    assert_eq!(lab.target().attempts.len(), 2, "the ledger keeps the outcome");
}

#[test]
fn an_attempt_that_failed_and_is_held_is_not_left_behind_by_a_removal_j38b() {
    let mut lab = upgrading();
    lab.ends(&calico(), 1, Outcome::Held);
    lab.push("v1", &[("calico.yaml", None)]);
    lab.settle();
    assert!(lab.has(&calico()));
    lab.attempt(&calico(), 2, Some(Outcome::Returned));
    lab.settle();
    assert!(!lab.has(&calico()));
}

#[test]
fn a_removal_after_completion_takes_the_resource_only_j9() {
    let mut lab = upgrading();
    lab.ends(&calico(), 1, Outcome::Completed);
    lab.settle();
    lab.push("clean up", &[("calico.yaml", None)]);
    assert_eq!(lab.settle_claims(), ["DeleteClaim CNIUpgrade/calico", "ReleaseClaim CNIUpgrade/calico"]);
    assert_eq!(lab.target().in_force, None);
}

#[test]
fn a_resource_deleted_by_hand_while_it_returns_is_not_released_early() {
    let mut lab = upgrading();
    lab.push("v1", &[("calico.yaml", None)]);
    lab.settle();
    lab.kubectl_delete(&calico());
    assert_eq!(lab.settle(), Vec::<String>::new());
    lab.attempt(&calico(), 2, Some(Outcome::Returned));
    assert_eq!(lab.settle_claims(), ["ReleaseClaim CNIUpgrade/calico"]);
}

#[test]
fn a_declaration_that_comes_back_while_its_removal_returns_is_a_new_wish_j10() {
    let mut lab = upgrading();
    let order = lab.entry(&calico()).order;
    lab.push("v1", &[("calico.yaml", None)]);
    lab.settle();
    let w1 = lab.push("w1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    let entry = lab.entry(&calico());
    assert_eq!((&entry.removed, &entry.introduced), (&None, &w1));
    assert!(entry.order >= order);
    assert_eq!(lab.target().in_force, Some(calico()));
}

#[test]
fn what_is_not_in_force_goes_at_once_j39() {
    let mut lab = upgrading();
    lab.push("c2", &[("other.yaml", Some(&cni("other", "v3.29.0")))]);
    lab.settle();
    lab.push("c3", &[("other.yaml", None)]);
    lab.settle();
    assert!(!lab.has(&ClaimKey::cni("other")));
    assert_eq!(lab.target().in_force, Some(calico()));
}

#[test]
fn when_everything_is_deleted_only_the_unfinished_one_stays_j29() {
    let mut lab = upgrading();
    let names: Vec<String> = (0..29).map(|n| format!("web-{n}")).collect();
    let files: Vec<(String, String)> =
        names.iter().map(|name| (format!("{name}.yaml"), service("a", name, name, "v2"))).collect();
    let add: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
    lab.push("c2", &add);
    lab.settle();
    assert_eq!(lab.world.claims.len(), 30);
    let mut remove: Vec<_> = files.iter().map(|(path, _)| (path.as_str(), None)).collect();
    remove.push(("calico.yaml", None));
    lab.push("rm -r", &remove);
    lab.settle();
    assert_eq!(lab.world.claims.keys().collect::<Vec<_>>(), [&calico()]);
    assert_eq!(lab.ledger().objects.len(), 1);
}
