//! Metrics: what is counted and measured, in Prometheus' text form.
//!
//! Guarantees: an answer is a text made in memory, so nothing that is measured ever waits for a scraper; labels are
//! names of ours, of repositories and of custom resources, and series of an object go with it. Limits: see
//! `objects::MOST`.

mod objects;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::{
    api::{
        ClaimKey,
        names::{Oid, RepoName},
    },
    git::{GitError, Pushed},
    rollout::effect::{EffectOutcome, RejectionKind, StepName},
    world::{Claim, Feed, FeedHealth, Key, Seen},
};
use objects::Objects;

/// Seconds at the ends of the buckets of passes: a pass only computes.
const PASS: [f64; 10] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 1.0];
/// Seconds at the ends of the buckets of requests to the API server and to Git.
const REQUEST: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// A gauge of seconds.
type Seconds = Gauge<f64, AtomicU64>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Everything that is measured; a clone is the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    objects: Arc<Objects>,
    engine: Engine,
    git: Git,
    leader: Gauge,
    epoch: Gauge,
    engine_starts: Counter,
    reloads: Family<Outcome, Counter>,
    reload_success: Gauge,
    reload_time: Seconds,
    accepted: Mutex<BTreeMap<RepoName, Oid>>,
}

#[derive(Debug)]
struct Engine {
    passes: Histograms<Reconciler>,
    queue_depth: Gauge,
    effects: Family<Step, Counter>,
    effect_duration: Histograms<StepOnly>,
    feed_live: Family<OfFeed, Gauge>,
    feed_event: Family<OfFeed, Seconds>,
}

#[derive(Debug)]
struct Git {
    fetches: Family<OfRepository, Counter>,
    fetch_duration: Histograms<RepositoryOnly>,
    fetch_time: Family<RepositoryOnly, Seconds>,
    pushes: Family<OfPush, Counter>,
    push_duration: Histograms<RepositoryOnly>,
    accepted_time: Family<RepositoryOnly, Seconds>,
    accepted_head: Family<RepositoryOnly, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciler {
    reconciler: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    step: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepOnly {
    step: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFeed {
    feed: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepositoryOnly {
    repository: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRepository {
    repository: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPush {
    repository: String,
    branch: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Which branch a push goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushedTo {
    /// The status branch.
    Status,
    /// The tracked branch.
    Tracked,
}

fn histograms<L: Clone + Hash + Eq>(make: fn() -> Histogram) -> Histograms<L> {
    Family::new_with_constructor(make)
}

fn of_passes() -> Histogram {
    Histogram::new(PASS)
}

fn of_requests() -> Histogram {
    Histogram::new(REQUEST)
}

/// A registry that is being filled.
struct Registering(Registry);

impl Registering {
    /// Registers a metric and gives it back.
    fn with<M>(&mut self, name: &str, help: &str, metric: M) -> M
    where
        M: prometheus_client::registry::Metric + Clone,
    {
        self.0.register(name, help, metric.clone());
        metric
    }

    /// The same for one whose unit is the second.
    fn seconds<M>(&mut self, name: &str, help: &str, metric: M) -> M
    where
        M: prometheus_client::registry::Metric + Clone,
    {
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }
}

impl Engine {
    fn registered(to: &mut Registering) -> Self {
        Self {
            passes: to.seconds(
                "trunkline_pass_duration",
                "Time that passes took, by reconciler",
                histograms(of_passes),
            ),
            queue_depth: to.with(
                "trunkline_queue_depth",
                "Keys that were due when the engine last turned",
                Gauge::default(),
            ),
            effects: to.with(
                "trunkline_effects",
                "Effects that ended, by step and outcome",
                Family::default(),
            ),
            effect_duration: to.seconds(
                "trunkline_effect_duration",
                "Time that effects took, by step",
                histograms(of_requests),
            ),
            feed_live: to.with(
                "trunkline_feed_live",
                "1 while a feed of the API server is listed and watched without a gap, else 0",
                Family::default(),
            ),
            feed_event: to.seconds(
                "trunkline_feed_last_event_timestamp",
                "When something was last heard on a feed, as Unix time",
                Family::default(),
            ),
        }
    }
}

impl Git {
    fn registered(to: &mut Registering) -> Self {
        Self {
            fetches: to.with("trunkline_git_fetches", "Looks at a repository, by outcome", Family::default()),
            fetch_duration: to.seconds(
                "trunkline_git_fetch_duration",
                "Time that looks at a repository took",
                histograms(of_requests),
            ),
            fetch_time: to.seconds(
                "trunkline_git_last_fetch_timestamp",
                "When a repository was last read, as Unix time",
                Family::default(),
            ),
            pushes: to.with(
                "trunkline_git_pushes",
                "Pushes to the status branch or the tracked branch of a repository, by outcome",
                Family::default(),
            ),
            push_duration: to.seconds(
                "trunkline_git_push_duration",
                "Time that pushes to a repository took",
                histograms(of_requests),
            ),
            accepted_time: to.seconds(
                "trunkline_repository_accepted_timestamp",
                "When this process first saw the accepted revision of a repository, as Unix time",
                Family::default(),
            ),
            accepted_head: to.with(
                "trunkline_repository_accepted_is_head",
                "1 if the head of the tracked branch is the accepted revision, else 0",
                Family::default(),
            ),
        }
    }

    fn clear(&self) {
        self.fetches.clear();
        self.fetch_duration.clear();
        self.fetch_time.clear();
        self.pushes.clear();
        self.push_duration.clear();
        self.accepted_time.clear();
        self.accepted_head.clear();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut to = Registering(Registry::default());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        // `Info` puts its suffix behind the name.
        to.0.register("trunkline_build", "Version of this binary", build);
        let objects = Arc::new(Objects::default());
        to.0.register_collector(Box::new(Arc::clone(&objects)));
        Self(Arc::new(Inner {
            engine: Engine::registered(&mut to),
            git: Git::registered(&mut to),
            leader: to.with("trunkline_leader", "1 while this process may act, else 0", Gauge::default()),
            epoch: to.with(
                "trunkline_leader_epoch",
                "Epoch under which this process acts, or last acted",
                Gauge::default(),
            ),
            engine_starts: to.with(
                "trunkline_engine_starts",
                "Engines that this process started: the first one, and one for each new configuration",
                Counter::default(),
            ),
            reloads: to.with(
                "trunkline_config_reloads",
                "Changed configurations and policies that were read, by outcome",
                Family::default(),
            ),
            reload_success: to.with(
                "trunkline_config_reload_success",
                "1 if configuration and policies as they are on disk are in use, 0 if they are faulty and the ones before stay",
                Gauge::default(),
            ),
            reload_time: to.seconds(
                "trunkline_config_last_reload_success_timestamp",
                "When the configuration in use was read, as Unix time",
                Seconds::default(),
            ),
            accepted: Mutex::default(),
            registry: to.0,
            objects,
        }))
    }
}

impl Metrics {
    /// All metrics in Prometheus' text form.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // A `String` takes every write.
        let _ = prometheus_text::encode(&mut text, &self.0.registry);
        text
    }

    /// A new engine starts: repositories and objects may be others than before.
    pub(crate) fn engine_starts(&self) {
        self.0.engine_starts.inc();
        self.0.git.clear();
        self.0.objects.clear();
        self.accepted().clear();
    }

    pub(crate) fn passed(&self, key: &Key, took: Duration) {
        let reconciler = match key {
            Key::Mirror(_) => "mirror",
            Key::Rollout(_) => "rollout",
            Key::Publish(_) => "publish",
        };
        self.0.engine.passes.get_or_create(&Reconciler { reconciler }).observe(took.as_secs_f64());
    }

    pub(crate) fn due(&self, keys: usize) {
        self.0.engine.queue_depth.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    pub(crate) fn effect_ended(&self, step: StepName, outcome: &EffectOutcome, took: Duration) {
        let step = format!("{step:?}");
        self.0
            .engine
            .effect_duration
            .get_or_create(&StepOnly { step: step.clone() })
            .observe(took.as_secs_f64());
        self.0.engine.effects.get_or_create(&Step { step, outcome: word(outcome) }).inc();
    }

    pub(crate) fn heard(&self, feed: Feed, health: Option<&FeedHealth>, now: Timestamp) {
        let live = matches!(health, Some(FeedHealth::Live(_)));
        let feed = OfFeed { feed: format!("{feed:?}") };
        self.0.engine.feed_live.get_or_create(&feed).set(i64::from(live));
        self.0.engine.feed_event.get_or_create(&feed).set(unix(now));
    }

    pub(crate) fn fetched(
        &self,
        repo: &RepoName,
        result: Result<(), &GitError>,
        took: Duration,
        now: Timestamp,
    ) {
        let Git { fetches, fetch_duration, fetch_time, .. } = &self.0.git;
        let repository = repo.to_string();
        let only = RepositoryOnly { repository: repository.clone() };
        fetch_duration.get_or_create(&only).observe(took.as_secs_f64());
        if result.is_ok() {
            fetch_time.get_or_create(&only).set(unix(now));
        }
        let outcome = result.map_or_else(trouble, |()| "done");
        fetches.get_or_create(&OfRepository { repository, outcome }).inc();
    }

    pub(crate) fn pushed(
        &self,
        repo: &RepoName,
        to: PushedTo,
        result: Result<&Pushed, &GitError>,
        took: Duration,
    ) {
        let Git { pushes, push_duration, .. } = &self.0.git;
        let repository = repo.to_string();
        let only = RepositoryOnly { repository: repository.clone() };
        push_duration.get_or_create(&only).observe(took.as_secs_f64());
        let branch = match to {
            PushedTo::Status => "status",
            PushedTo::Tracked => "tracked",
        };
        let outcome = match result {
            Ok(Pushed::Done(_)) => "done",
            Ok(Pushed::Moved(_)) => "moved",
            Ok(Pushed::Refused(_)) => "refused",
            Err(error) => trouble(error),
        };
        pushes.get_or_create(&OfPush { repository, branch, outcome }).inc();
    }

    /// Takes in which revision is accepted, and where the tracked branch stands.
    pub(crate) fn repository(
        &self,
        repo: &RepoName,
        accepted: Option<&Oid>,
        head: Option<&Oid>,
        now: Timestamp,
    ) {
        let Git { accepted_time, accepted_head, .. } = &self.0.git;
        let only = RepositoryOnly { repository: repo.to_string() };
        accepted_head.get_or_create(&only).set(i64::from(accepted.is_some() && accepted == head));
        let Some(accepted) = accepted else { return };
        if self.accepted().insert(repo.clone(), accepted.clone()).as_ref() != Some(accepted) {
            accepted_time.get_or_create(&only).set(unix(now));
        }
    }

    /// Takes in a custom resource as it is now; absent = it is gone.
    pub(crate) fn object(&self, key: &ClaimKey, claim: Option<&Seen<Claim>>) {
        self.0.objects.see(key, claim);
    }

    /// Takes in all custom resources at once.
    pub(crate) fn all_objects(&self, claims: &BTreeMap<ClaimKey, Seen<Claim>>) {
        self.0.objects.see_all(claims);
    }

    /// Says whether this process may act, and under which epoch; without an epoch the last one stays.
    pub(crate) fn role(&self, leads: bool, epoch: Option<i64>) {
        self.0.leader.set(i64::from(leads));
        if let Some(epoch) = epoch {
            self.0.epoch.set(epoch);
        }
    }

    /// Configuration and policies were read, and are in use or not.
    pub(crate) fn config_read(&self, good: bool, now: Timestamp) {
        self.0.reload_success.set(i64::from(good));
        if good {
            self.0.reload_time.set(unix(now));
        }
        let outcome = if good { "done" } else { "faulty" };
        self.0.reloads.get_or_create(&Outcome { outcome }).inc();
    }

    fn accepted(&self) -> MutexGuard<'_, BTreeMap<RepoName, Oid>> {
        self.0.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unix(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

const fn word(outcome: &EffectOutcome) -> &'static str {
    match outcome {
        EffectOutcome::Done => "done",
        EffectOutcome::Moot => "moot",
        EffectOutcome::Unknown(_) => "unknown",
        EffectOutcome::Rejected(no) => match no.kind {
            RejectionKind::Conflict => "conflict",
            RejectionKind::NotFound => "not_found",
            RejectionKind::Forbidden => "forbidden",
            RejectionKind::Invalid => "invalid",
            RejectionKind::Unavailable => "unavailable",
            RejectionKind::RefMoved => "moved",
            RejectionKind::PushRefused => "refused",
        },
    }
}

const fn trouble(error: &GitError) -> &'static str {
    match error {
        GitError::Unreachable(_) => "unreachable",
        GitError::Unauthorised(_) => "unauthorised",
        GitError::UrlNotAllowed(_) => "url_not_allowed",
        GitError::Clone(_) => "clone",
    }
}
