use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use kube::{Api, api::PostParams};
use serde_json::json;

use super::*;
use crate::{
    api::{
        CNIUpgrade,
        status::{Condition, Truth},
    },
    sim::{
        lab::{FOLDER, Lab},
        model::cluster::ClusterSpec,
    },
    world::Target,
};

const MANIFEST: &str = include_str!("../../examples/first-rollout/clusters/demo/calico.yaml");

static DECISIONS: AtomicUsize = AtomicUsize::new(0);

/// Panics about agents, as a fault in the core would.
fn faulty(case: &Case<'_>, now: Now) -> Decision {
    if matches!(case.target, Target::Agent(_)) {
        DECISIONS.fetch_add(1, Ordering::Relaxed);
        panic!("a node without a name");
    }
    rollout::decide(case, now)
}

async fn stalled(api: &Api<CNIUpgrade>, name: &str) -> Option<Condition> {
    let status = api.get(name).await.unwrap().status?;
    status.conditions.into_iter().find(|one| one.r#type == "Stalled" && one.status == Truth::True)
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_panics_halts_only_its_target_and_is_told_there() {
    let dir = tempfile::tempdir().unwrap();
    let model = ClusterSpec::new(1, 3, "2026-03-01T10:00:00Z".parse().unwrap()).build();
    let clock = Clock::embedded(model.now());
    let lab = Lab::new(dir.path(), model, clock).unwrap();
    let wait = async |seconds| clock.sleep_until(later(clock.now(), Duration::from_secs(seconds))).await;
    let moving = lab.cluster.clone();
    let world = tokio::spawn(async move { moving.run().await });
    let mut engine = lab.engine(1).unwrap();
    engine.rollout = faulty;
    let engine = tokio::spawn(engine.run(std::future::pending()));
    wait(30).await;
    let mut author = lab.author().unwrap();
    let mut push = |text: &str| {
        let files = BTreeMap::from([(format!("{FOLDER}/calico.yaml"), Some(text.to_owned()))]);
        author.commit(&files, "Change Calico\n", clock.now()).unwrap();
    };
    push(MANIFEST);
    wait(60).await;
    let api: Api<CNIUpgrade> = Api::all(lab.cluster.client());
    let told = stalled(&api, "calico-upgrade-v3.28").await.unwrap();
    assert_eq!(told.reason, "DecisionFailed");
    assert!(told.message.contains("a node without a name"), "{}", told.message);
    // Other targets, and the mirror, go on.
    let by_hand = json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade",
        "metadata": { "name": "by-hand" }, "spec": { "targetVersion": "v3.28.0" },
    });
    api.create(&PostParams::default(), &serde_json::from_value(by_hand).unwrap()).await.unwrap();
    push(&MANIFEST.replace("maxParallel: 3", "maxParallel: 2"));
    wait(60).await;
    assert_eq!(stalled(&api, "by-hand").await.unwrap().reason, "NotOurs");
    assert_eq!(api.get("calico-upgrade-v3.28").await.unwrap().spec.max_parallel, 2);
    assert_eq!(DECISIONS.load(Ordering::Relaxed), 1);
    engine.abort();
    world.abort();
}
