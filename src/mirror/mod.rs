//! Declarations at the accepted revision against custom resources and ledger: what to create, replace,
//! delete.
//!
//! Guarantees: total, deterministic and level-triggered: the same world gives the same decision, and a ledger
//! already at the revision is not written again. The ledger is written first and alone; custom resources
//! follow what is stored in it, so that none exists of which the ledger does not know. A repository that
//! cannot be read, was rewritten or lost its branch changes and removes nothing. An attempt under way
//! outlives the removal of its declaration.
//!
//! Limits: renames, `MassRemoval`, `acceptRewrite`, a rebuild from the status branch and authority between
//! repositories are not built; a second declaration for a target is `Ambiguous` and what was in force stays.

mod accept;
mod attempts;
mod authority;
mod claims;
mod declared;
pub mod ledger;
mod readings;
mod rollbacks;
mod states;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

pub use accept::{Accepted, Held, accept};
pub use readings::{Presence, ReadMemo, Readings, presence};
pub use rollbacks::ATTEMPT_TRAILER;

use self::{claims::Write, ledger::Ledger};
use crate::{
    api::names::RepoName,
    config::{Config, Repository},
    profile::Profile,
    rollout::{
        Decision, Now,
        effect::{Effect, EffectId, Rejection, RejectionKind, StepName},
        waiting::{Refusal, Waiting},
    },
    world::{Feed, FeedHealth, Key, World},
};

/// What a pass over one repository looks at.
#[derive(Debug, Clone, Copy)]
pub struct MirrorCase<'w> {
    /// The repository.
    pub repo: &'w Repository,
    /// Everything seen.
    pub world: &'w World,
    /// All known profiles.
    pub profiles: &'w [Profile],
    /// The configuration.
    pub config: &'w Config,
}

/// Decides about one repository; `memo` belongs to it and saves parsing commits again.
pub fn mirror(case: &MirrorCase<'_>, memo: &mut ReadMemo, now: Now) -> Decision {
    let mut decision = Decision::default();
    if let Some(waiting) = not_listed(case.world) {
        decision.waiting.push(waiting);
        return decision;
    }
    let name = &case.repo.name;
    let new;
    let (seen, stored) = match case.world.ledgers.get(name).map(|seen| (seen, &seen.is)) {
        None => {
            new = Ledger::new(name.clone(), &case.repo.branch);
            (None, &new)
        }
        Some((seen, Ok(ledger))) => (Some((seen.uid.clone(), seen.rv)), &**ledger),
        Some((_, Err(why))) => {
            let what = format!("the ledger of repository {name} cannot be read: {why}");
            decision.refusals.push(Refusal::BrokenInvariant { what });
            return decision;
        }
    };
    let accepted = accept(stored, case.world.git.get(name));
    let readings = accepted.as_ref().ok().map(|accepted| {
        let known = stored.objects.values().map(|entry| entry.path.clone()).collect();
        memo.read(accepted, known, case.repo)
    });
    let next = next(case, stored, accepted.as_ref(), readings.as_ref(), now.at);
    if next != *stored {
        let bytes = next.bytes();
        if bytes > ledger::MOST {
            decision.refusals.push(Refusal::LedgerTooLarge { bytes, max: ledger::MOST });
            return decision;
        }
        let write = Effect::WriteLedger { seen, ledger: Arc::new(next) };
        want(&mut decision, name, case.world, now.at, (StepName::WriteLedger, name.to_string(), write));
        return decision;
    }
    for write in claims::writes(stored, case, readings.as_ref()) {
        want(&mut decision, name, case.world, now.at, write);
    }
    let (forget, until) = claims::forget(stored, case, now.at);
    for write in forget {
        want(&mut decision, name, case.world, now.at, write);
    }
    look_again(&mut decision, now.at, until);
    decision
}

/// Decides about a repository that the configuration does not name any more: its ledger says so, and what people delete
/// goes once its attempt has ended.
pub fn dropped(name: &RepoName, world: &World, now: Now) -> Decision {
    let mut decision = Decision::default();
    let Some((seen, Ok(stored))) = world.ledgers.get(name).map(|seen| (seen, &seen.is)) else {
        return decision;
    };
    if not_listed(world).is_some() {
        return decision;
    }
    for write in claims::let_go(stored, world) {
        want(&mut decision, name, world, now.at, write);
    }
    let states = vec![states::dropped(stored, now.at)];
    if stored.states != states {
        let ledger = Arc::new(Ledger { states, ..(**stored).clone() });
        let write = Effect::WriteLedger { seen: Some((seen.uid.clone(), seen.rv)), ledger };
        want(&mut decision, name, world, now.at, (StepName::WriteLedger, name.to_string(), write));
    }
    decision
}

/// The ledger as it should be.
fn next(
    case: &MirrorCase<'_>,
    stored: &Ledger,
    accepted: Result<&Accepted<'_>, &Held>,
    readings: Option<&Readings>,
    now: Timestamp,
) -> Ledger {
    let mut ledger = stored.clone();
    let seen = case.world.git.get(&case.repo.name);
    if let Some(head) = seen.and_then(|seen| seen.tracked.as_ref()?.head.as_ref()) {
        ledger.seen = Some(head.clone());
    }
    let taken = accepted.ok().zip(readings);
    let brought =
        taken.map(|(accepted, readings)| declared::take(&mut ledger, accepted, readings, case.repo));
    authority::resolve(&mut ledger, case);
    if let (Some((accepted, readings)), Some(brought)) = (taken, brought) {
        authority::append(&mut ledger, accepted, readings, &brought);
        authority::recognise(&mut ledger, case, &brought);
        states::diagnose(&mut ledger, accepted, readings);
    }
    attempts::fold(&mut ledger, case);
    claims::drop_gone(&mut ledger, case);
    claims::note_holds(&mut ledger, case);
    authority::settle(&mut ledger, case);
    rollbacks::settle(&mut ledger, taken);
    ledger.states = states::states(&ledger, case.repo, seen, accepted.err(), now);
    ledger
}

/// Nothing is told from what was never listed: an object that is not there may only not be known yet.
fn not_listed(world: &World) -> Option<Waiting> {
    let starting: Vec<String> = Feed::ALL
        .into_iter()
        .filter(|feed| match world.feeds.get(feed) {
            Some(FeedHealth::Live(_) | FeedHealth::Cut(..)) => false,
            Some(FeedHealth::Starting) | None => true,
        })
        .map(|feed| format!("{feed:?}"))
        .collect();
    let what = format!("{} not listed yet", starting.join(", "));
    (!starting.is_empty()).then_some(Waiting::Feeds { what })
}

/// Adds a write, unless its last try was rejected a short while ago.
fn want(
    decision: &mut Decision,
    repo: &RepoName,
    world: &World,
    now: Timestamp,
    (step, unit, effect): Write,
) {
    let id = EffectId { key: Key::Mirror(repo.clone()), attempt: None, step, unit };
    let until = world.rejections.get(&id).and_then(|(rejection, at)| {
        let until = at.checked_add(pause_after(rejection)).ok()?;
        (until > now).then(|| (until, rejection.message.clone()))
    });
    let Some((until, message)) = until else {
        decision.effects.insert(id, effect);
        return;
    };
    decision.waiting.push(Waiting::Rejected { effect: id.to_string(), message, until });
    look_again(decision, now, Some(until));
}

const fn pause_after(rejection: &Rejection) -> Duration {
    match rejection.kind {
        RejectionKind::Conflict | RejectionKind::NotFound | RejectionKind::RefMoved => {
            Duration::from_millis(200)
        }
        RejectionKind::Unavailable => Duration::from_secs(5),
        RejectionKind::Forbidden | RejectionKind::Invalid | RejectionKind::PushRefused => {
            Duration::from_secs(30)
        }
    }
}

fn look_again(decision: &mut Decision, now: Timestamp, until: Option<Timestamp>) {
    let wait = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok());
    decision.recheck = decision.recheck.into_iter().chain(wait).min();
}
