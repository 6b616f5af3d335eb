//! DaemonSet facts that a rollout stands on, seen on a real control plane first.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::plane::{CRASHING, JSON_PATCH, NODES, Plane, refusal, text};

const AGENT: &str = "agent";

/// A DaemonSet that runs on the nodes of its case only.
fn agent(plane: &Plane, strategy: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": AGENT },
        "spec": {
            "selector": { "matchLabels": { "app": AGENT } },
            "updateStrategy": { "type": strategy },
            "template": {
                "metadata": { "labels": { "app": AGENT } },
                "spec": {
                    "initContainers": [{ "name": "install", "image": "example/cni:v1" }],
                    "containers": [{ "name": "agent", "image": "example/node:v1" }],
                    "nodeSelector": { "case": plane.scope },
                    "tolerations": [{ "operator": "Exists" }],
                },
            },
        },
    })
}

fn sets(plane: &Plane) -> String {
    plane.collection("apis/apps/v1", "daemonsets")
}

fn path(plane: &Plane) -> String {
    format!("{}/{AGENT}", sets(plane))
}

fn pods_path(plane: &Plane) -> String {
    plane.collection("api/v1", "pods")
}

fn pod_path(plane: &Plane, pod: &Value) -> String {
    format!("{}/{}", pods_path(plane), text(pod, "/metadata/name"))
}

fn revisions_path(plane: &Plane) -> String {
    plane.collection("apis/apps/v1", "controllerrevisions")
}

/// So many nodes whose agents are all Ready.
async fn with_agents(plane: &Plane, nodes: usize, strategy: &str) {
    for node in 0..nodes {
        let name = plane.name(&format!("n{node}"));
        let node = json!({ "metadata": { "name": name, "labels": { "case": plane.scope } } });
        plane.create(NODES, &node).await.unwrap();
    }
    plane.create(&sets(plane), &agent(plane, strategy)).await.unwrap();
    settled(plane, nodes).await;
}

/// The DaemonSet once its controller has seen it and all its pods are Ready and of one age with it.
async fn settled(plane: &Plane, nodes: usize) -> Value {
    plane
        .until("all agents Ready", async || {
            let set = plane.get(&path(plane)).await.unwrap();
            let seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let count = |field: &str| set["status"][field].as_u64().unwrap_or(0);
            let ready = usize::try_from(count("numberReady")).unwrap() == nodes;
            (seen && ready && count("desiredNumberScheduled") == count("numberReady")).then_some(set)
        })
        .await
}

/// Pods that are not going, by the short name of their node.
async fn pods(plane: &Plane) -> BTreeMap<String, Value> {
    let list = plane.get(&pods_path(plane)).await.unwrap();
    let items = list["items"].as_array().unwrap();
    let start = plane.name("");
    let node = |pod: &Value| text(pod, "/spec/nodeName").strip_prefix(&start).unwrap().to_owned();
    let stays = |pod: &&Value| pod["metadata"].get("deletionTimestamp").is_none();
    let placed = items.iter().filter(stays).filter(|pod| pod["spec"].get("nodeName").is_some());
    placed.map(|pod| (node(pod), pod.clone())).collect()
}

fn uids(pods: &BTreeMap<String, Value>) -> Vec<&str> {
    pods.values().map(|pod| text(pod, "/metadata/uid")).collect()
}

/// Names of revisions, by number.
async fn revisions(plane: &Plane) -> Vec<String> {
    let list = plane.get(&revisions_path(plane)).await.unwrap();
    let mut items = list["items"].as_array().unwrap().clone();
    items.sort_by_key(|item| item["revision"].as_i64());
    items.iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

/// As a rollout does it: strategy and images in one patch.
async fn set_image(plane: &Plane, image: &str) -> Value {
    let patch = json!([
        { "op": "test", "path": "/spec/template/spec/containers/0/name", "value": "agent" },
        { "op": "replace", "path": "/spec/updateStrategy/type", "value": "OnDelete" },
        { "op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image },
    ]);
    plane.patch(&path(plane), JSON_PATCH, &patch).await.unwrap()
}

async fn set_template(plane: &Plane, template: &Value) -> Value {
    let patch = json!([{ "op": "replace", "path": "/spec/template", "value": template }]);
    plane.patch(&path(plane), JSON_PATCH, &patch).await.unwrap()
}

async fn give_back(plane: &Plane) {
    let patch = json!([{ "op": "replace", "path": "/spec/updateStrategy/type", "value": "RollingUpdate" }]);
    plane.patch(&path(plane), JSON_PATCH, &patch).await.unwrap();
}

async fn observed(plane: &Plane) -> Value {
    plane
        .until("the controller has seen it", async || {
            let set = plane.get(&path(plane)).await.unwrap();
            (set["status"]["observedGeneration"] == set["metadata"]["generation"]).then_some(set)
        })
        .await
}

/// Deletes the pod of a node; its replacement once it is Ready.
async fn replaced(plane: &Plane, node: &str) -> Value {
    let pod = pods(plane).await.remove(node).unwrap();
    let path = pod_path(plane, &pod);
    plane.delete(&path, &json!({ "preconditions": { "uid": pod["metadata"]["uid"] } })).await.unwrap();
    plane
        .until("the replacement is Ready", async || {
            let list = plane
                .get(&format!("{}?fieldSelector=spec.nodeName%3D{}", pods_path(plane), plane.name(node)))
                .await
                .unwrap();
            let pods = list["items"].as_array().unwrap().clone();
            pods.into_iter().find(|new| is_ready(new) && new["metadata"]["uid"] != pod["metadata"]["uid"])
        })
        .await
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| conditions.iter().any(|of| of["type"] == "Ready" && of["status"] == "True"))
}

fn image(pod: &Value) -> &str {
    text(pod, "/spec/containers/0/image")
}

pub(crate) async fn agents_look_as_on_a_real_cluster(plane: &Plane) {
    with_agents(plane, 2, "RollingUpdate").await;
    let set = plane.get(&path(plane)).await.unwrap();
    assert_eq!(set["spec"]["template"]["spec"]["nodeSelector"], json!({ "case": plane.scope }));
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"], json!({ "maxSurge": 0, "maxUnavailable": 1 }));
    let pods = pods(plane).await;
    let pod = &pods["n0"];
    assert!(text(pod, "/metadata/name").starts_with("agent-"));
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
    assert!(pod["status"]["containerStatuses"][0]["state"].get("running").is_some());
    assert_eq!(pod["status"]["initContainerStatuses"][0]["name"], "install");
    let affinity =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    assert_eq!(pod.pointer(affinity).unwrap()["matchFields"][0]["values"], json!([plane.name("n0")]));
    let name = revisions(plane).await.remove(0);
    let revision = plane.get(&format!("{}/{name}", revisions_path(plane))).await.unwrap();
    let hash = text(pod, "/metadata/labels/controller-revision-hash");
    assert_eq!((revision["revision"].as_i64(), name), (Some(1), format!("agent-{hash}")));
    let mut template = revision["data"]["spec"]["template"].clone();
    assert_eq!(template.as_object_mut().unwrap().remove("$patch"), Some(json!("replace")));
    assert_eq!(template, set["spec"]["template"]);
    let node = plane.get(&format!("{NODES}/{}", plane.name("n0"))).await.unwrap();
    assert!(is_ready(&node));
}

pub(crate) async fn a_template_change_under_on_delete_touches_no_pod(plane: &Plane) {
    with_agents(plane, 3, "RollingUpdate").await;
    let before = pods(plane).await;
    set_image(plane, "example/node:v2").await;
    let set = observed(plane).await;
    plane.quiet().await;
    assert_eq!(uids(&pods(plane).await), uids(&before));
    assert_eq!(set["status"].get("updatedNumberScheduled"), None);
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"], json!({ "maxSurge": 0, "maxUnavailable": 1 }));
    assert_eq!(revisions(plane).await.len(), 2);
}

pub(crate) async fn a_deleted_pod_comes_back_on_the_new_template(plane: &Plane) {
    with_agents(plane, 3, "RollingUpdate").await;
    set_image(plane, "example/node:v2").await;
    observed(plane).await;
    let new = replaced(plane, "n1").await;
    assert_eq!(image(&new), "example/node:v2");
    let set = settled(plane, 3).await;
    assert_eq!(set["status"]["updatedNumberScheduled"], 1);
    let wrong = pod_path(plane, &new);
    let refused = plane.delete(&wrong, &json!({ "preconditions": { "uid": "another" } })).await;
    assert_eq!(refusal(refused), (409, "Conflict".to_owned()));
}

pub(crate) async fn a_template_put_back_byte_equal_takes_its_old_revision_and_its_pods_with_it(
    plane: &Plane,
) {
    with_agents(plane, 3, "RollingUpdate").await;
    let saved = plane.get(&path(plane)).await.unwrap()["spec"]["template"].clone();
    let first = revisions(plane).await;
    set_image(plane, "example/node:v2").await;
    observed(plane).await;
    replaced(plane, "n0").await;
    set_template(plane, &saved).await;
    let set = observed(plane).await;
    assert_eq!(set["status"]["updatedNumberScheduled"], 2);
    let now = revisions(plane).await;
    assert_eq!((now.len(), now.last()), (2, first.first()));
    let back = replaced(plane, "n0").await;
    assert_eq!(image(&back), "example/node:v1");
    let hash = text(&back, "/metadata/labels/controller-revision-hash");
    assert_eq!(format!("agent-{hash}"), first[0]);
}

pub(crate) async fn a_strategy_given_back_too_early_takes_the_whole_cluster(plane: &Plane) {
    with_agents(plane, 3, "RollingUpdate").await;
    set_image(plane, "example/node:v2").await;
    observed(plane).await;
    give_back(plane).await;
    plane
        .until("every agent is new", async || {
            let pods = pods(plane).await;
            let new = |pod: &Value| image(pod) == "example/node:v2" && is_ready(pod);
            (pods.len() == 3 && pods.values().all(new)).then_some(())
        })
        .await;
}

pub(crate) async fn a_strategy_given_back_when_all_are_updated_touches_nobody(plane: &Plane) {
    with_agents(plane, 2, "RollingUpdate").await;
    set_image(plane, "example/node:v2").await;
    observed(plane).await;
    replaced(plane, "n0").await;
    replaced(plane, "n1").await;
    let before = pods(plane).await;
    give_back(plane).await;
    settled(plane, 2).await;
    plane.quiet().await;
    assert_eq!(uids(&pods(plane).await), uids(&before));
}

pub(crate) async fn without_history_the_old_revision_goes_with_its_last_pod(plane: &Plane) {
    with_agents(plane, 1, "OnDelete").await;
    let patch = json!([{ "op": "replace", "path": "/spec/revisionHistoryLimit", "value": 0 }]);
    plane.patch(&path(plane), JSON_PATCH, &patch).await.unwrap();
    set_image(plane, "example/node:v2").await;
    observed(plane).await;
    assert_eq!(revisions(plane).await.len(), 2);
    replaced(plane, "n0").await;
    plane.until("one revision is left", async || (revisions(plane).await.len() == 1).then_some(())).await;
}

pub(crate) async fn an_agent_that_crash_loops_says_so_in_its_container(plane: &Plane) {
    with_agents(plane, 1, "OnDelete").await;
    set_image(plane, CRASHING).await;
    observed(plane).await;
    let pod = pods(plane).await.remove("n0").unwrap();
    plane.delete(&pod_path(plane, &pod), &json!({})).await.unwrap();
    let waiting = "/status/containerStatuses/0/state/waiting/reason";
    let bad = plane
        .until("it crash loops", async || {
            let pod = pods(plane).await.remove("n0")?;
            (pod.pointer(waiting) == Some(&json!("CrashLoopBackOff"))).then_some(pod)
        })
        .await;
    assert!(!is_ready(&bad));
    assert!(bad["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0));
}

pub(crate) async fn a_patch_is_observed_only_once_the_controller_has_seen_it(plane: &Plane) {
    with_agents(plane, 1, "OnDelete").await;
    plane.stall(Duration::from_secs(3));
    set_image(plane, "example/node:v2").await;
    plane.wait(Duration::from_secs(1)).await;
    let set = plane.get(&path(plane)).await.unwrap();
    assert!(set["status"]["observedGeneration"].as_i64() < set["metadata"]["generation"].as_i64());
    assert_eq!(image(&pods(plane).await["n0"]), "example/node:v1");
    observed(plane).await;
}
