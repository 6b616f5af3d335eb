//! Every write: one file per effect, each with a precondition, a deadline and a typed end.
//!
//! Guarantees: nothing is forced and nothing applied server-side; an answer is projected by the same functions as a
//! watch event; after a conflict or an unknown end the object is read again, so that the next decision sees it.

mod claim;
mod cluster;
mod create_claim;
mod delete_claim;
mod delete_pod;
mod dry_run_template;
mod forget_attempt;
mod git;
mod patch_template;
mod push_rollback;
mod push_status;
mod record_attempt;
mod record_event;
mod release_claim;
mod replace_claim;
mod restore_strategy;
mod restore_template;
mod store;
mod template;
mod write_ledger;
mod write_status;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::Client;

pub use git::{GitPort, Push, PushKind};

use crate::{
    api::names::{RepoName, Uid},
    clock::{Clock, later},
    observe::store::ledger_name,
    rollout::effect::{Effect, EffectOutcome, RejectionKind, StatusWrite},
    world::{ObjectId, Observation},
};
use cluster::{Cluster, Ended, Failure, Performed};

/// How long the read after an uncertain end may take.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The right to write, until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// Epoch of the writer.
    pub epoch: i64,
    /// No request of the effect is waited for after this, and no push begins.
    pub until: Timestamp,
}

/// What effects write to.
#[derive(Clone)]
pub struct Ports {
    /// The cluster.
    pub kube: Client,
    /// Namespace of our stores.
    pub namespace: String,
    /// Repositories.
    pub git: BTreeMap<RepoName, GitPort>,
    /// Time.
    pub clock: Clock,
}

/// Performs an effect and tells how it ended and what was seen.
pub async fn perform(effect: &Effect, permit: Permit, ports: &Ports) -> (EffectOutcome, Vec<Observation>) {
    match effect {
        Effect::PushStatus { repo, commit } => match ports.git.get(repo) {
            Some(git) => push_status::perform(git, commit, permit).await,
            None => no_repository(repo),
        },
        Effect::PushRollback { repo, attempt, commit, head: _ } => match ports.git.get(repo) {
            Some(git) => push_rollback::perform(git, attempt, commit, permit).await,
            None => no_repository(repo),
        },
        effect => in_cluster(effect, permit, ports).await,
    }
}

fn no_repository(repo: &RepoName) -> (EffectOutcome, Vec<Observation>) {
    (EffectOutcome::Unknown(format!("the configuration names no repository `{repo}`")), Vec::new())
}

async fn in_cluster(effect: &Effect, permit: Permit, ports: &Ports) -> (EffectOutcome, Vec<Observation>) {
    let cluster =
        Cluster { kube: &ports.kube, clock: ports.clock, until: permit.until, namespace: &ports.namespace };
    let outcome = match write(effect, &cluster).await {
        Ok(Ended::Done(seen)) => return (EffectOutcome::Done, seen),
        Ok(Ended::Moot(seen)) => return (EffectOutcome::Moot, seen),
        Err(Failure::No(no)) => EffectOutcome::Rejected(no),
        Err(Failure::Unknown(why)) => EffectOutcome::Unknown(why),
    };
    let stale = match &outcome {
        EffectOutcome::Rejected(no) => {
            matches!(no.kind, RejectionKind::Conflict | RejectionKind::NotFound)
        }
        EffectOutcome::Unknown(_) => true,
        EffectOutcome::Done | EffectOutcome::Moot => false,
    };
    let Some((id, uid)) = subject(effect, &ports.namespace).filter(|_| stale) else {
        return (outcome, Vec::new());
    };
    let until = later(ports.clock.now(), READ_LIMIT);
    let seen = Cluster { until, ..cluster }.look(&id, uid.as_ref()).await;
    (outcome, seen)
}

async fn write(effect: &Effect, cluster: &Cluster<'_>) -> Performed {
    match effect {
        Effect::WriteLedger { seen, ledger } => write_ledger::perform(cluster, seen.as_ref(), ledger).await,
        Effect::CreateClaim { claim, spec, annotations } => {
            create_claim::perform(cluster, claim, spec, annotations).await
        }
        Effect::ReplaceClaim { claim, uid, rv, spec, annotations, finalizer } => {
            replace_claim::perform(cluster, claim, (uid, *rv), spec, annotations, *finalizer).await
        }
        Effect::DeleteClaim { claim, uid } => delete_claim::perform(cluster, claim, uid).await,
        Effect::ReleaseClaim { claim, uid, rv } => release_claim::perform(cluster, claim, uid, *rv).await,
        Effect::WriteStatus(write) => write_status::perform(cluster, write).await,
        Effect::RecordAttempt { name, seen, record } => {
            record_attempt::perform(cluster, name, seen.as_ref(), record).await
        }
        Effect::ForgetAttempt { name, uid } => forget_attempt::perform(cluster, name, uid).await,
        Effect::DryRunTemplate { agent, uid, rv, images } => {
            dry_run_template::perform(cluster, agent, (uid, *rv), images).await
        }
        Effect::PatchTemplate { agent, uid, rv, remember, images } => {
            patch_template::perform(cluster, agent, (uid, *rv), *remember, images).await
        }
        Effect::RestoreTemplate { agent, uid, rv, remember, template } => {
            restore_template::perform(cluster, agent, (uid, *rv), *remember, template).await
        }
        Effect::RestoreStrategy { agent, uid, rv, strategy } => {
            restore_strategy::perform(cluster, agent, (uid, *rv), *strategy).await
        }
        Effect::DeletePod { pod, uid } => delete_pod::perform(cluster, pod, uid).await,
        Effect::RecordEvent { claim, uid, event } => record_event::perform(cluster, claim, uid, event).await,
        // Pushes go to the Git worker, before this function.
        Effect::PushStatus { .. } | Effect::PushRollback { .. } => Ok(Ended::Moot(Vec::new())),
    }
}

/// The object that an effect writes, and its UID where it is known.
fn subject(effect: &Effect, namespace: &str) -> Option<(ObjectId, Option<Uid>)> {
    let store = |name: &str| ObjectId::Store(namespace.to_owned(), name.to_owned());
    let seen_uid = |seen: &Option<(Uid, _)>| seen.as_ref().map(|(uid, _)| uid.clone());
    Some(match effect {
        Effect::WriteLedger { seen, ledger } => (store(&ledger_name(&ledger.repository)), seen_uid(seen)),
        Effect::RecordAttempt { name, seen, .. } => (store(name), seen_uid(seen)),
        Effect::ForgetAttempt { name, uid } => (store(name), Some(uid.clone())),
        Effect::CreateClaim { claim, .. } => (ObjectId::Claim(claim.clone()), None),
        Effect::ReplaceClaim { claim, uid, .. }
        | Effect::DeleteClaim { claim, uid }
        | Effect::ReleaseClaim { claim, uid, .. }
        | Effect::WriteStatus(StatusWrite { claim, uid, .. }) => {
            (ObjectId::Claim(claim.clone()), Some(uid.clone()))
        }
        Effect::DryRunTemplate { agent, uid, .. }
        | Effect::PatchTemplate { agent, uid, .. }
        | Effect::RestoreTemplate { agent, uid, .. }
        | Effect::RestoreStrategy { agent, uid, .. } => (ObjectId::Agent(agent.clone()), Some(uid.clone())),
        Effect::DeletePod { pod, uid } => (ObjectId::Pod(pod.clone()), Some(uid.clone())),
        Effect::PushStatus { .. } | Effect::PushRollback { .. } | Effect::RecordEvent { .. } => return None,
    })
}
