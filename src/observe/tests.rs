use serde_json::{Value, json};

use super::{project, store};
use crate::{
    api::{
        ClaimKey,
        cni_upgrade::CniPhase,
        names::{RepoName, Rv, Uid},
        status::Truth,
    },
    mirror::ledger::Ledger,
    world::{
        Agent, Claim, ClaimStatus, Feed, Mark, Node, Object, ObjectId, Pod, Revision, Shape, Strategy,
        WaitReason,
    },
};

const NODE: &str = include_str!("testdata/node.json");
const POD: &str = include_str!("testdata/pod.json");
const AGENT: &str = include_str!("testdata/daemonset.json");
const REVISION: &str = include_str!("testdata/controllerrevision.json");
const CLAIM: &str = include_str!("testdata/cniupgrade.json");

fn with(text: &str, pointer: &str, value: Value) -> String {
    let mut object: Value = serde_json::from_str(text).unwrap();
    *object.pointer_mut(pointer).unwrap() = value;
    object.to_string()
}

fn object(feed: Feed, text: &str) -> Object {
    project(feed, text).unwrap().unwrap()
}

fn node(text: &str) -> Node {
    let Shape::Node(node) = object(Feed::Nodes, text).shape else { panic!("no Node") };
    node
}

fn pod(text: &str) -> Pod {
    let Shape::Pod(pod) = object(Feed::Pods, text).shape else { panic!("no Pod") };
    pod
}

fn agent(text: &str) -> Agent {
    let Shape::Agent(agent) = object(Feed::Agents, text).shape else { panic!("no DaemonSet") };
    agent
}

fn claim(text: &str) -> Claim {
    let Shape::Claim(claim) = object(Feed::CniUpgrades, text).shape else { panic!("no claim") };
    claim
}

#[test]
fn a_node_says_why_it_is_not_ready() {
    let seen = object(Feed::Nodes, NODE);
    assert_eq!((seen.uid, seen.rv), (Uid::new("5b1f9a5e-0f0d-4a52-9a7f-6a5c0b3f7a01"), Rv(182_734)));
    let node = node(NODE);
    assert_eq!((node.ready, node.network_not_ready, node.network_unavailable), (Truth::False, true, false));
    assert_eq!((node.cordoned, node.leaving), (true, false));
    assert_eq!(node.labels["topology.kubernetes.io/zone"], "a");
    assert_eq!(node.created.to_string(), "2026-01-05T08:12:33Z");
}

#[test]
fn a_node_without_a_ready_condition_is_unknown() {
    assert_eq!(node(&with(NODE, "/status/conditions", json!([]))).ready, Truth::Unknown);
}

#[test]
fn a_node_that_the_autoscaler_takes_away_is_leaving() {
    let taint = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1" }]);
    assert!(node(&with(NODE, "/spec/taints", taint)).leaving);
}

#[test]
fn a_crash_looping_pod_is_read_whole() {
    let pod = pod(POD);
    assert_eq!(pod.owner, Some(Uid::new("0c2d8a3e-1111-4f6b-9d0c-2f3a4b5c6d7e")));
    assert_eq!(pod.node, Some("worker-1".into()));
    assert_eq!(pod.revision.as_deref(), Some("6c8f7d9b4d"));
    assert_eq!(pod.images["calico-node"], "docker.io/calico/node:v3.28.0");
    assert_eq!(pod.images["init:install-cni"], "docker.io/calico/cni:v3.28.0");
    assert_eq!((pod.initialized, pod.ready, pod.restarts, pod.deleting), (true, false, 5, false));
    let Some(WaitReason { container, reason, init, .. }) = pod.waiting else { panic!("not waiting") };
    assert_eq!((container.as_str(), reason.as_str(), init), ("calico-node", "CrashLoopBackOff", false));
}

#[test]
fn an_unscheduled_pod_is_on_the_node_that_its_affinity_names() {
    assert_eq!(pod(&with(POD, "/spec/nodeName", Value::Null)).node, Some("worker-1".into()));
}

#[test]
fn a_pod_that_is_starting_does_not_wait_for_a_failure() {
    let state = json!({ "waiting": { "reason": "PodInitializing" } });
    assert_eq!(pod(&with(POD, "/status/containerStatuses/0/state", state)).waiting, None);
}

#[test]
fn a_pod_of_a_replica_set_is_not_kept() {
    let text = with(POD, "/metadata/ownerReferences/0/kind", json!("ReplicaSet"));
    assert_eq!(project(Feed::Pods, &text).unwrap(), None);
}

#[test]
fn a_daemon_set_keeps_its_template_raw_and_names_its_managers() {
    let agent = agent(AGENT);
    assert_eq!(agent.original_strategy.as_deref(), Some("RollingUpdate"));
    assert_eq!((agent.strategy, agent.surge), (Strategy::RollingUpdate, false));
    assert_eq!((agent.generation, agent.observed_generation), (2, 2));
    assert_eq!((agent.desired, agent.current, agent.updated), (10, 10, 10));
    assert_eq!(agent.marks, [Mark::Helm]);
    let whole: Value = serde_json::from_str(AGENT).unwrap();
    assert_eq!(*agent.template.raw, whole["spec"]["template"]);
}

#[test]
fn max_surge_counts_as_a_number_and_as_a_percentage() {
    for (surge, expected) in [(json!(1), true), (json!("10%"), true), (json!("0%"), false), (json!(0), false)]
    {
        let text = with(AGENT, "/spec/updateStrategy/rollingUpdate/maxSurge", surge.clone());
        assert_eq!(agent(&text).surge, expected, "{surge}");
    }
}

#[test]
fn a_controller_revision_has_the_digest_of_the_template_it_came_from() {
    let seen = object(Feed::Revisions, REVISION);
    let Shape::Revision(Revision { hash, template, owner }) = seen.shape else { panic!("no revision") };
    assert_eq!(&*hash, "7b9f6c5d8");
    assert_eq!(owner, Some(Uid::new("0c2d8a3e-1111-4f6b-9d0c-2f3a4b5c6d7e")));
    assert_eq!(template, agent(AGENT).template.digest);
}

#[test]
fn a_claim_names_who_put_the_brake_on_and_when() {
    let claim = claim(CLAIM);
    let hold = claim.hold.unwrap();
    assert_eq!((hold.reason.as_str(), hold.by.as_deref()), ("DNS is odd", Some("kubectl-annotate")));
    assert_eq!(hold.since.unwrap().to_string(), "2026-03-01T10:20:00Z");
    assert_eq!((claim.generation, claim.finalizer, claim.deleting, claim.foreign), (3, true, false, false));
    assert!(claim.annotations.keys().all(|name| name.starts_with("trunkline.dev/")));
    let ClaimStatus::Cni(status) = claim.status else { panic!("{:?}", claim.status) };
    assert_eq!(status.phase, CniPhase::Canary);
}

#[test]
fn a_status_that_does_not_decode_leaves_the_rest_of_the_claim_readable() {
    let claim = claim(&with(CLAIM, "/status/phase", json!("Nonsense")));
    assert!(matches!(claim.status, ClaimStatus::Unreadable(why) if why.contains("Nonsense")));
    assert_eq!(claim.spec["maxParallel"], 3);
}

#[test]
fn a_claim_with_an_argo_cd_mark_is_foreign() {
    let annotations = json!({ "argocd.argoproj.io/tracking-id": "x:y" });
    assert!(claim(&with(CLAIM, "/metadata/annotations", annotations)).foreign);
}

fn config_map(labels: &Value, data: &Value) -> String {
    json!({
        "metadata": {
            "name": "trunkline-ledger-platform", "namespace": "trunkline", "uid": "u", "resourceVersion": "5",
            "labels": labels, "annotations": { "trunkline.dev/repository": "platform" },
        },
        "data": data,
    })
    .to_string()
}

#[test]
fn a_ledger_is_read_back_as_it_was_written() {
    let ledger = Ledger::new(RepoName::new("platform"), "main");
    let text = serde_json::to_string(&ledger).unwrap();
    let seen = object(
        Feed::Stores,
        &config_map(&json!({ "trunkline.dev/store": "ledger" }), &json!({ store::LEDGER_KEY: text })),
    );
    assert_eq!(seen.id, ObjectId::Store("trunkline".to_owned(), store::ledger_name(&ledger.repository)));
    assert_eq!(seen.shape, Shape::Ledger(RepoName::new("platform"), Ok(Box::new(ledger))));
}

#[test]
fn a_ledger_that_cannot_be_read_still_names_its_repository() {
    let text = config_map(&json!({ "trunkline.dev/store": "ledger" }), &json!({}));
    let Shape::Ledger(repo, Err(why)) = object(Feed::Stores, &text).shape else { panic!("readable") };
    assert_eq!((repo.as_str(), why.as_str()), ("platform", "the ConfigMap has no key `ledger.json`"));
}

#[test]
fn projecting_twice_gives_equal_shapes_whatever_the_heartbeat() {
    for (feed, text) in [
        (Feed::Nodes, NODE),
        (Feed::Pods, POD),
        (Feed::Agents, AGENT),
        (Feed::Revisions, REVISION),
        (Feed::CniUpgrades, CLAIM),
    ] {
        assert_eq!(object(feed, text).shape, object(feed, text).shape);
        let newer = with(text, "/metadata/resourceVersion", json!("999999"));
        assert_eq!(object(feed, &newer).shape, object(feed, text).shape, "{feed:?}");
    }
    let beat = with(NODE, "/status/conditions/2/lastHeartbeatTime", json!("2026-03-01T10:06:00Z"));
    assert_eq!(node(&beat), node(NODE));
    let names = node(NODE).labels;
    assert_eq!(names.len(), 4);
    assert_eq!(object(Feed::CniUpgrades, CLAIM).id, ObjectId::Claim(ClaimKey::cni("c-328")));
}

#[test]
fn bytes_that_are_no_object_are_an_error_and_no_panic() {
    for feed in Feed::ALL {
        for text in ["", "null", "[]", "{}", r#"{"metadata":{}}"#, r#"{"metadata":{"name":1}}"#] {
            assert!(project(feed, text).is_err(), "{feed:?} {text}");
        }
    }
}
