use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    api::{
        CNIUpgrade, ClaimKey,
        status::{Condition, Truth},
    },
    config::Repository,
    git::{Git2Remote, GitOptions, bare::Author},
    mirror::{self, MirrorCase},
    publish::{self, PublishCase},
    rollout::{self, Case, Decision, Now, effect::Event},
    sim::{
        lab::{CLUSTER, FOLDER, Lab},
        model::cluster::ClusterSpec,
    },
    world::{
        Target,
        git::{NewCommit, Signature},
    },
};

const MANIFEST: &str = include_str!("../../examples/first-rollout/clusters/demo/calico.yaml");
const NAME: &str = "calico-upgrade-v3.28";

/// A cluster, a remote and the engine over both.
struct Scene {
    lab: Lab,
    author: Author,
    api: Api<CNIUpgrade>,
    tasks: [JoinHandle<()>; 2],
    dir: TempDir,
}

impl Scene {
    fn new(core: Core) -> Self {
        Self::with(|engine| engine.core = core)
    }

    fn with(change: impl FnOnce(&mut Engine)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let model = ClusterSpec::new(1, 3, "2026-03-01T10:00:00Z".parse().unwrap()).build();
        let clock = Clock::embedded(model.now());
        let lab = Lab::new(dir.path(), model, clock).unwrap();
        let moving = lab.cluster.clone();
        let world = tokio::spawn(async move { moving.run().await });
        let mut engine = lab.engine(1).unwrap();
        change(&mut engine);
        let engine = tokio::spawn(async { engine.run(std::future::pending()).await.unwrap() });
        let (author, api) = (lab.author().unwrap(), Api::all(lab.cluster.client()));
        Self { lab, author, api, tasks: [world, engine], dir }
    }

    async fn wait(&self, seconds: u64) {
        let clock = self.lab.clock;
        clock.sleep_until(later(clock.now(), Duration::from_secs(seconds))).await;
    }

    fn push(&mut self, text: &str) {
        let files = BTreeMap::from([(format!("{FOLDER}/calico.yaml"), Some(text.to_owned()))]);
        self.author.commit(&files, "Change Calico\n", self.lab.clock.now()).unwrap();
    }

    async fn condition(&self, name: &str, kind: &str) -> Option<Condition> {
        let status = self.api.get(name).await.unwrap().status?;
        status.conditions.into_iter().find(|one| one.r#type == kind)
    }

    async fn stalled(&self, name: &str) -> Option<Condition> {
        self.condition(name, "Stalled").await.filter(|one| one.status == Truth::True)
    }

    /// A file of the status branch.
    fn published(&self, path: &str) -> String {
        let options = GitOptions {
            url: self.lab.config.repositories[0].url.clone(),
            clone_dir: self.dir.path().join("reader"),
            credentials: None,
            allow_local: true,
            connect_timeout: LIMIT,
            read_timeout: LIMIT,
        };
        let mut remote = Git2Remote::open(options).unwrap();
        let seen = remote.status(&Repository::status_branch_name(CLUSTER)).unwrap();
        String::from_utf8(seen.files[path].bytes.to_vec()).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

const LIMIT: Duration = Duration::from_secs(60);

static DECISIONS: AtomicUsize = AtomicUsize::new(0);
static ROLLOUT_FAILS: AtomicBool = AtomicBool::new(true);

/// Panics about agents, as a fault in the core would.
fn faulty(case: &Case<'_>, now: Now) -> Decision {
    if matches!(case.target, Target::Agent(_)) && ROLLOUT_FAILS.load(Ordering::Relaxed) {
        DECISIONS.fetch_add(1, Ordering::Relaxed);
        panic!("a node without a name");
    }
    rollout::decide(case, now)
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_panics_halts_only_its_target_is_told_there_and_is_tried_again() {
    let mut scene = Scene::new(Core { rollout: faulty, ..Core::default() });
    scene.wait(30).await;
    scene.push(MANIFEST);
    scene.wait(60).await;
    let told = scene.stalled(NAME).await.unwrap();
    assert_eq!(told.reason, "DecisionFailed");
    assert!(told.message.contains("a node without a name"), "{}", told.message);
    assert!(told.message.contains("tried again by itself"), "{}", told.message);
    // Other targets, and the mirror, go on.
    let by_hand = json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade",
        "metadata": { "name": "by-hand" }, "spec": { "targetVersion": "v3.28.0" },
    });
    scene.api.create(&PostParams::default(), &serde_json::from_value(by_hand).unwrap()).await.unwrap();
    scene.push(&MANIFEST.replace("maxParallel: 3", "maxParallel: 2"));
    scene.wait(60).await;
    assert_eq!(scene.stalled("by-hand").await.unwrap().reason, "NotOurs");
    assert_eq!(scene.api.get(NAME).await.unwrap().spec.max_parallel, 2);
    let minutes = 2;
    assert!(DECISIONS.load(Ordering::Relaxed) <= 1 + minutes, "{DECISIONS:?}");
    // Without any change it is tried less and less often, and goes on once it can.
    scene.wait(4 * 60 * 60).await;
    let tries = DECISIONS.load(Ordering::Relaxed);
    assert!((8..=20).contains(&tries), "{tries}");
    ROLLOUT_FAILS.store(false, Ordering::Relaxed);
    scene.wait(30 * 60).await;
    assert_eq!(scene.stalled(NAME).await, None);
    assert!(scene.api.get(NAME).await.unwrap().status.unwrap().attempt.is_some());
}

static MIRROR_FAILS: AtomicBool = AtomicBool::new(false);

fn faulty_mirror(case: &MirrorCase<'_>, memo: &mut ReadMemo, now: Now) -> Decision {
    assert!(!MIRROR_FAILS.load(Ordering::Relaxed), "a path without a name");
    mirror::mirror(case, memo, now)
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pass_that_panics_is_told_on_the_status_branch_and_tried_again() {
    let mut scene = Scene::new(Core { mirror: faulty_mirror, ..Core::default() });
    scene.wait(30).await;
    scene.push(MANIFEST);
    scene.wait(60).await;
    MIRROR_FAILS.store(true, Ordering::Relaxed);
    scene.push(&MANIFEST.replace("maxParallel: 3", "maxParallel: 2"));
    scene.wait(60).await;
    let problems = scene.published("problems.yaml");
    assert!(problems.contains("DecisionFailed") && problems.contains("a path without a name"), "{problems}");
    assert_eq!(scene.api.get(NAME).await.unwrap().spec.max_parallel, 3);
    MIRROR_FAILS.store(false, Ordering::Relaxed);
    scene.wait(30 * 60).await;
    assert_eq!(scene.api.get(NAME).await.unwrap().spec.max_parallel, 2);
    assert!(!scene.published("problems.yaml").contains("DecisionFailed"));
}

static PUBLISH_FAILS: AtomicBool = AtomicBool::new(false);

fn faulty_publish(case: &PublishCase<'_>, now: Now) -> Decision {
    assert!(!PUBLISH_FAILS.load(Ordering::Relaxed), "a phase without a name");
    publish::publish(case, now)
}

#[tokio::test(start_paused = true)]
async fn a_publish_pass_that_panics_is_told_on_the_objects_and_tried_again() {
    let mut scene = Scene::new(Core { publish: faulty_publish, ..Core::default() });
    scene.wait(30).await;
    scene.push(MANIFEST);
    scene.wait(60).await;
    PUBLISH_FAILS.store(true, Ordering::Relaxed);
    scene.push(&MANIFEST.replace("maxParallel: 3", "maxParallel: 2"));
    scene.wait(60).await;
    let told = scene.condition(NAME, "GitPublished").await.unwrap();
    assert_eq!((told.status, told.reason.as_str()), (Truth::False, "DecisionFailed"));
    assert!(told.message.contains("a phase without a name"), "{}", told.message);
    PUBLISH_FAILS.store(false, Ordering::Relaxed);
    scene.wait(60 * 60).await;
    let told = scene.condition(NAME, "GitPublished").await.unwrap();
    assert_eq!((told.status, told.reason.as_str()), (Truth::True, "Published"));
    assert!(!scene.published("problems.yaml").contains("DecisionFailed"));
}

#[tokio::test(start_paused = true)]
async fn what_was_wanted_while_the_same_effect_ran_waits_for_the_next_pass() {
    let dir = tempfile::tempdir().unwrap();
    let model = ClusterSpec::new(1, 1, "2026-03-01T10:00:00Z".parse().unwrap()).build();
    let clock = Clock::embedded(model.now());
    let mut engine = Lab::new(dir.path(), model, clock).unwrap().engine(1).unwrap();
    let key = Key::Publish("demo".into());
    let id = EffectId { key: key.clone(), attempt: None, step: StepName::PushStatus, unit: String::new() };
    let push = |message: &str| {
        let by = Signature { name: "a".to_owned(), email: "a@example.com".to_owned() };
        let commit = NewCommit {
            branch: "status".to_owned(),
            parent: None,
            again: false,
            changes: BTreeMap::new(),
            message: message.to_owned(),
            by,
            at: clock.now(),
        };
        Effect::PushStatus { repo: "demo".into(), commit: Box::new(commit) }
    };
    engine.running.insert(id.clone());
    // A pass meanwhile saw the branch as it was before.
    engine.wanted.insert(id.clone(), push("after the first"));
    engine.finish(Ok((id, push("the first"), EffectOutcome::Done, Vec::new(), Duration::ZERO)));
    engine.start_wanted(clock.now(), Permit { epoch: 1, until: Timestamp::MAX });
    assert!(engine.running.is_empty() && engine.wanted.is_empty());
    assert_eq!(engine.queue.take(clock.now()), Some(key));
}

/// Passes requests on; the first patch of a DaemonSet panics, as a fault in an effect would.
fn faulty_once(inner: Client) -> Client {
    let panicked = Arc::new(AtomicBool::new(false));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, panicked) = (inner.clone(), Arc::clone(&panicked));
        async move {
            let (method, at) = (request.method(), request.uri().to_string());
            let patch = *method == http::Method::PATCH && at.contains("daemonsets") && !at.contains("dryRun");
            let first = patch && !panicked.swap(true, Ordering::Relaxed);
            assert!(!first, "a header without a value");
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_panics_is_tried_again() {
    let mut scene = Scene::with(|engine| engine.ports.kube = faulty_once(engine.ports.kube.clone()));
    scene.wait(30).await;
    scene.push(MANIFEST);
    scene.wait(180).await;
    assert_eq!(scene.api.get(NAME).await.unwrap().status.unwrap().upgraded_nodes, 1);
}

/// Answers every list of Nodes with a panic, as a fault in a projection would.
fn faulty_feed(inner: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inner = inner.clone();
        async move {
            assert!(!request.uri().path().ends_with("/nodes"), "no such thing as a node");
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_ended_unexpectedly_is_a_fault_of_the_process() {
    let vitals = Vitals::default();
    let scene = Scene::with(|engine| {
        engine.vitals = Some(vitals.clone());
        engine.ports.kube = faulty_feed(engine.ports.kube.clone());
    });
    scene.wait(30).await;
    let told = vitals.faults(scene.lab.clock.now());
    assert_eq!(told, ["feed Nodes ended unexpectedly: no such thing as a node"]);
    assert_eq!(vitals.unready(), ["Nodes are being listed"]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_ready_once_it_has_seen_everything_and_turns_while_nothing_happens() {
    let (vitals, metrics) = (Vitals::default(), Metrics::default());
    let mut scene = Scene::with(|engine| {
        engine.vitals = Some(vitals.clone());
        engine.metrics = metrics.clone();
    });
    assert_eq!(vitals.unready(), ["the engine has not started yet"]);
    scene.wait(30).await;
    assert_eq!(vitals.unready(), Vec::<String>::new());
    scene.push(MANIFEST);
    scene.wait(3600).await;
    assert_eq!(vitals.faults(scene.lab.clock.now()), Vec::<String>::new());
    let text = metrics.text();
    for line in [
        "trunkline_effects_total{step=\"DeletePod\",outcome=\"done\"} 3",
        "trunkline_attempts_total{outcome=\"Completed\"} 1",
        "trunkline_feed_live{feed=\"Pods\"} 1",
        "trunkline_repository_accepted_is_head{repository=\"demo\"} 1",
        "trunkline_leader 1",
        "trunkline_queue_depth 0",
    ] {
        assert!(text.lines().any(|one| one == line), "`{line}` is not in\n{text}");
    }
}

#[tokio::test]
async fn an_event_that_is_refused_is_given_up_and_one_that_nobody_answers_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let model = ClusterSpec::new(1, 1, "2026-03-01T10:00:00Z".parse().unwrap()).build();
    let clock = Clock::embedded(model.now());
    let mut engine = Lab::new(dir.path(), model, clock).unwrap().engine(1).unwrap();
    let (key, claim) = (Key::Rollout(Target::Unresolved(ClaimKey::cni("a"))), ClaimKey::cni("a"));
    let end = |engine: &mut Engine, name: &str, kind: RejectionKind| {
        let id =
            EffectId { key: key.clone(), attempt: None, step: StepName::RecordEvent, unit: name.to_owned() };
        let event = Event {
            name: name.to_owned(),
            reason: "Canary".to_owned(),
            message: String::new(),
            warning: false,
            at: clock.now(),
            attempt: None,
            revision: None,
        };
        let effect = Effect::RecordEvent { claim: claim.clone(), uid: Uid::new("u"), event: Box::new(event) };
        let no = EffectOutcome::Rejected(Rejection { kind, message: String::new() });
        engine.finish(Ok((id, effect, no, Vec::new(), Duration::ZERO)));
        engine.queue.take(later(clock.now(), LIMIT)).is_some()
    };
    assert!(!end(&mut engine, "a.1", RejectionKind::Forbidden));
    assert!(end(&mut engine, "a.2", RejectionKind::Unavailable));
    assert!(engine.world.rejections.is_empty(), "a decision would see it");
}
