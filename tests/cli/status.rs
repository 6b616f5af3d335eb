//! `trunkline status` and `trunkline explain` while things happen.

use serde_json::Value;
use trunkline::{
    api::{cni_upgrade::CniPhase, status::Outcome},
    sim::model::fault::{Fault, FaultKind},
};

use super::scene::{EXAMPLE, Scene, declares};

fn bad_agent() -> Fault {
    Fault::new(FaultKind::CrashLoops).with_image("v3.28.0").on_first(1)
}

#[tokio::test(start_paused = true)]
async fn a_canary_is_shown_with_what_it_waits_for_and_until_when() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until(|status| status.waiting_for.iter().any(|why| why.reason == "Observing")).await;
    scene.wait(300).await;
    insta::assert_snapshot!(
        scene.shown(&["status"]) + &scene.shown(&["explain", "cniup/calico-upgrade-v3.28"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_completed_rollout_is_shown_and_json_has_absolute_times() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until_ended(Outcome::Completed).await;
    insta::assert_snapshot!(scene.shown(&["status", "calico-upgrade-v3.28"]) + &scene.shown(&["explain"]));
    let output = scene.run(&["status", "--output", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["objects"][0]["phase"], "Completed");
    assert!(report["objects"][0]["since"].as_str().unwrap().starts_with("2026-03-01T10:3"), "{report}");
    let output = scene.run(&["explain", "--output", "json"]);
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explanation["gates"][0]["verdict"], "Pass");
}

#[tokio::test(start_paused = true)]
async fn a_failed_canary_is_shown_with_its_evidence_and_planned_again_only_with_a_token() {
    let mut scene = Scene::new([bad_agent()]);
    scene.start().await;
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    scene.push(&declares("v3.28.0"), "Upgrade Calico");
    scene.until(|status| status.phase == CniPhase::Rollback).await;
    let during = scene.shown(&["status"]);
    scene.until_ended(Outcome::RolledBack).await;
    let again = declares("v3.28.0");
    scene.file("again.yaml", &again);
    let token = "metadata:\n  annotations:\n    trunkline.dev/retry: \"second try\"\n";
    scene.file("token.yaml", &again.replace("metadata:\n", token));
    insta::assert_snapshot!(
        during
            + &scene.shown(&["status"])
            + &scene.shown(&["explain"])
            + &scene.shown(&["plan", "again.yaml"])
            + &scene.shown(&["plan", "token.yaml"])
    );
}

#[tokio::test(start_paused = true)]
async fn manifests_of_first_contact_and_broken_ones_are_told_with_the_ways_out() {
    let mut scene = Scene::new([]);
    scene.push(EXAMPLE, "An old manifest");
    scene.start().await;
    scene.push(&format!("{EXAMPLE}  targetVersion: v3.28.1\n"), "Break it");
    scene.wait(30).await;
    scene.file("old.yaml", EXAMPLE);
    insta::assert_snapshot!(
        scene.shown(&["status"]) + &scene.shown(&["explain"]) + &scene.shown(&["plan", "old.yaml"])
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_is_an_error_with_the_nearest_one() {
    let mut scene = Scene::new([]);
    scene.start().await;
    let empty = scene.shown(&["status"]) + &scene.shown(&["status", "calico"]);
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    insta::assert_snapshot!(
        empty
            + &scene.shown(&["status", "calcio"])
            + &scene.shown(&["explain", "svcup/calico"])
            + &scene.shown(&["explain", "pod/calico"])
            + &scene.shown(&["status", "unrelated"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_left_the_configuration_says_so_and_is_left_out_once_nothing_of_it_acts() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until_ended(Outcome::Completed).await;
    scene.without_repositories().await;
    let told = scene.shown(&["status"]);
    assert!(told.contains("Repository demo is not in the configuration any more"), "{told}");
    assert!(told.contains("stays in force: CNIUpgrade/calico-upgrade-v3.28."), "{told}");
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push("# nothing yet\n", "Begin");
    scene.wait(60).await;
    assert!(scene.shown(&["status"]).contains("Repository demo"));
    scene.without_repositories().await;
    assert!(!scene.shown(&["status"]).contains("Repository demo"), "{}", scene.shown(&["status"]));
}
