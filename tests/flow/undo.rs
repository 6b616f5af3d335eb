//! A canary that fails: put back, recorded in Git once, quarantined, tried again on demand; or held.

use trunkline::api::{CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth};

use super::{
    look::{attempt, condition, says},
    manifests::{and, calico, with_token},
    stage::Stage,
};

/// The wish `v3.27.2` runs; `v3.28.0` will crash on the first node that gets it.
fn about_to_fail(nodes: usize) -> Stage {
    let stage = Stage::new(nodes);
    stage.let_canaries_crash(1, "v3.28.0");
    stage
}

async fn declared(stage: &Stage, manifest: &str) {
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", manifest)]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
}

fn rolled_back(status: &CniUpgradeStatus) -> bool {
    status.phase == CniPhase::Failed && says(status, "Ready", Truth::True, "RolledBack")
}

#[tokio::test(start_paused = true)]
async fn a_bad_canary_goes_back_and_only_the_bytes_of_the_wish_change_in_git() {
    let stage = about_to_fail(10);
    let _engine = stage.engine();
    let file = |version: &str| {
        let manifest = calico(version).replace(
            &format!("targetVersion: {version}"),
            &format!("targetVersion: '{version}'   # the one of every node"),
        );
        let settings = "# Notes of the team.\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: notes}\n";
        let service = "apiVersion: service.example.com/v1\nkind: ServiceUpgrade\n\
                       metadata: {name: web, namespace: default}\n\
                       spec: {serviceName: web, targetService: {selector: {app: web}}}\n";
        format!("{settings}---\n{manifest}---\n{service}# the end").replace('\n', "\r\n")
    };
    declared(&stage, &file("v3.27.2")).await;
    let (pods, revisions, template) = (stage.pods(), stage.revisions(), stage.daemon_set().template);
    stage.remote.commit_entries(
        "main",
        &[
            ("calico.yaml", crate::git::bare::Entry::Executable(&file("v3.28.0"))),
            ("values.yaml", crate::git::bare::Entry::Text("a: 1\n")),
        ],
    );
    let failed = stage.until_phase("calico", CniPhase::Failed, 30).await;
    assert!(says(&failed, "RolledBack", Truth::True, "RolledBack"));
    assert!(says(&failed, "CanaryHealthy", Truth::False, "CanaryUnhealthy"));
    assert_eq!((stage.running("v3.27.2"), stage.revisions()), (10, revisions));
    assert_eq!(stage.daemon_set().template, template);
    let touched = stage.pods().iter().filter(|(node, uid)| pods[*node] != **uid).count();
    assert_eq!(touched, 2);
    let settled = stage.until("calico", 5, rolled_back).await;
    assert_eq!(attempt(&settled), attempt(&failed));
    assert_eq!(condition(&settled, "Stalled"), None);
    assert_eq!(stage.commits(), 3);
    let (mode, text) = stage.remote.file("main", "calico.yaml").unwrap();
    assert_eq!((mode, text), (0o100_755, file("v3.27.2")));
    assert_eq!(stage.text("values.yaml"), "a: 1\n");
    let message = stage.newest_message();
    assert!(message.starts_with("Roll back CNIUpgrade/calico to v3.27.2 on prod\n"), "{message}");
    for part in ["values.yaml", "Trunkline-Object: ", "Trunkline-Cluster: prod", "Trunkline-Attempt: "] {
        assert!(message.contains(part), "{part}: {message}");
    }
    stage.pass(7200).await;
    assert_eq!((stage.commits(), attempt(&stage.status("calico").unwrap())), (3, attempt(&failed)));
    assert!(stage.strategy_is_back());
    let phases = ["Pending", "Completed", "Pending", "Canary", "Rollback", "Failed"];
    assert_eq!(stage.phases_told("calico"), phases);
}

#[tokio::test(start_paused = true)]
async fn a_failed_wish_is_tried_again_only_with_a_token_that_was_not_used() {
    let stage = about_to_fail(5);
    let _engine = stage.engine();
    declared(&stage, &calico("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let first = stage.until("calico", 30, rolled_back).await;
    assert_eq!(stage.commits(), 3);
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let quarantined = |status: &CniUpgradeStatus| says(status, "Stalled", Truth::True, "Quarantined");
    let status = stage.until("calico", 5, quarantined).await;
    let (_, _, message) = condition(&status, "Stalled").unwrap();
    assert!(message.contains("trunkline.dev/retry"), "{message}");
    assert!(says(&status, "Ready", Truth::False, "Quarantined"));
    assert!(says(&status, "InForce", Truth::False, "Quarantined"));
    stage.pass(7200).await;
    let status = stage.status("calico").unwrap();
    assert!(quarantined(&status) && status.phase == CniPhase::Failed);
    assert_eq!((attempt(&status), stage.commits()), (attempt(&first), 4));
    stage.remote.commit("main", &[("calico.yaml", &with_token("v3.28.0", "t1"))]);
    let second = stage.until("calico", 5, |status| status.phase == CniPhase::Canary).await;
    assert_eq!((attempt(&second).1, second.nodes.canaries), (attempt(&first).1 + 1, 1));
    stage.until("calico", 30, |status| attempt(status) == attempt(&second) && rolled_back(status)).await;
    assert_eq!(stage.commits(), 6);
    assert!(stage.text("calico.yaml").contains("targetVersion: v3.27.2"));
    stage.remote.commit("main", &[("calico.yaml", &with_token("v3.28.0", "t1"))]);
    stage.until("calico", 5, quarantined).await;
    stage.pass(3600).await;
    assert_eq!((attempt(&stage.status("calico").unwrap()), stage.commits()), (attempt(&second), 7));
    stage.cluster.model(trunkline::sim::model::Model::heal);
    stage.remote.commit("main", &[("calico.yaml", &with_token("v3.28.0", "t2"))]);
    let third = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((attempt(&third).1, stage.running("v3.28.0")), (attempt(&second).1 + 1, 5));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_fails_after_a_good_canary_does_not_say_that_the_canary_is_still_watched() {
    let stage = Stage::new(10);
    let _engine = stage.engine();
    declared(&stage, &calico("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::RollingOut, 30).await;
    stage.let_canaries_crash(2, "v3.28.0");
    let failed = stage.until("calico", 30, rolled_back).await;
    assert!(failed.rollback.as_ref().is_some_and(|why| why.reason != "CanaryUnhealthy"));
    assert!(says(&failed, "CanaryHealthy", Truth::True, "Completed"));
}

#[tokio::test(start_paused = true)]
async fn last_good_stays_the_wish_that_ran_when_the_next_try_changes_the_scope_as_well() {
    let stage = about_to_fail(5);
    let _engine = stage.engine();
    declared(&stage, &calico("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let first = stage.until("calico", 30, rolled_back).await;
    let other = and(&calico("v3.28.0"), "nodeSelector: {kubernetes.io/os: linux}");
    stage.remote.commit("main", &[("calico.yaml", &other)]);
    let second = stage.until("calico", 30, |status| attempt(status) != attempt(&first)).await;
    let wish = |status: &CniUpgradeStatus| status.last_good.as_ref().unwrap().wish.clone();
    assert_eq!(wish(&second), wish(&first));
    stage.until("calico", 30, |status| attempt(status) == attempt(&second) && rolled_back(status)).await;
    stage.pass(1800).await;
    let after = stage.status("calico").unwrap();
    assert_eq!((after.phase, attempt(&after), stage.commits()), (CniPhase::Failed, attempt(&second), 5));
    assert_eq!(stage.text("calico.yaml"), calico("v3.27.2"));
}

#[tokio::test(start_paused = true)]
async fn naming_the_provider_that_is_found_anyway_is_no_other_wish() {
    let stage = about_to_fail(5);
    let _engine = stage.engine();
    declared(&stage, &calico("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let first = stage.until_phase("calico", CniPhase::Canary, 5).await;
    let named = and(&calico("v3.28.0"), "provider: calico");
    stage.remote.commit("main", &[("calico.yaml", &named)]);
    stage.until("calico", 30, rolled_back).await;
    stage.remote.commit("main", &[("calico.yaml", &named)]);
    let quarantined = |status: &CniUpgradeStatus| says(status, "Stalled", Truth::True, "Quarantined");
    stage.until("calico", 5, quarantined).await;
    stage.pass(3600).await;
    let after = stage.status("calico").unwrap();
    assert_eq!((attempt(&after), stage.commits()), (attempt(&first), 5));
    assert!(quarantined(&after));
}

#[tokio::test(start_paused = true)]
async fn another_try_names_the_commit_that_asked_for_it() {
    let stage = about_to_fail(5);
    let _engine = stage.engine();
    declared(&stage, &calico("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let first = stage.until("calico", 30, rolled_back).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until("calico", 5, |status| says(status, "Stalled", Truth::True, "Quarantined")).await;
    let asked = stage.remote.commit("main", &[("calico.yaml", &with_token("v3.28.0", "t1"))]);
    let second = stage.until("calico", 5, |status| attempt(status) != attempt(&first)).await;
    assert!(second.attempt.unwrap().revision.unwrap().ends_with(&asked));
    let failed = stage.until("calico", 30, |status| attempt(status).1 == 2 + 1 && rolled_back(status)).await;
    assert!(!says(&failed, "InForce", Truth::False, "Quarantined"));
}

fn kept(version: &str) -> String {
    calico(version).replace("autoRollback: true", "autoRollback: false")
}

/// A failed canary that is held.
async fn held() -> (Stage, CniUpgradeStatus) {
    let stage = about_to_fail(10);
    let engine = stage.engine();
    // It lives as long as the runtime of the test.
    drop(engine);
    declared(&stage, &kept("v3.27.2")).await;
    stage.remote.commit("main", &[("calico.yaml", &kept("v3.28.0"))]);
    let status = stage.until_phase("calico", CniPhase::Failed, 30).await;
    stage.until_so("the template is back", 5, |stage| stage.template_version() == "v3.27.2").await;
    (stage, status)
}

#[tokio::test(start_paused = true)]
async fn without_auto_rollback_the_canaries_stay_the_template_goes_back_and_main_is_left_alone() {
    let (stage, status) = held().await;
    assert!(status.conditions.iter().any(|found| found.r#type == "Stalled" && found.status == Truth::True));
    assert!(!says(&status, "RolledBack", Truth::True, "RolledBack"));
    stage.pass(3600).await;
    assert_eq!((stage.running("v3.28.0"), stage.running("v3.27.2"), stage.commits()), (2, 8, 2));
    assert!(!stage.strategy_is_back(), "OnDelete stays while two versions run");
    let later = stage.status("calico").unwrap();
    assert_eq!((later.phase, attempt(&later)), (CniPhase::Failed, attempt(&status)));
    assert_eq!(stage.phases_told("calico").last().unwrap(), "Failed");
    // Another setting starts nothing.
    let on = kept("v3.28.0").replace("autoRollback: false", "autoRollback: true");
    stage.remote.commit("main", &[("calico.yaml", &on)]);
    stage.pass(1800).await;
    assert_eq!((stage.running("v3.28.0"), stage.commits()), (2, 3));
    assert_eq!(attempt(&stage.status("calico").unwrap()), attempt(&status));
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_mends_the_broken_nodes_first() {
    let (stage, status) = held().await;
    let broken: Vec<String> = stage
        .versions()
        .into_iter()
        .filter(|(_, version)| version == "v3.28.0")
        .map(|(node, _)| node)
        .collect();
    stage.remote.commit("main", &[("calico.yaml", &kept("v3.28.1"))]);
    let last_good = status.last_good.unwrap();
    let first = stage
        .until("calico", 10, |status| !status.nodes.open.is_empty() && status.phase == CniPhase::Canary)
        .await;
    let acted: Vec<String> = first.nodes.open.iter().map(|intent| intent.node.to_string()).collect();
    let failing = status.nodes.failures.iter().map(|failure| failure.node.to_string());
    for node in failing {
        assert!(acted.contains(&node) && broken.contains(&node), "{node}: {acted:?}");
    }
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((stage.running("v3.28.1"), done.last_good.unwrap().version), (10, last_good.version));
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
}

#[tokio::test(start_paused = true)]
async fn a_revert_returns_what_was_held() {
    let (stage, _) = held().await;
    stage.remote.commit("main", &[("calico.yaml", &kept("v3.27.2"))]);
    let done = stage.until_phase("calico", CniPhase::Completed, 15).await;
    assert!(says(&done, "Ready", Truth::True, "Returned"));
    assert_eq!((stage.running("v3.27.2"), stage.commits()), (10, 3));
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
}
