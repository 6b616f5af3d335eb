//! Scopes: an upgrade of some nodes, then of others, and what goes back when that fails or is reverted.

use std::collections::BTreeMap;

use trunkline::{
    api::{CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth},
    sim::model::{
        cluster::{ClusterSpec, ZONE},
        fault::{Fault, FaultKind},
        store::Kind,
    },
    world::Strategy,
};

use super::{
    look::{says, waits},
    manifests::{and, calico},
    stage::Stage,
};

/// The manifest for the nodes of one zone.
fn zone(version: &str, zone: &str) -> String {
    and(&calico(version), &format!("nodeSelector: {{{ZONE}: {zone}}}"))
}

/// The manifest for all nodes.
fn everywhere(version: &str) -> String {
    and(&calico(version), "nodeSelector: {}")
}

/// Names of the nodes in a zone.
fn nodes_in(stage: &Stage, zone: &str) -> Vec<String> {
    stage.cluster.model(|model| {
        let nodes = model.list(Kind::Node, None).filter(|node| node.meta.labels[ZONE] == zone);
        nodes.map(|node| node.at.name.to_string()).collect()
    })
}

/// Version on every node, by zone.
fn versions(stage: &Stage) -> BTreeMap<String, Vec<String>> {
    let running = stage.versions();
    let zones = ["zone-a", "zone-b", "zone-c"];
    let of = |zone: &str| {
        let mut found: Vec<String> = nodes_in(stage, zone).iter().map(|node| running[node].clone()).collect();
        found.dedup();
        found
    };
    zones.into_iter().map(|zone| (zone.to_owned(), of(zone))).collect()
}

fn by_zone(zones: [&str; 3]) -> BTreeMap<String, Vec<String>> {
    let names = ["zone-a", "zone-b", "zone-c"].map(str::to_owned);
    names.into_iter().zip(zones.map(|version| vec![version.to_owned()])).collect()
}

fn held(status: &CniUpgradeStatus) -> bool {
    status.phase == CniPhase::Completed && waits(status, "StrategyHeld") && status.remaining_nodes == 0
}

fn rolled_back(status: &CniUpgradeStatus) -> bool {
    status.phase == CniPhase::Failed && says(status, "Ready", Truth::True, "RolledBack")
}

/// Twelve nodes in three zones on v3.27.2, of which zone a was upgraded to v3.28.0.
async fn zone_a_upgraded() -> Stage {
    let stage = Stage::of(&ClusterSpec { zones: 3, ..Stage::spec(12) }, None);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("calico.yaml", &zone("v3.28.0", "zone-a"))]);
    stage.until("calico", 40, held).await;
    assert_eq!(versions(&stage), by_zone(["v3.28.0", "v3.27.2", "v3.27.2"]));
    stage
}

/// From now on that version crash-loops in those zones.
fn fails_in(stage: &Stage, zones: &[&str], version: &str) {
    let nodes: Vec<String> = zones.iter().flat_map(|zone| nodes_in(stage, zone)).collect();
    let fault = Fault::new(FaultKind::CrashLoops).with_image(version).on(nodes);
    stage.cluster.model(|model| model.add_fault(fault));
}

#[tokio::test(start_paused = true)]
async fn a_widened_scope_that_fails_goes_back_and_the_nodes_of_the_earlier_scope_stay() {
    let stage = zone_a_upgraded().await;
    let before = stage.pods();
    fails_in(&stage, &["zone-b", "zone-c"], "v3.28.0");
    stage.remote.commit("main", &[("calico.yaml", &everywhere("v3.28.0"))]);
    let failed = stage.until("calico", 60, rolled_back).await;
    assert!(says(&failed, "RolledBack", Truth::True, "RolledBack"));
    assert_eq!(versions(&stage), by_zone(["v3.28.0", "v3.27.2", "v3.27.2"]));
    for node in nodes_in(&stage, "zone-a") {
        assert_eq!(stage.pods()[&node], before[&node], "{node} was touched");
    }
    assert_eq!(stage.text("calico.yaml"), zone("v3.28.0", "zone-a"));
    assert_eq!(stage.template_version(), "v3.28.0");
    stage.pass(2 * 3600).await;
    assert_eq!(stage.daemon_set().strategy, Strategy::OnDelete, "two versions run");
    let rest = stage.status("calico").unwrap();
    assert!(rolled_back(&rest) && says(&rest, "StrategyHeld", Truth::True, "Progressing"), "{rest:#?}");
    assert_eq!((stage.commits(), versions(&stage)), (4, by_zone(["v3.28.0", "v3.27.2", "v3.27.2"])));
    // The way back to one version is open.
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_so("all are on it", 40, |stage| stage.running("v3.27.2") == 12).await;
    stage.until_so("the strategy is back", 10, Stage::strategy_is_back).await;
}

#[tokio::test(start_paused = true)]
async fn another_version_for_all_that_fails_leaves_every_zone_on_what_it_ran() {
    let stage = zone_a_upgraded().await;
    let in_flight = stage.watch_nodes_in_flight();
    stage.remote.commit("main", &[("calico.yaml", &everywhere("v3.28.1"))]);
    stage.until_so("half are on it", 40, |stage| stage.running("v3.28.1") >= 6).await;
    fails_in(&stage, &["zone-a", "zone-b", "zone-c"], "v3.28.1");
    stage.until("calico", 60, rolled_back).await;
    assert_eq!(versions(&stage), by_zone(["v3.28.0", "v3.27.2", "v3.27.2"]));
    assert_eq!(stage.text("calico.yaml"), zone("v3.28.0", "zone-a"));
    assert!(in_flight.most() <= 3, "{} in flight", in_flight.most());
    stage.pass(3600).await;
    assert_eq!(stage.commits(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_widened_scope_that_is_reverted_returns_and_the_nodes_of_the_earlier_scope_stay() {
    let stage = zone_a_upgraded().await;
    let before = stage.pods();
    stage.remote.commit("main", &[("calico.yaml", &everywhere("v3.28.0"))]);
    stage.until_so("some are on it", 40, |stage| stage.running("v3.28.0") > 6).await;
    stage.remote.commit("main", &[("calico.yaml", &zone("v3.28.0", "zone-a"))]);
    stage.until("calico", 40, |status| says(status, "Ready", Truth::True, "Returned")).await;
    assert_eq!(versions(&stage), by_zone(["v3.28.0", "v3.27.2", "v3.27.2"]));
    for node in nodes_in(&stage, "zone-a") {
        assert_eq!(stage.pods()[&node], before[&node], "{node} was touched");
    }
    stage.pass(3600).await;
    assert_eq!((stage.commits(), stage.template_version()), (4, "v3.28.0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn zone_after_zone_the_last_that_fails_goes_back_alone() {
    let stage = zone_a_upgraded().await;
    stage.remote.commit("main", &[("calico.yaml", &zone("v3.28.0", "zone-b"))]);
    stage.until_so("two zones are on it", 40, |stage| stage.running("v3.28.0") == 8).await;
    stage.until("calico", 10, held).await;
    fails_in(&stage, &["zone-c"], "v3.28.0");
    stage.remote.commit("main", &[("calico.yaml", &zone("v3.28.0", "zone-c"))]);
    stage.until("calico", 60, rolled_back).await;
    assert_eq!(versions(&stage), by_zone(["v3.28.0", "v3.28.0", "v3.27.2"]));
    assert_eq!(stage.text("calico.yaml"), zone("v3.28.0", "zone-b"));
}
