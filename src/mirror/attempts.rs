//! What statuses tell, folded into the ledger: attempts, quarantine, used tokens, rollbacks to record in Git.
//!
//! Each fact is taken once, when an attempt first shows up or its outcome first shows: the ledger remembers
//! both, so that looking again, a pruned list or an old status on another claim changes nothing.

use super::{
    MirrorCase, claims,
    ledger::{AttemptEntry, Ledger, ObjectEntry, RollbackEntry, RollbackState, TargetEntry},
    rollbacks,
};
use crate::{
    api::{
        ClaimKey, CniUpgradeStatus,
        names::WishHash,
        status::{Attempt, AttemptKind, Outcome, PastAttempt},
    },
    world::ClaimStatus,
};

/// Most attempts per target.
const ATTEMPTS: usize = 20;
/// Most quarantined wishes per target.
const QUARANTINE: usize = 50;
/// Most used tokens per target.
const TOKENS: usize = 100;
/// Most rollbacks per target.
const ROLLBACKS: usize = 20;

/// Folds the status of every claim of ours into its target's entry.
pub(super) fn fold(ledger: &mut Ledger, case: &MirrorCase<'_>) {
    for (key, entry) in &ledger.objects {
        let Some(seen) = case.world.claims.get(key) else { continue };
        let ClaimStatus::Cni(status) = &seen.is.status else { continue };
        let Some(attempt) = &status.attempt else { continue };
        if !claims::of_repository(&seen.is, &case.repo.name) {
            continue;
        }
        let target = ledger.targets.entry(entry.target.clone()).or_default();
        for past in &status.history {
            end_past(target, past);
        }
        if upsert(target, key, entry, attempt, status)
            && let Some(rollback) = due(target, key, entry, attempt, status)
            && case.repo.rollback_commit
        {
            push(&mut target.rollbacks, rollback, ROLLBACKS);
        }
    }
}

/// Notes an attempt as its status tells it; true when its outcome is news.
fn upsert(
    target: &mut TargetEntry,
    key: &ClaimKey,
    object: &ObjectEntry,
    attempt: &Attempt,
    status: &CniUpgradeStatus,
) -> bool {
    let full = target.attempts.len() >= ATTEMPTS;
    let place = match target.attempts.iter().position(|known| known.id == attempt.id) {
        Some(place) => place,
        None if full && target.attempts.iter().all(|known| attempt.number < known.number) => return false,
        None => {
            if let Some(token) = &attempt.retry_token
                && !target.tokens.contains(token)
            {
                push(&mut target.tokens, token.clone(), TOKENS);
            }
            let about = status.target_version.as_deref().unwrap_or_else(|| object.wished.about());
            target.attempts.push(AttemptEntry {
                id: attempt.id.clone(),
                number: attempt.number,
                kind: attempt.kind,
                claim: key.clone(),
                wish: attempt.wish.clone(),
                target_version: about.to_owned(),
                revision: attempt.revision.clone(),
                started_at: attempt.started_at,
                finished_at: None,
                outcome: None,
                reason: None,
            });
            target.attempts.sort_by_key(|known| known.number);
            let excess = target.attempts.len().saturating_sub(ATTEMPTS);
            target.attempts.drain(..excess);
            let Some(place) = target.attempts.iter().position(|known| known.id == attempt.id) else {
                return false;
            };
            place
        }
    };
    let Some(known) = target.attempts.get_mut(place) else { return false };
    known.finished_at = attempt.finished_at;
    if known.outcome == attempt.outcome {
        return false;
    }
    known.outcome = attempt.outcome;
    known.reason = status.rollback.as_ref().map(|rollback| rollback.reason.clone());
    if let Some(outcome) = attempt.outcome {
        note_outcome(target, &attempt.wish, attempt.kind, outcome);
    }
    true
}

/// Ends an attempt that was overtaken before its end was seen.
fn end_past(target: &mut TargetEntry, past: &PastAttempt) {
    let open = target.attempts.iter_mut().find(|known| known.id == past.id && known.outcome.is_none());
    let Some(known) = open else { return };
    known.outcome = Some(past.outcome);
    known.finished_at = Some(past.finished_at);
    known.reason.clone_from(&past.reason);
    let kind = known.kind;
    note_outcome(target, &past.wish, kind, past.outcome);
}

/// A wish that failed is quarantined; one that completed after all is not any more.
fn note_outcome(target: &mut TargetEntry, wish: &WishHash, kind: AttemptKind, outcome: Outcome) {
    match (outcome, kind) {
        (Outcome::RolledBack | Outcome::RollbackIncomplete, AttemptKind::Upgrade) => {
            if !target.quarantine.contains(wish) {
                push(&mut target.quarantine, wish.clone(), QUARANTINE);
            }
        }
        (Outcome::Completed | Outcome::AlreadyRuns | Outcome::CompletedWithFailures, _) => {
            target.quarantine.retain(|known| known != wish);
        }
        (
            Outcome::RolledBack
            | Outcome::RollbackIncomplete
            | Outcome::Returned
            | Outcome::Held
            | Outcome::Superseded
            | Outcome::Reverted,
            _,
        ) => {}
    }
}

/// The rollback to record in Git, if the attempt ended in one; at most one per attempt.
fn due(
    target: &TargetEntry,
    key: &ClaimKey,
    object: &ObjectEntry,
    attempt: &Attempt,
    status: &CniUpgradeStatus,
) -> Option<RollbackEntry> {
    let rolled_back = matches!(attempt.outcome, Some(Outcome::RolledBack | Outcome::RollbackIncomplete));
    let known = target.rollbacks.iter().any(|rollback| rollback.attempt == attempt.id);
    if !rolled_back || known || attempt.kind != AttemptKind::Upgrade {
        return None;
    }
    let (why, last_good) = (status.rollback.as_ref()?, status.last_good.as_ref()?);
    if why.commit.is_some() {
        return None;
    }
    let restored = rollbacks::restored(target, key, object, last_good);
    let (to_wish, written) = restored.unzip();
    let failed = target.wishes.iter().rev().find(|wish| wish.wish == attempt.wish && wish.claim == *key);
    let left = status.nodes.failures.iter().filter(|failure| failure.in_rollback);
    Some(RollbackEntry {
        attempt: attempt.id.clone(),
        claim: key.clone(),
        from: attempt.wish.clone(),
        from_version: status.target_version.clone().unwrap_or_else(|| object.wished.about().to_owned()),
        to_version: last_good.version.clone(),
        to: to_wish.as_ref().map(|wish| wish.on(target.provider.as_deref()).hash()),
        to_wish,
        written: written.unwrap_or_default(),
        reason: why.reason.clone(),
        evidence: why.evidence.clone(),
        left: left.map(|failure| failure.node.to_string()).collect(),
        introduced: failed.map(|wish| wish.introduced.clone()),
        others: failed.map(|wish| wish.others.clone()).unwrap_or_default(),
        at: attempt.finished_at.unwrap_or(why.at),
        state: RollbackState::Due,
    })
}

/// Appends to a bounded list; the oldest go first.
pub(super) fn push<T>(list: &mut Vec<T>, item: T, most: usize) {
    list.push(item);
    let excess = list.len().saturating_sub(most);
    list.drain(..excess);
}
