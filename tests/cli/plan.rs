//! `trunkline plan` when it would run, when it is refused, and when there is nothing to do.

use serde_json::Value;
use trunkline::api::status::Outcome;

use super::scene::{EXAMPLE, Scene, declares};

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_would_run_names_nodes_rounds_and_time_with_its_assumptions() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("calico.yaml", EXAMPLE);
    scene.file(
        "narrow.yaml",
        &EXAMPLE
            .replace("maxParallel: 3", "maxParallel: 1\n  nodeSelector: {kubernetes.io/hostname: node-004}"),
    );
    insta::assert_snapshot!(
        scene.shown(&["plan", "calico.yaml"])
            + &scene.shown(&["plan", "narrow.yaml", "--node-seconds", "90"])
    );
    let output = scene.run(&["plan", "calico.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let planned = &plan["declarations"][0];
    assert_eq!(planned["verdict"], "WouldRun");
    assert_eq!(planned["canaries"].as_array().unwrap().len(), 2);
    assert_eq!(planned["estimate"]["seconds"], 4 * 40 + 30 * 60);
}

#[tokio::test(start_paused = true)]
async fn a_plan_names_the_nodes_that_the_daemon_then_acts_on() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("calico.yaml", EXAMPLE);
    let output = scene.run(&["plan", "calico.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.until(|status| status.nodes.open.len() == 2).await;
    let output = scene.run(&["explain", "--output", "json"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let canaries = plan["declarations"][0]["canaries"].as_array().unwrap();
    let named = |node: &&Value| told.contains(node.as_str().unwrap());
    assert_eq!(canaries.iter().filter(named).count(), 2, "{canaries:?} {told}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_says_why_and_fails_and_what_waits_does_not() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("far.yaml", &declares("v3.40.0"));
    scene.file("provider.yaml", &EXAMPLE.replace("  targetVersion", "  provider: calcio\n  targetVersion"));
    scene.file("invalid.yaml", &EXAMPLE.replace("maxParallel: 3", "maxParallel: 0"));
    scene.file("service.yaml", include_str!("../golden/inputs/service_upgrade.yaml"));
    scene.file("paused.yaml", &EXAMPLE.replace("maxParallel: 3", "maxParallel: 3\n  paused: true"));
    scene.file("two.yaml", &format!("{EXAMPLE}---\n{}", declares("v3.28.1")));
    scene.file(
        "nowhere.yaml",
        &EXAMPLE.replace("maxParallel: 3", "maxParallel: 3\n  nodeSelector: {pool: none}"),
    );
    let files = [
        "far.yaml",
        "provider.yaml",
        "invalid.yaml",
        "service.yaml",
        "paused.yaml",
        "two.yaml",
        "nowhere.yaml",
    ];
    insta::assert_snapshot!(files.map(|file| scene.shown(&["plan", file])).concat());
}

#[tokio::test(start_paused = true)]
async fn what_runs_already_is_nothing_to_do() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("same.yaml", &declares("3.27.2"));
    scene.file("next.yaml", &declares("v3.28.0"));
    scene.file("other.yaml", &declares("v3.28.0").replace("name: calico", "name: other"));
    let fresh = scene.shown(&["plan", "same.yaml"]);
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    let declared = scene.shown(&["plan", "same.yaml"]) + &scene.shown(&["plan", "other.yaml"]);
    scene.push(&declares("v3.28.0"), "Upgrade Calico");
    scene.until(|status| status.waiting_for.iter().any(|why| why.reason == "Observing")).await;
    let under_way = scene.shown(&["plan", "next.yaml"]) + &scene.shown(&["plan", "same.yaml"]);
    scene.until_ended(Outcome::Completed).await;
    let completed = scene.shown(&["plan", "next.yaml"]) + &scene.shown(&["plan", "same.yaml"]);
    insta::assert_snapshot!(fresh + &declared + &under_way + &completed);
}

#[tokio::test(start_paused = true)]
async fn a_plan_needs_no_daemon_and_names_what_is_not_there() {
    let scene = Scene::new([]);
    scene.file("calico.yaml", EXAMPLE);
    let plan = scene.shown(&["plan", "calico.yaml"]);
    assert!(plan.contains("would run: v3.27.2 → v3.28.0"), "{plan}");
    assert!(plan.contains("note: no ledger in namespace kube-system"), "{plan}");
    let none = scene.shown(&["plan", "nowhere"]);
    assert!(none.ends_with("error: nowhere does not exist\nexit 2\n"), "{none}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_shows_what_validate_finds_in_place_of_what_the_daemon_would_refuse() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("short.yaml", &EXAMPLE.replace("v3.28.0", "\"3.28\""));
    let plan = scene.shown(&["plan", "short.yaml"]);
    let validate = scene.shown(&["validate", "short.yaml"]);
    let (found, _) = validate.split_once("\n\n").unwrap();
    let (_, found) = found.split_once('\n').unwrap();
    assert!(found.contains("--> short.yaml:6:18") && found.contains("= help: write all three"), "{found}");
    assert!(plan.contains(found), "{plan}");
    assert!(!plan.contains("VersionUnreadable") && !plan.contains('→'), "{plan}");
    assert!(plan.ends_with("exit 1\n"), "{plan}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_an_empty_folder_says_that_agents_of_the_repository_stay_as_they_are() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.file("empty.yaml", "# nothing\n");
    assert!(scene.shown(&["plan", "empty.yaml"]).contains("declared in these files.\nexit 0"));
    scene.push(&declares("v3.27.2"), "Declare what runs");
    scene.until_ended(Outcome::AlreadyRuns).await;
    let plan = scene.shown(&["plan", "empty.yaml"]);
    assert!(
        plan.contains("Nothing is declared in these files. CNIUpgrade/calico of repository demo"),
        "{plan}"
    );
    assert!(plan.contains("stay as they are and are not managed any more"), "{plan}");
}
