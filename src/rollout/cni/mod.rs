//! The rollout of a `CNIUpgrade`: one function per stage over one context.
//!
//! A pass goes through as many stages as it can; each phase entered is a line in `status.transitions`.

mod begin;
mod canary;
mod explain;
mod finish;
mod layers;
mod prepare;
mod preview;
mod rest;
mod roll;
mod template;
mod undo;
mod verdict;
mod window;

pub(super) use preview::preview;

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    iter,
    rc::Rc,
    sync::Arc,
};

use jiff::Timestamp;
use serde::Deserialize as _;

use super::{
    Case, Decision, Now,
    effect::{Effect, EffectId, ImageChange, StepName},
    gate::Gate,
    guard::{Guard, on},
    lifecycle::{self, Course},
    observed::{later, seconds},
    waiting::{Refusal, Waiting},
};
use crate::{
    api::{
        ClaimKey, CniUpgradeSpec, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::Digest,
        reasons::Reason,
        status::{Attempt, AttemptKind, IntentKind, Outcome, Rollback, Transition},
    },
    diff::Diff,
    mirror::ledger::{Ledger, ObjectEntry, TargetEntry},
    profile::Profile,
    world::{Agent, AgentKey, Claim, Key, Seen, World},
};

/// Phase changes kept in a status.
const TRANSITIONS: usize = 40;
/// Seconds after which a brake that is still on is told as overdue.
const OVERDUE: i64 = 24 * 3600;

/// How a stage ends.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The phase changed: the next stage goes on in the same pass.
    Next,
    /// Nothing more to do now.
    Stop,
}

/// What one pass over one declaration works on.
struct Cx<'a> {
    case: &'a Case<'a>,
    now: Now,
    key: &'a ClaimKey,
    claim: &'a Seen<Claim>,
    spec: CniUpgradeSpec,
    entry: &'a ObjectEntry,
    ledger: &'a Ledger,
    target: TargetEntry,
    agent_key: &'a AgentKey,
    agent: &'a Seen<Agent>,
    profile: &'a Profile,
    draft: CniUpgradeStatus,
    decision: Decision,
    recheck: Option<Timestamp>,
    /// What the live template has in place of each covered image, once asked for.
    covered: OnceCell<Result<Vec<ImageChange>, Refusal>>,
    /// The last classification, with the view that it answers.
    classified: RefCell<Option<(window::View, Rc<Diff<'a>>)>>,
    /// Covered images of saved templates by digest, once asked for.
    saved: RefCell<BTreeMap<Digest, Arc<BTreeMap<String, String>>>>,
}

/// Decides about the agent DaemonSet `agent_key`, whose declaration in force is `key`.
pub(super) fn decide(case: &Case<'_>, agent_key: &AgentKey, key: &ClaimKey, now: Now) -> Decision {
    match Cx::open(case, agent_key, key, now) {
        Ok(mut cx) => {
            cx.run();
            cx.close()
        }
        Err(decision) => *decision,
    }
}

/// The gates before the next step, for `explain`.
pub(super) fn gates(case: &Case<'_>, agent_key: &AgentKey, key: &ClaimKey, now: Now) -> Vec<Gate> {
    match Cx::open(case, agent_key, key, now) {
        Ok(cx) => iter::once(cx.standing_gate()).chain(cx.gates_ahead()).collect(),
        Err(decision) => {
            let standing = Gate::pass("standing", format!("in force for {}", case.target));
            let refusals = decision.refusals.into_iter().map(|refusal| Gate::refuse("declaration", refusal));
            let waits = decision.waiting.into_iter().map(|waiting| Gate::wait("declaration", waiting));
            iter::once(standing).chain(refusals).chain(waits).collect()
        }
    }
}

impl<'a> Cx<'a> {
    /// Gathers what a pass needs; without it, the decision says what is missing.
    fn open(
        case: &'a Case<'a>,
        agent_key: &'a AgentKey,
        key: &ClaimKey,
        now: Now,
    ) -> Result<Self, Box<Decision>> {
        let world: &World = case.world;
        let Some((ledger, entry)) = super::ledger_entry(world, key) else { return Err(Box::default()) };
        let Some((key, claim)) = world.claims.get_key_value(key) else { return Err(Box::default()) };
        let old = super::cni_status(claim);
        if old.and_then(|status| status.epoch).is_some_and(|epoch| epoch > now.epoch) {
            return Err(Box::default());
        }
        if let Some(what) = super::feeds_not_live(world) {
            return Err(Box::new(Decision { waiting: vec![Waiting::Feeds { what }], ..Decision::default() }));
        }
        let spec = CniUpgradeSpec::deserialize(&*claim.is.spec);
        // A block of YAML ends with a line break.
        let spec =
            spec.map(|spec| CniUpgradeSpec { target_version: spec.target_version.trim().to_owned(), ..spec });
        let (Ok(spec), true) = (spec, claim.is.digest == entry.spec || !on(Guard::Mirrored)) else {
            return Err(Box::new(Decision { waiting: vec![Waiting::Mirror], ..Decision::default() }));
        };
        let missing =
            |refusal| super::standing::refused(key, claim, super::not_resolved(claim, refusal), now);
        let provider = spec.provider.as_deref();
        let profile = match crate::profile::resolve(case.profiles, world, provider) {
            Ok((profile, found)) if found == *agent_key => profile,
            Ok(_) => return Err(Box::default()),
            Err(refusal) => return Err(Box::new(missing(refusal))),
        };
        let Some(agent) = world.agents.get(agent_key) else { return Err(Box::default()) };
        Ok(Self {
            case,
            now,
            key,
            claim,
            spec,
            entry,
            ledger,
            target: ledger.targets.get(case.target).cloned().unwrap_or_default(),
            agent_key,
            agent,
            profile,
            draft: old.cloned().unwrap_or_default(),
            decision: Decision::default(),
            recheck: None,
            covered: OnceCell::new(),
            classified: RefCell::default(),
            saved: RefCell::default(),
        })
    }

    fn run(&mut self) {
        self.recover();
        self.take_course();
        // Every stage ends in `Stop`, in a later phase or with new canaries, so this bound is never met; it keeps
        // `decide` total.
        for _ in 0..12 {
            if self.draft.attempt.is_none() {
                break;
            }
            let step = match self.draft.phase {
                CniPhase::Pending => self.prepare(),
                CniPhase::Canary => self.canary(),
                CniPhase::RollingOut => self.roll(),
                CniPhase::Rollback => self.undo(),
                CniPhase::Completed => self.done(),
                CniPhase::Failed => self.failed(),
            };
            if step == Step::Stop {
                break;
            }
        }
        self.name_brakes();
    }

    /// A brake is told first, also while there is nothing that it keeps back just now.
    fn name_brakes(&mut self) {
        let forward = self
            .attempt()
            .is_some_and(|attempt| attempt.finished_at.is_none() && attempt.kind == AttemptKind::Upgrade);
        if forward && self.draft.phase != CniPhase::Rollback && self.decision.refusals.is_empty() {
            let others = std::mem::take(&mut self.decision.waiting);
            for brake in self.brakes() {
                self.wait(brake);
            }
            for other in others.into_iter().filter(|known| !known.is_brake()) {
                self.wait(other);
            }
        }
    }

    fn take_course(&mut self) {
        let window = self.case.config.revert_window;
        match lifecycle::course(&self.draft, self.entry, &self.target, window, self.now.at) {
            Course::Continue if self.template_taken() && self.token_is_fresh() => self.begin_upgrade(),
            Course::Continue => {}
            Course::Start => self.begin_upgrade(),
            Course::Return => self.begin_return(),
            Course::End => self.end(Outcome::Reverted),
            Course::Quarantined => {
                let refusal = self.quarantined();
                self.decision.refusals.push(refusal);
            }
        }
    }

    fn token_is_fresh(&self) -> bool {
        lifecycle::fresh_token(self.entry, &self.target, self.attempt())
    }

    /// The wish failed here before.
    fn quarantined(&self) -> Refusal {
        let attempt = self.target.attempts.iter().rev().find(|attempt| attempt.wish == self.entry.wish);
        Refusal::Quarantined {
            version: self.spec.target_version.clone(),
            attempt: attempt.map(|attempt| attempt.id.to_string()).unwrap_or_default(),
        }
    }

    /// Enters a phase.
    fn enter(&mut self, phase: CniPhase) {
        self.draft.phase = phase;
        self.draft.phase_started_at = Some(self.now.at);
        self.draft.observed = None;
        let attempt = self.attempt().map_or(0, |attempt| attempt.number);
        let transitions = &mut self.draft.transitions;
        transitions.push(Transition { phase: phase.as_str().to_owned(), attempt, at: self.now.at });
        if transitions.len() > TRANSITIONS {
            transitions.drain(..transitions.len() - TRANSITIONS);
        }
    }

    /// Ends the attempt.
    fn end(&mut self, outcome: Outcome) {
        let now = self.now.at;
        if let Some(attempt) = &mut self.draft.attempt {
            attempt.finished_at = Some(now);
            attempt.outcome = Some(outcome);
        }
    }

    /// A failed verdict: back, or held.
    fn fail(&mut self, reason: Reason, evidence: &str) -> Step {
        let evidence = evidence.chars().take(4000).collect();
        self.draft.rollback =
            Some(Rollback { reason: reason.as_str().to_owned(), evidence, at: self.now.at, commit: None });
        if self.spec.auto_rollback {
            self.enter(CniPhase::Rollback);
            self.turn_intents(IntentKind::PutBack);
        } else {
            self.end(Outcome::Held);
            self.enter(CniPhase::Failed);
        }
        Step::Next
    }

    /// Intents that are open count on, for the other way.
    fn turn_intents(&mut self, kind: IntentKind) {
        for intent in &mut self.draft.nodes.open {
            if intent.kind != kind {
                intent.kind = kind;
                intent.spent = 0;
                intent.as_of = self.now.at;
            }
        }
    }

    fn attempt(&self) -> Option<&Attempt> {
        self.draft.attempt.as_ref()
    }

    fn returning(&self) -> bool {
        self.attempt().is_some_and(|attempt| attempt.kind == AttemptKind::Return)
    }

    fn wait(&mut self, waiting: Waiting) {
        if let Waiting::Held { since: Some(since), overdue: false, .. } = waiting {
            self.look_at(Some(later(since, OVERDUE)));
        }
        if !self.decision.waiting.contains(&waiting) {
            self.decision.waiting.push(waiting);
        }
    }

    fn look_at(&mut self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        self.recheck = Some(self.recheck.map_or(at, |known| known.min(at)));
    }

    /// Wants an effect, unless the last try of it was rejected a moment ago.
    fn want(&mut self, step: StepName, unit: impl Into<String>, effect: Effect) {
        let attempt = self.attempt().map(|attempt| attempt.id.clone());
        let id = EffectId { key: Key::Rollout(self.case.target.clone()), attempt, step, unit: unit.into() };
        if let Some((rejection, at)) = self.case.world.rejections.get(&id) {
            let until = later(*at, super::patience(rejection.kind));
            if self.now.at < until {
                let (effect, message) = (format!("{step:?}"), rejection.message.clone());
                self.wait(Waiting::Rejected { effect, message, until });
                self.look_at(Some(until));
                return;
            }
        }
        self.decision.effects.insert(id, effect);
    }

    fn rejection(&self, step: StepName, unit: &str) -> Option<&super::effect::Rejection> {
        let attempt = self.attempt().map(|attempt| attempt.id.clone());
        let key = Key::Rollout(self.case.target.clone());
        let id = EffectId { key, attempt, step, unit: unit.to_owned() };
        self.case.world.rejections.get(&id).map(|(rejection, _)| rejection)
    }

    fn threshold(&self) -> f64 {
        self.spec.canary.as_ref().map_or(1.0, |canary| canary.health_threshold)
    }

    fn max_parallel(&self) -> usize {
        usize::try_from(self.spec.max_parallel).unwrap_or(1).max(1)
    }

    fn timeout(&self) -> i64 {
        i64::from(self.spec.timeout_seconds)
    }

    /// Why nothing new may start: a ledger that cannot be read, the pause, the brake. None of them holds a way back.
    fn brakes(&self) -> Vec<Waiting> {
        let mut brakes = Vec::new();
        if self.case.world.is_unreadable(&self.ledger.repository) {
            brakes.push(super::unreadable_ledger());
        }
        if self.spec.paused {
            brakes.push(Waiting::Paused);
        }
        for (claim, seen) in &self.case.world.claims {
            let about = self.case.world.target_of(claim) == *self.case.target;
            if let (true, Some(hold)) = (about, &seen.is.hold) {
                let overdue = hold.since.is_some_and(|since| seconds(since, self.now.at) >= OVERDUE);
                brakes.push(Waiting::Held {
                    claim: claim.clone(),
                    reason: hold.reason.clone(),
                    by: hold.by.clone(),
                    since: hold.since,
                    overdue,
                });
            }
        }
        if on(Guard::Brake) { brakes } else { Vec::new() }
    }

    /// Images by container of the saved template; empty when nothing is saved.
    fn saved_images(&self) -> Arc<BTreeMap<String, String>> {
        let good = self.draft.last_good.as_ref();
        let saved = good.and_then(|good| good.template_digest.as_ref().zip(good.template.as_ref()));
        saved.map(|(digest, text)| self.images_of(digest, text)).unwrap_or_default()
    }

    /// Covered images of a template that the status keeps as text, which is read once in a pass.
    fn images_of(&self, digest: &Digest, text: &str) -> Arc<BTreeMap<String, String>> {
        let mut saved = self.saved.borrow_mut();
        let images = saved.entry(digest.clone()).or_insert_with(|| {
            let live = &self.agent.is.template;
            let images = if live.digest == *digest {
                template::covered_only(self.profile, &live.raw)
            } else {
                let template = serde_json::from_str(text);
                template.map(|template| template::covered_only(self.profile, &template)).unwrap_or_default()
            };
            Arc::new(images)
        });
        Arc::clone(images)
    }
}
