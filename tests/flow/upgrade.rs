//! The way forward: the published example, a first manifest that fails, and nothing to do.

use std::cell::Cell;

use trunkline::api::{ClaimKey, CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth};

use super::{
    look::{STATUS, says, waits},
    manifests::{EXAMPLE, EXAMPLE_NAME, calico, upgrade},
    stage::Stage,
};

#[tokio::test(start_paused = true)]
async fn the_example_tries_two_of_ten_nodes_for_thirty_minutes_and_then_all_of_them_three_at_a_time() {
    let stage = Stage::new(10);
    let _engine = stage.engine();
    stage.pass(60).await;
    let in_flight = stage.watch_nodes_in_flight();
    stage.remote.commit("main", &[("calico.yaml", EXAMPLE)]);
    let (tried, open) = (Cell::new(0), Cell::new(0));
    let look = |status: &CniUpgradeStatus| {
        let new = stage.running("v3.28.0");
        if status.phase == CniPhase::Canary {
            tried.set(tried.get().max(new));
        }
        open.set(open.get().max(status.nodes.open.len()));
        assert!(new == 0 || new == 10 || !stage.strategy_is_back(), "given back with {new} of 10 updated");
    };
    let observing = stage
        .until(EXAMPLE_NAME, 10, |status| {
            look(status);
            waits(status, "Observing")
        })
        .await;
    let settled = stage.clock.now();
    assert_eq!((observing.phase, observing.nodes.canaries, tried.get()), (CniPhase::Canary, 2, 2));
    let rolling = stage
        .until(EXAMPLE_NAME, 40, |status| {
            look(status);
            status.phase == CniPhase::RollingOut
        })
        .await;
    let watched = rolling.phase_started_at.unwrap().duration_since(settled).as_secs();
    assert!((1795..1900).contains(&watched), "{watched} s");
    assert_eq!(tried.get(), 2);
    let done = stage
        .until(EXAMPLE_NAME, 30, |status| {
            look(status);
            status.phase == CniPhase::Completed && says(status, "GitPublished", Truth::True, "Published")
        })
        .await;
    assert_eq!((done.upgraded_nodes, done.failed_nodes, done.remaining_nodes), (10, 0, 0));
    assert_eq!(done.current_version.as_deref(), Some("v3.28.0"));
    assert!(says(&done, "Ready", Truth::True, "Completed"));
    assert_eq!(stage.running("v3.28.0"), 10);
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    assert_eq!((open.get(), in_flight.most()), (3, 3));
    assert_eq!(stage.phases_told(EXAMPLE_NAME), ["Pending", "Canary", "RollingOut", "Completed"]);
    assert_eq!(stage.commits(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_document_that_was_new_and_failed_is_removed_and_its_end_is_told() {
    let stage = Stage::new(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.remote.commit("main", &[("README.md", "# network\n")]);
    let _engine = stage.engine();
    stage.pass(60).await;
    assert!(stage.remote.tip(STATUS).is_some(), "the branch is there before anything is declared");
    let with_head = format!("# The network of prod.\n{EXAMPLE}");
    stage.remote.commit("main", &[("calico.yaml", &with_head)]);
    stage.until_so("the document is removed", 20, |stage| stage.commits() == 3).await;
    assert_eq!(stage.running("v3.27.2"), 5);
    let left = stage.text("calico.yaml");
    assert!(left.lines().count() >= 1 && left.lines().all(|line| line.starts_with('#')), "{left}");
    let claim = ClaimKey::cni(EXAMPLE_NAME);
    stage.until_so("the custom resource goes", 5, |stage| !stage.exists(&claim)).await;
    let ended = |stage: &Stage| {
        stage.told("README.md").contains(EXAMPLE_NAME) && stage.told("ledger.yaml").contains("RolledBack")
    };
    stage.until_so("page and ledger tell of it", 5, ended).await;
    assert!(stage.told("README.md").contains("RolledBack"), "{}", stage.told("README.md"));
    let phases = stage.phases_told(EXAMPLE_NAME);
    assert_eq!(phases, ["Pending", "Canary", "Rollback", "Failed"]);
    stage.pass(3600).await;
    assert_eq!((stage.commits(), stage.exists(&claim)), (3, false));
    assert!(stage.strategy_is_back());
}

#[tokio::test(start_paused = true)]
async fn a_wish_equal_to_what_runs_is_completed_without_a_write() {
    let stage = Stage::new(3);
    let _engine = stage.engine();
    stage.pass(60).await;
    let pods = stage.pods();
    stage.remote.commit("main", &[("calico.yaml", &calico("3.27.2"))]);
    let status = stage.until_phase("calico", CniPhase::Completed, 5).await;
    assert!(says(&status, "Ready", Truth::True, "AlreadyRuns"));
    // The same version in other letters is the same wish.
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.pass(3600).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    assert_eq!(stage.pods(), pods);
    assert_eq!(stage.records(), 0);
    let later = stage.status("calico").unwrap();
    assert_eq!(later.attempt.unwrap().id, status.attempt.unwrap().id);
    assert_eq!((stage.commits(), stage.daemon_set().status.observed_generation), (2, 1));
}

/// Thirty files with one manifest each, versions from `first` on.
fn thirty(first: u32) -> Vec<(String, String)> {
    let manifest = |n: u32| (format!("c-{n}.yaml"), upgrade(&format!("c-{n}"), &format!("v3.{n}.2")));
    (first..first + 30).map(manifest).collect()
}

fn commit_all(stage: &Stage, files: &[(String, String)]) {
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    stage.remote.commit("main", &files);
}

#[tokio::test(start_paused = true)]
async fn of_thirty_old_manifests_the_one_that_runs_is_adopted_and_nothing_starts() {
    let stage = Stage::new(3);
    commit_all(&stage, &thirty(10));
    let _engine = stage.engine();
    let status = stage.until_phase("c-27", CniPhase::Completed, 5).await;
    assert!(
        says(&status, "Ready", Truth::True, "AlreadyRuns")
            && says(&status, "InForce", Truth::True, "InForce")
    );
    let other = stage.until("c-10", 5, |status| says(status, "InForce", Truth::False, "Superseded")).await;
    assert_eq!(other.attempt, None);
    stage.pass(3600).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn thirty_old_manifests_of_which_none_runs_start_nothing_until_one_is_changed() {
    let stage = Stage::new(3);
    commit_all(&stage, &thirty(28));
    let _engine = stage.engine();
    let waits = |status: &CniUpgradeStatus| says(status, "Stalled", Truth::True, "FirstContact");
    stage.until("c-28", 5, waits).await;
    stage.until("c-57", 5, waits).await;
    stage.pass(3600).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    stage.remote.commit("main", &[("c-28.yaml", &upgrade("c-28", "v3.28.3"))]);
    stage.until_phase("c-28", CniPhase::Completed, 30).await;
    assert_eq!(stage.running("v3.28.3"), 3);
    assert_eq!(stage.status("c-29").unwrap().attempt, None);
}

#[tokio::test(start_paused = true)]
async fn a_retry_token_lifts_first_contact() {
    let stage = Stage::new(3);
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let _engine = stage.engine();
    let waits = |status: &CniUpgradeStatus| says(status, "Stalled", Truth::True, "FirstContact");
    let status = stage.until("calico", 5, waits).await;
    let (_, _, message) = super::look::condition(&status, "Stalled").unwrap();
    assert!(message.contains("trunkline.dev/retry") && message.contains("firstContact: act"), "{message}");
    stage.pass(600).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    stage.remote.commit("main", &[("calico.yaml", &super::manifests::with_token("v3.28.0", "t1"))]);
    let status = stage.until_phase("calico", CniPhase::Completed, 30).await;
    assert_eq!(status.attempt.unwrap().retry_token.as_deref(), Some("t1"));
}
