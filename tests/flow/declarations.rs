//! Declarations that do not act: kinds that are not built, providers that cannot be told, several for one target.

use std::collections::BTreeSet;

use trunkline::{
    api::{ClaimKey, CniUpgradeStatus, cni_upgrade::CniPhase, status::Truth},
    sim::model::{
        actors::claim_ref,
        body::Body,
        cluster::{AgentKind, ClusterSpec},
    },
};

use super::{
    look::{STATUS, attempt, condition, says},
    manifests::{and, calico, upgrade},
    stage::Stage,
};
use crate::git::bare::Entry;

const SERVICE: &str = include_str!("../golden/inputs/service_upgrade.yaml");

fn refused(status: &CniUpgradeStatus, reason: &str) -> bool {
    status.phase == CniPhase::Pending
        && says(status, "Stalled", Truth::True, reason)
        && says(status, "Ready", Truth::False, reason)
}

#[tokio::test(start_paused = true)]
async fn a_service_upgrade_is_mirrored_and_says_that_it_is_not_supported() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("web.yaml", SERVICE)]);
    let claim = ClaimKey::service("default", "web-svc-upgrade");
    let says = |stage: &Stage| {
        let stored = stage.cluster.model(|model| model.get(&claim_ref(&claim)).cloned());
        let Some(Body::Plain(plain)) = stored.map(|stored| stored.body.clone()) else { return false };
        let text = plain.status.map(|status| status.to_string()).unwrap_or_default();
        plain.content["spec"]["serviceName"] == "web-service" && text.contains("NotSupported")
    };
    stage.until_so("it says so", 5, says).await;
    let told = |stage: &Stage| {
        let file = stage.told("ServiceUpgrade/default/web-svc-upgrade.yaml");
        file.contains("NotSupported")
    };
    stage.until_so("Git says so", 5, told).await;
    stage.remote.commit_entries("main", &[("web.yaml", Entry::Gone)]);
    stage.until_so("it goes with its manifest", 5, |stage| !stage.exists(&claim)).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_not_there_is_waited_for_and_then_it_goes_on() {
    let spec = ClusterSpec { agent: AgentKind::Flannel, version: "v0.25.1".to_owned(), ..Stage::spec(3) };
    let stage = Stage::of(&spec, None);
    stage.engine();
    stage.pass(60).await;
    let manifest = and(&calico("v3.28.0"), "provider: calico");
    stage.remote.commit("main", &[("calico.yaml", &manifest)]);
    let status = stage.until("calico", 5, |status| refused(status, "ProviderNotFound")).await;
    let (_, _, message) = condition(&status, "Stalled").unwrap();
    assert!(message.contains("calico-node"), "{message}");
    stage.pass(1800).await;
    stage.cluster.model(|model| AgentKind::Calico.install(model, "v3.28.0"));
    let done = stage.until_phase("calico", CniPhase::Completed, 10).await;
    assert!(says(&done, "Ready", Truth::True, "AlreadyRuns"));
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn several_providers_are_ambiguous_until_one_is_named() {
    let stage = Stage::new(3);
    stage.cluster.model(|model| AgentKind::Flannel.install(model, "v0.25.1"));
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let status = stage.until("calico", 5, |status| refused(status, "ProviderAmbiguous")).await;
    let (_, _, message) = condition(&status, "Stalled").unwrap();
    assert!(message.contains("calico-node") && message.contains("kube-flannel-ds"), "{message}");
    stage.pass(600).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    stage.remote.commit("main", &[("calico.yaml", &and(&calico("v3.28.0"), "provider: calico"))]);
    stage.until_phase("calico", CniPhase::Completed, 30).await;
    assert_eq!(stage.running("v3.28.0"), 3);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_provider_is_refused_with_the_nearest_name() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &and(&calico("v3.28.0"), "provider: calicoo"))]);
    let status = stage.until("calico", 5, |status| refused(status, "ProviderUnknown")).await;
    let (_, _, message) = condition(&status, "Stalled").unwrap();
    assert!(message.contains("\"calico\" is the nearest name"), "{message}");
    stage.pass(600).await;
    assert_eq!((stage.writes_to_the_agent(), stage.commits()), (Vec::new(), 1));
    stage.remote.commit("main", &[("calico.yaml", &and(&calico("v3.28.0"), "provider: calico"))]);
    stage.until_phase("calico", CniPhase::Completed, 30).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_declaration_for_a_target_is_ambiguous_until_the_first_is_removed() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("c-327.yaml", &upgrade("c-327", "v3.27.2"))]);
    let first = stage.until_phase("c-327", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("c-328.yaml", &upgrade("c-328", "v3.28.0"))]);
    let second = stage.until("c-328", 5, |status| refused(status, "Ambiguous")).await;
    let (_, _, message) = condition(&second, "Stalled").unwrap();
    assert!(message.contains("CNIUpgrade/c-327"), "{message}");
    stage.pass(1800).await;
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    let still = stage.status("c-327").unwrap();
    assert!(says(&still, "InForce", Truth::True, "InForce") && attempt(&still) == attempt(&first));
    stage.remote.commit_entries("main", &[("c-327.yaml", Entry::Gone)]);
    stage.until_so("the first goes", 5, |stage| !stage.exists(&ClaimKey::cni("c-327"))).await;
    let done = stage.until_phase("c-328", CniPhase::Completed, 30).await;
    assert!(says(&done, "InForce", Truth::True, "InForce"));
    assert_eq!((stage.running("v3.28.0"), attempt(&done).1), (3, attempt(&first).1 + 1));
}

#[tokio::test(start_paused = true)]
async fn a_declaration_that_waits_for_a_removed_one_to_return_names_it_and_acts_then() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until_phase("calico", CniPhase::Canary, 5).await;
    let renamed = upgrade("renamed", "v3.28.0");
    stage.remote.commit("main", &[("calico.yaml", &renamed)]);
    let second = stage.until("renamed", 5, |status| refused(status, "Ambiguous")).await;
    let (_, _, message) = condition(&second, "Stalled").unwrap();
    assert!(message.contains("CNIUpgrade/calico"), "{message}");
    stage.until_phase("renamed", CniPhase::Completed, 30).await;
    assert!(!stage.exists(&ClaimKey::cni("calico")));
}

#[tokio::test(start_paused = true)]
async fn one_key_in_two_files_is_a_problem_and_the_accepted_form_stays() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    let before = stage.until_phase("calico", CniPhase::Completed, 5).await;
    stage.remote.commit("main", &[("copy.yaml", &calico("v3.28.0"))]);
    let told = |stage: &Stage| {
        let page = stage.told("problems.yaml");
        page.contains("copy.yaml") && page.contains("calico.yaml")
    };
    stage.until_so("both places are told", 5, told).await;
    stage.pass(600).await;
    assert_eq!(attempt(&stage.status("calico").unwrap()), attempt(&before));
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
    stage.remote.commit_entries("main", &[("calico.yaml", Entry::Gone)]);
    stage.until_so("the copy is followed", 30, |stage| stage.running("v3.28.0") == 3).await;
    let versions: BTreeSet<String> = stage.versions().into_values().collect();
    assert_eq!(versions, BTreeSet::from(["v3.28.0".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_runs_already_is_completed_once_it_can_be_told_with_its_counts() {
    let spec = ClusterSpec { agent: AgentKind::Flannel, version: "v0.25.1".to_owned(), ..Stage::spec(3) };
    let stage = Stage::of(&spec, None);
    stage.engine();
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &and(&calico("v3.28.0"), "provider: calico"))]);
    stage.until("calico", 5, |status| refused(status, "ProviderNotFound")).await;
    stage.cluster.model(|model| AgentKind::Calico.install(model, "v3.28.0"));
    let done = stage.until_phase("calico", CniPhase::Completed, 10).await;
    assert_eq!(done.progress.as_deref(), Some("3/3"));
    stage.pass(600).await;
    let subjects: Vec<String> =
        stage.remote.log(STATUS).iter().map(|commit| stage.remote.message(commit)).collect();
    let told: Vec<&str> = subjects
        .iter()
        .filter_map(|message| message.lines().next())
        .filter(|line| line.contains("Completed"))
        .collect();
    assert_eq!(told, ["CNIUpgrade/calico: Completed 3/3 on v3.28.0"]);
    assert_eq!(stage.writes_to_the_agent(), [""; 0]);
}
