//! The rollout machine: `decide(case, now)` gives statuses, effects, reasons for waiting, and when to look again.

mod cni;
mod conditions;
pub mod effect;
pub mod gate;
pub mod guard;
pub mod lifecycle;
pub mod observed;
pub mod plan;
mod standing;
pub mod waiting;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    api::{ClaimKey, ClaimKind, CniUpgradeStatus, names::REPOSITORY},
    config::Config,
    mirror::ledger::{Ledger, ObjectEntry, Standing},
    profile::Profile,
    world::{Claim, ClaimStatus, Feed, FeedHealth, Seen, Target, World, digest},
};
use effect::{Effect, EffectId, RejectionKind, StatusWrite};
use gate::{Gate, GateVerdict};
use waiting::{Refusal, Waiting};

/// What a decision looks at.
#[derive(Debug, Clone, Copy)]
pub struct Case<'w> {
    /// What it is about.
    pub target: &'w Target,
    /// Everything seen.
    pub world: &'w World,
    /// All known profiles.
    pub profiles: &'w [Profile],
    /// The configuration.
    pub config: &'w Config,
}

/// Time and right to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The present.
    pub at: Timestamp,
    /// Leader epoch; statuses with a higher one are left alone.
    pub epoch: i64,
}

/// What a pass wants.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Statuses to write before any effect starts.
    pub statuses: Vec<StatusWrite>,
    /// Effects, started after the statuses are written.
    pub effects: BTreeMap<EffectId, Effect>,
    /// Why nothing (more) is being done.
    pub waiting: Vec<Waiting>,
    /// Why nothing will be done until people change something.
    pub refusals: Vec<Refusal>,
    /// When to look again if nothing is observed before.
    pub recheck: Option<Duration>,
}

/// Decides about one target. Total: any status that decodes, any world, any time give a decision.
pub fn decide(case: &Case<'_>, now: Now) -> Decision {
    let mut decision = Decision::default();
    let mut in_force = None;
    for (key, claim) in &case.world.claims {
        if case.world.target_of(key) != *case.target {
            continue;
        }
        if in_force_or_why_not(case, key, claim, now, &mut decision)
            && let Some(other) = in_force.replace(key)
        {
            // Two repositories took the target at once: none acts before the ledgers have settled whose it is.
            decision.waiting.push(Waiting::OtherAttempt { claim: other.clone() });
            return decision;
        }
    }
    let Some(key) = in_force else { return decision };
    let mut acting = act(case, key, now);
    acting.statuses.append(&mut decision.statuses);
    acting.refusals.append(&mut decision.refusals);
    acting
}

/// What is told of a target about which nothing can be decided.
pub fn halted(case: &Case<'_>, why: &str, now: Now) -> Decision {
    let mut decision = Decision::default();
    for (key, claim) in &case.world.claims {
        let ours = claim.is.annotations.contains_key(REPOSITORY);
        if ours && case.world.target_of(key) == *case.target {
            let refusal = Refusal::DecisionFailed { why: why.to_owned() };
            standing::refuse(key, claim, refusal, now, &mut decision);
        }
    }
    decision
}

/// The part of a decision that is about one claim.
pub fn decide_one(case: &Case<'_>, key: &ClaimKey, now: Now) -> Decision {
    let Some(claim) = case.world.claims.get(key) else { return Decision::default() };
    let mut decision = Decision::default();
    if in_force_or_why_not(case, key, claim, now, &mut decision) { act(case, key, now) } else { decision }
}

/// The gates of a declaration as they stand, for people: those before its next step.
pub fn gates(case: &Case<'_>, key: &ClaimKey, now: Now) -> Vec<Gate> {
    let standing = ledger_entry(case.world, key).map(|(_, entry)| &entry.standing);
    if let Some(Standing::Superseded { by }) = standing {
        let text = format!("{by} is in force; this declaration is history");
        return vec![Gate::of("standing", GateVerdict::Warn(text))];
    }
    match case.target {
        Target::Agent(agent) if standing == Some(&Standing::InForce) => cni::gates(case, agent, key, now),
        Target::Agent(_) | Target::Service(..) | Target::Unresolved(_) => decide_one(case, key, now)
            .refusals
            .into_iter()
            .map(|refusal| Gate::refuse("declaration", refusal))
            .collect(),
    }
}

/// Whether a claim is the one in force; of any other, the decision says why not.
fn in_force_or_why_not(
    case: &Case<'_>,
    key: &ClaimKey,
    claim: &Seen<Claim>,
    now: Now,
    decision: &mut Decision,
) -> bool {
    match ledger_entry(case.world, key) {
        // What no ledger that can be read knows may be in one that cannot.
        None if case.world.ledgers.keys().any(|repo| case.world.is_unreadable(repo)) => {
            decision.waiting.push(unreadable_ledger());
        }
        // What no ledger knows may be in one that has not been listed yet.
        None => match feeds_not_live(case.world) {
            Some(what) => decision.waiting.push(Waiting::Feeds { what }),
            None => standing::refuse(key, claim, Refusal::NotOurs, now, decision),
        },
        Some(_) if not_ours(claim) => standing::refuse(key, claim, Refusal::NotOurs, now, decision),
        Some((_, entry)) if entry.standing == Standing::InForce => return true,
        Some((_, entry)) => standing::stand(case, key, claim, &entry.standing, now, decision),
    }
    false
}

/// Nothing new begins while nobody can tell what is declared now.
fn unreadable_ledger() -> Waiting {
    let what = "the ledger, which cannot be read; delete its ConfigMap to have it rebuilt".to_owned();
    Waiting::Feeds { what }
}

fn act(case: &Case<'_>, key: &ClaimKey, now: Now) -> Decision {
    let Some(claim) = case.world.claims.get(key) else { return Decision::default() };
    match case.target {
        Target::Agent(agent) => cni::decide(case, agent, key, now),
        Target::Service(..) => {
            let what = "kind ServiceUpgrade".to_owned();
            standing::refused(key, claim, Refusal::NotSupported { what }, now)
        }
        Target::Unresolved(_) => unresolved(case, key, claim, now),
    }
}

/// A declaration without a target says why.
fn unresolved(case: &Case<'_>, key: &ClaimKey, claim: &Seen<Claim>, now: Now) -> Decision {
    if key.kind == ClaimKind::ServiceUpgrade {
        let what = "kind ServiceUpgrade".to_owned();
        return standing::refused(key, claim, Refusal::NotSupported { what }, now);
    }
    let provider = claim.is.spec.get("provider").and_then(|provider| provider.as_str());
    match crate::profile::resolve(case.profiles, case.world, provider) {
        // Resolvable now: the ledger gives it its target in a moment.
        Ok(_) => Decision::default(),
        Err(refusal) => standing::refused(key, claim, not_resolved(claim, refusal), now),
    }
}

/// A refusal of an agent that cannot be found any more says that the counts in the status are of before.
fn not_resolved(claim: &Seen<Claim>, mut refusal: Refusal) -> Refusal {
    if let Refusal::ProviderNotFound { counted, .. } = &mut refusal {
        *counted = cni_status(claim).and_then(|status| status.progress.clone());
    }
    refusal
}

/// A claim without our annotation, or with Flux, Argo CD or Helm marks outside an attempt.
fn not_ours(claim: &Seen<Claim>) -> bool {
    if !claim.is.annotations.contains_key(REPOSITORY) {
        return true;
    }
    let unfinished = cni_status(claim)
        .and_then(|status| status.attempt.as_ref())
        .is_some_and(|attempt| attempt.finished_at.is_none());
    claim.is.foreign && !unfinished
}

/// Ledger and entry of a declared object; where several repositories declare it, of the one that its custom resource was
/// made for.
pub(crate) fn ledger_entry<'w>(world: &'w World, key: &ClaimKey) -> Option<(&'w Ledger, &'w ObjectEntry)> {
    let made_for = world.claims.get(key).and_then(|claim| claim.is.annotations.get(REPOSITORY));
    world
        .last_read()
        .filter_map(|ledger| ledger.objects.get(key).map(|entry| (ledger, entry)))
        .min_by_key(|(ledger, _)| made_for.is_none_or(|name| name != ledger.repository.as_str()))
}

/// Status of a `CNIUpgrade`, if it has one that can be read.
pub(crate) fn cni_status(claim: &Seen<Claim>) -> Option<&CniUpgradeStatus> {
    match &claim.is.status {
        ClaimStatus::Cni(status) => Some(status),
        ClaimStatus::None | ClaimStatus::Service(_) | ClaimStatus::Unreadable(_) => None,
    }
}

/// Name of the ConfigMap that records the attempt of a target.
pub fn record_name(target: &Target) -> String {
    let hex = digest::hex(target.to_string().as_bytes());
    format!("trunkline-attempt-{}", hex.get(..12).unwrap_or(&hex))
}

/// The write that makes a status so, if it is not so already.
fn status_write<S: Serialize>(key: &ClaimKey, claim: &Seen<Claim>, status: &S) -> Option<StatusWrite> {
    let new = serde_json::to_value(status).ok()?;
    let old = match &claim.is.status {
        ClaimStatus::Cni(status) => serde_json::to_value(status).ok(),
        ClaimStatus::Service(status) => serde_json::to_value(status).ok(),
        ClaimStatus::None | ClaimStatus::Unreadable(_) => None,
    };
    (old.as_ref() != Some(&new)).then(|| StatusWrite {
        claim: key.clone(),
        uid: claim.uid.clone(),
        rv: claim.rv,
        status: Arc::new(new),
    })
}

/// The same for a `CNIUpgrade`; an equal status, the common case, is not serialised to be compared.
fn cni_status_write(key: &ClaimKey, claim: &Seen<Claim>, status: &CniUpgradeStatus) -> Option<StatusWrite> {
    match &claim.is.status {
        ClaimStatus::Cni(old) if **old == *status => None,
        ClaimStatus::Cni(_) | ClaimStatus::None | ClaimStatus::Service(_) | ClaimStatus::Unreadable(_) => {
            status_write(key, claim, status)
        }
    }
}

/// Names a feed that is not live.
fn feeds_not_live(world: &World) -> Option<String> {
    Feed::ALL.into_iter().find_map(|feed| match world.feeds.get(&feed) {
        Some(FeedHealth::Live(_)) => None,
        Some(FeedHealth::Starting) | None => Some(format!("{feed:?} are being listed")),
        Some(FeedHealth::Cut(_, why)) => Some(format!("{feed:?} cannot be watched: {why}")),
    })
}

/// Seconds to wait after a rejection of this kind before the same write is tried again.
const fn patience(kind: RejectionKind) -> i64 {
    match kind {
        RejectionKind::Conflict | RejectionKind::NotFound => 1,
        RejectionKind::Unavailable | RejectionKind::RefMoved => 5,
        RejectionKind::Forbidden | RejectionKind::Invalid | RejectionKind::PushRefused => 30,
    }
}
