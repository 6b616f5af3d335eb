//! Taking back: by a revert of the wish, and by removing the manifest.

use trunkline::api::{
    ClaimKey, CniUpgradeStatus,
    cni_upgrade::CniPhase,
    status::{AttemptKind, Outcome, Truth},
};

use super::{
    look::{attempt, says},
    manifests::{and, calico},
    stage::Stage,
};

async fn running_old(nodes: usize) -> Stage {
    let stage = Stage::new(nodes);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage
}

/// The manifest of the example, which observes long enough to be interrupted.
fn slow(version: &str) -> String {
    calico(version).replace("observationMinutes: 1", "observationMinutes: 60")
}

fn returned(status: &CniUpgradeStatus) -> bool {
    status.phase == CniPhase::Completed && says(status, "Ready", Truth::True, "Returned")
}

fn upgraded(status: &CniUpgradeStatus, nodes: i32) -> bool {
    status.phase == CniPhase::Completed
        && says(status, "Ready", Truth::True, "Completed")
        && status.upgraded_nodes == nodes
}

#[tokio::test(start_paused = true)]
async fn a_revert_after_completion_returns_all_nodes_without_a_canary() {
    let stage = running_old(10).await;
    let (revisions, template) = (stage.revisions(), stage.daemon_set().template);
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let up = stage.until("calico", 60, |status| upgraded(status, 10)).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    stage.pass(3600).await;
    let in_flight = stage.watch_nodes_in_flight();
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    let back = stage.until("calico", 5, |status| status.phase == CniPhase::Rollback).await;
    assert_eq!((attempt(&back).1, back.attempt.unwrap().kind), (attempt(&up).1 + 1, AttemptKind::Return));
    let done = stage.until("calico", 15, returned).await;
    assert_eq!(done.attempt.unwrap().outcome, Some(Outcome::Returned));
    assert_eq!(done.current_version.as_deref(), Some("v3.27.2"));
    assert_eq!((stage.running("v3.27.2"), stage.revisions()), (10, revisions));
    assert_eq!(stage.daemon_set().template, template);
    assert_eq!(in_flight.most(), 3);
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    stage.pass(3600).await;
    assert_eq!(stage.commits(), 3);
    let phases = stage.phases_told("calico");
    assert_eq!(phases[phases.len() - 2..], ["Rollback", "Completed"]);
    assert!(!phases.contains(&"Failed".to_owned()), "{phases:?}");
}

#[tokio::test(start_paused = true)]
async fn a_revert_during_the_canary_returns_though_paused_and_though_the_canary_is_bad() {
    for bad in [false, true] {
        let stage = running_old(10).await;
        let before = stage.pods();
        if bad {
            stage.let_canaries_crash(1, "v3.28.0");
        }
        let kept = |text: String| text.replace("autoRollback: true", "autoRollback: false");
        let (new, old) = (kept(slow("v3.28.0")), kept(slow("v3.27.2")));
        stage.remote.commit("main", &[("calico.yaml", &new)]);
        stage
            .until("calico", 10, |status| status.phase == CniPhase::Canary && stage.running("v3.28.0") == 2)
            .await;
        stage.remote.commit("main", &[("calico.yaml", &and(&new, "paused: true"))]);
        stage.pass(60).await;
        stage.remote.commit("main", &[("calico.yaml", &and(&old, "paused: true"))]);
        let done = stage.until("calico", 15, returned).await;
        assert_eq!((stage.running("v3.27.2"), stage.commits()), (10, 4));
        let touched = stage.pods().iter().filter(|(node, uid)| before[*node] != **uid).count();
        assert_eq!(touched, 2);
        let left = done.history.last().unwrap().outcome;
        assert!(left == Outcome::Reverted || (bad && left == Outcome::Held), "left as {left:?}");
        assert_eq!(stage.spec_of("calico")["paused"], true);
        stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
        // It is not quarantined: it may be wished for again.
        stage.cluster.model(trunkline::sim::model::Model::heal);
        stage.remote.commit("main", &[("calico.yaml", &new)]);
        stage.until("calico", 5, |status| status.phase == CniPhase::Canary).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_and_its_revert_in_one_fetch_do_nothing() {
    let stage = running_old(3).await;
    let before = stage.status("calico").unwrap();
    let (pods, writes) = (stage.pods(), stage.writes_to_the_agent());
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.pass(1800).await;
    let after = stage.status("calico").unwrap();
    assert_eq!((after.phase, attempt(&after)), (CniPhase::Completed, attempt(&before)));
    assert_eq!((stage.pods(), stage.writes_to_the_agent()), (pods, writes));
    assert_eq!(stage.commits(), 3);
}

fn gone<'a>() -> [(&'a str, crate::git::bare::Entry<'a>); 1] {
    [("calico.yaml", crate::git::bare::Entry::Gone)]
}

#[tokio::test(start_paused = true)]
async fn removing_a_manifest_under_way_returns_first_and_then_the_custom_resource_goes() {
    let stage = Stage::new(10);
    stage.engine();
    stage.remote.commit("main", &[("README.md", "# network\n")]);
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &slow("v3.28.0"))]);
    stage.until("calico", 10, |_| stage.running("v3.28.0") == 2).await;
    stage.remote.commit_entries("main", &gone());
    stage.until("calico", 5, |status| status.phase == CniPhase::Rollback).await;
    let claim = ClaimKey::cni("calico");
    stage
        .until_so("the custom resource goes", 15, |stage| {
            let exists = stage.exists(&claim);
            assert!(exists || stage.running("v3.27.2") == 10, "gone before the nodes are back");
            !exists
        })
        .await;
    assert!(stage.strategy_is_back());
    stage.pass(3600).await;
    assert_eq!((stage.commits(), stage.exists(&claim)), (3, false));
    assert!(stage.told("ledger.yaml").contains("Returned"), "{}", stage.told("ledger.yaml"));
    assert_eq!(stage.phases_told("calico"), ["Pending", "Canary", "Rollback", "Completed"]);
}

#[tokio::test(start_paused = true)]
async fn removing_a_completed_manifest_changes_nothing_that_runs() {
    let stage = running_old(3).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until("calico", 60, |status| upgraded(status, 3)).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    let (pods, writes) = (stage.pods(), stage.writes_to_the_agent());
    stage.remote.commit_entries("main", &gone());
    let claim = ClaimKey::cni("calico");
    stage.until_so("the custom resource goes", 5, |stage| !stage.exists(&claim)).await;
    stage.pass(3600).await;
    assert_eq!((stage.pods(), stage.writes_to_the_agent()), (pods, writes));
    assert_eq!((stage.running("v3.28.0"), stage.commits()), (3, 3));
}
