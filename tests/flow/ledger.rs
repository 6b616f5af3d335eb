//! A ledger that somebody spoiled by hand: nothing new begins, nothing is called foreign, and the way back stays open.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use trunkline::{
    api::{CniUpgradeStatus, cni_upgrade::CniPhase, names::RepoName, status::Truth},
    observe::store::{LEDGER_KEY, ledger_name},
    sim::model::fault::{Fault, FaultKind},
};

use super::{
    look::{attempt, condition, says, waits},
    manifests::calico,
    stage::Stage,
};

fn stores(stage: &Stage) -> Api<ConfigMap> {
    Api::namespaced(stage.cluster.client(), "trunkline-system")
}

async fn write(stage: &Stage, text: &str) {
    let change = json!({ "data": { LEDGER_KEY: text } });
    let name = ledger_name(&RepoName::new("platform"));
    stores(stage).patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Makes the ledger unreadable; what it was.
async fn spoil(stage: &Stage) -> String {
    let stored = stores(stage).get(&ledger_name(&RepoName::new("platform"))).await.unwrap();
    write(stage, "{ \"version\": ").await;
    stored.data.unwrap()[LEDGER_KEY].clone()
}

/// Five nodes whose canary is observed for twenty minutes.
async fn observing(stage: &Stage) -> CniUpgradeStatus {
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    let slow = calico("v3.28.0").replace("observationMinutes: 1", "observationMinutes: 20");
    stage.remote.commit("main", &[("calico.yaml", &slow)]);
    stage.until("calico", 10, |status| waits(status, "Observing")).await
}

#[tokio::test(start_paused = true)]
async fn a_spoiled_ledger_holds_what_is_new_and_what_is_under_way_goes_on_once_it_is_mended() {
    let stage = Stage::new(5);
    let _engine = stage.engine();
    let before = observing(&stage).await;
    let text = spoil(&stage).await;
    stage.until("calico", 2, |status| waits(status, "Feeds")).await;
    stage.pass(3600).await;
    let held = stage.status("calico").unwrap();
    assert_eq!(
        (held.phase, attempt(&held), stage.running("v3.28.0")),
        (CniPhase::Canary, attempt(&before), 1)
    );
    assert_eq!(condition(&held, "Stalled"), None);
    let why = held.waiting_for.iter().find(|why| why.reason == "Feeds").unwrap();
    assert!(why.message.contains("ledger"), "{}", why.message);
    write(&stage, &text).await;
    let done = stage.until_phase("calico", CniPhase::Completed, 40).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0"), stage.commits()), (attempt(&before), 5, 2));
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_fails_beside_a_spoiled_ledger_is_put_back_and_recorded_once_it_is_mended() {
    let stage = Stage::new(5);
    let _engine = stage.engine();
    let before = observing(&stage).await;
    let text = spoil(&stage).await;
    stage.cluster.model(|model| {
        model.add_fault(Fault::new(FaultKind::TurnsUnready { after: 0 }).with_image("v3.28.0"));
    });
    let failed = stage.until_phase("calico", CniPhase::Failed, 20).await;
    assert!(says(&failed, "RolledBack", Truth::True, "RolledBack"), "{:#?}", failed.conditions);
    assert_eq!((attempt(&failed), stage.running("v3.27.2")), (attempt(&before), 5));
    stage.pass(600).await;
    assert_eq!(stage.commits(), 2, "nobody knows what to write");
    write(&stage, &text).await;
    let settled = |status: &CniUpgradeStatus| says(status, "Ready", Truth::True, "RolledBack");
    let settled = stage.until("calico", 10, settled).await;
    assert_eq!((attempt(&settled), stage.commits(), stage.running("v3.27.2")), (attempt(&before), 3, 5));
    assert!(stage.text("calico.yaml").contains("targetVersion: v3.27.2"));
    assert!(stage.strategy_is_back());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_starts_beside_a_spoiled_ledger_waits_and_calls_nothing_foreign() {
    let stage = Stage::new(5);
    let engine = stage.engine();
    let before = observing(&stage).await;
    stage.kill(engine).await;
    let text = spoil(&stage).await;
    let writes = stage.writes_to_the_agent();
    let _engine = stage.engine();
    stage.pass(3600).await;
    let held = stage.status("calico").unwrap();
    assert_eq!((held.phase, attempt(&held)), (CniPhase::Canary, attempt(&before)));
    assert_eq!(condition(&held, "Stalled"), None);
    assert_eq!(stage.writes_to_the_agent(), writes);
    write(&stage, &text).await;
    let done = stage.until_phase("calico", CniPhase::Completed, 40).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&before), 5));
}
