//! Which declaration acts for each target, and how the others stand.
//!
//! What is in force stays so as long as it is declared, and while its removal returns. Otherwise exactly one
//! candidate comes into force; several are `Ambiguous`. A declaration at first contact is a candidate only if
//! it is what runs, so that thirty old manifests start nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    MirrorCase,
    accept::Accepted,
    attempts, claims,
    ledger::{Ledger, ObjectEntry, Standing, TargetEntry, WishEntry},
    readings::Readings,
};
use crate::{
    api::ClaimKey,
    config::FirstContact,
    manifest::{Declaration, wish::Wish},
    profile,
    rollout::waiting::Refusal,
    world::{ClaimStatus, Target},
};

/// Most wishes remembered per target.
const WISHES: usize = 50;
/// Most bytes of a wish as written.
const WRITTEN: usize = 4096;
/// Most competitors named by an ambiguous declaration: with all of them the ledger would grow with their square.
const COMPETITORS: usize = 5;
/// Most files kept beside a wish.
const OTHERS: usize = 20;

/// Resolves every object's target anew; what was known under an unresolved target moves along.
pub(super) fn resolve(ledger: &mut Ledger, case: &MirrorCase<'_>) {
    let moves: Vec<(ClaimKey, (Target, Option<String>))> = ledger
        .objects
        .iter()
        .map(|(key, entry)| (key.clone(), target_of(ledger, case, key, entry)))
        .collect();
    for (key, (target, provider)) in moves {
        let Some(entry) = ledger.objects.get_mut(&key) else { continue };
        let left = std::mem::replace(&mut entry.target, target.clone());
        if provider.is_some() {
            ledger.targets.entry(target.clone()).or_default().provider = provider;
        }
        let known = ledger.targets.get(&target).and_then(|known| known.provider.as_deref());
        entry.wish = entry.wished.on(known).hash();
        if left == target {
            continue;
        }
        if let Target::Unresolved(_) = left
            && let Some(mut known) = ledger.targets.remove(&left)
        {
            let now = ledger.targets.entry(target).or_default();
            for mut wish in known.wishes.drain(..) {
                wish.wish = wish.wished.on(now.provider.as_deref()).hash();
                attempts::push(&mut now.wishes, wish, WISHES);
            }
        }
    }
}

/// The target of an object, and the profile that it was found by just now.
fn target_of(
    ledger: &Ledger,
    case: &MirrorCase<'_>,
    key: &ClaimKey,
    entry: &ObjectEntry,
) -> (Target, Option<String>) {
    let provider = match (&entry.wished, &key.namespace) {
        (Wish::Cni { provider, .. }, _) => provider.as_deref(),
        (Wish::Service { service_name, .. }, Some(namespace)) => {
            return (Target::Service(namespace.clone(), service_name.clone()), None);
        }
        (Wish::Service { .. }, None) => return (Target::Unresolved(key.clone()), None),
    };
    let resolved = matches!(entry.target, Target::Agent(_));
    if resolved && claims::unfinished(ledger, case.world, key) {
        return (entry.target.clone(), None);
    }
    match profile::resolve(case.profiles, case.world, provider) {
        Ok((profile, agent)) => (Target::Agent(agent), Some(profile.name.clone())),
        Err(Refusal::ProviderUnknown { .. }) => (Target::Unresolved(key.clone()), None),
        Err(_) if resolved => (entry.target.clone(), None),
        Err(_) => (Target::Unresolved(key.clone()), None),
    }
}

/// Appends new wishes to their targets, in the order in which they were accepted; of the others the bytes are those of
/// the last document that held them.
pub(super) fn append(
    ledger: &mut Ledger,
    accepted: &Accepted<'_>,
    readings: &Readings,
    brought: &[ClaimKey],
) {
    for (key, declaration) in &readings.head.declarations {
        let Some(entry) = ledger.objects.get(key).filter(|_| !brought.contains(key)) else { continue };
        let known = ledger.targets.get_mut(&entry.target).and_then(|target| {
            target.wishes.iter_mut().rev().find(|wish| wish.wish == entry.wish && wish.claim == *key)
        });
        if let Some(known) = known {
            known.wished = entry.wished.clone();
            known.written = bounded(declaration);
        }
    }
    for key in brought {
        let (Some(entry), Some(declaration)) = (ledger.objects.get(key), readings.head.declarations.get(key))
        else {
            continue;
        };
        let commit = accepted.steps.iter().find(|step| step.commit.oid == entry.introduced);
        let changed = commit.map_or(&[][..], |step| &step.changed).iter();
        let others = changed.filter(|path| **path != declaration.path).take(OTHERS);
        let wish = WishEntry {
            wish: entry.wish.clone(),
            wished: entry.wished.clone(),
            claim: key.clone(),
            introduced: entry.introduced.clone(),
            written: bounded(declaration),
            others: others.cloned().collect(),
        };
        let target = ledger.targets.entry(entry.target.clone()).or_default();
        attempts::push(&mut target.wishes, wish, WISHES);
    }
}

/// The bytes of the wish as written, unless they are too many to be kept.
fn bounded(declaration: &Declaration) -> BTreeMap<String, String> {
    let bytes: usize = declaration.written.values().map(String::len).sum();
    if bytes > WRITTEN { BTreeMap::new() } else { declaration.written.clone() }
}

/// A wish that our own custom resource was acting on before the ledger was lost is no first contact.
pub(super) fn recognise(ledger: &mut Ledger, case: &MirrorCase<'_>, brought: &[ClaimKey]) {
    for key in brought {
        let (Some(entry), Some(seen)) = (ledger.objects.get_mut(key), case.world.claims.get(key)) else {
            continue;
        };
        if let ClaimStatus::Cni(status) = &seen.is.status
            && claims::of_repository(&seen.is, &case.repo.name)
            && status.attempt.as_ref().is_some_and(|attempt| attempt.wish == entry.wish)
        {
            entry.first_contact = false;
        }
    }
}

/// Settles what is in force for every target, and the standing of every object.
pub(super) fn settle(ledger: &mut Ledger, case: &MirrorCase<'_>) {
    let mut members: BTreeMap<Target, BTreeSet<ClaimKey>> = BTreeMap::new();
    for target in ledger.targets.keys() {
        members.entry(target.clone()).or_default();
    }
    for (key, entry) in &ledger.objects {
        members.entry(entry.target.clone()).or_default().insert(key.clone());
    }
    for (target, members) in members {
        if members.is_empty() && matches!(target, Target::Unresolved(_)) {
            ledger.targets.remove(&target);
            continue;
        }
        let known = ledger.targets.entry(target.clone()).or_default();
        let elsewhere = elsewhere(known, case, &target);
        known.in_force = match elsewhere {
            Some(_) => None,
            None => in_force(known, &ledger.objects, &members, case),
        };
        let acting = elsewhere.or(known.in_force.as_ref());
        let standings = standings(acting, &ledger.objects, &members, case);
        for (key, mut standing) in standings {
            let Some(entry) = ledger.objects.get_mut(&key) else { continue };
            if let Some(other) = elsewhere {
                // Whatever it says now, it is first contact once the other repository lets the target go.
                entry.first_contact = true;
                standing = Standing::Ambiguous { others: vec![other.clone()] };
            }
            entry.standing = standing;
        }
    }
}

/// What another repository has in force for a target; of two at once, the one that the config names first keeps it.
fn elsewhere<'w>(known: &TargetEntry, case: &MirrorCase<'w>, target: &Target) -> Option<&'w ClaimKey> {
    let mine = case.config.repositories.iter().position(|repo| repo.name == case.repo.name);
    let rivals = case.config.repositories.iter().enumerate().filter(|(place, repo)| {
        repo.name != case.repo.name && (known.in_force.is_none() || Some(*place) < mine)
    });
    rivals
        .filter_map(|(_, repo)| case.world.ledgers.get(&repo.name)?.is.as_ref().ok()?.in_force(target))
        .map(|(claim, _)| claim)
        .next()
}

fn waits(entry: &ObjectEntry, case: &MirrorCase<'_>) -> bool {
    entry.first_contact && case.repo.first_contact == FirstContact::Hold
}

fn in_force(
    known: &TargetEntry,
    objects: &BTreeMap<ClaimKey, ObjectEntry>,
    members: &BTreeSet<ClaimKey>,
    case: &MirrorCase<'_>,
) -> Option<ClaimKey> {
    if let Some(current) = &known.in_force
        && members.contains(current)
    {
        return Some(current.clone());
    }
    let declared = || {
        members
            .iter()
            .filter_map(|key| objects.get_key_value(key))
            .filter(|(_, entry)| entry.removed.is_none())
    };
    let newcomers = declared().any(|(_, entry)| !entry.first_contact);
    if !newcomers && let Some(adopted) = only(declared().filter(|(_, entry)| runs(entry, case))) {
        return Some(adopted.clone());
    }
    only(declared().filter(|(_, entry)| !waits(entry, case))).cloned()
}

/// The one and only, if there is exactly one.
fn only<'a>(mut of: impl Iterator<Item = (&'a ClaimKey, &'a ObjectEntry)>) -> Option<&'a ClaimKey> {
    match (of.next(), of.next()) {
        (Some((key, _)), None) => Some(key),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

fn standings(
    in_force: Option<&ClaimKey>,
    objects: &BTreeMap<ClaimKey, ObjectEntry>,
    members: &BTreeSet<ClaimKey>,
    case: &MirrorCase<'_>,
) -> Vec<(ClaimKey, Standing)> {
    // One in force competes also while it is removed and returns.
    let competes = |key: &&ClaimKey| {
        in_force == Some(*key)
            || objects.get(*key).is_some_and(|entry| entry.removed.is_none() && !waits(entry, case))
    };
    let standing = |key: &ClaimKey, entry: &ObjectEntry| match in_force {
        Some(acting) if acting == key => Standing::InForce,
        Some(acting) if entry.first_contact => Standing::Superseded { by: acting.clone() },
        None if waits(entry, case) => Standing::FirstContact,
        Some(_) | None => {
            let acting = in_force.into_iter();
            let rest = members.iter().filter(|other| *other != key && in_force != Some(*other));
            Standing::Ambiguous {
                others: acting.chain(rest).filter(competes).take(COMPETITORS).cloned().collect(),
            }
        }
    };
    members
        .iter()
        .filter_map(|key| objects.get(key).map(|entry| (key.clone(), standing(key, entry))))
        .collect()
}

/// Whether the wish of an object is what runs: it is the live template, and that is rolled out.
fn runs(entry: &ObjectEntry, case: &MirrorCase<'_>) -> bool {
    let Wish::Cni { provider, target_version, .. } = &entry.wished else { return false };
    let Ok((profile, key)) = profile::resolve(case.profiles, case.world, provider.as_deref()) else {
        return false;
    };
    let Some(agent) = case.world.agents.get(&key).map(|seen| &seen.is) else { return false };
    let rolled_out = agent.observed_generation >= agent.generation && agent.updated >= agent.desired;
    rolled_out
        && profile
            .images(&agent.template.raw, target_version)
            .is_ok_and(|images| !images.is_empty() && images.iter().all(|image| image.from == image.to))
}
