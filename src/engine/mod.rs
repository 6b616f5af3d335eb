//! The engine: one task owns the world, takes due keys, lets the pure core decide, writes statuses first and then
//! starts effects.
//!
//! Guarantees: one `EffectId` never runs twice at once; an effect starts only when the status that records it was
//! accepted, only if the latest pass of its key still wants it, and only with a permit; results are observed, never
//! assumed; dropping the engine at any await point is like killing the process. Without the lease it observes and decides
//! nothing. Limits: at most `WRITES` cluster writes at once.

mod events;
mod git;
mod halt;
mod lease;
mod pass;
mod queue;
mod rest;
mod told;
mod vitals;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::{JoinError, JoinSet},
};

pub use git::Threads;
pub use queue::{Queue, SPACING};
pub use vitals::Vitals;

use crate::{
    api::names::{AttemptId, REPOSITORY, REQUESTED_AT, RepoName, Uid},
    clock::{Clock, Stopwatch, later},
    config::Config,
    dice::Dice,
    git::Remote,
    lease::Role,
    metrics::Metrics,
    mirror::ReadMemo,
    observe::Observer,
    perform::{self, GitPort, Permit},
    profile::Profile,
    rollout::effect::{Effect, EffectId, EffectOutcome, Rejection, RejectionKind, StepName},
    world::{Feed, FeedHealth, Key, Observation, Shape, World},
};
use events::Recorded;
use git::{Ears, Since, Worker};
use halt::Halts;
use lease::Right;
use pass::{Core, name, panic_text};
use rest::Rests;
use told::About;

/// Most cluster writes at once.
const WRITES: usize = 64;
/// Observations taken in before the next pass.
const BATCH: usize = 512;
/// How long one effect may take.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);
/// How long running effects are waited for at the end.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long giving the lease back may take.
const GIVE_BACK: Duration = Duration::from_secs(5);

/// What the engine works with.
pub struct Ports {
    /// The cluster; its client retries nothing by itself.
    pub kube: kube::Client,
    /// Repositories by name.
    pub remotes: BTreeMap<RepoName, Box<dyn Remote>>,
    /// Where Git's blocking calls run.
    pub threads: Threads,
    /// Time.
    pub clock: Clock,
    /// Jitter.
    pub dice: Dice,
    /// Name of this process in the lease; no other process ever has it.
    pub identity: String,
}

/// An effect with its end, what was seen of it, and how long it took.
type Finished = (EffectId, Effect, EffectOutcome, Vec<Observation>, Duration);

/// What tells a repository's worker something.
struct Bell {
    since: watch::Sender<Since>,
    asked: Arc<Notify>,
}

/// Statuses of one pass that are being written.
struct Writing {
    left: BTreeSet<EffectId>,
    failed: bool,
    effects: BTreeMap<EffectId, Effect>,
}

/// The engine.
pub struct Engine {
    world: World,
    profiles: Vec<Profile>,
    config: Config,
    clock: Clock,
    dice: Dice,
    queue: Queue<Key>,
    last: Timestamp,
    /// Effects of the latest pass of each key that have not started.
    wanted: BTreeMap<EffectId, Effect>,
    running: BTreeSet<EffectId>,
    /// Keys whose statuses are being written; no pass of theirs runs meanwhile.
    writing: BTreeMap<Key, Writing>,
    /// Effects whose intents the accepted statuses hold.
    covered: BTreeMap<Key, BTreeMap<EffectId, Effect>>,
    rests: Rests,
    recorded: Recorded,
    /// Commits that the mirror has parsed already.
    memos: BTreeMap<RepoName, ReadMemo>,
    halts: Halts,
    core: Core,
    told: BTreeMap<Key, Vec<String>>,
    role: watch::Sender<Role>,
    identity: String,
    /// Highest epoch seen in a status.
    epochs: i64,
    /// Epoch of the latest decisions; `None` = nothing was decided yet.
    epoch: Option<i64>,
    requested: BTreeMap<Uid, String>,
    seen: mpsc::Receiver<Observation>,
    out: mpsc::Sender<Observation>,
    bells: BTreeMap<RepoName, Bell>,
    ports: perform::Ports,
    remotes: BTreeMap<RepoName, Box<dyn Remote>>,
    threads: Threads,
    /// Feeds and Git workers; they end with the engine, or tell their name and why.
    sources: JoinSet<(String, String)>,
    tasks: JoinSet<Finished>,
    metrics: Metrics,
    vitals: Option<Vitals>,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: Config, profiles: Vec<Profile>, ports: Ports) -> Self {
        let (out, seen) = mpsc::channel(BATCH * 4);
        let Ports { kube, remotes, threads, clock, dice, identity } = ports;
        let effects =
            perform::Ports { kube, namespace: config.namespace.clone(), git: BTreeMap::new(), clock };
        Self {
            world: World::default(),
            profiles,
            clock,
            dice,
            queue: Queue::default(),
            last: clock.now(),
            wanted: BTreeMap::new(),
            running: BTreeSet::new(),
            writing: BTreeMap::new(),
            covered: BTreeMap::new(),
            rests: Rests::default(),
            recorded: Recorded::default(),
            memos: BTreeMap::new(),
            halts: Halts::default(),
            core: Core::default(),
            told: BTreeMap::new(),
            role: watch::Sender::new(Role::Standby { holder: None }),
            identity,
            epochs: 0,
            epoch: None,
            requested: BTreeMap::new(),
            seen,
            out,
            bells: BTreeMap::new(),
            ports: effects,
            remotes,
            threads,
            sources: JoinSet::new(),
            tasks: JoinSet::new(),
            metrics: Metrics::default(),
            vitals: None,
            config,
        }
    }

    /// What this replica is to the others, now and whenever it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// The same engine, which counts into these metrics and tells how it is.
    #[must_use]
    pub fn shown(self, metrics: Metrics, vitals: Vitals) -> Self {
        Self { metrics, vitals: Some(vitals), ..self }
    }

    /// Runs until `stop` ends; then waits for running effects, but not for long, and gives the lease back.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        self.metrics.engine_starts();
        self.start_sources()?;
        let mut right = self.start_election();
        futures::pin_mut!(stop);
        loop {
            if self.claims_listed() {
                right.tell(self.epochs);
            }
            let permit = right.permit(self.epochs, self.clock, EFFECT_LIMIT);
            self.work(permit);
            let (clock, due) = (self.clock, self.next_turn(permit.is_some()));
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = right.changed() => {}
                Some(finished) = self.tasks.join_next() => self.finish(finished),
                Some(observation) = self.seen.recv() => self.take_in(observation),
                Some(ended) = self.sources.join_next() => self.source_ended(ended),
                () = clock.sleep_until(due.unwrap_or(Timestamp::MAX)), if due.is_some() => {}
            }
        }
        // What still runs would run beside the next leader.
        if self.part().await {
            right.give_back(self.clock, later(self.clock.now(), GIVE_BACK)).await;
        }
        self.sources.abort_all();
        Ok(())
    }

    fn start_sources(&mut self) -> std::io::Result<()> {
        for feed in Feed::ALL {
            let observer = Observer {
                feed,
                kube: self.ports.kube.clone(),
                namespace: self.config.namespace.clone(),
                clock: self.clock,
                dice: self.dice.fork(),
                out: self.out.clone(),
            };
            self.sources.spawn(living(format!("feed {feed:?}"), observer.run()));
        }
        let mut remotes = std::mem::take(&mut self.remotes);
        for repository in &self.config.repositories {
            let Some(remote) = remotes.remove(&repository.name) else { continue };
            let (port, pushes) = GitPort::new();
            let (since, since_seen) = watch::channel(Since::Unknown);
            let asked = Arc::new(Notify::new());
            let time = (self.clock, self.dice.fork());
            let out = (self.out.clone(), self.metrics.clone());
            let worker = Worker::new(repository.clone(), &self.config, remote, self.threads, time, out)?;
            let ears = Ears { pushes, since: since_seen, asked: Arc::clone(&asked) };
            self.sources.spawn(living(format!("repository {}", repository.name), worker.run(ears)));
            self.ports.git.insert(repository.name.clone(), port);
            self.bells.insert(repository.name.clone(), Bell { since, asked });
        }
        Ok(())
    }

    fn start_election(&mut self) -> Right {
        if !self.config.leader_election.enabled {
            self.role.send_replace(Role::Leader { epoch: lease::FIRST_EPOCH });
            return Right::Always;
        }
        let (elected, elector) =
            lease::election(&self.config, &self.ports.kube, &self.identity, self.clock, &self.role);
        self.sources.spawn(living("the lease".to_owned(), elector));
        Right::Elected(elected)
    }

    fn take_in(&mut self, first: Observation) {
        self.apply(first);
        for _ in 1..BATCH {
            let Ok(next) = self.seen.try_recv() else { break };
            self.apply(next);
        }
        self.tell_workers();
    }

    fn apply(&mut self, observation: Observation) {
        let now = self.clock.now();
        self.hear_requests(&observation);
        self.hear_epoch(&observation);
        let about = About::of(&observation);
        for key in self.world.apply(observation, now) {
            self.halts.touch(&key);
            self.queue.hurry(key, now);
        }
        self.tell_metrics(about, now);
    }

    /// "Look now" on a custom resource: the worker of its repository, or every one.
    fn hear_requests(&mut self, observation: &Observation) {
        if let Observation::Gone(_, _, uid, _) = observation {
            self.requested.remove(uid);
        }
        let (Observation::Listed(_, object) | Observation::Changed(_, object)) = observation else { return };
        let Shape::Claim(claim) = &object.shape else { return };
        let Some(asked) = claim.annotations.get(REQUESTED_AT) else { return };
        let before = self.requested.insert(object.uid.clone(), asked.clone());
        if before.as_ref() == Some(asked) {
            return;
        }
        let repo = claim.annotations.get(REPOSITORY).map(RepoName::new);
        for (name, bell) in &self.bells {
            if repo.as_ref().is_none_or(|repo| repo == name) {
                bell.asked.notify_one();
            }
        }
    }

    fn hear_epoch(&mut self, observation: &Observation) {
        let (Observation::Listed(_, object)
        | Observation::Changed(_, object)
        | Observation::Answered(object)) = observation
        else {
            return;
        };
        if let Shape::Claim(claim) = &object.shape {
            self.epochs = self.epochs.max(claim.status.epoch().unwrap_or_default());
        }
    }

    fn claims_listed(&self) -> bool {
        let live = |feed| matches!(self.world.feeds.get(&feed), Some(FeedHealth::Live(_)));
        live(Feed::CniUpgrades) && live(Feed::ServiceUpgrades)
    }

    /// Tells the workers the accepted revisions, once the ledgers are listed.
    fn tell_workers(&self) {
        if !matches!(self.world.feeds.get(&Feed::Stores), Some(FeedHealth::Live(_))) {
            return;
        }
        for (repo, bell) in &self.bells {
            let since = match self.world.ledgers.get(repo).map(|seen| &seen.is) {
                None => Since::Accepted(None),
                Some(Ok(ledger)) => Since::Accepted(ledger.accepted.clone()),
                // What was accepted cannot be told: go on from where the worker is.
                Some(Err(_)) => continue,
            };
            bell.since.send_if_modified(|held| {
                let changed = *held != since;
                if changed {
                    *held = since;
                }
                changed
            });
        }
    }

    /// Runs every due pass and starts what may start; without a permit what is due stays due.
    fn work(&mut self, permit: Option<Permit>) {
        let now = self.clock.now();
        if now < self.last {
            self.world.set_back(now);
            self.rests = Rests::default();
            self.queue.hurry_all(now);
        }
        self.last = now;
        self.tell_turn(now);
        let Some(permit) = permit else { return };
        self.take_office(permit.epoch, now);
        while let Some(key) = self.queue.take(now) {
            self.pass(&key, now, permit);
        }
        self.start_wanted(now, permit);
    }

    /// With another epoch everything is decided anew: others may have led meanwhile.
    fn take_office(&mut self, epoch: i64, now: Timestamp) {
        if self.epoch.replace(epoch) == Some(epoch) {
            return;
        }
        self.wanted.clear();
        self.covered.clear();
        self.told.clear();
        for writing in self.writing.values_mut() {
            writing.failed = true;
        }
        for key in self.world.all_keys() {
            self.queue.hurry(key, now);
        }
    }

    fn start_wanted(&mut self, now: Timestamp, permit: Permit) {
        let (mut starting, mut recording) = (Vec::new(), 0);
        for (id, effect) in &self.wanted {
            if self.running.contains(id) {
                continue;
            }
            if let Some(until) = self.rests.until(id, effect, now) {
                self.queue.after(id.key.clone(), until);
            } else if id.step == StepName::RecordEvent {
                if self.may_record(recording) {
                    recording += 1;
                    starting.push(id.clone());
                }
            } else if self.cluster_writes() + starting.len() - recording < WRITES || is_push(id) {
                starting.push(id.clone());
            }
        }
        for id in starting {
            if let Some(effect) = self.wanted.remove(&id) {
                self.start(id, effect, permit);
            }
        }
    }

    fn cluster_writes(&self) -> usize {
        self.running.iter().filter(|id| !is_push(id) && id.step != StepName::RecordEvent).count()
    }

    fn start(&mut self, id: EffectId, effect: Effect, permit: Permit) {
        let (object, attempt) = (name(&id.key), id.attempt.as_ref().map(AttemptId::as_str));
        tracing::debug!(effect = %id, object, attempt, "starts");
        self.running.insert(id.clone());
        let (ports, watch) = (self.ports.clone(), Stopwatch::start());
        self.tasks.spawn(async move {
            let performed = AssertUnwindSafe(perform::perform(&effect, permit, &ports)).catch_unwind().await;
            let (outcome, seen) = performed.unwrap_or_else(|panic| {
                let why = panic_text(&*panic);
                tracing::error!(effect = %id, why, "the effect failed; it is tried again");
                (EffectOutcome::Unknown(why), Vec::new())
            });
            (id, effect, outcome, seen, watch.elapsed())
        });
    }

    fn finish(&mut self, finished: Result<Finished, JoinError>) {
        let (id, effect, outcome, seen, took) = match finished {
            Ok(finished) => finished,
            // Panics are caught in the task, and nobody aborts one while the engine goes on.
            Err(error) => return tracing::error!(%error, "an effect ended unexpectedly"),
        };
        let now = self.clock.now();
        self.metrics.effect_ended(id.step, &outcome, took);
        self.running.remove(&id);
        // What was wanted meanwhile was decided without this end.
        self.wanted.remove(&id);
        if id.step == StepName::RecordEvent {
            return self.event_ended(id, effect, &outcome, now);
        }
        for observation in seen {
            self.apply(observation);
        }
        match &outcome {
            EffectOutcome::Done | EffectOutcome::Moot => {
                tracing::debug!(effect = %id, object = name(&id.key), ?outcome, "ended");
                self.apply(Observation::Accepted(id.clone()));
            }
            EffectOutcome::Rejected(no) => self.rejected(&id, no.clone()),
            EffectOutcome::Unknown(why) => {
                let message = format!("nobody knows whether it was done: {why}");
                self.rejected(&id, Rejection { kind: RejectionKind::Unavailable, message });
            }
        }
        self.tell_workers();
        let written = matches!(outcome, EffectOutcome::Done);
        self.rests.note(id.clone(), effect, &outcome, now, &mut self.dice);
        if id.step == StepName::WriteStatus {
            self.status_ended(&id, written);
        }
        self.queue.hurry(id.key, now);
    }

    fn rejected(&mut self, id: &EffectId, no: Rejection) {
        if no.kind == RejectionKind::Conflict {
            tracing::debug!(effect = %id, object = name(&id.key), why = no.message, "conflict; looking again");
        } else {
            let attempt = id.attempt.as_ref().map(AttemptId::as_str);
            let (object, why) = (name(&id.key), &no.message);
            tracing::warn!(effect = %id, object, attempt, kind = ?no.kind, why, "rejected");
        }
        self.apply(Observation::Rejected(id.clone(), no));
    }

    /// A feed or worker must not end before the engine; only a new process can help.
    fn source_ended(&mut self, ended: Result<(String, String), JoinError>) {
        let (source, why) = ended.unwrap_or_else(|error| ("a source".to_owned(), error.to_string()));
        tracing::error!(source, why, "ended unexpectedly");
        if let Some(vitals) = &self.vitals {
            vitals.ended(source, why);
        }
    }

    /// Ends well: nothing new starts, running effects may finish. Tells whether all did.
    async fn part(&mut self) -> bool {
        let deadline = later(self.clock.now(), FAREWELL);
        let clock = self.clock;
        let tasks = &mut self.tasks;
        let drained = clock.before(deadline, async { while tasks.join_next().await.is_some() {} }).await;
        if drained.is_none() {
            tracing::warn!(left = self.tasks.len(), "effects were still running at the end");
        }
        drained.is_some()
    }
}

/// Runs a source that should never end, and tells its name and why it did.
async fn living(name: String, source: impl Future<Output = ()>) -> (String, String) {
    let ended = AssertUnwindSafe(source).catch_unwind().await;
    (name, ended.map_or_else(|panic| panic_text(&*panic), |()| "nobody listens to it".to_owned()))
}

const fn is_push(id: &EffectId) -> bool {
    matches!(id.step, StepName::PushStatus | StepName::PushRollback)
}
