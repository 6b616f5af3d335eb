//! What a repository should say, minus what it says: the next status commit, and the rollback commits that
//! are due.
//!
//! Guarantees: at most one status commit is wanted at a time, the next in order; at most one rollback commit
//! per attempt; nothing under a name that another cluster publishes under. Commits are functions of what was
//! seen, so a repeated push makes the same commit.
//!
//! A status branch that vanished is pushed again from the last tip that the clone knows; without a clone it starts anew
//! with the phases that the custom resources still know.

mod condition;
mod rollback;
mod status;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use condition::git_published;

use crate::{
    api::{names::AttemptId, reasons::Reason},
    config::{Config, Repository},
    manifest::yaml,
    mirror::ledger::Ledger,
    rollout::{
        Decision, Now,
        effect::{EffectId, RejectionKind, StepName},
        waiting::{Refusal, Waiting},
    },
    world::{
        Key, World,
        git::{Descent, GitSeen, Refused, StatusBranch},
    },
};

/// Shortest time between two commits on one branch, and before a push that found its branch moved is made
/// again.
const APART: SignedDuration = SignedDuration::from_secs(1);
/// First wait after a refused push; it doubles with each refusal.
const BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Longest wait after a refused push.
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);
/// File of the status branch that says whose it is.
const CLUSTER_FILE: &str = "cluster.yaml";

/// What a decision about one repository looks at.
#[derive(Debug, Clone, Copy)]
pub struct PublishCase<'w> {
    /// The repository.
    pub repo: &'w Repository,
    /// Everything seen.
    pub world: &'w World,
    /// The configuration.
    pub config: &'w Config,
}

/// Content of `cluster.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClusterFile {
    cluster: String,
    uid: String,
}

/// What there is to publish from, once ledger and repository were read.
struct View<'w> {
    case: PublishCase<'w>,
    ledger: &'w Ledger,
    git: &'w GitSeen,
}

/// Decides what to push to one repository. Total: any world and any time give a decision.
pub fn publish(case: &PublishCase<'_>, now: Now) -> Decision {
    let mut decision = Decision::default();
    let Some(view) = View::of(*case) else { return decision };
    if let Some(uid) = view.taken() {
        decision.refusals.push(Refusal::ClusterNameTaken { cluster: case.config.cluster.clone(), uid });
        return decision;
    }
    // The next look that succeeds brings this repository back here.
    if view.git.trouble.is_some() {
        return decision;
    }
    status::want(&view, now.at, &mut decision);
    rollback::want(&view, now.at, &mut decision);
    decision
}

impl<'w> View<'w> {
    fn of(case: PublishCase<'w>) -> Option<Self> {
        let ledger = case.world.ledgers.get(&case.repo.name)?.is.as_ref().ok()?;
        let git = case.world.git.get(&case.repo.name)?;
        Some(Self { case, ledger, git })
    }

    fn branch(&self) -> String {
        Repository::status_branch_name(&self.case.config.cluster)
    }

    /// The status branch, where one is written and it was read.
    fn status_branch(&self) -> Option<&'w StatusBranch> {
        self.git.status.as_ref().filter(|_| self.case.repo.status_branch)
    }

    /// UID of another cluster that publishes under this name.
    fn taken(&self) -> Option<String> {
        let file = self.status_branch()?.files.get(CLUSTER_FILE)?;
        let file: ClusterFile = yaml::typed(std::str::from_utf8(&file.bytes).ok()?).ok()?;
        (file.uid != self.case.config.cluster_uid).then_some(file.uid)
    }

    /// Whether the tracked branch does not descend from what was accepted.
    fn rewritten(&self) -> bool {
        let tracked = self.git.tracked.as_ref();
        tracked.is_some_and(|tracked| tracked.descent == Descent::Rewritten)
            || self.ledger.states.iter().any(|state| state.reason == Reason::HistoryRewritten.as_str())
    }

    fn effect(&self, step: StepName, attempt: Option<AttemptId>, unit: String) -> EffectId {
        EffectId { key: Key::Publish(self.case.repo.name.clone()), attempt, step, unit }
    }

    /// Until when a push is not made again after the last no, and that no.
    fn hold(&self, id: &EffectId, refused: Option<&Refused>) -> Option<(Timestamp, String)> {
        if let Some(refused) = refused {
            return Some((retry_at(refused), refused.message.clone()));
        }
        let (rejection, at) = self.case.world.rejections.get(id)?;
        let wait = match rejection.kind {
            RejectionKind::RefMoved | RejectionKind::Conflict => APART,
            RejectionKind::NotFound
            | RejectionKind::Forbidden
            | RejectionKind::Invalid
            | RejectionKind::Unavailable
            | RejectionKind::PushRefused => BACKOFF,
        };
        Some((at.saturating_add(wait).unwrap_or(*at), rejection.message.clone()))
    }
}

/// When a refused push is made again.
fn retry_at(refused: &Refused) -> Timestamp {
    let doubled = 1_i32.checked_shl(refused.count.saturating_sub(1).min(16)).unwrap_or(i32::MAX);
    let wait = BACKOFF.saturating_mul(doubled).min(LONGEST_BACKOFF);
    refused.at.saturating_add(wait).unwrap_or(refused.at)
}

/// Whether a push has to wait; if so, says why and when to look again.
fn held(decision: &mut Decision, what: &str, hold: Option<(Timestamp, String)>, now: Timestamp) -> bool {
    let Some((until, message)) = hold.filter(|(until, _)| *until > now) else { return false };
    decision.waiting.push(Waiting::Rejected { effect: what.to_owned(), message, until });
    look_again(decision, until, now);
    true
}

fn look_again(decision: &mut Decision, at: Timestamp, now: Timestamp) {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    decision.recheck = Some(decision.recheck.map_or(left, |earlier| earlier.min(left)));
}

/// Git keeps whole seconds.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests;
