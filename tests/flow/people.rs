//! People at the cluster: custom resources edited, deleted and held; the agent changed by others.

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use trunkline::{
    api::{
        CNIUpgrade, ClaimKey, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{FINALIZER, HOLD, REPOSITORY},
        status::Truth,
    },
    sim::model::{actors::claim_ref, cluster::AgentKind},
    world::Strategy,
};

use super::{
    look::{STATUS, attempt, condition, says, waits},
    manifests::{and, calico},
    stage::Stage,
};

/// Declares what runs, then an upgrade that is observed for twenty minutes; returns when its canaries are observed.
async fn observing(nodes: usize) -> (Stage, CniUpgradeStatus) {
    let stage = Stage::new(nodes);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("calico.yaml", &slow())]);
    let status = stage.until("calico", 10, |status| waits(status, "Observing")).await;
    (stage, status)
}

fn slow() -> String {
    calico("v3.28.0").replace("observationMinutes: 1", "observationMinutes: 20")
}

/// The same when the first nodes after the canary have been acted on.
async fn rolling_out(nodes: usize) -> (Stage, CniUpgradeStatus) {
    let (stage, _) = observing(nodes).await;
    let status = stage.until_phase("calico", CniPhase::RollingOut, 40).await;
    (stage, status)
}

fn api(stage: &Stage) -> Api<CNIUpgrade> {
    Api::all(stage.cluster.client())
}

async fn patch(stage: &Stage, change: Value) {
    api(stage).patch("calico", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn patch_status(stage: &Stage, change: Value) {
    api(stage).patch_status("calico", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_edited_spec_is_put_back_and_not_acted_on() {
    let (stage, before) = observing(5).await;
    patch(&stage, json!({ "spec": { "targetVersion": "v3.29.0", "maxParallel": 5 } })).await;
    stage.until_so("it is put back", 2, |stage| stage.spec_of("calico")["targetVersion"] == "v3.28.0").await;
    assert_eq!(stage.spec_of("calico")["maxParallel"], 3);
    let now = stage.status("calico").unwrap();
    assert_eq!((attempt(&now), now.phase), (attempt(&before), CniPhase::Canary));
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&before), 5));
    // The same after the end.
    let (pods, writes) = (stage.pods(), stage.writes_to_the_agent());
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    let writes = writes.len() + 1;
    patch(&stage, json!({ "spec": { "targetVersion": "v3.29.0" } })).await;
    stage.until_so("it is put back", 2, |stage| stage.spec_of("calico")["targetVersion"] == "v3.28.0").await;
    stage.pass(1800).await;
    assert!(stage.writes_to_the_agent().len() <= writes, "{:?}", stage.writes_to_the_agent());
    assert_eq!((stage.pods(), stage.commits()), (pods, 2));
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_somebody_writes_on_it_is_put_back_also_when_it_is_taken_off() {
    let (stage, before) = observing(5).await;
    let annotations = api(&stage).get("calico").await.unwrap().metadata.annotations.unwrap();
    let repository = annotations.get(REPOSITORY).cloned();
    for edit in [json!("elsewhere"), json!(null)] {
        patch(&stage, json!({ "metadata": { "annotations": { (REPOSITORY): edit } } })).await;
        stage.pass(30).await;
        let now = api(&stage).get("calico").await.unwrap().metadata.annotations.unwrap();
        assert_eq!(now.get(REPOSITORY), repository.as_ref(), "{now:?}");
    }
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&before), 5));
}

#[tokio::test(start_paused = true)]
async fn drift_after_a_revert_is_told() {
    let (stage, _) = observing(5).await;
    stage.until_phase("calico", CniPhase::Completed, 60).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until("calico", 20, |status| says(status, "Ready", Truth::True, "Returned")).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    stage.cluster.model(|model| model.replace_images(&AgentKind::Calico.key(), "v3.27.2", "v3.26.0"));
    stage.until("calico", 5, |status| says(status, "Ready", Truth::False, "Drifted")).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_edited_to_nonsense_is_put_right_or_halts_with_a_reason() {
    let nonsense = [
        json!({ "phase": "Completed", "upgradedNodes": 99 }),
        json!({ "phase": "RollingOut", "observed": null }),
        json!({ "phase": "Pending", "attempt": null }),
        json!({ "attempt": null, "lastGood": null, "nodes": null, "transitions": null }),
        json!({ "lastGood": { "version": "v1.0.0", "wish": "w1:00", "template": "{ not json" } }),
        json!({ "nodes": { "open": [{ "node": "ghost", "nodeUid": "u", "kind": "Upgrade", "before": "x",
            "startedAt": "2020-01-01T00:00:00Z", "asOf": "2020-01-01T00:00:00Z" }] } }),
        json!({ "observed": { "total": 999_999, "asOf": "2030-01-01T00:00:00Z" } }),
    ];
    for change in nonsense {
        let (stage, before) = observing(5).await;
        patch_status(&stage, json!({ "status": change.clone() })).await;
        stage.pass(2400).await;
        let after = stage.status("calico").unwrap();
        let halted = condition(&after, "Stalled")
            .is_some_and(|(truth, why, text)| truth == Truth::True && !why.is_empty() && !text.is_empty());
        let on_target = stage.running("v3.28.0");
        assert!(
            halted || (on_target == 5 && attempt(&after) == attempt(&before)),
            "{change}: {on_target} {after:#?}"
        );
        // A revert gets out of everything.
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
        stage.pass(900).await;
        let left = stage.status("calico").unwrap();
        assert!(stage.running("v3.27.2") == 5 || halted, "{change}: {left:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_edited_to_the_end_shortens_no_canary() {
    let (stage, before) = observing(5).await;
    let settled = stage.clock.now();
    let ended = json!({ "outcome": "Completed", "finishedAt": settled });
    patch_status(&stage, json!({ "status": { "phase": "Completed", "attempt": ended } })).await;
    let right = stage.until_phase("calico", CniPhase::Canary, 1).await;
    let left = right.attempt.clone().unwrap();
    assert_eq!((attempt(&right), left.outcome, left.finished_at), (attempt(&before), None, None));
    let rolling = stage.until_phase("calico", CniPhase::RollingOut, 40).await;
    let observed = rolling.phase_started_at.unwrap().duration_since(settled).as_secs();
    assert!(observed >= 1190, "promoted after {observed} s");
    let done = stage.until_phase("calico", CniPhase::Completed, 20).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&before), 5));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_custom_resource_comes_back_with_its_attempt_and_the_rollout_goes_on() {
    for strip in [false, true] {
        let (stage, before) = observing(5).await;
        let claim = ClaimKey::cni("calico");
        let uid = |stage: &Stage| {
            stage.cluster.model(|model| model.get(&claim_ref(&claim)).map(|found| found.uid.clone()))
        };
        let old = uid(&stage);
        if strip {
            patch(&stage, json!({ "metadata": { "finalizers": null } })).await;
        }
        api(&stage).delete("calico", &DeleteParams::default()).await.unwrap();
        stage
            .until_so("it is made anew", 5, |stage| uid(stage).is_some_and(|new| Some(&new) != old.as_ref()))
            .await;
        let again = stage.until("calico", 5, |status| status.attempt.is_some()).await;
        assert_eq!((attempt(&again), again.phase), (attempt(&before), CniPhase::Canary));
        let versions = (again.current_version.as_deref(), again.target_version.as_deref());
        assert_eq!(versions, (Some("v3.27.2"), Some("v3.28.0")));
        let told =
            stage.remote.log(STATUS).iter().map(|commit| stage.remote.message(commit)).collect::<Vec<_>>();
        let nameless = |told: &&String| told.starts_with("CNIUpgrade/") && !told.contains("v3.2");
        assert_eq!(told.iter().find(nameless), None);
        assert_eq!(again.last_good, before.last_good);
        assert_eq!(stage.running("v3.28.0"), 1);
        let stored = stage.cluster.model(|model| model.get(&claim_ref(&claim)).cloned()).unwrap();
        assert!(stored.meta.finalizers.contains(&FINALIZER.to_owned()));
        let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
        assert_eq!((attempt(&done), stage.running("v3.28.0"), stage.commits()), (attempt(&before), 5, 2));
    }
}

async fn hold(stage: &Stage, reason: Option<&str>) {
    patch(stage, json!({ "metadata": { "annotations": { HOLD: reason } } })).await;
}

#[tokio::test(start_paused = true)]
async fn the_brake_stops_starts_and_promotion_and_nothing_in_flight() {
    let (stage, before) = rolling_out(10).await;
    hold(&stage, Some("DNS is odd")).await;
    let held = stage.until("calico", 5, |status| waits(status, "Held") && status.nodes.open.is_empty()).await;
    let reached = stage.running("v3.28.0");
    assert!((3..=5).contains(&reached), "{reached}");
    let waiting = held.waiting_for.iter().find(|waiting| waiting.reason == "Held").unwrap();
    assert!(waiting.message.contains("DNS is odd"), "{}", waiting.message);
    stage.pass(3600).await;
    assert_eq!(stage.running("v3.28.0"), reached);
    stage.until_so("it is told", 5, |stage| stage.told("README.md").contains("DNS is odd")).await;
    stage.pass(24 * 3600).await;
    let overdue = stage.status("calico").unwrap();
    assert!(says(&overdue, "Ready", Truth::False, "HoldOverdue"), "{:?}", overdue.conditions);
    assert_eq!(stage.running("v3.28.0"), reached);
    hold(&stage, None).await;
    let done = stage.until_phase("calico", CniPhase::Completed, 30).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&before), 10));
}

#[tokio::test(start_paused = true)]
async fn neither_brake_nor_pause_holds_a_failed_verdict_or_a_revert() {
    for in_git in [false, true] {
        let (stage, _) = observing(5).await;
        let stop = async |stage: &Stage, manifest: &str| {
            if in_git {
                stage.remote.commit("main", &[("calico.yaml", &and(manifest, "paused: true"))]);
                stage.until("calico", 5, |status| waits(status, "Paused")).await;
            } else {
                hold(stage, Some("wait")).await;
                stage.until("calico", 5, |status| waits(status, "Held")).await;
            }
        };
        stop(&stage, &slow()).await;
        stage.pass(1800).await;
        let held = stage.status("calico").unwrap();
        assert_eq!((held.phase, stage.running("v3.28.0")), (CniPhase::Canary, 1), "promoted");
        stage.let_canaries_crash(1, "v3.28.0");
        stage.cluster.model(|model| {
            let fault = trunkline::sim::model::fault::Fault::new(
                trunkline::sim::model::fault::FaultKind::TurnsUnready { after: 0 },
            );
            model.add_fault(fault.with_image("v3.28.0"));
        });
        let failed = stage.until("calico", 20, |status| status.phase == CniPhase::Failed).await;
        assert!(says(&failed, "RolledBack", Truth::True, "RolledBack"));
        assert_eq!(stage.running("v3.27.2"), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_revert_returns_and_a_held_new_wish_waits() {
    let (stage, _) = observing(5).await;
    hold(&stage, Some("wait")).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until("calico", 10, |status| says(status, "Ready", Truth::True, "Returned")).await;
    assert_eq!(stage.running("v3.27.2"), 5);
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.1"))]);
    let waiting = stage.until("calico", 5, |status| waits(status, "Held")).await;
    assert_eq!(waiting.phase, CniPhase::Pending);
    stage.pass(1800).await;
    assert_eq!((stage.running("v3.27.2"), stage.template_version()), (5, "v3.27.2".to_owned()));
    hold(&stage, None).await;
    stage
        .until("calico", 60, |status| status.upgraded_nodes == 5 && status.phase == CniPhase::Completed)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_in_git_holds_the_same_attempt_and_goes_on_where_it_was() {
    let (stage, before) = observing(5).await;
    stage.remote.commit("main", &[("calico.yaml", &and(&slow(), "paused: true"))]);
    let paused = stage.until("calico", 5, |status| waits(status, "Paused")).await;
    assert_eq!(attempt(&paused), attempt(&before));
    stage.pass(1800).await;
    let paused = stage.status("calico").unwrap();
    assert_eq!((paused.phase, stage.running("v3.28.0")), (CniPhase::Canary, 1));
    stage.remote.commit("main", &[("calico.yaml", &slow())]);
    // The observed time went on, so that it is over by now.
    let on = stage.until_phase("calico", CniPhase::RollingOut, 3).await;
    assert_eq!((attempt(&on), on.nodes.canaries), (attempt(&before), before.nodes.canaries));
    stage.until_phase("calico", CniPhase::Completed, 20).await;
}

/// Patches of the DaemonSet so far.
fn patches(stage: &Stage) -> usize {
    stage.writes_to_the_agent().iter().filter(|line| line.starts_with("PATCH")).count()
}

async fn reverts(stage: &Stage) {
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until("calico", 20, |status| says(status, "Ready", Truth::True, "Returned")).await;
    assert_eq!(stage.running("v3.27.2"), 10);
    stage.until_so("the strategy is back", 10, Stage::strategy_is_back).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_restart_by_others_holds_and_a_revert_gets_out() {
    let agent = AgentKind::Calico.key();
    let (stage, before) = rolling_out(10).await;
    let at = stage.clock.now();
    stage.cluster.model(|model| model.restart_rollout(&agent, at));
    let patched = patches(&stage);
    stage.until("calico", 5, |status| waits(status, "TemplateChanged")).await;
    stage.pass(1800).await;
    let held = stage.status("calico").unwrap();
    assert!(says(&held, "Ready", Truth::False, "TemplateChanged"), "{:#?}", held.conditions);
    assert_eq!((attempt(&held), patches(&stage)), (attempt(&before), patched));
    assert!(stage.running("v3.28.0") < 10);
    reverts(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_put_back_by_others_is_asserted_once_and_then_held_as_a_conflict() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = rolling_out(10).await;
    let back =
        |stage: &Stage| stage.cluster.model(|model| model.replace_images(&agent, "v3.28.0", "v3.27.2"));
    back(&stage);
    stage.until_so("it is asserted once", 2, |stage| stage.template_version() == "v3.28.0").await;
    back(&stage);
    let patched = patches(&stage);
    stage.pass(1800).await;
    let held = stage.status("calico").unwrap();
    assert!(says(&held, "Ready", Truth::False, "OwnershipConflict"), "{:#?}", held.conditions);
    assert_eq!((patches(&stage), stage.template_version()), (patched, "v3.27.2".to_owned()));
    reverts(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_strategy_set_back_by_others_is_set_once_more_and_then_held() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = rolling_out(10).await;
    stage.cluster.model(|model| model.set_strategy(&agent, Strategy::RollingUpdate));
    stage.until_so("it is set once more", 2, |stage| stage.daemon_set().strategy == Strategy::OnDelete).await;
    stage.cluster.model(|model| model.set_strategy(&agent, Strategy::RollingUpdate));
    let patched = patches(&stage);
    let held =
        stage.until("calico", 5, |status| says(status, "Ready", Truth::False, "OwnershipConflict")).await;
    let (_, _, message) = condition(&held, "Ready").unwrap();
    assert!(!message.is_empty());
    stage.pass(600).await;
    assert_eq!(patches(&stage), patched);
    reverts(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_fails_after_a_foreign_edit_puts_the_whole_template_back() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = observing(5).await;
    let good = stage.status("calico").unwrap().last_good.unwrap();
    stage.until_phase("calico", CniPhase::RollingOut, 40).await;
    let at = stage.clock.now();
    stage.cluster.model(|model| model.restart_rollout(&agent, at));
    stage.let_canaries_crash(5, "v3.28.0");
    stage.until("calico", 40, |status| status.phase == CniPhase::Failed).await;
    assert_eq!(
        (stage.running("v3.27.2"), Some(stage.daemon_set().template.digest)),
        (5, good.template_digest)
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_changed_by_others_after_completion_is_drift_and_is_told_and_left_alone() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = rolling_out(5).await;
    let done = stage.until_phase("calico", CniPhase::Completed, 20).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    let writes = stage.writes_to_the_agent();
    stage.cluster.model(|model| model.replace_images(&agent, "v3.28.0", "v3.27.2"));
    let drifted = stage.until("calico", 5, |status| says(status, "Ready", Truth::False, "Drifted")).await;
    assert_eq!((drifted.phase, attempt(&drifted)), (CniPhase::Completed, attempt(&done)));
    stage.pass(1800).await;
    assert_eq!((stage.writes_to_the_agent(), stage.running("v3.27.2"), stage.commits()), (writes, 5, 2));
    stage.cluster.model(|model| model.replace_images(&agent, "v3.27.2", "v3.28.0"));
    stage.until("calico", 10, |status| says(status, "Ready", Truth::True, "Completed")).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_its_owner_made_anew_on_the_old_version_is_held_and_never_asserted() {
    let agent = AgentKind::Calico.key();
    for canary in [true, false] {
        let (stage, before) = if canary { observing(10).await } else { rolling_out(10).await };
        stage.cluster.model(|model| model.make_agent_anew(&agent, "v3.28.0", "v3.27.2"));
        let patched = patches(&stage);
        let held =
            stage.until("calico", 5, |status| says(status, "Ready", Truth::False, "TemplateChanged")).await;
        assert!(waits(&held, "TemplateChanged"), "{:?}", held.waiting_for);
        stage.pass(3600).await;
        let held = stage.status("calico").unwrap();
        assert!(says(&held, "Ready", Truth::False, "TemplateChanged"), "{held:#?}");
        assert_eq!((attempt(&held), held.phase), (attempt(&before), before.phase));
        assert_eq!((patches(&stage), stage.running("v3.27.2")), (patched, 10));
        assert_eq!(held.nodes.failures, []);
        if canary {
            reverts(&stage).await;
            continue;
        }
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.1"))]);
        stage.until("calico", 40, |status| says(status, "Ready", Truth::True, "Completed")).await;
        assert_eq!(stage.running("v3.28.1"), 10);
        stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_token_gets_out_of_a_template_that_others_changed() {
    let agent = AgentKind::Calico.key();
    let (stage, before) = rolling_out(10).await;
    stage.cluster.model(|model| model.make_agent_anew(&agent, "v3.28.0", "v3.27.2"));
    stage.until("calico", 5, |status| waits(status, "TemplateChanged")).await;
    let again = slow().replace("name: calico\n", "name: calico\n  annotations: {trunkline.dev/retry: t1}\n");
    let asked = stage.remote.commit("main", &[("calico.yaml", &again)]);
    let second = stage.until("calico", 5, |status| attempt(status) != attempt(&before)).await;
    let cause = second.attempt.unwrap().revision.unwrap();
    assert!(cause.ends_with(&asked), "{cause} is not {asked}");
    stage.until("calico", 60, |status| says(status, "Ready", Truth::True, "Completed")).await;
    assert_eq!(stage.running("v3.28.0"), 10);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_gone_in_mid_rollout_needs_people_and_the_counts_are_told_as_of_before() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = rolling_out(10).await;
    stage.cluster.model(|model| model.delete_agent(&agent));
    let gone =
        stage.until("calico", 5, |status| says(status, "Stalled", Truth::True, "ProviderNotFound")).await;
    let (_, _, message) = condition(&gone, "Stalled").unwrap();
    let counts =
        format!("The counts in the status ({}) are of when it was last there", gone.progress.unwrap());
    assert!(message.contains(&counts) && message.contains("Create"), "{message}");
    assert!(!message.contains("by itself"), "what heals by itself is not stalled: {message}");
}

#[tokio::test(start_paused = true)]
async fn drift_to_an_image_without_a_version_names_the_image() {
    let agent = AgentKind::Calico.key();
    let (stage, _) = rolling_out(5).await;
    stage.until_phase("calico", CniPhase::Completed, 20).await;
    stage.until_so("the strategy is back", 5, Stage::strategy_is_back).await;
    stage.cluster.model(|model| model.replace_images(&agent, "v3.28.0", "nightly"));
    let drifted = stage.until("calico", 5, |status| says(status, "Ready", Truth::False, "Drifted")).await;
    let (_, _, message) = condition(&drifted, "Ready").unwrap();
    assert!(message.contains("calico/node:nightly"), "{message}");
}
