//! What `status`, `explain`, the status branch and `kubectl` say when things went wrong or are held: why, which commit, and
//! the way on.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use trunkline::{
    api::{CNIUpgrade, names::HOLD, status::Outcome},
    sim::model::fault::{Fault, FaultKind},
};

use super::scene::{EXAMPLE, Scene, declares};

fn bad_agent() -> Fault {
    Fault::new(FaultKind::CrashLoops).with_image("v3.28.0").on_first(1)
}

async fn observing() -> Scene {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until(|status| status.waiting_for.iter().any(|why| why.reason == "Observing")).await;
    scene
}

async fn patch(scene: &Scene, change: Value) {
    let api: Api<CNIUpgrade> = Api::all(scene.lab.cluster.client());
    api.patch("calico-upgrade-v3.28", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rollback_says_what_failed_which_commit_says_so_and_how_to_try_again() {
    let mut scene = Scene::new([bad_agent()]);
    scene.start().await;
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    scene.push(&declares("v3.28.0"), "Upgrade Calico");
    scene.until_ended(Outcome::RolledBack).await;
    let back = scene.shown(&["status"]) + &scene.shown(&["explain"]) + &scene.page("README.md");
    scene.push(&declares("v3.28.0"), "Try again without a token");
    scene.wait(60).await;
    let (status, explain) = (scene.shown(&["status"]), scene.shown(&["explain"]));
    for told in [&status, &explain] {
        assert!(told.contains("Git names v3.28.0 again"), "{told}");
        assert!(!told.contains("says so in Git"), "{told}");
    }
    assert!(explain.contains("fail     standing  v3.28.0 failed on this cluster before"), "{explain}");
    assert!(!explain.contains("in force for"), "{explain}");
    insta::assert_snapshot!(back + &status + &explain + &scene.subjects());
}

#[tokio::test(start_paused = true)]
async fn a_hold_on_what_rests_is_told_with_the_way_to_release_it() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until_ended(Outcome::Completed).await;
    patch(&scene, json!({ "metadata": { "annotations": { HOLD: "3am check" } } })).await;
    scene.wait(90).await;
    let (status, explain) = (scene.shown(&["status"]), scene.shown(&["explain"]));
    for told in [&status, &explain] {
        let held = told.lines().find(|line| line.contains("held     Held: "));
        let held = held.unwrap_or_else(|| panic!("{told}"));
        assert!(held.contains("The brake is on at CNIUpgrade/calico-upgrade-v3.28: \"3am check\""), "{held}");
        assert!(held.contains(", since 2026-03-01T"), "{held}");
        assert!(held.contains("the next change stops at it"), "{held}");
        assert!(
            held.contains("`kubectl annotate cniupgrade calico-upgrade-v3.28 trunkline.dev/hold-`"),
            "{held}"
        );
    }
    assert!(!explain.contains("Nothing is waited for."), "{explain}");
    patch(&scene, json!({ "metadata": { "annotations": { HOLD: null } } })).await;
    scene.wait(90).await;
    assert!(scene.shown(&["explain"]).contains("Nothing is waited for."));
    let subjects = scene.subjects();
    let ledger: Vec<&str> = subjects.lines().filter(|line| !line.starts_with('$')).take(2).collect();
    let object = "CNIUpgrade/calico-upgrade-v3.28";
    let expected = [format!("Ledger: no hold of {object} any more"), format!("Ledger: hold of {object}")];
    assert_eq!(ledger, expected, "{subjects}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_its_rollback_commit_removed_is_explained_from_the_ledger() {
    let mut scene = Scene::new([bad_agent()]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.wait(300).await;
    insta::assert_snapshot!(scene.shown(&["status"]) + &scene.shown(&["explain", "calico-upgrade-v3.28"]));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_kept_is_told_once_with_the_way_back() {
    let mut scene = Scene::new([bad_agent()]);
    scene.start().await;
    scene.push(&EXAMPLE.replace("autoRollback: true", "autoRollback: false"), "Upgrade Calico");
    scene.until_ended(Outcome::Held).await;
    let status = scene.shown(&["status"]);
    assert_eq!(status.matches("The DaemonSet stays on").count(), 1, "{status}");
    scene.file("back.yaml", &EXAMPLE.replace("v3.28.0", "v3.27.2"));
    let back = scene.shown(&["plan", "back.yaml"]);
    assert!(back.contains("v3.28.0 (on 2 of 10 nodes) → v3.27.2"), "{back}");
    insta::assert_snapshot!(status + &scene.shown(&["explain"]) + &back);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_promises_no_time_and_a_plan_sees_the_brake_and_the_pause() {
    let scene = observing().await;
    scene.file("paused.yaml", &EXAMPLE.replace("maxParallel: 3", "maxParallel: 3\n  paused: true"));
    let planned = scene.shown(&["plan", "paused.yaml"]);
    patch(&scene, json!({ "metadata": { "annotations": { HOLD: "DNS is odd" } } })).await;
    scene.wait(60).await;
    insta::assert_snapshot!(planned + &scene.shown(&["status"]) + &scene.page("README.md"));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_rejected_says_where_and_which_form_is_acted_on() {
    let mut scene = observing().await;
    scene.push(&EXAMPLE.replace("maxParallel: 3", "maxParalel: 3"), "Break it");
    scene.wait(30).await;
    insta::assert_snapshot!(scene.shown(&["explain"]) + &scene.subjects());
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_never_could_be_read_is_pointed_at() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(&EXAMPLE.replace("maxParallel: 3", "maxParalel: 3"), "A slip");
    scene.wait(30).await;
    insta::assert_snapshot!(scene.shown(&["explain", "calico-upgrade-v3.28"]) + &scene.shown(&["explain"]));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_taken_at_its_word() {
    let scene = observing().await;
    insta::assert_snapshot!(
        scene.shown(&["status", "-n", "web"])
            + &scene.shown(&["status", "calico-upgrade-v3.28", "-n", "web"])
            + &scene.shown(&["explain", "-n", "web"])
    );
}

#[tokio::test(start_paused = true)]
async fn the_columns_of_kubectl_and_the_status_name_one_target() {
    let mut scene = Scene::new([bad_agent()]);
    scene.start().await;
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    scene.push(&declares("v3.28.0"), "Upgrade Calico");
    scene.until_ended(Outcome::RolledBack).await;
    let path = "/apis/cni.example.com/v1/cniupgrades";
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = scene.lab.cluster.client().request(request.body(Vec::new()).unwrap()).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let target = columns.iter().position(|column| column["name"] == "Target").unwrap();
    assert_eq!(table["rows"][0]["cells"][target], "v3.28.0");
    let report: Value = serde_json::from_slice(&scene.run(&["status", "--output", "json"]).stdout).unwrap();
    assert_eq!(report["objects"][0]["target"], "v3.28.0");
    assert_eq!(report["objects"][0]["current"], "v3.27.2");
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_is_known_and_told_with_its_numbers() {
    let scene = observing().await;
    scene.wait(600).await;
    patch(&scene, json!({ "metadata": { "annotations": { HOLD: "DNS is odd" } } })).await;
    scene.wait(1).await;
    let told = scene.shown(&["explain"]);
    assert!(told.contains("of 30m observed. The canary is observed until"), "{told}");
    let line = |gate: &str| told.lines().find(|line| line.split_whitespace().nth(1) == Some(gate)).unwrap();
    for gate in ["observation", "brake"] {
        assert!(line(gate).starts_with("waits "), "{told}");
    }
    assert!(line("brake").contains("\"DNS is odd\""), "{told}");
    assert_eq!(told.matches("The canary is observed until").count(), 1, "{told}");
}
