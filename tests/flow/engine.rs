//! The engine over the embedded API server, through `kube::Client`.

use std::{collections::BTreeSet, time::Duration};

use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use trunkline::{
    api::{
        CNIUpgrade, ClaimKey, CniUpgradeStatus, cni_upgrade::CniPhase, names::REQUESTED_AT, status::Truth,
    },
    dice::Dice,
    sim::{
        api::{Fault, route::Verb},
        model::{
            self, Span, Timings,
            cluster::ClusterSpec,
            fault::{FaultKind, Where},
        },
    },
};

use super::{look::waits, stage::Stage};

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
async fn a_controller_that_learns_of_the_patch_late_brings_no_pod_up_on_the_old_template() {
    let timings = Timings { view: Span::millis(20_000, 20_000), ..Timings::default() };
    let stage = Stage::of(&ClusterSpec { timings, ..Stage::spec(5) }, None);
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", UPGRADE)]);
    let status = stage.until_phase("calico", CniPhase::Completed, 120).await;
    assert_all_upgraded_once(&stage, &status, 5);
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

#[tokio::test(start_paused = true)]
async fn an_annotation_makes_the_engine_look_at_once() {
    let stage = Stage::new(3);
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &UPGRADE.replace("v3.28.0", "v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    let api = Api::<CNIUpgrade>::all(stage.cluster.client());
    for parallel in [4, 5, 6] {
        // The repository was polled less than thirty seconds ago.
        stage.pass(7).await;
        let changed = UPGRADE
            .replace("v3.28.0", "v3.27.2")
            .replace("maxParallel: 3", &format!("maxParallel: {parallel}"));
        stage.remote.commit("main", &[("calico.yaml", &changed)]);
        let at = stage.clock.now().to_string();
        let ask = serde_json::json!({ "metadata": { "annotations": { REQUESTED_AT: at } } });
        api.patch("calico", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
        stage.pass(1).await;
        assert_eq!(stage.spec_of("calico")["maxParallel"], parallel);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_version_is_gone_leads_to_a_list_that_loses_nothing() {
    let stage = Stage::new(5);
    let _engine = stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", UPGRADE)]);
    let observing = |status: &CniUpgradeStatus| waits(status, "Observing") && status.nodes.in_scope == 5;
    stage.until("calico", 10, observing).await;
    let lists = |stage: &Stage| {
        let log = stage.cluster.faults().log();
        log.iter().filter(|line| line.asked.is(Verb::List, "Node")).count()
    };
    let old = stage.versions().into_iter().find(|(_, version)| version == "v3.27.2").unwrap().0;
    let change = |model: &mut model::Model, round| match round {
        0 => model.remove_node(&old),
        1 => model.add_node("node-new", model::cluster::node_labels("node-new", 0, false)),
        _ => model.edit_claim(&ClaimKey::cni("calico"), |spec| spec["targetVersion"] = "v3.29.0".into()),
    };
    for (round, in_scope) in [4, 5, 5].into_iter().enumerate() {
        let listed = lists(&stage);
        stage.cluster.cut_watches();
        stage.cluster.model(|model| {
            assert!(change(model, round));
            model.compact();
        });
        stage.pass(90).await;
        assert_eq!(lists(&stage), listed + 1, "round {round}");
        assert_eq!(stage.status("calico").unwrap().nodes.in_scope, in_scope, "round {round}");
        assert_eq!(stage.spec_of("calico")["targetVersion"], "v3.28.0");
    }
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((done.upgraded_nodes, done.failed_nodes, stage.running("v3.28.0")), (5, 0, 5));
}
