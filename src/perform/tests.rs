use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{Permit, Ports, perform};
use crate::{
    api::{
        ClaimKey,
        names::{NodeName, RepoName, Rv, Uid},
    },
    clock::{Clock, later},
    mirror::ledger::Ledger,
    rollout::effect::{Effect, EffectOutcome, ImageChange, RejectionKind, StatusWrite},
    world::{AgentKey, ObjectId, Observation, PodKey, Shape, Strategy},
};

/// What was asked: method, path with query, body.
type Asked = (String, String, Value);

/// An answer: a status and a body, no answer ever, or a connection that breaks.
enum Answer {
    Json(u16, Value),
    Silence,
    Broken,
}

/// An API server that answers as the test says and notes what it was asked.
fn server(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> (Ports, Arc<Mutex<Vec<Asked>>>) {
    let (asked, answer) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(answer));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let (method, path) = (head.method.to_string(), head.uri.to_string());
            let given = answer(&method, &path);
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            log.lock().unwrap().push((method, path, body));
            match given {
                Answer::Silence => std::future::pending().await,
                Answer::Broken => Err(tower::BoxError::from("connection reset")),
                Answer::Json(code, body) => {
                    let body = Body::from(body.to_string().into_bytes());
                    Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
                }
            }
        }
    });
    let kube = Client::new(service, "default");
    let clock = Clock::embedded(Timestamp::UNIX_EPOCH);
    let ports = Ports { kube, namespace: "trunkline".to_owned(), git: BTreeMap::new(), clock };
    (ports, asked)
}

async fn run(effect: Effect, ports: &Ports) -> (EffectOutcome, Vec<Observation>) {
    let until = later(ports.clock.now(), Duration::from_secs(30));
    perform(&effect, Permit { epoch: 1, until }, ports).await
}

fn rejected(outcome: &EffectOutcome) -> Option<RejectionKind> {
    if let EffectOutcome::Rejected(no) = outcome { Some(no.kind) } else { None }
}

fn failure(code: u16, reason: &str) -> Answer {
    Answer::Json(
        code,
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }),
    )
}

fn pod(version: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "name": "agent-1", "namespace": "kube-system", "uid": "pod-uid", "resourceVersion": version,
            "ownerReferences": [{ "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": true }],
        },
        "spec": { "nodeName": "worker-1", "containers": [] },
    })
}

fn daemon_set(version: &str, annotations: &Value) -> Value {
    json!({
        "kind": "DaemonSet",
        "metadata": {
            "name": "agent", "namespace": "kube-system", "uid": "ds", "resourceVersion": version,
            "generation": 1, "annotations": annotations, "labels": {},
        },
        "spec": {
            "template": { "spec": { "containers": [{ "name": "node", "image": "node:1" }] } },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
        },
    })
}

fn claim(version: &str, finalizers: &Value) -> Value {
    json!({
        "kind": "CNIUpgrade",
        "metadata": {
            "name": "c", "uid": "claim-uid", "resourceVersion": version, "generation": 1,
            "finalizers": finalizers, "deletionTimestamp": "2026-03-01T10:00:00Z",
        },
        "spec": { "targetVersion": "2" },
    })
}

fn delete_pod() -> Effect {
    let pod = PodKey { namespace: "kube-system".into(), name: "agent-1".into() };
    Effect::DeletePod { pod, uid: Uid::new("pod-uid") }
}

fn agent() -> AgentKey {
    AgentKey { namespace: "kube-system".to_owned(), name: "agent".to_owned() }
}

fn images() -> Vec<ImageChange> {
    let (container, from, to) = ("node".to_owned(), "node:1".to_owned(), "node:2".to_owned());
    vec![ImageChange { init: false, index: 0, container, from, to }]
}

fn patch_template() -> Effect {
    let remember = Some(Strategy::RollingUpdate);
    Effect::PatchTemplate { agent: agent(), uid: Uid::new("ds"), rv: Rv(7), remember, images: images() }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_by_uid_and_the_answer_is_seen() {
    let (ports, asked) = server(|_, _| Answer::Json(200, pod("8")));
    let (outcome, seen) = run(delete_pod(), &ports).await;
    assert_eq!(outcome, EffectOutcome::Done);
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].0, "DELETE");
    assert!(asked[0].1.starts_with("/api/v1/namespaces/kube-system/pods/agent-1"), "{}", asked[0].1);
    assert_eq!(asked[0].2["preconditions"], json!({ "uid": "pod-uid" }));
    let [Observation::Answered(object)] = seen.as_slice() else { panic!("{seen:?}") };
    let Shape::Pod(pod) = &object.shape else { panic!("{object:?}") };
    assert_eq!(pod.node, Some(NodeName::new("worker-1")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_already_leaves_nothing_to_do() {
    let (ports, _) = server(|_, _| failure(404, "NotFound"));
    let (outcome, seen) = run(delete_pod(), &ports).await;
    assert_eq!(outcome, EffectOutcome::Moot);
    assert!(
        matches!(&seen[..], [Observation::AnsweredGone(ObjectId::Pod(_), uid)] if uid.as_str() == "pod-uid")
    );
}

#[tokio::test(start_paused = true)]
async fn images_strategy_and_note_are_one_guarded_patch() {
    let (ports, asked) = server(|_, _| Answer::Json(200, daemon_set("7", &json!({ "a": "b" }))));
    assert_eq!(run(patch_template(), &ports).await.0, EffectOutcome::Done);
    let asked = asked.lock().unwrap();
    assert_eq!((asked.len(), asked[1].0.as_str()), (2, "PATCH"));
    assert!(asked[1].1.contains("fieldManager=trunkline") && !asked[1].1.contains("force"), "{}", asked[1].1);
    let image = "/spec/template/spec/containers/0/image";
    assert_eq!(
        asked[1].2,
        json!([
            { "op": "test", "path": "/metadata/uid", "value": "ds" },
            { "op": "test", "path": "/metadata/resourceVersion", "value": "7" },
            { "op": "add", "path": "/spec/updateStrategy/type", "value": "OnDelete" },
            { "op": "add", "path": "/metadata/annotations/trunkline.dev~1original-strategy", "value": "RollingUpdate" },
            { "op": "test", "path": "/spec/template/spec/containers/0/name", "value": "node" },
            { "op": "test", "path": image, "value": "node:1" },
            { "op": "replace", "path": image, "value": "node:2" },
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_at_another_version_is_not_patched_and_is_seen_as_it_is() {
    let (ports, asked) = server(|_, _| Answer::Json(200, daemon_set("8", &json!({}))));
    let (outcome, seen) = run(patch_template(), &ports).await;
    assert_eq!(rejected(&outcome), Some(RejectionKind::Conflict));
    assert!(asked.lock().unwrap().iter().all(|(method, ..)| method == "GET"));
    assert!(matches!(&seen[..], [Observation::Answered(object)] if object.rv == Rv(8)));
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_is_a_conflict_and_a_template_that_cannot_pass_is_invalid() {
    let dry_run =
        || Effect::DryRunTemplate { agent: agent(), uid: Uid::new("ds"), rv: Rv(7), images: images() };
    for (live, expected) in [("8", RejectionKind::Conflict), ("7", RejectionKind::Invalid)] {
        let (ports, asked) = server(move |method, _| match method {
            "PATCH" => failure(422, "Invalid"),
            _ => Answer::Json(200, daemon_set(live, &json!({}))),
        });
        assert_eq!(rejected(&run(dry_run(), &ports).await.0), Some(expected));
        assert!(asked.lock().unwrap()[0].1.contains("dryRun=All"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_passes_shows_nothing_that_is() {
    let (ports, _) = server(|_, _| Answer::Json(200, daemon_set("7", &json!({}))));
    let effect = Effect::DryRunTemplate { agent: agent(), uid: Uid::new("ds"), rv: Rv(7), images: images() };
    assert_eq!(run(effect, &ports).await, (EffectOutcome::Done, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_strategy_goes_back_and_the_note_goes_while_the_parameters_stay() {
    let note = json!({ "trunkline.dev/original-strategy": "RollingUpdate" });
    let (ports, asked) = server(move |_, _| Answer::Json(200, daemon_set("7", &note)));
    let strategy = Strategy::RollingUpdate;
    let effect = Effect::RestoreStrategy { agent: agent(), uid: Uid::new("ds"), rv: Rv(7), strategy };
    assert_eq!(run(effect, &ports).await.0, EffectOutcome::Done);
    assert_eq!(
        asked.lock().unwrap()[1].2.as_array().unwrap()[2..],
        [
            json!({ "op": "add", "path": "/spec/updateStrategy/type", "value": "RollingUpdate" }),
            json!({ "op": "remove", "path": "/metadata/annotations/trunkline.dev~1original-strategy" }),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_saved_template_goes_back_whole() {
    let (ports, asked) = server(|_, _| Answer::Json(200, daemon_set("8", &json!({}))));
    let template = Arc::new(json!({ "spec": { "containers": [] }, "newerField": 1 }));
    let effect =
        Effect::RestoreTemplate { agent: agent(), uid: Uid::new("ds"), rv: Rv(7), remember: None, template };
    assert_eq!(run(effect, &ports).await.0, EffectOutcome::Done);
    let replaced = &asked.lock().unwrap()[0].2[3];
    assert_eq!(replaced["path"], "/spec/template");
    assert_eq!(replaced["value"], json!({ "spec": { "containers": [] }, "newerField": 1 }));
}

fn status() -> Effect {
    let (claim, uid) = (ClaimKey::cni("c"), Uid::new("claim-uid"));
    Effect::WriteStatus(StatusWrite { claim, uid, rv: Rv(3), status: Arc::new(json!({ "phase": "Canary" })) })
}

#[tokio::test(start_paused = true)]
async fn a_status_is_put_at_its_version_and_a_conflict_shows_the_newer_one() {
    let (ports, asked) = server(|method, _| match method {
        "PUT" => failure(409, "Conflict"),
        _ => Answer::Json(200, claim("4", &json!([]))),
    });
    let (outcome, seen) = run(status(), &ports).await;
    assert_eq!(rejected(&outcome), Some(RejectionKind::Conflict));
    assert!(matches!(&seen[..], [Observation::Answered(object)] if object.rv == Rv(4)));
    let (method, path, body) = &asked.lock().unwrap()[0];
    assert_eq!(method, "PUT");
    assert!(path.starts_with("/apis/cni.example.com/v1/cniupgrades/c/status"), "{path}");
    assert_eq!(body["metadata"], json!({ "name": "c", "uid": "claim-uid", "resourceVersion": "3" }));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_knows_is_looked_at_again() {
    for broken in [true, false] {
        let (ports, _) = server(move |method, _| match method {
            "PUT" if broken => Answer::Broken,
            "PUT" => Answer::Silence,
            _ => Answer::Json(200, claim("4", &json!([]))),
        });
        let (outcome, seen) = run(status(), &ports).await;
        assert!(matches!(outcome, EffectOutcome::Unknown(_)), "{outcome:?}");
        assert!(matches!(&seen[..], [Observation::Answered(object)] if object.rv == Rv(4)));
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_no_has_its_name() {
    for (code, expected) in [
        (401, RejectionKind::Forbidden),
        (403, RejectionKind::Forbidden),
        (429, RejectionKind::Unavailable),
        (500, RejectionKind::Unavailable),
        (503, RejectionKind::Unavailable),
        (400, RejectionKind::Invalid),
        (422, RejectionKind::Invalid),
    ] {
        let (ports, _) = server(move |_, _| failure(code, "why"));
        assert_eq!(rejected(&run(status(), &ports).await.0), Some(expected), "{code}");
    }
    let (ports, _) = server(|_, _| failure(504, "Timeout"));
    assert!(matches!(run(status(), &ports).await.0, EffectOutcome::Unknown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_created_with_finalizer_and_annotations() {
    let (ports, asked) = server(|_, _| Answer::Json(201, claim("1", &json!([]))));
    let annotations = BTreeMap::from([("trunkline.dev/wish".to_owned(), "w1:a".to_owned())]);
    let claim = ClaimKey::service("shop", "cart");
    let effect = Effect::CreateClaim { claim, spec: Arc::new(json!({ "serviceName": "cart" })), annotations };
    assert_eq!(run(effect, &ports).await.0, EffectOutcome::Done);
    let (method, path, body) = &asked.lock().unwrap()[0];
    assert_eq!(method, "POST");
    assert!(path.starts_with("/apis/service.example.com/v1/namespaces/shop/serviceupgrades?"), "{path}");
    assert_eq!(
        *body,
        json!({
            "apiVersion": "service.example.com/v1", "kind": "ServiceUpgrade",
            "metadata": {
                "name": "cart", "namespace": "shop", "annotations": { "trunkline.dev/wish": "w1:a" },
                "finalizers": ["trunkline.dev/rollout"],
            },
            "spec": { "serviceName": "cart" },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_spec_annotations_and_a_missing_finalizer() {
    let (ports, asked) = server(|_, _| Answer::Json(200, claim("3", &json!(["other"]))));
    let annotations = BTreeMap::from([("trunkline.dev/wish".to_owned(), "w1:b".to_owned())]);
    let spec = Arc::new(json!({ "targetVersion": "3" }));
    let (claim, uid) = (ClaimKey::cni("c"), Uid::new("claim-uid"));
    let effect = Effect::ReplaceClaim { claim, uid, rv: Rv(3), spec, annotations, finalizer: true };
    assert_eq!(run(effect, &ports).await.0, EffectOutcome::Done);
    assert_eq!(
        asked.lock().unwrap()[1].2.as_array().unwrap()[2..],
        [
            json!({ "op": "add", "path": "/spec", "value": { "targetVersion": "3" } }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": { "trunkline.dev/wish": "w1:b" } }),
            json!({ "op": "add", "path": "/metadata/finalizers/-", "value": "trunkline.dev/rollout" }),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_finalizer_takes_the_claim_along_and_another_one_keeps_it() {
    for (finalizers, index, gone) in [
        (json!(["trunkline.dev/rollout"]), "0", true),
        (json!(["other", "trunkline.dev/rollout"]), "1", false),
    ] {
        let (ports, asked) = server(move |_, _| Answer::Json(200, claim("3", &finalizers)));
        let effect =
            Effect::ReleaseClaim { claim: ClaimKey::cni("c"), uid: Uid::new("claim-uid"), rv: Rv(3) };
        let (outcome, seen) = run(effect, &ports).await;
        assert_eq!(outcome, EffectOutcome::Done);
        assert_eq!(matches!(&seen[..], [Observation::AnsweredGone(..)]), gone, "{seen:?}");
        let removed = &asked.lock().unwrap()[1].2[3];
        assert_eq!(*removed, json!({ "op": "remove", "path": format!("/metadata/finalizers/{index}") }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_is_created_once_and_then_replaced_at_its_version() {
    let stored = json!({
        "kind": "ConfigMap",
        "metadata": {
            "name": "trunkline-ledger-platform", "namespace": "trunkline", "uid": "u", "resourceVersion": "9",
            "labels": { "trunkline.dev/store": "ledger" },
            "annotations": { "trunkline.dev/repository": "platform" },
        },
    });
    let (ports, asked) = server(move |_, _| Answer::Json(200, stored.clone()));
    let ledger = Arc::new(Ledger::new(RepoName::new("platform"), "main"));
    for seen in [None, Some((Uid::new("u"), Rv(9)))] {
        let effect = Effect::WriteLedger { seen, ledger: Arc::clone(&ledger) };
        assert_eq!(run(effect, &ports).await.0, EffectOutcome::Done);
    }
    let asked = asked.lock().unwrap();
    let collection = "/api/v1/namespaces/trunkline/configmaps";
    assert_eq!(asked[0].0, "POST");
    assert_eq!(asked[0].2["metadata"].get("resourceVersion"), None);
    assert_eq!(asked[1].0, "PUT");
    assert!(asked[1].1.starts_with(&format!("{collection}/trunkline-ledger-platform?")), "{}", asked[1].1);
    assert_eq!(asked[1].2["metadata"]["resourceVersion"], "9");
    let text = asked[1].2["data"]["ledger.json"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(text).unwrap(), *ledger);
}
