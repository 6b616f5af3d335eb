//! Custom resources against the ledger: what to create, put right, delete and release.
//!
//! Status is never written here, and what is not ours is never touched.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{
    MirrorCase,
    ledger::{AttemptEntry, Ledger, ObjectEntry},
    readings::Readings,
};
use crate::{
    api::{
        ClaimKey,
        names::{AttemptId, HOLD, PATH, REPOSITORY, RETRY, REVISION, RepoName, WISH},
        status::Outcome,
    },
    manifest::Declaration,
    rollout::effect::{Effect, StepName},
    world::{Claim, ClaimStatus, Record, Seen, World, digest},
};

/// One write that the pass wants: its name, what it is done to, and the write.
pub(super) type Write = (StepName, String, Effect);

/// Whether a custom resource was made for a declaration of this repository.
pub(super) fn of_repository(claim: &Claim, repo: &RepoName) -> bool {
    claim.annotations.get(REPOSITORY).is_some_and(|name| name == repo.as_str())
}

/// Whether it may be written: made by us, and nobody else says that it is theirs.
///
/// Our finalizer tells that we made it, also where an edit took the name of the repository off or wrote one that this
/// cluster does not follow.
fn ours(claim: &Claim, case: &MirrorCase<'_>) -> bool {
    let named = claim.annotations.get(REPOSITORY);
    let followed =
        case.config.repositories.iter().any(|other| Some(other.name.as_str()) == named.map(String::as_str));
    (of_repository(claim, &case.repo.name) || (claim.finalizer && !followed)) && !claim.foreign
}

/// Whether an attempt of an object is under way, or holds nodes that were not put back.
///
/// The status tells; where it does not, as after the custom resource was lost, the ledger does.
pub(super) fn unfinished(ledger: &Ledger, world: &World, key: &ClaimKey) -> bool {
    let ours = world.claims.get(key).filter(|seen| of_repository(&seen.is, &ledger.repository));
    if let Some(seen) = ours
        && let ClaimStatus::Cni(status) = &seen.is.status
        && let Some(attempt) = &status.attempt
    {
        return attempt.finished_at.is_none() || attempt.outcome == Some(Outcome::Held);
    }
    ledger.last_attempt(key).is_some_and(|attempt| !has_ended(attempt))
}

fn has_ended(attempt: &AttemptEntry) -> bool {
    attempt.finished_at.is_some() && attempt.outcome != Some(Outcome::Held)
}

/// Takes objects out of the ledger that were removed in Git and whose custom resource is gone or not ours.
pub(super) fn drop_gone(ledger: &mut Ledger, case: &MirrorCase<'_>) {
    let gone: Vec<ClaimKey> = ledger
        .objects
        .iter()
        .filter(|(_, entry)| entry.removed.is_some())
        .filter(|(key, _)| {
            case.world
                .claims
                .get(key)
                .is_none_or(|seen| !ours(&seen.is, case) && !unfinished(ledger, case.world, key))
        })
        .map(|(key, _)| key.clone())
        .collect();
    for key in gone {
        ledger.objects.remove(&key);
    }
}

/// Notes the brake on every custom resource of ours: whoever pulled it means the object, not the resource.
pub(super) fn note_holds(ledger: &mut Ledger, case: &MirrorCase<'_>) {
    for (key, entry) in &mut ledger.objects {
        let seen = case.world.claims.get(key);
        if let Some(seen) = seen.filter(|seen| of_repository(&seen.is, &case.repo.name)) {
            entry.hold = seen.is.hold.as_ref().map(|hold| hold.reason.clone());
        }
    }
}

/// Writes that bring the custom resources to what the ledger says.
pub(super) fn writes(ledger: &Ledger, case: &MirrorCase<'_>, readings: Option<&Readings>) -> Vec<Write> {
    let mut writes = Vec::new();
    for (key, entry) in &ledger.objects {
        let seen = case.world.claims.get(key);
        if entry.removed.is_some() {
            writes.extend(seen.and_then(|seen| end(ledger, case, key, seen)));
            continue;
        }
        let declaration = readings.and_then(|readings| readings.head.declarations.get(key));
        if let Some(declaration) = declaration.filter(|declaration| is_accepted_form(declaration, entry)) {
            writes.extend(write(ledger, case, key, entry, declaration));
        }
    }
    if readings.is_some() {
        let strays = case.world.claims.iter().filter(|(key, seen)| {
            of_repository(&seen.is, &case.repo.name) && !ledger.objects.contains_key(*key)
        });
        writes.extend(strays.filter_map(|(key, seen)| end(ledger, case, key, seen)));
    }
    writes
}

fn is_accepted_form(declaration: &Declaration, entry: &ObjectEntry) -> bool {
    digest::of(&declaration.stored) == entry.spec && declaration.token == entry.token
}

/// Creates or puts right the custom resource of a declared object.
fn write(
    ledger: &Ledger,
    case: &MirrorCase<'_>,
    key: &ClaimKey,
    entry: &ObjectEntry,
    declaration: &Declaration,
) -> Option<Write> {
    let mut annotations = BTreeMap::from([
        (REPOSITORY.to_owned(), case.repo.name.to_string()),
        (REVISION.to_owned(), ledger.revision(&entry.accepted)),
        (WISH.to_owned(), entry.wish.to_string()),
    ]);
    let spec = || Arc::new(declaration.stored.clone());
    let unit = key.to_string();
    let claim = key.clone();
    let Some(seen) = case.world.claims.get(key) else {
        annotations.insert(PATH.to_owned(), entry.path.clone());
        annotations.extend(entry.token.clone().map(|token| (RETRY.to_owned(), token)));
        annotations.extend(entry.hold.clone().map(|reason| (HOLD.to_owned(), reason)));
        return Some((StepName::CreateClaim, unit, Effect::CreateClaim { claim, spec: spec(), annotations }));
    };
    if !ours(&seen.is, case) {
        return None;
    }
    if seen.is.deleting {
        return release(key, seen);
    }
    // Annotations cannot be taken off: an empty token is none.
    let told = seen.is.annotations.get(RETRY).map(String::as_str);
    if told.unwrap_or_default() != entry.token.as_deref().unwrap_or_default() {
        annotations.insert(RETRY.to_owned(), entry.token.clone().unwrap_or_default());
    }
    let same = annotations.iter().all(|(name, value)| seen.is.annotations.get(name) == Some(value));
    if same && seen.is.digest == entry.spec && seen.is.finalizer {
        return None;
    }
    annotations.insert(PATH.to_owned(), entry.path.clone());
    let (uid, rv, finalizer) = (seen.uid.clone(), seen.rv, !seen.is.finalizer);
    let replace = Effect::ReplaceClaim { claim, uid, rv, spec: spec(), annotations, finalizer };
    Some((StepName::ReplaceClaim, unit, replace))
}

/// Deletes a custom resource that nothing declares any more, once its attempt has ended.
fn end(ledger: &Ledger, case: &MirrorCase<'_>, key: &ClaimKey, seen: &Seen<Claim>) -> Option<Write> {
    if !ours(&seen.is, case) || unfinished(ledger, case.world, key) {
        return None;
    }
    if seen.is.deleting {
        return release(key, seen);
    }
    let delete = Effect::DeleteClaim { claim: key.clone(), uid: seen.uid.clone() };
    Some((StepName::DeleteClaim, key.to_string(), delete))
}

/// Lets custom resources go that people deleted, where nothing makes them anew: their repository is not followed.
pub(super) fn let_go(ledger: &Ledger, world: &World) -> Vec<Write> {
    let deleted = world.claims.iter().filter(|(key, seen)| {
        of_repository(&seen.is, &ledger.repository)
            && !seen.is.foreign
            && seen.is.deleting
            && !unfinished(ledger, world, key)
    });
    deleted.filter_map(|(key, seen)| release(key, seen)).collect()
}

fn release(key: &ClaimKey, seen: &Seen<Claim>) -> Option<Write> {
    let release = Effect::ReleaseClaim { claim: key.clone(), uid: seen.uid.clone(), rv: seen.rv };
    seen.is.finalizer.then(|| (StepName::ReleaseClaim, key.to_string(), release))
}

/// Attempt records that are not needed any more, and when the next one will not be.
pub(super) fn forget(
    ledger: &Ledger,
    case: &MirrorCase<'_>,
    now: Timestamp,
) -> (Vec<Write>, Option<Timestamp>) {
    let window = SignedDuration::try_from(case.config.revert_window).unwrap_or(SignedDuration::MAX);
    let (mut writes, mut next) = (Vec::new(), None);
    for (name, seen) in &case.world.records {
        let Ok(record) = &seen.is else { continue };
        let Some(until) = kept_until(ledger, record, window) else { continue };
        if until <= now {
            let forget = Effect::ForgetAttempt { name: name.clone(), uid: seen.uid.clone() };
            writes.push((StepName::ForgetAttempt, name.clone(), forget));
        } else {
            next = next.into_iter().chain([until]).min();
        }
    }
    (writes, next)
}

/// End of the time in which the record of an attempt that ended well is kept; `None` = as long as need be.
fn kept_until(ledger: &Ledger, record: &Record, window: SignedDuration) -> Option<Timestamp> {
    let attempt = attempt(ledger, record, &record.attempt.id)?;
    let over = match attempt.outcome? {
        Outcome::Held | Outcome::RollbackIncomplete => false,
        Outcome::Completed
        | Outcome::AlreadyRuns
        | Outcome::CompletedWithFailures
        | Outcome::Returned
        | Outcome::RolledBack
        | Outcome::Superseded
        | Outcome::Reverted => true,
    };
    attempt.finished_at.filter(|_| over)?.checked_add(window).ok()
}

fn attempt<'l>(ledger: &'l Ledger, record: &Record, id: &AttemptId) -> Option<&'l AttemptEntry> {
    ledger.target(&record.target)?.attempts.iter().find(|attempt| attempt.id == *id)
}
