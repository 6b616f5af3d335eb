//! The process ends and another one begins, while nothing is to be done.

use trunkline::api::{CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth};

use super::{
    look::{STATUS, says, waits},
    manifests::{and, calico},
    stage::Stage,
};

/// Writes to the API server and commits on the status branch so far.
fn told(stage: &Stage) -> (Vec<String>, usize) {
    let log = stage.cluster.faults().log();
    let writes = log.iter().filter(|line| line.asked.writes());
    let writes = writes.map(|line| format!("{} {}", line.asked.method, line.asked.uri)).collect();
    (writes, stage.remote.log(STATUS).len())
}

/// Declares what runs, then that, and waits for its end; a new process over it must have nothing to say.
async fn restarted(manifest: &str, bad: bool, ended: impl Fn(&CniUpgradeStatus) -> bool) {
    let stage = Stage::new(10);
    let engine = stage.engine();
    if bad {
        stage.let_canaries_crash(1, "v3.28.0");
    }
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &manifest.replace("v3.28.0", "v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("calico.yaml", manifest)]);
    let before = stage.until("calico", 60, ended).await;
    // Longer than Events are told after a restart as well.
    stage.pass(3600 + 600).await;
    let quiet = told(&stage);
    stage.kill(engine).await;
    let _engine = stage.engine();
    stage.pass(1800).await;
    let (writes, commits) = told(&stage);
    assert_eq!(writes[quiet.0.len()..], [""; 0]);
    assert_eq!((commits, &stage.status("calico").unwrap().progress), (quiet.1, &before.progress));
}

#[tokio::test(start_paused = true)]
async fn a_restart_after_completion_writes_no_status_and_no_commit() {
    let done = |status: &CniUpgradeStatus| says(status, "Ready", Truth::True, "Completed");
    restarted(&calico("v3.28.0"), false, done).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_the_strategy_is_held_writes_no_status_and_no_commit() {
    let zone = and(&calico("v3.28.0"), "nodeSelector: {topology.kubernetes.io/zone: zone-a}");
    let held =
        |status: &CniUpgradeStatus| status.phase == CniPhase::Completed && waits(status, "StrategyHeld");
    restarted(&zone, false, held).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_after_a_rollback_writes_no_status_and_no_commit() {
    let back = |status: &CniUpgradeStatus| says(status, "Ready", Truth::True, "RolledBack");
    restarted(&calico("v3.28.0"), true, back).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_a_failure_is_held_writes_no_status_and_no_commit() {
    let kept = calico("v3.28.0").replace("autoRollback: true", "autoRollback: false");
    restarted(&kept, true, |status| status.phase == CniPhase::Failed).await;
}
