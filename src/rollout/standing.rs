//! Claims that do not act: refused, superseded, not ours. Their last phase stays.

use super::{Case, Decision, Now, conditions::Conditions, waiting::Refusal};
use crate::{
    api::{
        ClaimKey, ClaimKind, ServiceUpgradeStatus,
        reasons::Reason,
        status::{Condition, Truth},
    },
    mirror::ledger::Standing,
    report,
    world::{Claim, ClaimStatus, Seen},
};

/// A decision that refuses one claim and writes it down.
pub(super) fn refused(key: &ClaimKey, claim: &Seen<Claim>, refusal: Refusal, now: Now) -> Decision {
    let mut decision = Decision::default();
    refuse(key, claim, refusal, now, &mut decision);
    decision
}

/// Refuses one claim within a decision.
pub(super) fn refuse(
    key: &ClaimKey,
    claim: &Seen<Claim>,
    refusal: Refusal,
    now: Now,
    decision: &mut Decision,
) {
    let text = report::waiting::refusal(&refusal);
    let reason = refusal.reason();
    write(key, claim, now, decision, |conditions| {
        let acts = matches!(reason, Reason::NotSupported)
            || !matches!(
                reason,
                Reason::Ambiguous | Reason::FirstContact | Reason::NotOurs | Reason::Quarantined
            );
        if !acts {
            conditions.set("InForce", Truth::False, reason, text.clone());
        }
        conditions.stalled(reason, text.clone());
    });
    decision.refusals.push(refusal);
}

/// Says of one claim that another one is in force.
fn superseded(key: &ClaimKey, claim: &Seen<Claim>, by: &ClaimKey, now: Now, decision: &mut Decision) {
    write(key, claim, now, decision, |conditions| {
        let text = format!("{by} is in force; this declaration is history.");
        conditions.set("InForce", Truth::False, Reason::Superseded, text.clone());
        conditions.ready(Reason::Superseded, text);
    });
}

/// Says what stands in the way of a claim that is not in force, if anything does.
pub(super) fn stand(
    case: &Case<'_>,
    key: &ClaimKey,
    claim: &Seen<Claim>,
    standing: &Standing,
    now: Now,
    decision: &mut Decision,
) {
    match standing {
        Standing::InForce => {}
        Standing::Superseded { by } => superseded(key, claim, by, now, decision),
        Standing::Ambiguous { others } => {
            let refusal = Refusal::Ambiguous { others: others.clone() };
            refuse(key, claim, refusal, now, decision);
        }
        Standing::FirstContact => {
            let commit =
                super::ledger_entry(case.world, key).map(|(_, entry)| entry.introduced.short().to_owned());
            let refusal = Refusal::FirstContact { commit: commit.unwrap_or_default() };
            refuse(key, claim, refusal, now, decision);
        }
    }
}

fn write(
    key: &ClaimKey,
    claim: &Seen<Claim>,
    now: Now,
    decision: &mut Decision,
    say: impl FnOnce(&mut Conditions<'_>),
) {
    let generation = claim.is.generation;
    let conclude = |list: &mut Vec<Condition>| say(&mut Conditions::of(list, generation, now.at));
    let write = match key.kind {
        ClaimKind::CniUpgrade => {
            let mut status = super::cni_status(claim).cloned().unwrap_or_default();
            if status.epoch.is_some_and(|epoch| epoch > now.epoch) {
                return;
            }
            conclude(&mut status.conditions);
            status.waiting_for.clear();
            status.observed_generation = Some(generation);
            status.epoch = Some(now.epoch);
            let target = claim.is.spec.get("targetVersion").and_then(|version| version.as_str());
            if status.attempt.is_none() {
                status.target_version = target.map(str::to_owned);
            }
            super::cni_status_write(key, claim, &status)
        }
        ClaimKind::ServiceUpgrade => {
            let mut status = match &claim.is.status {
                ClaimStatus::Service(status) => (**status).clone(),
                ClaimStatus::None | ClaimStatus::Cni(_) | ClaimStatus::Unreadable(_) => {
                    ServiceUpgradeStatus::default()
                }
            };
            if status.epoch.is_some_and(|epoch| epoch > now.epoch) {
                return;
            }
            conclude(&mut status.conditions);
            status.observed_generation = Some(generation);
            status.epoch = Some(now.epoch);
            let name = claim.is.spec.get("serviceName").and_then(|name| name.as_str());
            status.current_svc = name.map(str::to_owned);
            super::status_write(key, claim, &status)
        }
    };
    decision.statuses.extend(write);
}
