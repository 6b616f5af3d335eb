//! Nodes that come, go and fall ill during a rollout.

use trunkline::{
    api::{CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth},
    sim::model::{
        Model,
        cluster::node_labels,
        fault::{Fault, FaultKind},
    },
};

use super::{
    look::{attempt, says, waits},
    manifests::{and, calico},
    stage::Stage,
};

/// Ten nodes whose canaries are healthy and observed for an hour.
async fn observing() -> (Stage, CniUpgradeStatus) {
    let stage = Stage::new(10);
    stage.engine();
    stage.pass(60).await;
    let slow = calico("v3.28.0").replace("observationMinutes: 1", "observationMinutes: 20");
    stage.remote.commit("main", &[("calico.yaml", &slow)]);
    let status = stage.until("calico", 10, |status| waits(status, "Observing")).await;
    (stage, status)
}

fn nodes_on(stage: &Stage, version: &str) -> Vec<String> {
    stage.versions().into_iter().filter(|(_, is)| is == version).map(|(node, _)| node).collect()
}

#[tokio::test(start_paused = true)]
async fn a_spot_node_that_vanishes_is_no_failure() {
    let (stage, before) = observing().await;
    let lost = nodes_on(&stage, "v3.28.0").remove(0);
    stage.cluster.model(|model| {
        model.add_fault(Fault::new(FaultKind::Lost).on([lost.clone()]));
    });
    stage.pass(120).await;
    stage.cluster.model(|model| {
        model.remove_node(&lost);
    });
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((done.upgraded_nodes, done.failed_nodes, attempt(&done)), (9, 0, attempt(&before)));
    assert!(says(&done, "Ready", Truth::True, "Completed"));
    assert_eq!((stage.running("v3.28.0"), stage.commits()), (9, 1));
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
}

#[tokio::test(start_paused = true)]
async fn canaries_that_all_vanished_are_chosen_anew_and_observed_for_the_whole_time() {
    let (stage, before) = observing().await;
    stage.pass(600).await;
    for lost in nodes_on(&stage, "v3.28.0") {
        stage.cluster.model(|model| {
            model.remove_node(&lost);
        });
    }
    let from = stage.clock.now();
    let again =
        stage.until("calico", 10, |status| waits(status, "Observing") && status.nodes.canaries > 0).await;
    assert_eq!((again.phase, attempt(&again)), (CniPhase::Canary, attempt(&before)));
    let rolling = stage.until_phase("calico", CniPhase::RollingOut, 60).await;
    assert!(rolling.phase_started_at.unwrap().duration_since(from).as_mins() >= 20);
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!(done.failed_nodes, 0);
    assert_eq!((stage.running("v3.27.2"), stage.commits()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_is_skipped_and_upgraded_when_it_is_back_also_after_completion() {
    let (stage, _) = observing().await;
    let ill = nodes_on(&stage, "v3.27.2").remove(0);
    stage.cluster.model(|model| model.add_fault(Fault::new(FaultKind::NotReady).on([ill.clone()])));
    stage
        .until("calico", 5, |status| {
            status.nodes.skips.iter().any(|skip| skip.node.as_str() == ill && skip.reason == "NotReady")
        })
        .await;
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((done.upgraded_nodes, done.failed_nodes, done.remaining_nodes), (9, 0, 1));
    assert_eq!(stage.versions()[&ill], "v3.27.2");
    assert!(!stage.strategy_is_back());
    stage.cluster.model(Model::heal);
    let all = stage.until("calico", 10, |status| status.upgraded_nodes == 10).await;
    assert_eq!((all.phase, attempt(&all)), (CniPhase::Completed, attempt(&done)));
    assert_eq!(stage.versions()[&ill], "v3.28.0");
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    assert_eq!(stage.commits(), 1);
}

fn join(stage: &Stage, name: &str) {
    stage.cluster.model(|model| {
        assert!(model.add_node(name, node_labels(name, 0, false)));
    });
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_gets_the_new_agent_early_and_counts() {
    let (stage, before) = observing().await;
    join(&stage, "node-new");
    stage.until_so("it has the new agent", 5, |stage| stage.running("v3.28.0") == 3).await;
    let with = stage.until("calico", 5, |status| status.upgraded_nodes == 3).await;
    assert_eq!((with.nodes.in_scope, with.nodes.canaries, with.phase), (11, 2, CniPhase::Canary));
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((done.upgraded_nodes, attempt(&done)), (11, attempt(&before)));
    join(&stage, "node-late");
    let late = stage.until("calico", 10, |status| status.upgraded_nodes == 12).await;
    assert_eq!((late.phase, late.progress.as_deref()), (CniPhase::Completed, Some("12/12")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_and_fails_takes_all_of_them_back() {
    let (stage, _) = observing().await;
    stage.cluster.model(|model| {
        let fault = Fault::new(FaultKind::CrashLoops).on(["node-new"]).with_image("v3.28.0");
        model.add_fault(fault);
    });
    join(&stage, "node-new");
    stage.until_so("the document is removed", 30, |stage| stage.commits() == 2).await;
    assert_eq!(stage.running("v3.27.2"), 11);
    assert!(stage.strategy_is_back());
}

#[tokio::test(start_paused = true)]
async fn nodes_in_flight_have_the_whole_time_of_the_wish_that_takes_over() {
    let stage = Stage::new(6);
    stage.engine();
    stage.pass(60).await;
    stage.cluster.model(|model| {
        let slow = Fault::new(FaultKind::Slow { by: 240 }).on(["node-000", "node-003"]);
        model.add_fault(slow.with_image("v3.28.0"));
    });
    let zone = |zone, seconds| {
        let manifest =
            and(&calico("v3.28.0"), &format!("nodeSelector: {{topology.kubernetes.io/zone: {zone}}}"));
        manifest.replace("timeoutSeconds: 300", &format!("timeoutSeconds: {seconds}"))
    };
    stage.remote.commit("main", &[("calico.yaml", &zone("zone-a", 300))]);
    let first = stage.until("calico", 10, |status| !status.nodes.open.is_empty()).await;
    stage.pass(220).await;
    stage.remote.commit("main", &[("calico.yaml", &zone("zone-b", 60))]);
    let second = stage.until("calico", 2, |status| attempt(status).1 > attempt(&first).1).await;
    let canary = first.nodes.open.first().map(|intent| &intent.node);
    let taken_over = second.nodes.open.iter().find(|intent| Some(&intent.node) == canary);
    assert_eq!(taken_over.map(|intent| intent.spent), Some(0), "{:#?}", second.nodes);
    let done = stage.until_phase("calico", CniPhase::Completed, 20).await;
    assert_eq!((attempt(&done), done.upgraded_nodes, done.failed_nodes), (attempt(&second), 2, 0));
    assert_eq!(stage.running("v3.28.0"), 3);
}
