//! One pass of one key: decide, write statuses first, keep what may start.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use jiff::Timestamp;

use super::{Engine, Writing};
use crate::{
    api::names::RepoName,
    clock::{self, Stopwatch, later},
    mirror::{self, MirrorCase, ReadMemo},
    perform::Permit,
    publish::{self, PublishCase},
    rollout::{
        self, Case, Decision, Now,
        effect::{Effect, EffectId, StatusWrite, StepName},
    },
    world::{Key, Observation, Target},
};

/// The three pure reconcilers.
pub(super) struct Core {
    pub(super) mirror: fn(&MirrorCase<'_>, &mut ReadMemo, Now) -> Decision,
    pub(super) rollout: fn(&Case<'_>, Now) -> Decision,
    pub(super) publish: fn(&PublishCase<'_>, Now) -> Decision,
}

impl Default for Core {
    fn default() -> Self {
        Self { mirror: mirror::mirror, rollout: rollout::decide, publish: publish::publish }
    }
}

impl Engine {
    pub(super) fn pass(&mut self, key: &Key, now: Timestamp, permit: Permit) {
        // The end of the status writes makes the key due again.
        if self.writing.contains_key(key) {
            return;
        }
        let watch = Stopwatch::start();
        let decision = self.decide(key, Now { at: now, epoch: permit.epoch });
        self.metrics.passed(key, watch.elapsed());
        if let Some(recheck) = decision.recheck {
            self.queue.after(key.clone(), later(now, recheck));
        }
        self.log(key, &decision);
        let Decision { statuses, effects, .. } = decision;
        let covered = self.covered.remove(key).unwrap_or_default();
        self.wanted.retain(|id, _| id.key != *key);
        if statuses.is_empty() {
            self.wanted.extend(effects);
        } else {
            // Intents of new effects are not stored yet; those of the pass before are.
            let stored = effects.iter().filter(|(id, effect)| covered.get(*id) == Some(*effect));
            self.wanted.extend(stored.map(|(id, effect)| (id.clone(), effect.clone())));
            self.write_statuses(key, statuses, effects, (now, permit));
        }
        if let Key::Rollout(target) = key {
            self.want_events(key, target, now);
        }
    }

    /// The decision, or what is told of a key about which there is none.
    fn decide(&mut self, key: &Key, now: Now) -> Decision {
        if self.halts.rest(key, now.at).is_none() {
            // The core is total; this is the last line of defence, so that one target cannot take the others along.
            match catch_unwind(AssertUnwindSafe(|| self.ask(key, now))) {
                Ok(decision) => {
                    if self.halts.lift(key) {
                        tracing::info!(object = name(key), "decided again after failures");
                        self.apply(Observation::Decided(key.clone()));
                    }
                    return decision;
                }
                Err(panic) => self.halt(key, panic_text(&*panic), now.at),
            }
        }
        self.halted(key, now)
    }

    fn halt(&mut self, key: &Key, why: String, now: Timestamp) {
        let tries = self.halts.note(key, why.clone(), now, &mut self.dice);
        tracing::error!(
            object = name(key),
            why,
            tries,
            "the decision failed; only this key is halted and tried again"
        );
        self.apply(Observation::Undecided(key.clone(), why));
    }

    /// What is told of a halted key until its next try.
    fn halted(&self, key: &Key, now: Now) -> Decision {
        let Some((until, why)) = self.halts.rest(key, now.at) else { return Decision::default() };
        let mut decision = match key {
            Key::Rollout(target) => {
                let case =
                    Case { target, world: &self.world, profiles: &self.profiles, config: &self.config };
                catch_unwind(AssertUnwindSafe(|| rollout::halted(&case, why, now))).unwrap_or_default()
            }
            // Status branch and conditions tell of these: see `World::undecided`.
            Key::Mirror(_) | Key::Publish(_) => Decision::default(),
        };
        decision.recheck = Some(clock::until(now.at, until));
        decision
    }

    fn ask(&mut self, key: &Key, now: Now) -> Decision {
        let Self { world, profiles, config, memos, core, .. } = self;
        let repository = |name: &RepoName| config.repositories.iter().find(|repo| repo.name == *name);
        match key {
            Key::Rollout(target) => (core.rollout)(&Case { target, world, profiles, config }, now),
            Key::Mirror(name) => match repository(name) {
                Some(repo) => {
                    let memo = memos.entry(name.clone()).or_default();
                    (core.mirror)(&MirrorCase { repo, world, profiles, config }, memo, now)
                }
                None => mirror::dropped(name, world, now),
            },
            Key::Publish(name) => repository(name).map_or_else(Decision::default, |repo| {
                (core.publish)(&PublishCase { repo, world, config }, now)
            }),
        }
    }

    fn write_statuses(
        &mut self,
        key: &Key,
        statuses: Vec<StatusWrite>,
        effects: BTreeMap<EffectId, Effect>,
        (now, permit): (Timestamp, Permit),
    ) {
        let writes: BTreeMap<EffectId, Effect> = statuses
            .into_iter()
            .map(|write| {
                let unit = write.claim.to_string();
                let id = EffectId { key: key.clone(), attempt: None, step: StepName::WriteStatus, unit };
                (id, Effect::WriteStatus(write))
            })
            .collect();
        if let Some(until) = writes.iter().filter_map(|(id, write)| self.rests.until(id, write, now)).max() {
            self.queue.after(key.clone(), until);
            return;
        }
        let left: BTreeSet<EffectId> = writes.keys().cloned().collect();
        self.writing.insert(key.clone(), Writing { left, failed: false, effects });
        for (id, write) in writes {
            self.start(id, write, permit);
        }
    }

    /// A status write ended; after the last one of its pass the effects of that pass are covered, if all were accepted.
    pub(super) fn status_ended(&mut self, id: &EffectId, written: bool) {
        let Some(writing) = self.writing.get_mut(&id.key) else { return };
        writing.left.remove(id);
        writing.failed |= !written;
        if !writing.left.is_empty() {
            return;
        }
        if let Some(writing) = self.writing.remove(&id.key)
            && !writing.failed
        {
            self.covered.insert(id.key.clone(), writing.effects);
        }
    }

    /// Tells why nothing happens, once per change.
    fn log(&mut self, key: &Key, decision: &Decision) {
        let waiting = decision.waiting.iter().map(|waiting| waiting.reason().to_owned());
        let refusals = decision.refusals.iter().map(|refusal| refusal.reason().as_str().to_owned());
        let reasons: Vec<String> = waiting.chain(refusals).collect();
        // While something is done about it, the reasons have not changed: a try between two waits is no news.
        let trying = reasons.is_empty() && !decision.effects.is_empty();
        if trying || self.told.get(key) == Some(&reasons) {
            return;
        }
        if !reasons.is_empty() {
            tracing::info!(object = name(key), reasons = reasons.join(", "), "waits");
        }
        self.told.insert(key.clone(), reasons);
    }
}

/// What a key is about, for people.
pub(super) fn name(key: &Key) -> String {
    match key {
        Key::Mirror(repo) => format!("mirror {repo}"),
        Key::Rollout(Target::Unresolved(claim)) => claim.to_string(),
        Key::Rollout(target) => target.to_string(),
        Key::Publish(repo) => format!("publish {repo}"),
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown".to_owned())
}
