//! From documents to objects: J1, J17, J20, J27, J28, J36.

use super::lab::{Lab, calico, cni, service, with_token};
use crate::{
    api::ClaimKey,
    manifest::Code,
    mirror::ledger::{MOST, Standing},
    rollout::waiting::Refusal,
};

#[test]
fn an_edit_is_mirrored_into_the_resource_and_names_the_commit_that_brought_it_j1() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let c0 = lab.entry(&calico()).introduced.clone();
    let c1 = lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
    assert!(lab.mirrors(&calico(), "v3.28.0"));
    assert_eq!(lab.entry(&calico()).introduced, c1);
    assert_ne!(c0, c1);
    let annotations = &lab.claim(&calico()).annotations;
    assert_eq!(annotations["trunkline.dev/revision"], format!("main@sha1:{c1}"));
    assert_eq!(annotations["trunkline.dev/wish"], lab.entry(&calico()).wish.as_str());
    assert_eq!(annotations["trunkline.dev/repository"], "infra");
}

#[test]
fn a_setting_keeps_the_commit_and_the_order_of_the_wish_j1_j36() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let before = lab.entry(&calico()).clone();
    let c2 = lab.push("c2", &[("calico.yaml", Some(&(cni("calico", "v3.27.2") + "  paused: true\n")))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
    let after = lab.entry(&calico());
    assert_eq!(
        (&after.introduced, after.order, &after.wish),
        (&before.introduced, before.order, &before.wish)
    );
    assert_eq!(after.accepted, c2);
    assert_eq!(lab.target().wishes.len(), 1);
}

#[test]
fn an_unrelated_commit_moves_the_ledger_and_writes_no_resource_j1() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let o = lab.push("o", &[("README.md", Some("hello"))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(lab.ledger().accepted, Some(o.clone()));
    assert_eq!(lab.ledger().seen, Some(o));
}

#[test]
fn the_same_version_written_otherwise_is_no_new_wish_j28() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let before = lab.entry(&calico()).clone();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "\"3.27.2\"")))]);
    lab.settle();
    let after = lab.entry(&calico());
    assert_eq!((&after.introduced, after.order), (&before.introduced, before.order));
    assert_eq!(after.standing, Standing::InForce);
}

#[test]
fn a_wish_taken_back_in_the_same_fetch_changes_nothing_j5() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let before = lab.entry(&calico()).clone();
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.push("v1", &[("calico.yaml", Some(&cni("calico", "v3.27.2")))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(*lab.entry(&calico()), before);
}

#[test]
fn after_two_days_offline_the_net_wish_counts_with_the_commit_that_brought_it_j27() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.28.0"));
    lab.push("c1", &[("calico.yaml", Some(&cni("calico", "v3.28.1")))]);
    lab.push("v1", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    let c3 = lab.push("c3", &[("calico.yaml", Some(&cni("calico", "v3.29.0")))]);
    lab.push("o", &[("README.md", Some("hello"))]);
    let c5 = lab.push("c5", &[("calico.yaml", Some(&(cni("calico", "v3.29.0") + "  maxParallel: 5\n")))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
    let entry = lab.entry(&calico());
    assert_eq!((&entry.introduced, &entry.accepted), (&c3, &c5));
    assert_eq!(lab.claim(&calico()).spec["maxParallel"], 5);
    let wishes: Vec<_> = lab.target().wishes.iter().map(|wish| wish.wished.about().to_owned()).collect();
    assert_eq!(wishes, ["3.28.0", "3.29.0"]);
}

#[test]
fn a_file_that_moves_moves_only_the_path_j17a() {
    let manifest = cni("calico", "v3.27.2");
    let mut lab = Lab::with("calico.yaml", &manifest);
    let before = lab.entry(&calico()).clone();
    lab.push("move", &[("calico.yaml", None), ("cni/calico.yaml", Some(&manifest))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(lab.entry(&calico()).path, "cni/calico.yaml");
    assert_eq!(lab.entry(&calico()).introduced, before.introduced);
}

#[test]
fn a_document_split_out_of_its_file_changes_nothing_j17b() {
    let (one, two) = (cni("calico", "v3.27.2"), service("a", "web", "web", "v2"));
    let mut lab = Lab::with("all.yaml", &format!("{one}---\n{two}"));
    lab.push("split", &[("all.yaml", Some(&one)), ("web.yaml", Some(&two))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(lab.entry(&ClaimKey::service("a", "web")).path, "web.yaml");
}

#[test]
fn a_copy_holds_the_object_as_it_is_until_one_is_left_j17cd() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    let before = lab.entry(&calico()).clone();
    lab.push("copy", &[("copy.yaml", Some(&cni("calico", "v3.28.0")))]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(*lab.entry(&calico()), before);
    assert!(!lab.ledger().diagnostics.is_empty());
    lab.push("copy removed", &[("copy.yaml", None)]);
    assert_eq!(lab.settle(), ["WriteLedger infra"]);
    assert_eq!(*lab.entry(&calico()), before);
    assert!(lab.ledger().diagnostics.is_empty());
}

#[test]
fn a_document_moved_out_of_the_paths_is_removed_j17e() {
    let manifest = cni("calico", "v3.27.2");
    let mut lab = Lab::new();
    lab.repo.paths = vec!["clusters/prod-1".to_owned()];
    lab.push("c0", &[("clusters/prod-1/calico.yaml", Some(&manifest))]);
    lab.settle();
    // The Git shell reads the configured paths only.
    lab.push("moved out", &[("clusters/prod-1/calico.yaml", None), ("clusters/prod-1/README", Some("x"))]);
    lab.settle();
    assert!(!lab.has(&calico()));
}

#[test]
fn a_broken_document_keeps_its_accepted_form_and_holds_nobody_else_back_j20ae() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.push("c1", &[("web.yaml", Some(&service("a", "web", "web", "v1")))]);
    lab.settle();
    let before = lab.entry(&calico()).clone();
    let broken = cni("calico", "v3.28.0").replace("  targetVersion", "\ttargetVersion");
    lab.push("tab", &[("calico.yaml", Some(&broken)), ("web.yaml", Some(&service("a", "web", "web", "v2")))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim ServiceUpgrade/a/web"]);
    let after = lab.entry(&calico());
    assert_eq!((&after.wish, &after.spec, &after.removed), (&before.wish, &before.spec, &None));
    assert_eq!(lab.ledger().diagnostics.first().unwrap().path, "calico.yaml");
}

#[test]
fn conflict_markers_and_a_duplicate_key_remove_nothing_j20bd() {
    let good = cni("calico", "v3.27.2");
    for broken in [
        format!("<<<<<<< HEAD\n{good}=======\n{}>>>>>>> b\n", cni("calico", "v3.28.0")),
        format!("{good}  targetVersion: v3.28.0\n"),
    ] {
        let mut lab = Lab::with("calico.yaml", &good);
        lab.push("broken", &[("calico.yaml", Some(&broken))]);
        assert_eq!(lab.settle(), ["WriteLedger infra"], "{broken}");
        assert_eq!(lab.entry(&calico()).removed, None);
        assert!(!lab.ledger().diagnostics.is_empty());
    }
}

#[test]
fn a_document_moved_to_a_file_that_does_not_parse_is_not_removed_until_the_file_can_be_read_j20c() {
    let good = cni("calico", "v3.27.2");
    let mut lab = Lab::with("calico.yaml", &good);
    lab.push(
        "moved and broken",
        &[("calico.yaml", None), ("new.yaml", Some(&good.replace("  targetVersion", "\ttargetVersion")))],
    );
    lab.settle();
    lab.push("o", &[("README.md", Some("hello"))]);
    lab.settle();
    assert_eq!(lab.entry(&calico()).removed, None);
    let mended = lab.push("mended, and it is not there", &[("new.yaml", Some("# empty\n"))]);
    lab.look();
    let decision = lab.pass();
    assert_eq!(decision.effects.len(), 1);
    lab.settle();
    assert!(!lab.has(&calico()));
    assert_eq!(lab.ledger().accepted, Some(mended));
}

#[test]
fn a_file_that_was_broken_all_along_holds_no_removal_back() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.push("broken", &[("old.yaml", Some("apiVersion: cni.example.com/v1\nkind: CNIUpgrade\n\tx: y\n"))]);
    lab.settle();
    lab.push("removed", &[("calico.yaml", None)]);
    lab.settle();
    assert!(!lab.has(&calico()));
}

#[test]
fn a_file_that_became_a_skipped_entry_removes_nothing() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.push("symlink", &[("calico.yaml", None)]);
    lab.skip("calico.yaml", "a symbolic link");
    lab.settle();
    assert_eq!(lab.entry(&calico()).removed, None);
    assert!(lab.has(&calico()));
}

#[test]
fn a_token_alone_is_a_new_form_of_the_same_wish() {
    let manifest = cni("calico", "v3.27.2");
    let mut lab = Lab::with("calico.yaml", &manifest);
    let before = lab.entry(&calico()).clone();
    lab.push("retry", &[("calico.yaml", Some(&with_token(&manifest, "t1")))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
    let after = lab.entry(&calico());
    assert_eq!(after.token.as_deref(), Some("t1"));
    assert_eq!((&after.introduced, after.order), (&before.introduced, before.order));
    assert_eq!(lab.claim(&calico()).annotations["trunkline.dev/retry"], "t1");
    lab.push("token gone", &[("calico.yaml", Some(&manifest))]);
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
    assert_eq!(lab.claim(&calico()).annotations["trunkline.dev/retry"], "");
}

#[test]
fn an_object_in_a_namespace_that_is_not_allowed_is_held_back_with_a_diagnostic() {
    let mut lab = Lab::empty();
    lab.repo.allow_namespaces = vec!["a".to_owned()];
    lab.push(
        "c1",
        &[
            ("a.yaml", Some(&service("a", "web", "web", "v1"))),
            ("b.yaml", Some(&service("b", "web", "web", "v1"))),
        ],
    );
    assert_eq!(lab.settle_claims(), ["CreateClaim ServiceUpgrade/a/web"]);
    assert_eq!(lab.ledger().diagnostics.first().unwrap().path, "b.yaml");
}

#[test]
fn declarations_that_the_ledger_has_no_room_for_are_named_and_come_in_once_there_is_room() {
    let mut lab = Lab::empty();
    let manifests = |count: usize| {
        let all: Vec<String> =
            (0..count).map(|n| service("a", &format!("web-{n}"), &format!("web-{n}"), "v1")).collect();
        all.join("---\n")
    };
    let (many, few) = (manifests(990), manifests(20));
    lab.push("many", &[("a.yaml", Some(&many)), ("b.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.settle();
    let taken = lab.ledger().objects.len();
    assert!((100..991).contains(&taken), "{taken}");
    assert!(lab.ledger().bytes() < 700_000, "{}", lab.ledger().bytes());
    let told = usize::try_from(lab.ledger().more_diagnostics).unwrap() + lab.ledger().diagnostics.len();
    assert_eq!(told, 991 - taken);
    let first = &lab.ledger().diagnostics[0];
    assert!(first.code == Code::Limit && first.message.contains("no room"), "{first:?}");
    lab.push("few", &[("a.yaml", Some(&few))]);
    lab.settle();
    assert_eq!((lab.ledger().objects.len(), lab.ledger().diagnostics.len()), (21, 0));
}

#[test]
fn a_ledger_that_would_not_fit_into_its_config_map_is_refused_with_its_size_and_nothing_is_written() {
    let mut lab = Lab::with("calico.yaml", &cni("calico", "v3.27.2"));
    lab.change_ledger(|ledger| ledger.used_paths.push("x".repeat(MOST)));
    lab.push("next", &[("calico.yaml", Some(&cni("calico", "v3.28.0")))]);
    lab.look();
    let decision = lab.pass();
    assert_eq!(decision.effects.len(), 0);
    let [Refusal::LedgerTooLarge { bytes, max: MOST }] = decision.refusals[..] else {
        panic!("{:?}", decision.refusals)
    };
    assert!(bytes > MOST, "{bytes}");
    lab.change_ledger(|ledger| ledger.used_paths.clear());
    assert_eq!(lab.settle_claims(), ["ReplaceClaim CNIUpgrade/calico"]);
}
