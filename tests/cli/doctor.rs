//! `trunkline doctor` over an embedded cluster and a repository.

use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use trunkline::sim::lab::{CLUSTER, FOLDER};

use super::scene::{EXAMPLE, Scene, trunkline};

/// The configuration of the scene, and what a test changes in it.
fn configure(scene: &Scene, more: &str) {
    let remote = scene.lab.remote();
    let text = format!(
        "cluster: {CLUSTER}\nrepositories:\n- name: demo\n  url: {}\n  paths: [{FOLDER}]\n{more}",
        remote.display()
    );
    scene.file("config.yaml", &text);
}

/// What it prints. The cluster lives in its own time, so the difference of clocks is another one each time.
fn examined(scene: &Scene, args: &[&str]) -> String {
    let shown = scene.shown(&[&["doctor", "--allow-local", "--config", "config.yaml"], args].concat());
    let of_clock = |line: &str| line.contains("This machine is ");
    let clocks = shown.lines().filter(|line| of_clock(line)).count();
    assert_eq!(clocks, 1, "{shown}");
    shown.lines().filter(|line| !of_clock(line)).fold(String::new(), |text, line| text + line + "\n")
}

async fn lead(scene: &Scene) {
    let leases: Api<Lease> = Api::namespaced(scene.lab.cluster.client(), "kube-system");
    let lease = json!({
        "metadata": { "name": "trunkline" },
        "spec": {
            "holderIdentity": "trunkline-0", "leaseDurationSeconds": 15,
            "renewTime": "2026-03-01T10:01:05.000000Z",
        },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_installation_that_works_is_ok_line_by_line() {
    let mut scene = Scene::new([]);
    scene.start().await;
    scene.push(EXAMPLE, "Upgrade Calico");
    scene.wait(60).await;
    lead(&scene).await;
    configure(&scene, "");
    insta::assert_snapshot!(examined(&scene, &[]));
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_wrong_is_told_at_once_with_the_way_to_mend_it() {
    let mut scene = Scene::new([]);
    scene.push(EXAMPLE, "Upgrade Calico");
    let client = scene.lab.cluster.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    definitions.delete("serviceupgrades.service.example.com", &DeleteParams::default()).await.unwrap();
    let column = json!([{ "op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0" }]);
    let patch: json_patch::Patch = serde_json::from_value(column).unwrap();
    definitions
        .patch("cniupgrades.cni.example.com", &PatchParams::default(), &Patch::Json::<()>(patch))
        .await
        .unwrap();
    scene.lab.cluster.faults().deny(|right| {
        right["verb"] == "patch" && right["resource"] == "daemonsets" || right["resource"] == "leases"
    });
    configure(
        &scene,
        "  branch: trunk\n  credentials: /nonexistent/git\n- name: gone\n  url: /nonexistent/gone.git\n",
    );
    insta::assert_snapshot!(examined(&scene, &[]));
}

#[tokio::test(start_paused = true)]
async fn without_a_configuration_git_is_left_out_and_json_says_the_same() {
    let scene = Scene::new([]);
    let output = scene.run(&["doctor", "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings
            .iter()
            .find(|finding| finding["check"] == check)
            .unwrap_or_else(|| panic!("{report:#}"))
            .clone()
    };
    assert_eq!(of("configuration")["verdict"], "skipped");
    assert_eq!(of("policies")["verdict"], "warning");
    assert_eq!(of("lease")["verdict"], "fault");
    assert!(of("lease")["mend"].as_str().unwrap().starts_with("kubectl "), "{report:#}");
}

#[tokio::test(start_paused = true)]
async fn nothing_that_it_asks_for_changes_anything() {
    let scene = Scene::new([]);
    configure(&scene, "");
    scene.run(&["doctor", "--allow-local", "--config", "config.yaml"]);
    let log = scene.lab.cluster.faults().log();
    assert!(log.len() > 20, "{}", log.len());
    let writes: Vec<_> = log.iter().filter(|logged| logged.asked.writes()).collect();
    assert!(writes.is_empty(), "{writes:?}");
    let posted = log.iter().filter(|logged| logged.asked.method != "GET");
    assert!(posted.clone().all(|logged| logged.asked.uri.ends_with("reviews")), "{posted:?}");
}

#[test]
fn a_cluster_that_is_not_there_does_not_keep_it_from_looking_at_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "cluster: a\nrepos: []\n").unwrap();
    let output = trunkline().args(["doctor", "--config"]).arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("neither a kubeconfig"), "{text}");
    assert!(text.contains("repos") && text.ends_with("2 faults, 0 warnings\n"), "{text}");
    let output = trunkline().args(["doctor", "--config", "/nonexistent/file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
