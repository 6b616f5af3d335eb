//! What a run leaves behind, without the times in it.

use std::collections::{BTreeMap, BTreeSet};

use trunkline::{
    api::names::{NodeName, REVISION_HASH},
    git::bare,
    mirror::ledger::RollbackState,
    sim::model::{
        body::Body,
        store::{Kind, ObjRef},
    },
    world::AgentKey,
};

use super::story::ledger;
use crate::flow::stage::Stage;

const STATUS: &str = "trunkline/status/prod";
const PHASES: [&str; 6] = ["Pending", "Canary", "RollingOut", "Completed", "Rollback", "Failed"];

/// Everything that must not depend on when an engine died.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    agent: String,
    /// Revision and readiness of the agent on every node.
    pods: BTreeMap<String, (String, String)>,
    phase: String,
    counts: (i32, i32, i32),
    failed: BTreeSet<NodeName>,
    conditions: Vec<String>,
    transitions: Vec<(i64, String)>,
    attempts: Vec<String>,
    ledger: Vec<String>,
    records: Vec<String>,
    main: Vec<String>,
    file: Option<(i32, String)>,
    /// Phases that commits of the status branch tell of, oldest first.
    told: Vec<String>,
}

/// Looks at everything, and at whether the parts agree.
pub(crate) fn of(stage: &Stage) -> Result<End, String> {
    let status = stage.status("calico").ok_or("there is no status")?;
    let main = bare::log(stage.remote.path(), "main", 50).map_err(|error| error.to_string())?;
    let told = bare::log(stage.remote.path(), STATUS, 500).map_err(|error| error.to_string())?;
    let subject = |message: &str| message.lines().next().unwrap_or_default().to_owned();
    let phase = |message: &str| {
        let last = subject(message).rsplit(": ").next().unwrap_or_default().to_owned();
        PHASES.contains(&last.as_str()).then_some(last)
    };
    let ledger = ledger(stage).ok_or("there is no ledger")?;
    if ledger.accepted.as_ref() != main.first().map(|commit| &commit.oid) {
        return Err(format!("the ledger accepted {:?}, main is at {:?}", ledger.accepted, main.first()));
    }
    let (agent, pods) = cluster(stage);
    let said = status.conditions.iter().map(|one| format!("{} {:?} {}", one.r#type, one.status, one.reason));
    let past = status.history.iter().map(|past| format!("{} {:?}", past.number, past.outcome));
    let last = status.attempt.iter().map(|attempt| format!("{} {:?}", attempt.number, attempt.outcome));
    let kept = ledger.targets.iter().flat_map(|(target, entry)| {
        let attempts = entry.attempts.iter().map(|attempt| {
            format!("{} {:?} {} {:?}", attempt.number, attempt.kind, attempt.target_version, attempt.outcome)
        });
        let rollbacks = entry.rollbacks.iter().map(|rollback| {
            let state = match &rollback.state {
                RollbackState::Due => "due".to_owned(),
                RollbackState::Moot => "moot".to_owned(),
                RollbackState::Recorded(oid) => {
                    let on_main = main.iter().filter(|commit| commit.oid == *oid).count();
                    format!("recorded, {on_main} times on main")
                }
            };
            format!("rollback to {} {state}", rollback.to_version)
        });
        let first = format!("{target}: {:?}, quarantine {:?}", entry.in_force, entry.quarantine);
        std::iter::once(first).chain(attempts).chain(rollbacks).collect::<Vec<_>>()
    });
    let standing = ledger.objects.iter().map(|(claim, entry)| format!("{claim} {:?}", entry.standing));
    Ok(End {
        agent,
        pods,
        phase: status.phase.as_str().to_owned(),
        counts: (status.upgraded_nodes, status.failed_nodes, status.remaining_nodes),
        failed: status.nodes.failures.iter().map(|failure| failure.node.clone()).collect(),
        conditions: said.collect(),
        transitions: status.transitions.iter().map(|one| (one.attempt, one.phase.clone())).collect(),
        attempts: past.chain(last).collect(),
        ledger: kept.chain(standing).collect(),
        records: records(stage),
        main: main.iter().map(|commit| subject(&commit.message)).collect(),
        file: stage.remote.file("main", "calico.yaml"),
        told: told.iter().rev().filter_map(|commit| phase(&commit.message)).collect(),
    })
}

fn cluster(stage: &Stage) -> (String, BTreeMap<String, (String, String)>) {
    let key = AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() };
    stage.cluster.model(|model| {
        let found = model.get(&ObjRef::new(Kind::DaemonSet, key.namespace, key.name)).unwrap();
        let Body::DaemonSet(body) = &found.body else { panic!("the agent is no DaemonSet") };
        let agent = format!(
            "{} {:?} {:?} {:?}",
            body.template.digest, body.strategy, body.rolling_update, found.meta.annotations
        );
        let pods = model.list(Kind::Pod, Some("kube-system")).filter_map(|pod| {
            let Body::Pod(body) = &pod.body else { return None };
            let revision = pod.meta.labels.get(REVISION_HASH).cloned().unwrap_or_default();
            Some((body.node.as_deref()?.to_owned(), (revision, format!("ready {:?}", body.ready.status))))
        });
        (agent, pods.collect())
    })
}

/// Names of the attempt records that are left.
fn records(stage: &Stage) -> Vec<String> {
    stage.cluster.model(|model| {
        let maps = model.list(Kind::ConfigMap, Some("trunkline-system"));
        maps.map(|map| map.at.name.to_string()).collect()
    })
}
