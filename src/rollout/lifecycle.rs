//! Which course a declaration in force takes: go on, start, return, or rest. The phases of both kinds hang on this.
//!
//! ```text
//! Pending ─► Canary ─► RollingOut ─► Completed        forward
//!    └──────────┴───────────┴──► Rollback ─► Failed   a failed verdict, put back
//!               └───────────┴──► Failed               a failed verdict, held (`autoRollback: false`)
//! any ─► Rollback ─► Completed                        a return to last good
//! any ─► Pending                                      a newer wish, or a retry
//! ```

use std::time::Duration;

use jiff::Timestamp;

use super::observed::later;
use crate::{
    api::{
        CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{AttemptId, Uid, WishHash},
        status::{Attempt, AttemptKind, Outcome},
    },
    mirror::ledger::{ObjectEntry, TargetEntry},
    world::digest,
};

/// What to do about the declaration in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Course {
    /// Go on with the present attempt, or rest where it ended.
    Continue,
    /// Start an attempt forward.
    Start,
    /// Start an attempt back to last good.
    Return,
    /// The removed declaration never acted: the attempt just ends.
    End,
    /// The wish failed here before and carries no fresh token.
    Quarantined,
}

/// Chooses the course from what is stored, what is wanted, and the time.
pub fn course(
    status: &CniUpgradeStatus,
    entry: &ObjectEntry,
    target: &TargetEntry,
    revert_window: Duration,
    now: Timestamp,
) -> Course {
    let Some(attempt) = &status.attempt else {
        return if entry.removed.is_some() { Course::Continue } else { start(entry, target, None) };
    };
    if entry.removed.is_some() {
        return removed(status, attempt);
    }
    let same = attempt.wish == entry.wish;
    let back = status.last_good.as_ref().is_some_and(|good| good.wish == entry.wish);
    match attempt.outcome {
        None if same => Course::Continue,
        None if failing(status, attempt) && back => Course::Continue,
        None if back => Course::Return,
        None => match start(entry, target, Some(attempt)) {
            // What is under way is no longer declared, and what is declared failed here before: back.
            Course::Quarantined if failing(status, attempt) || attempt.kind == AttemptKind::Return => {
                Course::Continue
            }
            Course::Quarantined if status.last_good.is_some() => Course::Return,
            course => course,
        },
        Some(
            Outcome::Completed | Outcome::CompletedWithFailures | Outcome::AlreadyRuns | Outcome::Returned,
        ) if same => Course::Continue,
        Some(Outcome::Completed | Outcome::CompletedWithFailures)
            if back && attempt.kind == AttemptKind::Upgrade && within(attempt, revert_window, now) =>
        {
            Course::Return
        }
        Some(Outcome::RolledBack | Outcome::RollbackIncomplete | Outcome::Held) if same => {
            if fresh_token(entry, target, Some(attempt)) { Course::Start } else { Course::Continue }
        }
        Some(Outcome::RolledBack) if back => Course::Continue,
        Some(Outcome::RollbackIncomplete) if back => {
            if fresh_token(entry, target, Some(attempt)) {
                Course::Return
            } else {
                Course::Continue
            }
        }
        Some(Outcome::Held) if back => Course::Return,
        Some(
            Outcome::Completed
            | Outcome::CompletedWithFailures
            | Outcome::AlreadyRuns
            | Outcome::Returned
            | Outcome::RolledBack
            | Outcome::RollbackIncomplete
            | Outcome::Held
            | Outcome::Superseded
            | Outcome::Reverted,
        ) => start(entry, target, Some(attempt)),
    }
}

fn removed(status: &CniUpgradeStatus, attempt: &Attempt) -> Course {
    match attempt.kind {
        // Held is not ended: its nodes still run what the removal takes back.
        AttemptKind::Upgrade if attempt.outcome == Some(Outcome::Held) => Course::Return,
        AttemptKind::Upgrade if attempt.outcome.is_some() || failing(status, attempt) => Course::Continue,
        AttemptKind::Upgrade if status.last_good.is_none() => Course::End,
        AttemptKind::Upgrade => Course::Return,
        AttemptKind::Return => Course::Continue,
    }
}

/// A failed verdict is being put back.
fn failing(status: &CniUpgradeStatus, attempt: &Attempt) -> bool {
    status.phase == CniPhase::Rollback && attempt.kind == AttemptKind::Upgrade
}

fn within(attempt: &Attempt, window: Duration, now: Timestamp) -> bool {
    let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
    attempt.finished_at.is_some_and(|at| now <= later(at, seconds))
}

fn start(entry: &ObjectEntry, target: &TargetEntry, attempt: Option<&Attempt>) -> Course {
    if target.quarantine.contains(&entry.wish) && !fresh_token(entry, target, attempt) {
        Course::Quarantined
    } else {
        Course::Start
    }
}

/// Whether the manifest carries a retry token that no attempt used.
pub fn fresh_token(entry: &ObjectEntry, target: &TargetEntry, attempt: Option<&Attempt>) -> bool {
    entry.token.as_ref().is_some_and(|token| {
        !target.tokens.contains(token) && attempt.and_then(|a| a.retry_token.as_ref()) != Some(token)
    })
}

/// Id of an attempt: a hash of target UID, number, wish and retry token.
pub fn attempt_id(target: &Uid, number: i64, wish: &WishHash, token: Option<&str>) -> AttemptId {
    let text = format!("{target}\n{number}\n{wish}\n{}", token.unwrap_or_default());
    let hex = digest::hex(text.as_bytes());
    AttemptId::new(hex.get(..16).unwrap_or(&hex))
}

/// Whether the machine may go from one phase to another (I11).
pub const fn edge(from: CniPhase, to: CniPhase) -> bool {
    matches!(
        (from, to),
        (_, CniPhase::Pending | CniPhase::Rollback)
            | (CniPhase::Pending, CniPhase::Canary)
            | (CniPhase::Pending | CniPhase::Canary, CniPhase::RollingOut)
            | (CniPhase::Pending | CniPhase::RollingOut | CniPhase::Rollback, CniPhase::Completed)
            | (CniPhase::Canary | CniPhase::RollingOut | CniPhase::Rollback, CniPhase::Failed)
    )
}

#[cfg(test)]
mod tests;
