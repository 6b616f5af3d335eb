//! The engine in the small, and the trouble between it and the cluster.

mod ending;
mod others;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    Moment, Trace, Violation, Watch,
    laws::{Checked, Law, StatusChange, broken},
    repository::Branch,
    witness::{Scene, Witness},
    workload::{Trouble, Workload},
};
use crate::{
    api::{ClaimKey, CniUpgradeSpec, names::RepoName},
    config::{Config, FirstContact, LeaderElection, Repository, ServeAt},
    mirror::{MirrorCase, ReadMemo, mirror},
    profile::{Profile, built_in},
    rollout::{
        Case, Decision, Now, decide,
        effect::{Effect, EffectId, EffectOutcome, StepName},
    },
    sim::model::{Model, actors::claim_ref, perform::HOME, seed::Seed},
    world::{AgentKey, ClaimStatus, Feed, Key, Observation, Shape, Target, World, git::Signature},
};

/// Name of the one declaration.
const OBJECT: &str = "agent-upgrade";
/// Name of the one repository.
const REPO: &str = "clusters";
/// Least time between two passes of one key.
const SPACING: SignedDuration = SignedDuration::from_millis(5);
/// Passes of one key within ten seconds that nothing was observed for, before they count as a hot loop.
const HOT: u32 = 60;

/// Something on its way to the engine.
struct Mail {
    observation: Observation,
}

/// A write whose answer is on its way.
struct Reply {
    id: EffectId,
    seen: Vec<Observation>,
    outcome: EffectOutcome,
}

/// Statuses of one pass that are being written.
struct Writing {
    left: BTreeSet<EffectId>,
    failed: bool,
    /// What they record.
    effects: BTreeMap<EffectId, Effect>,
}

pub(super) struct Harness<'w> {
    /// Sees every pass of the rollout machine.
    watch: Option<Watch<'w>>,
    pub(super) model: Model,
    world: World,
    config: Config,
    branch: Branch,
    memo: ReadMemo,
    dice: Seed,
    trouble: Trouble,
    /// The engine's clock is that much ahead of the cluster's.
    skew: SignedDuration,
    due: BTreeMap<Key, Timestamp>,
    taken: BTreeMap<Key, Timestamp>,
    covered: BTreeMap<Key, BTreeMap<EffectId, Effect>>,
    running: BTreeSet<EffectId>,
    writing: BTreeMap<Key, Writing>,
    seen_rv: u64,
    mail: BTreeMap<(Timestamp, u64), Mail>,
    replies: BTreeMap<(Timestamp, u64), Reply>,
    tickets: u64,
    last_mail: BTreeMap<Feed, Timestamp>,
    relists: BTreeSet<(Timestamp, Feed)>,
    deeds: Vec<(Timestamp, super::workload::Deed)>,
    looked_since: Option<crate::api::names::Oid>,
    look_at: Option<Timestamp>,
    witness: Witness,
    agent: AgentKey,
    spec: CniUpgradeSpec,
    declared: bool,
    calm_at: Timestamp,
    deadline: Timestamp,
    /// Passes without news by key, since a time.
    hot: BTreeMap<Key, (Timestamp, u32)>,
    /// Writes since a time.
    busy: (Timestamp, u32),
    log: Option<Vec<String>>,
    hash: u64,
    decisions: u64,
    writes: u64,
    end: String,
}

fn profiles() -> &'static [Profile] {
    static PROFILES: OnceLock<Vec<Profile>> = OnceLock::new();
    PROFILES.get_or_init(built_in)
}

fn config() -> Config {
    let repository = Repository {
        name: RepoName::new(REPO),
        url: "https://git.example.com/clusters".to_owned(),
        branch: "main".to_owned(),
        paths: vec![String::new()],
        poll: Duration::from_secs(60),
        credentials: None,
        status_branch: false,
        rollback_commit: false,
        by: Signature { name: "trunkline".to_owned(), email: "trunkline@example.com".to_owned() },
        subject_prefix: String::new(),
        first_contact: FirstContact::Hold,
        allow_namespaces: vec!["*".to_owned()],
    };
    Config {
        cluster: "sim".to_owned(),
        namespace: HOME.to_owned(),
        repositories: vec![repository],
        revert_window: Duration::from_secs(72 * 3600),
        leader_election: LeaderElection::OFF,
        cluster_uid: "sim".to_owned(),
        metrics: ServeAt::Nowhere,
        policies: None,
    }
}

impl<'w> Harness<'w> {
    pub(super) fn new(seed: u64, workload: &Workload, log: bool, watch: Option<Watch<'w>>) -> Self {
        let mut model = workload.cluster.build();
        for fault in &workload.faults {
            model.add_fault(fault.clone());
        }
        let start = model.now();
        let after = |seconds: i64| start.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(start);
        let calm_at = after(workload.calm_after);
        let mut harness = Self {
            watch,
            seen_rv: model.rv(),
            model,
            world: World::default(),
            config: config(),
            branch: Branch::new(RepoName::new(REPO)),
            memo: ReadMemo::default(),
            dice: Seed::new(seed),
            trouble: workload.trouble,
            skew: SignedDuration::ZERO,
            due: BTreeMap::new(),
            taken: BTreeMap::new(),
            covered: BTreeMap::new(),
            running: BTreeSet::new(),
            writing: BTreeMap::new(),
            mail: BTreeMap::new(),
            replies: BTreeMap::new(),
            tickets: 0,
            last_mail: BTreeMap::new(),
            relists: BTreeSet::new(),
            deeds: workload.deeds.iter().map(|(when, deed)| (after(*when), deed.clone())).collect(),
            looked_since: None,
            look_at: None,
            witness: Witness::default(),
            agent: workload.cluster.agent.key(),
            spec: workload.spec.clone(),
            declared: false,
            calm_at,
            deadline: calm_at,
            hot: BTreeMap::new(),
            busy: (start, 0),
            log: log.then(Vec::new),
            hash: 0xcbf2_9ce4_8422_2325,
            decisions: 0,
            writes: 0,
            end: String::new(),
        };
        harness.open(workload);
        harness
    }

    /// The repository before the first change, and the first change shortly after the start.
    fn open(&mut self, workload: &Workload) {
        if workload.adopted {
            self.spec = workload.with_version(workload.versions[0]);
            self.declare(None);
        }
        let first = super::workload::Deed::Declare(Box::new(workload.spec.clone()));
        let at = self.model.now().saturating_add(SignedDuration::from_secs(10)).unwrap_or(self.calm_at);
        self.deeds.push((at, first));
        self.deeds.sort_by_key(|(at, _)| *at);
        self.boot();
    }

    pub(super) fn trace(&mut self) -> Trace {
        Trace {
            hash: self.hash,
            decisions: self.decisions,
            writes: self.writes,
            end: std::mem::take(&mut self.end),
            log: self.log.take().unwrap_or_default(),
        }
    }

    /// Runs until everything has come to rest.
    pub(super) fn run(&mut self) -> Checked {
        let mut calm = false;
        loop {
            self.collect();
            self.arrive();
            self.others();
            self.passes()?;
            if !calm && self.model.now() >= self.calm_at {
                calm = true;
                self.calm_down();
                continue;
            }
            let Some(next) = self.next(calm) else { break };
            if calm && next > self.deadline {
                return self.ended_late();
            }
            self.model.advance_to(next);
        }
        self.at_rest()
    }

    fn next(&self, calm: bool) -> Option<Timestamp> {
        let passes = self.due.values().min().map(|at| self.cluster_time(*at));
        let soon = [
            self.model.next_event_at(),
            self.mail.keys().next().map(|(at, _)| *at),
            self.replies.keys().next().map(|(at, _)| *at),
            self.relists.first().map(|(at, _)| *at),
            self.look_at,
            self.deeds.first().map(|(at, _)| *at),
            (!calm).then_some(self.calm_at),
        ];
        let soon = soon.into_iter().flatten().min();
        // What is due in a day only (the end of the revert window) is rest.
        let patience =
            self.model.now().saturating_add(SignedDuration::from_hours(12)).unwrap_or(Timestamp::MAX);
        soon.into_iter().chain(passes.filter(|at| *at < patience)).min()
    }

    /// The engine's clock.
    fn now(&self) -> Timestamp {
        self.model.now().saturating_add(self.skew).unwrap_or(self.model.now())
    }

    fn cluster_time(&self, engine: Timestamp) -> Timestamp {
        engine.saturating_sub(self.skew).unwrap_or(engine).max(self.model.now())
    }

    fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.log.is_none() {
            return;
        }
        let line = format!("{} {}", self.model.now(), line(self));
        if let Some(log) = &mut self.log {
            log.push(line);
        }
    }

    fn digest(&mut self, text: &str) {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Makes a key due as soon as its spacing allows.
    fn hurry(&mut self, key: Key) {
        let now = self.now();
        let free = self.taken.get(&key).filter(|taken| **taken <= now);
        let at = free.and_then(|taken| taken.saturating_add(SPACING).ok()).map_or(now, |free| free.max(now));
        self.after(key, at);
    }

    fn after(&mut self, key: Key, at: Timestamp) {
        let due = self.due.entry(key).or_insert(at);
        *due = (*due).min(at);
    }

    fn passes(&mut self) -> Checked {
        loop {
            let now = self.now();
            let ready = self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(_, at)| **at);
            let Some(key) = ready.map(|(key, _)| key.clone()) else { return Ok(()) };
            self.due.remove(&key);
            self.taken.insert(key.clone(), now);
            if !self.writing.contains_key(&key) {
                self.pass(&key)?;
            }
        }
    }

    fn pass(&mut self, key: &Key) -> Checked {
        let now = Now { at: self.now(), epoch: 1 };
        self.decisions += 1;
        self.no_hot_loop(key)?;
        let Self { world, config, memo, .. } = self;
        let decision = match key {
            Key::Rollout(target) => decide(&Case { target, world, profiles: profiles(), config }, now),
            Key::Mirror(_) => match config.repositories.first() {
                Some(repo) => mirror(&MirrorCase { repo, world, profiles: profiles(), config }, memo, now),
                None => Decision::default(),
            },
            Key::Publish(_) => Decision::default(),
        };
        if let (Key::Rollout(target), Some(watch)) = (key, &mut self.watch) {
            let case = Case { target, world: &self.world, profiles: profiles(), config: &self.config };
            watch(&Moment { case, now, decision: &decision, model: &self.model });
        }
        if let Some(recheck) = decision.recheck {
            let at = SignedDuration::try_from(recheck).ok().and_then(|wait| now.at.saturating_add(wait).ok());
            self.after(key.clone(), at.unwrap_or(Timestamp::MAX));
        }
        self.note(|_| {
            let waiting: Vec<&str> =
                decision.waiting.iter().map(crate::rollout::waiting::Waiting::reason).collect();
            format!(
                "pass {key:?}: waits {waiting:?}, refuses {:?}, {} effects",
                decision.refusals,
                decision.effects.len()
            )
        });
        let covered = self.covered.remove(key).unwrap_or_default();
        if decision.statuses.is_empty() {
            return self.start_all(decision.effects);
        }
        let stored = |(id, effect): &(&EffectId, &Effect)| covered.get(*id) == Some(*effect);
        let sure = decision.effects.iter().filter(stored).map(|(id, e)| (id.clone(), e.clone())).collect();
        self.start_all(sure)?;
        let mut left = BTreeSet::new();
        let mut writes = Vec::new();
        for write in decision.statuses {
            let unit = write.claim.to_string();
            let id = EffectId { key: key.clone(), attempt: None, step: StepName::WriteStatus, unit };
            left.insert(id.clone());
            writes.push((id, Effect::WriteStatus(write)));
        }
        self.writing.insert(key.clone(), Writing { left, failed: false, effects: decision.effects });
        writes.into_iter().try_for_each(|(id, effect)| self.start(id, &effect))
    }

    fn start_all(&mut self, effects: BTreeMap<EffectId, Effect>) -> Checked {
        effects.into_iter().try_for_each(|(id, effect)| {
            if self.running.contains(&id) { Ok(()) } else { self.start(id, &effect) }
        })
    }

    fn no_hot_loop(&mut self, key: &Key) -> Checked {
        let now = self.model.now();
        let (since, count) = self.hot.get(key).copied().unwrap_or((now, 0));
        let fresh = now.duration_since(since) > SignedDuration::from_secs(10);
        let counted = if fresh { (now, 1) } else { (since, count + 1) };
        self.hot.insert(key.clone(), counted);
        if counted.1 > HOT {
            return broken(
                Law::HotLoop,
                now,
                format!("{key:?} was passed {HOT} times in ten seconds without news"),
            );
        }
        Ok(())
    }

    /// The other form of a hot loop: each pass writes something that makes the next pass due.
    fn no_write_loop(&mut self) -> Checked {
        let now = self.model.now();
        let (since, count) = self.busy;
        let fresh = now.duration_since(since) > SignedDuration::from_secs(10);
        self.busy = if fresh { (now, 1) } else { (since, count + 1) };
        let nodes = u32::try_from(self.world.nodes.len()).unwrap_or(u32::MAX);
        if self.busy.1 > 2 * HOT + 8 * nodes {
            return broken(Law::HotLoop, now, format!("{} writes in ten seconds", self.busy.1));
        }
        Ok(())
    }

    fn target(&self) -> Target {
        Target::Agent(self.agent.clone())
    }

    /// Judges a write, does it, and sends the answer on its way.
    fn start(&mut self, id: EffectId, effect: &Effect) -> Checked {
        self.running.insert(id.clone());
        let trouble = self.trouble;
        if self.dice.chance(trouble.reject) {
            let outcome = self.rejection();
            self.note(|_| format!("{id}: {outcome:?} before it was done"));
            self.answer(id, outcome, Vec::new());
            return Ok(());
        }
        let target = self.target();
        let scene = Scene { model: &self.model, world: &self.world, agent: &self.agent, target: &target };
        self.witness.before(&scene, effect)?;
        let (outcome, seen) = self.model.perform(effect);
        self.note(|_| format!("{id}: {outcome:?}{}", detail(effect)));
        if outcome == EffectOutcome::Done {
            self.writes += 1;
            self.no_write_loop()?;
            let line = format!("{} {id} {}", self.model.now(), self.model.rv());
            self.digest(&line);
            if let Effect::WriteStatus(_) = effect {
                self.status_written(&seen)?;
            }
        }
        if self.dice.chance(trouble.lose_reply) {
            self.answer(id, EffectOutcome::Unknown("the connection was cut".to_owned()), Vec::new());
        } else {
            self.answer(id, outcome, seen);
        }
        Ok(())
    }

    fn status_written(&mut self, seen: &[Observation]) -> Result<(), Violation> {
        let [Observation::Answered(object)] = seen else { return Ok(()) };
        let Shape::Claim(seen) = &object.shape else { return Ok(()) };
        let ClaimStatus::Cni(new) = &seen.status else { return Ok(()) };
        self.note(|_| status_line(new));
        let (key, target) = (claim(), self.target());
        let Some(held) = self.world.claims.get(&key) else { return Ok(()) };
        let Ok(spec) = serde_json::from_value::<CniUpgradeSpec>((*held.is.spec).clone()) else {
            return Ok(());
        };
        let old = self.witness.status_of(&held.uid);
        let change = StatusChange {
            model: &self.model,
            world: &self.world,
            claim: held,
            key: &key,
            target: &target,
            agent_key: &self.agent,
            spec: &spec,
            old: old.as_ref(),
            new,
            at: self.model.now(),
        };
        self.witness.status_written(&change)
    }

    /// The status of the declaration as the API server has it.
    fn stored_status(&self) -> Option<crate::api::CniUpgradeStatus> {
        match self.model.object(&claim_ref(&claim()))?.shape {
            Shape::Claim(claim) => match claim.status {
                ClaimStatus::Cni(status) => Some(*status),
                ClaimStatus::None | ClaimStatus::Service(_) | ClaimStatus::Unreadable(_) => None,
            },
            Shape::Node(_)
            | Shape::Pod(_)
            | Shape::Agent(_)
            | Shape::Revision(_)
            | Shape::Ledger(..)
            | Shape::Record(_) => None,
        }
    }
}

fn claim() -> ClaimKey {
    ClaimKey::cni(OBJECT)
}

fn detail(effect: &Effect) -> String {
    match effect {
        Effect::DeletePod { pod, .. } => format!(" {}", pod.name),
        Effect::PatchTemplate { images, .. } => {
            format!(" {:?}", images.iter().map(|image| &image.to).collect::<Vec<_>>())
        }
        Effect::RestoreStrategy { strategy, .. } => format!(" {}", strategy.as_str()),
        Effect::WriteLedger { .. }
        | Effect::CreateClaim { .. }
        | Effect::ReplaceClaim { .. }
        | Effect::DeleteClaim { .. }
        | Effect::ReleaseClaim { .. }
        | Effect::WriteStatus(_)
        | Effect::RecordAttempt { .. }
        | Effect::ForgetAttempt { .. }
        | Effect::DryRunTemplate { .. }
        | Effect::RestoreTemplate { .. }
        | Effect::PushStatus { .. }
        | Effect::PushRollback { .. }
        | Effect::RecordEvent { .. } => String::new(),
    }
}

fn status_line(status: &crate::api::CniUpgradeStatus) -> String {
    let attempt = status.attempt.as_ref();
    let open: Vec<String> = status
        .nodes
        .open
        .iter()
        .map(|open| format!("{} {:?} {}s", open.node, open.kind, open.spent))
        .collect();
    let failures: Vec<String> = status
        .nodes
        .failures
        .iter()
        .map(|f| {
            format!("{} {} tries {}{}", f.node, f.reason, f.tries, if f.in_rollback { " back" } else { "" })
        })
        .collect();
    let waits: Vec<&str> = status.waiting_for.iter().map(|waiting| waiting.reason.as_str()).collect();
    format!(
        "status {:?} attempt {:?} {:?} {:?} observed {:?} open {open:?} failures {failures:?} waits {waits:?}",
        status.phase,
        attempt.map(|attempt| attempt.number),
        attempt.map(|attempt| attempt.kind),
        attempt.and_then(|attempt| attempt.outcome),
        status.observed.map(|observed| observed.total),
    )
}
