//! The engine over the embedded API server, through `kube::Client`.

use std::{collections::BTreeSet, time::Duration};

use kube::{Api, api::PostParams};
use trunkline::{
    api::{CNIUpgrade, CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth},
    dice::Dice,
    sim::{
        api::Fault,
        model::{
            self,
            fault::{FaultKind, Where},
        },
    },
};

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
    observationMinutes: 30
    healthThreshold: 0.95
  maxParallel: 3
  autoRollback: true
";

fn reason(status: &CniUpgradeStatus, condition: &str) -> Option<(Truth, String)> {
    let found = status.conditions.iter().find(|found| found.r#type == condition)?;
    Some((found.status, found.reason.clone()))
}

/// Pods of the agent that were deleted, in order.
fn deleted(stage: &Stage) -> Vec<String> {
    let log = stage.cluster.faults().log();
    let done = log.iter().filter(|line| line.asked.method == "DELETE" && line.code == Some(200));
    done.map(|line| line.asked.uri.clone()).collect()
}

fn assert_all_upgraded_once(stage: &Stage, status: &CniUpgradeStatus, nodes: i32) {
    assert_eq!((status.upgraded_nodes, status.failed_nodes, status.remaining_nodes), (nodes, 0, 0));
    let deleted = deleted(stage);
    let once: BTreeSet<&String> = deleted.iter().collect();
    assert_eq!((deleted.len(), once.len()), (nodes.try_into().unwrap(), deleted.len()), "{deleted:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pushed_declaration_ends_completed_and_every_write_has_its_status_before() {
    let stage = Stage::new(5);
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("network/calico.yaml", UPGRADE)]);
    let status = stage.until_phase("calico", CniPhase::Completed, 120).await;
    assert_all_upgraded_once(&stage, &status, 5);
    let log = stage.cluster.faults().log();
    let first = |method: &str, part: &str| {
        let mut lines = log.iter().filter(|line| !line.asked.uri.contains("dryRun"));
        lines.position(|line| line.asked.method == method && line.asked.uri.contains(part)).unwrap()
    };
    let (created, status) = (first("POST", "/cniupgrades"), first("PUT", "/cniupgrades/calico/status"));
    let (patched, pod) = (first("PATCH", "/daemonsets/calico-node"), first("DELETE", "/pods/"));
    assert!(first("POST", "/configmaps") < created && created < status && status < patched && patched < pod);
    stage.pass(300).await;
    let quiet = stage.cluster.faults().log().iter().filter(|line| line.asked.writes()).count();
    stage.pass(3600).await;
    let later = stage.cluster.faults().log().iter().filter(|line| line.asked.writes()).count();
    assert_eq!(quiet, later, "writes although nothing was left to do");
}

#[tokio::test(start_paused = true)]
async fn an_engine_killed_again_and_again_ends_the_same_and_deletes_no_pod_twice() {
    for seed in [11, 12] {
        let mut dice = Dice::new(seed);
        let stage = Stage::new(5);
        let mut engine = stage.engine();
        stage.pass(60).await;
        stage.remote.commit("main", &[("network/calico.yaml", UPGRADE)]);
        for _ in 0..20 {
            stage.kill(engine).await;
            let polls = 20 + usize::try_from(dice.throw() % 300).unwrap();
            engine = stage.engine_for(polls);
            stage.pass(dice.throw() % 90).await;
        }
        stage.kill(engine).await;
        let _engine = stage.engine();
        let status = stage.until_phase("calico", CniPhase::Completed, 180).await;
        assert_all_upgraded_once(&stage, &status, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_api_server_costs_time_and_nothing_else() {
    let stage = Stage::new(5);
    let mut dice = Dice::new(7);
    stage.cluster.faults().when(move |_| {
        let all = [
            Fault::Unreachable,
            Fault::LostReply,
            Fault::Conflict,
            Fault::TooManyRequests(1),
            Fault::Internal,
            Fault::Delay(Duration::from_secs(2)),
            Fault::CutWatch(3),
        ];
        let throw = usize::try_from(dice.throw() % 28).unwrap();
        all.get(throw).copied()
    });
    let _engine = stage.engine();
    stage.pass(120).await;
    stage.remote.commit("main", &[("network/calico.yaml", UPGRADE)]);
    let status = stage.until_phase("calico", CniPhase::Completed, 240).await;
    assert_eq!((status.upgraded_nodes, status.failed_nodes, status.remaining_nodes), (5, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_bad_canary_goes_back_and_git_gets_exactly_one_rollback_commit() {
    let stage = Stage::new(5);
    stage.cluster.model(|model| {
        model.add_fault(model::fault::Fault {
            nodes: Where::First { count: 1, hit: BTreeSet::new() },
            image: Some("v3.28.0".to_owned()),
            kind: FaultKind::CrashLoops,
            from: None,
            until: None,
        });
    });
    let _engine = stage.engine();
    stage.pass(60).await;
    let old = UPGRADE.replace("v3.28.0", "v3.27.2");
    stage.remote.commit("main", &[("calico.yaml", &old)]);
    stage.until_phase("calico", CniPhase::Completed, 10).await;
    assert!(deleted(&stage).is_empty());
    stage.remote.commit("main", &[("calico.yaml", UPGRADE)]);
    let status = stage.until_phase("calico", CniPhase::Failed, 120).await;
    assert_eq!(reason(&status, "RolledBack").map(|(truth, _)| truth), Some(Truth::True));
    stage.pass(7200).await;
    assert_eq!(stage.remote.log("main").len(), 3);
    assert_eq!(stage.remote.file("main", "calico.yaml").unwrap().1, old);
    assert_eq!(stage.status("calico").unwrap().phase, CniPhase::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_put_by_hand_is_not_ours_and_nothing_happens() {
    let stage = Stage::new(3);
    let _engine = stage.engine();
    stage.pass(60).await;
    let by_hand: CNIUpgrade = serde_json::from_value(serde_json::json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade",
        "metadata": { "name": "by-hand" }, "spec": { "targetVersion": "v3.28.0" },
    }))
    .unwrap();
    Api::<CNIUpgrade>::all(stage.cluster.client()).create(&PostParams::default(), &by_hand).await.unwrap();
    let status = stage
        .until("by-hand", 5, |status| reason(status, "Stalled") == Some((Truth::True, "NotOurs".to_owned())))
        .await;
    assert_eq!(status.phase, CniPhase::Pending);
    stage.pass(3600).await;
    let log = stage.cluster.faults().log();
    let touched = log.iter().find(|line| line.asked.writes() && line.asked.uri.contains("kube-system"));
    assert_eq!(touched, None);
}
