//! Rollback commits that are due: the wish's bytes at the present head become those of what runs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{View, held, whole_second};
use crate::{
    api::names::Oid,
    manifest::{
        self, Declaration, Reading, Severity,
        edit::{PutBack, put_back},
    },
    mirror::{
        Presence,
        ledger::{Ledger, RollbackEntry, RollbackState, Standing, TargetEntry, WishEntry},
        presence,
    },
    report::{commit, problems::place},
    rollout::{
        Decision,
        effect::{Effect, StepName},
    },
    world::git::{Change, NewCommit, Tracked},
};

/// Where a rollback commit stands, as far as Git was seen.
pub(super) enum Stand {
    /// Made, or not to be made: head names another wish, or none.
    Settled,
    /// Head was not read or not accepted yet.
    Unread,
    /// Nothing is written to a branch whose history was rewritten.
    Rewritten,
    /// The document at head cannot be read; where and why.
    Unreadable(String),
    /// To be pushed.
    Due(Due),
}

/// The changes of a rollback commit.
pub(super) struct Due {
    /// Head it is built on.
    head: Oid,
    /// Changes against it.
    changes: BTreeMap<String, Change>,
}

/// Rollbacks that the ledger wants in Git, in order, with their targets.
pub(super) fn entries<'w>(view: &View<'w>) -> impl Iterator<Item = (&'w TargetEntry, &'w RollbackEntry)> {
    let switched_on = view.case.repo.rollback_commit;
    let targets = view.ledger.targets.values().filter(move |_| switched_on);
    targets
        .flat_map(|target| target.rollbacks.iter().map(move |entry| (target, entry)))
        .filter(|(_, entry)| entry.state == RollbackState::Due)
}

/// Tells where the commit of one rollback stands.
///
/// Only an accepted head is built on, since accepting it also finds a commit of ours that is there already.
pub(super) fn stand(view: &View<'_>, target: &TargetEntry, entry: &RollbackEntry) -> Stand {
    if view.rewritten() {
        return Stand::Rewritten;
    }
    let Some((tracked, head)) =
        view.git.tracked.as_ref().and_then(|tracked| Some((tracked, tracked.head.as_ref()?)))
    else {
        return Stand::Unread;
    };
    if view.ledger.accepted.as_ref() != Some(head) {
        return Stand::Unread;
    }
    if newest(view.ledger, target).is_some_and(|wish| wish.claim != entry.claim || wish.wish != entry.from) {
        return Stand::Settled;
    }
    let known = view.ledger.objects.get(&entry.claim).map(|object| object.path.clone());
    let reading = manifest::read(&tracked.at_head, &known.iter().cloned().collect());
    match presence(&reading, &entry.claim) {
        Presence::Declared(declaration) => {
            let retried = declaration.token.as_ref().is_some_and(|token| !target.tokens.contains(token));
            let wish = declaration.wish.on(target.provider.as_deref()).hash();
            if wish != entry.from || retried {
                return Stand::Settled;
            }
            edited(tracked, head, declaration, entry)
        }
        Presence::Held => Stand::Unreadable(fault(&reading, known.as_deref())),
        Presence::Absent if known.as_ref().is_some_and(|path| reading.hiding.contains(path)) => {
            Stand::Unreadable(fault(&reading, known.as_deref()))
        }
        Presence::Absent => Stand::Settled,
    }
}

/// The newest wish of a target that is still declared and not refused: who may not act replaces nothing.
fn newest<'l>(ledger: &Ledger, target: &'l TargetEntry) -> Option<&'l WishEntry> {
    target.wishes.iter().rev().find(|wish| {
        ledger.objects.get(&wish.claim).is_some_and(|object| {
            let refused = matches!(object.standing, Standing::Ambiguous { .. } | Standing::FirstContact);
            object.wish == wish.wish && object.removed.is_none() && !refused
        })
    })
}

/// The first error in the file in which the document stood.
fn fault(reading: &Reading, path: Option<&str>) -> String {
    let errors = reading.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    match errors.filter(|found| path.is_none_or(|path| found.path == path)).min() {
        Some(found) => format!("{}: {}", place(found), found.message),
        None => path.unwrap_or("no file").to_owned(),
    }
}

fn edited(tracked: &Tracked, head: &Oid, declaration: &Declaration, entry: &RollbackEntry) -> Stand {
    let path = &declaration.path;
    let Some(blob) = tracked.at_head.get(path) else { return Stand::Settled };
    let to = match &entry.to_wish {
        Some(wish) => PutBack::Wish { wish: wish.clone(), written: entry.written.clone() },
        None => PutBack::Remove,
    };
    match put_back(&blob.bytes, &entry.claim, &to) {
        Ok(bytes) if *bytes == *blob.bytes => Stand::Settled,
        Ok(bytes) => {
            let changes = BTreeMap::from([(path.clone(), Change::Write(bytes.into()))]);
            Stand::Due(Due { head: head.clone(), changes })
        }
        Err(error) => Stand::Unreadable(format!("{path}:{error}")),
    }
}

/// Wants a push for every rollback commit that is due and not held.
pub(super) fn want(view: &View<'_>, now: Timestamp, decision: &mut Decision) {
    // Another cluster's name can only be told once the status branch was read.
    if view.case.repo.status_branch && view.git.status.is_none() {
        return;
    }
    for (target, entry) in entries(view) {
        if let Stand::Due(due) = stand(view, target, entry) {
            push(view, entry, due, now, decision);
        }
    }
}

fn push(view: &View<'_>, entry: &RollbackEntry, due: Due, now: Timestamp, decision: &mut Decision) {
    let repo = view.case.repo;
    let id = view.effect(StepName::PushRollback, Some(entry.attempt.clone()), entry.claim.to_string());
    let refused = view.git.refused.get(entry.attempt.as_str());
    // A refusal at another head says nothing about this one.
    let refused = refused.filter(|refused| refused.expect.as_ref() == Some(&due.head));
    let what = format!("push of the rollback commit of {}", entry.claim);
    if held(decision, &what, view.hold(&id, refused), now) {
        return;
    }
    let cluster = &view.case.config.cluster;
    let changed: Vec<String> = due.changes.keys().cloned().collect();
    let commit = NewCommit {
        branch: repo.branch.clone(),
        parent: Some(due.head.clone()),
        again: false,
        changes: due.changes,
        message: commit::rollback(entry, &changed, cluster, &repo.subject_prefix),
        by: repo.by.clone(),
        at: whole_second(entry.at),
    };
    let effect = Effect::PushRollback {
        repo: repo.name.clone(),
        attempt: entry.attempt.clone(),
        commit: Box::new(commit),
        head: due.head,
    };
    decision.effects.insert(id, effect);
}
