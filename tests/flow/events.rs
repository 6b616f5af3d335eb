//! Events on custom resources, as `kubectl describe` shows them.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use trunkline::{api::cni_upgrade::CniPhase, sim::api::Fault};

use super::stage::Stage;

const UPGRADE: &str = "\
apiVersion: cni.example.com/v1
kind: CNIUpgrade
metadata:
  name: calico
spec:
  targetVersion: v3.28.0
  canary:
    percentage: 20
    observationMinutes: 5
  maxParallel: 3
";

/// Reason and type of every Event, in order of time.
async fn events(stage: &Stage) -> Vec<(String, String)> {
    let api: Api<Event> = Api::namespaced(stage.cluster.client(), "default");
    let mut events = api.list(&ListParams::default()).await.unwrap().items;
    events.sort_by_key(|event| event.last_timestamp.clone().unwrap().0);
    for event in &events {
        let about = &event.involved_object;
        assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("CNIUpgrade"), Some("calico")));
        assert!(about.uid.is_some() && event.message.as_deref().is_some_and(|text| !text.is_empty()));
    }
    events.into_iter().map(|event| (event.reason.unwrap(), event.type_.unwrap())).collect()
}

fn asked(stage: &Stage) -> usize {
    let log = stage.cluster.faults().log();
    log.iter().filter(|line| line.asked.writes() && line.asked.uri.contains("/events")).count()
}

fn normal(reasons: &[&str]) -> Vec<(String, String)> {
    reasons.iter().map(|reason| ((*reason).to_owned(), "Normal".to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn each_phase_is_one_event_also_after_a_restart_and_none_is_asked_for_twice() {
    let stage = Stage::new(5);
    let engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", UPGRADE)]);
    stage.until_phase("calico", CniPhase::Completed, 60).await;
    stage.pass(60).await;
    let told = normal(&["Pending", "Canary", "RollingOut", "Completed"]);
    assert_eq!(events(&stage).await, told);
    stage.pass(600).await;
    assert_eq!(asked(&stage), told.len());
    stage.kill(engine).await;
    let _engine = stage.engine();
    stage.pass(60).await;
    // The new process does not know what was told, and the API server says so.
    assert_eq!(events(&stage).await, told);
    let known = asked(&stage);
    stage.pass(3 * 3600).await;
    assert_eq!(asked(&stage), known);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_warns() {
    let stage = Stage::new(3);
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &UPGRADE.replace("v3.28.0", "v4.28.0"))]);
    stage.pass(120).await;
    let told = events(&stage).await;
    assert!(told.contains(&("VersionSkew".to_owned(), "Warning".to_owned())), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn events_that_nobody_takes_hold_up_nothing() {
    let stage = Stage::new(5);
    stage.cluster.faults().when(|asked| asked.uri.contains("/events").then_some(Fault::Internal));
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", UPGRADE)]);
    let status = stage.until_phase("calico", CniPhase::Completed, 20).await;
    assert_eq!((status.upgraded_nodes, status.waiting_for.len()), (5, 0));
    stage.pass(3600).await;
    // Each is tried for an hour, once a minute in the end.
    let tried = asked(&stage);
    assert!((4..4 * 90).contains(&tried), "{tried}");
    stage.pass(3600).await;
    let ended = asked(&stage);
    stage.pass(3600).await;
    assert_eq!(asked(&stage), ended);
}
