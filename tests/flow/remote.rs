//! Trouble between the engine and its remote: a branch that moves, a hook, no connection, another history.

use trunkline::{
    api::{cni_upgrade::CniPhase, status::Truth},
    git::{GitError, Pushed, Remote, TrackedQuery},
    world::git::{NewCommit, StatusBranch, Tracked},
};

use super::{
    look::{STATUS, condition, says},
    manifests::calico,
    stage::Stage,
};
use crate::git::{bare::Bare, server::Behaviour};

/// A way to the remote on which something happens right before the first push to the tracked branch.
struct Meddled {
    remote: Box<dyn Remote>,
    before: Option<Box<dyn FnOnce() + Send>>,
}

impl Remote for Meddled {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        self.remote.tracked(query)
    }
    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError> {
        self.remote.status(branch)
    }
    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError> {
        if commit.branch == "main"
            && let Some(before) = self.before.take()
        {
            before();
        }
        self.remote.push(commit)
    }
}

async fn declared(stage: &Stage) {
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2")), ("other.yaml", "a: 1\n")]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
}

async fn agreed(stage: &Stage) {
    let agreed = stage.until("calico", 40, |status| says(status, "Ready", Truth::True, "RolledBack")).await;
    assert_eq!((agreed.phase, stage.running("v3.27.2")), (CniPhase::Failed, 5));
}

/// Somebody pushes `other.yaml` while the rollback commit is on its way.
fn overtake(remote: Bare) -> impl FnOnce() + Send {
    move || {
        remote.commit("main", &[("other.yaml", "a: 2\n")]);
    }
}

async fn both_are_there(stage: &Stage) {
    stage.let_canaries_crash(1, "v3.28.0");
    declared(stage).await;
    let bad = stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    agreed(stage).await;
    stage.pass(1800).await;
    let log = stage.remote.log("main");
    assert_eq!((log.len(), &log[2]), (4, &bad));
    assert!(stage.newest_message().starts_with("Roll back CNIUpgrade/calico"), "{}", stage.newest_message());
    assert_eq!(stage.text("calico.yaml"), calico("v3.27.2"));
    assert_eq!(stage.text("other.yaml"), "a: 2\n");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_commit_is_made_again_on_a_branch_that_moved_on_a_local_path() {
    let stage = Stage::new(5);
    let before = overtake(stage.remote.clone());
    stage.engine_through(|remote| Box::new(Meddled { remote, before: Some(Box::new(before)) }));
    both_are_there(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_commit_is_made_again_on_a_branch_that_moved_on_the_server() {
    let stage = Stage::over_http(5);
    let before = overtake(stage.remote.clone());
    stage.engine_through(|remote| Box::new(Meddled { remote, before: Some(Box::new(before)) }));
    both_are_there(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_branch_that_moves_while_the_server_takes_the_rollback_commit_keeps_both() {
    let stage = Stage::over_http(5);
    let remote = stage.remote.clone();
    let server = stage.server.clone().unwrap();
    let before = move || {
        let tip = remote.tip("main").unwrap();
        let entry = crate::git::bare::Entry::Text("a: 2\n");
        let next = remote.commit_on(&[&tip], &[("other.yaml", entry)], "overtake\n");
        server.move_during_next_push("main", &next);
    };
    stage.engine_through(|remote| Box::new(Meddled { remote, before: Some(Box::new(before)) }));
    both_are_there(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_rollback_commit_is_told_with_the_words_of_the_hook_and_tried_until_it_is_taken() {
    let stage = Stage::over_http(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.engine();
    declared(&stage).await;
    let server = stage.server.as_ref().unwrap();
    server.refuse_pushes_to("main", "GL-HOOK: only reviewed commits on main");
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let refused =
        stage.until("calico", 40, |status| says(status, "GitPublished", Truth::False, "PushRefused")).await;
    let (_, _, message) = condition(&refused, "GitPublished").unwrap();
    assert!(message.contains("only reviewed commits on main"), "{message}");
    assert_eq!((refused.phase, stage.running("v3.27.2")), (CniPhase::Failed, 5));
    assert!(says(&refused, "RolledBack", Truth::True, "RolledBack") && stage.strategy_is_back());
    let told = |stage: &Stage| stage.told("problems.yaml").contains("only reviewed commits on main");
    stage.until_so("the problem is told", 5, told).await;
    let tries = |stage: &Stage| {
        let requests = stage.server.as_ref().unwrap().requests();
        requests.iter().filter(|line| line.starts_with("POST") && line.contains("git-receive-pack")).count()
    };
    let before = tries(&stage);
    stage.pass(2 * 3600).await;
    let made = tries(&stage) - before;
    assert!((10..40).contains(&made), "{made} pushes in two hours");
    assert_eq!(stage.commits(), 2);
    server.allow_pushes();
    agreed(&stage).await;
    assert_eq!((stage.commits(), stage.text("calico.yaml")), (3, calico("v3.27.2")));
    stage.until_so("no problem is left", 5, |stage| !stage.told("problems.yaml").contains("reviewed")).await;
    stage.until("calico", 5, |status| says(status, "GitPublished", Truth::True, "Published")).await;
}

#[tokio::test(start_paused = true)]
async fn a_remote_that_is_away_holds_no_rollout_and_is_told_every_phase_afterwards() {
    let stage = Stage::over_http(5);
    stage.engine();
    declared(&stage).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::Canary, 5).await;
    let server = stage.server.as_ref().unwrap();
    server.behave(Behaviour::Away);
    let done = stage.until_phase("calico", CniPhase::Completed, 40).await;
    assert_eq!((done.upgraded_nodes, stage.running("v3.28.0")), (5, 5));
    stage.until("calico", 20, |status| says(status, "GitPublished", Truth::False, "Unreachable")).await;
    stage.pass(7200).await;
    assert_ne!(stage.phases_told("calico").last().unwrap(), "Completed");
    server.behave(Behaviour::Serve);
    stage.until("calico", 30, |status| says(status, "GitPublished", Truth::True, "Published")).await;
    let phases = ["Pending", "Completed", "Pending", "Canary", "RollingOut", "Completed"];
    assert_eq!(stage.phases_told("calico"), phases);
}

#[tokio::test(start_paused = true)]
async fn a_remote_that_is_away_during_a_rollback_gets_one_rollback_commit_afterwards() {
    let stage = Stage::over_http(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.engine();
    declared(&stage).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::Canary, 5).await;
    let server = stage.server.as_ref().unwrap();
    server.behave(Behaviour::Away);
    stage.until("calico", 20, |status| status.phase == CniPhase::Failed).await;
    assert_eq!(stage.running("v3.27.2"), 5);
    stage.pass(7200).await;
    assert_eq!(stage.commits(), 2);
    server.behave(Behaviour::Serve);
    agreed(&stage).await;
    let phases = ["Pending", "Completed", "Pending", "Canary", "Rollback", "Failed"];
    stage.until_so("every phase is told", 5, |stage| stage.phases_told("calico") == phases).await;
    assert_eq!(stage.commits(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_push_whose_answer_was_lost_is_not_made_twice() {
    let stage = Stage::over_http(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.engine();
    declared(&stage).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::Canary, 5).await;
    let server = stage.server.as_ref().unwrap();
    server.behave(Behaviour::CutAfterPush);
    stage.until_so("the rollback commit is there", 40, |stage| stage.commits() == 3).await;
    stage.pass(600).await;
    server.behave(Behaviour::Serve);
    agreed(&stage).await;
    stage.pass(1800).await;
    assert_eq!(stage.commits(), 3);
    let phases = ["Pending", "Completed", "Pending", "Canary", "Rollback", "Failed"];
    assert_eq!(stage.phases_told("calico"), phases);
}

#[tokio::test(start_paused = true)]
async fn while_history_is_rewritten_the_attempt_goes_on_and_main_is_left_alone() {
    let stage = Stage::new(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.engine();
    declared(&stage).await;
    let old = stage.remote.tip("main").unwrap();
    let bad = stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::Canary, 5).await;
    let entry = crate::git::bare::Entry::Text("a: 3\n");
    let other = stage.remote.commit_on(&[&old], &[("other.yaml", entry)], "another history\n");
    stage.remote.set("main", Some(&other));
    stage.until_so("it is told", 5, |stage| stage.told("problems.yaml").contains("HistoryRewritten")).await;
    let problems = stage.told("problems.yaml");
    assert!(problems.contains(&other) && problems.contains(&bad), "{problems}");
    assert_eq!(stage.spec_of("calico")["targetVersion"], "v3.28.0");
    let failed = stage.until_phase("calico", CniPhase::Failed, 20).await;
    assert!(says(&failed, "RolledBack", Truth::True, "RolledBack"));
    assert_eq!(stage.running("v3.27.2"), 5);
    stage.pass(3600).await;
    assert_eq!(stage.remote.tip("main").unwrap(), other, "something was written to a rewritten branch");
    assert!(says(&stage.status("calico").unwrap(), "GitPublished", Truth::False, "HistoryRewritten"));
    assert_eq!(stage.phases_told("calico").last().unwrap(), "Failed");
    stage.remote.set("main", Some(&bad));
    agreed(&stage).await;
    let log = stage.remote.log("main");
    assert_eq!((log.len(), &log[1]), (3, &bad));
    stage
        .until_so("it is mended", 5, |stage| !stage.told("problems.yaml").contains("HistoryRewritten"))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_rollback_commit_that_people_made_themselves_is_no_problem_any_more() {
    let stage = Stage::over_http(5);
    stage.let_canaries_crash(1, "v3.28.0");
    stage.engine();
    declared(&stage).await;
    stage.server.as_ref().unwrap().refuse_pushes_to("main", "GL-HOOK: only reviewed commits on main");
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until("calico", 40, |status| says(status, "GitPublished", Truth::False, "PushRefused")).await;
    let told = |stage: &Stage| stage.told("problems.yaml").contains("only reviewed commits on main");
    stage.until_so("the problem is told", 5, told).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    agreed(&stage).await;
    stage.until_so("the problem is gone", 5, |stage| !told(stage)).await;
    stage.until("calico", 5, |status| says(status, "GitPublished", Truth::True, "Published")).await;
    stage.pass(1800).await;
    assert!(!told(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_status_branch_that_vanished_is_pushed_again_with_its_history_and_says_so() {
    for stage in [Stage::new(3), Stage::over_http(3)] {
        let engine = stage.engine();
        stage.pass(60).await;
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
        stage.until_phase("calico", CniPhase::Completed, 40).await;
        stage.pass(600).await;
        let history = stage.remote.log(STATUS);
        stage.remote.set(STATUS, None);
        stage.until_so("the branch is there again", 5, |stage| stage.remote.tip(STATUS).is_some()).await;
        let again = stage.remote.log(STATUS);
        assert_eq!(again[1..], history);
        let message = stage.remote.message(&again[0]);
        assert!(message.contains("vanished") && message.contains(history[0].get(..7).unwrap()), "{message}");
        stage.pass(1800).await;
        assert_eq!(stage.remote.log(STATUS), again, "it rests");
        // Also when it vanished while no process ran.
        stage.kill(engine).await;
        stage.remote.set(STATUS, None);
        let engine = stage.engine();
        stage.until_so("the branch is there again", 5, |stage| stage.remote.tip(STATUS).is_some()).await;
        assert_eq!(stage.remote.log(STATUS)[1..], again);
        // Without the clone nobody knows of it any more.
        stage.kill(engine).await;
        stage.remote.set(STATUS, None);
        std::fs::remove_dir_all(stage.clone_dir()).unwrap();
        let _engine = stage.engine();
        stage.until_so("the branch is begun anew", 5, |stage| stage.remote.tip(STATUS).is_some()).await;
        stage.pass(600).await;
        assert!(stage.remote.log(STATUS).iter().all(|commit| !again.contains(commit)));
    }
}
