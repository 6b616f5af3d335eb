//! One embedded cluster, one repository and one engine between them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use kube::Client;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use trunkline::{
    api::{CniUpgradeStatus, RepoName, cni_upgrade::CniPhase},
    clock::{Clock, later},
    config::Config,
    dice::Dice,
    engine::{Engine, Ports, Threads},
    git::{Git2Remote, GitOptions, Remote},
    profile,
    sim::{
        api::EmbeddedCluster,
        model::{
            Model,
            body::Body,
            cluster::ClusterSpec,
            store::{Kind, ObjRef},
        },
    },
};

use crate::git::{bare::Bare, server::GitServer};

/// What a story works with.
pub(crate) struct Stage {
    pub(crate) cluster: EmbeddedCluster,
    pub(crate) remote: Bare,
    pub(crate) clock: Clock,
    pub(crate) dir: TempDir,
    /// Serves the repository, where the engine reaches it by HTTP.
    pub(crate) server: Option<Arc<GitServer>>,
    world: JoinHandle<()>,
}

impl Stage {
    /// A cluster of that many nodes with Calico v3.27.2, and an empty repository.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::of(&Self::spec(nodes), None)
    }

    /// The same with the repository behind an HTTP server.
    pub(crate) fn over_http(nodes: usize) -> Self {
        Self::of(&Self::spec(nodes), Some(GitServer::start()))
    }

    /// What [`Stage::new`] makes.
    pub(crate) fn spec(nodes: usize) -> ClusterSpec {
        ClusterSpec::new(1, nodes, "2026-03-01T10:00:00Z".parse().unwrap())
    }

    /// Any cluster.
    pub(crate) fn of(spec: &ClusterSpec, server: Option<GitServer>) -> Self {
        Self::with(spec.build(), |model| Clock::embedded(model.now()), server)
    }

    /// The same on the wall clock.
    pub(crate) fn in_real_time(nodes: usize) -> Self {
        Self::on_the_wall(nodes, None)
    }

    /// Both on the wall clock and with the repository behind an HTTP server.
    pub(crate) fn in_real_time_over_http(nodes: usize) -> Self {
        Self::on_the_wall(nodes, Some(GitServer::start()))
    }

    fn on_the_wall(nodes: usize, server: Option<GitServer>) -> Self {
        let clock = Clock::real();
        Self::with(ClusterSpec::new(1, nodes, clock.now()).build(), |_| clock, server)
    }

    fn with(model: Model, clock: impl FnOnce(&Model) -> Clock, server: Option<GitServer>) -> Self {
        let clock = clock(&model);
        let cluster = EmbeddedCluster::new(model, clock);
        let moving = cluster.clone();
        let world = tokio::spawn(async move { moving.run().await });
        let dir = tempfile::tempdir().unwrap();
        let remote =
            server.as_ref().map_or_else(|| Bare::init(&dir.path().join("remote.git")), GitServer::repository);
        let server = server.map(Arc::new);
        Self { cluster, remote, clock, dir, server, world }
    }

    /// An engine over cluster and repository, as the daemon has it.
    pub(crate) fn engine(&self) -> JoinHandle<()> {
        self.engine_for(usize::MAX)
    }

    /// An engine that dies at that await point.
    pub(crate) fn engine_for(&self, polls: usize) -> JoinHandle<()> {
        let engine = self.make(|remote| remote);
        tokio::spawn(async move {
            let run = pin!(engine.run(std::future::pending()));
            dying(run, polls).await;
        })
    }

    /// An engine whose way to the remote leads through `wrap`.
    pub(crate) fn engine_through(
        &self,
        wrap: impl FnOnce(Box<dyn Remote>) -> Box<dyn Remote>,
    ) -> JoinHandle<()> {
        let engine = self.make(wrap);
        tokio::spawn(async move { engine.run(std::future::pending()).await.unwrap() })
    }

    /// Kills an engine, and waits until nothing of it is left, as when a process ends.
    pub(crate) async fn kill(&self, engine: JoinHandle<()>) {
        engine.abort();
        let _ = engine.await;
        // Its feeds, workers and effects end with it, each when it is polled next.
        self.pass(1).await;
    }

    /// An engine that does not run yet, whose way to the remote leads through `wrap`.
    pub(crate) fn make(&self, wrap: impl FnOnce(Box<dyn Remote>) -> Box<dyn Remote>) -> Engine {
        self.seat("alone", "{enabled: false}", self.clone_dir(), self.cluster.client(), wrap)
    }

    /// One of several engines that elect the one that acts.
    pub(crate) fn replica(
        &self,
        name: &str,
        kube: Client,
        wrap: impl FnOnce(Box<dyn Remote>) -> Box<dyn Remote>,
    ) -> Engine {
        self.seat(name, "{}", self.clone_dir().join(name), kube, wrap)
    }

    fn seat(
        &self,
        name: &str,
        election: &str,
        clone_dir: PathBuf,
        kube: Client,
        wrap: impl FnOnce(Box<dyn Remote>) -> Box<dyn Remote>,
    ) -> Engine {
        let path = self.remote.path().to_str().unwrap().to_owned();
        let url = self.server.as_ref().map_or(path, |server| server.url());
        let text = format!(
            "cluster: prod\nrepositories:\n- name: platform\n  url: {url}\n  poll: 30s\nleaderElection: {election}\n"
        );
        let config = Config::parse(&text, "trunkline-system", "uid-of-kube-system").unwrap();
        let clone = Git2Remote::open(GitOptions {
            url,
            clone_dir,
            credentials: self.server.as_ref().map(|server| server.credentials()),
            allow_local: true,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(20),
        });
        let remote = wrap(Box::new(clone.unwrap()));
        let ports = Ports {
            kube,
            remotes: BTreeMap::from([(RepoName::new("platform"), remote)]),
            threads: Threads::Caller,
            clock: self.clock,
            dice: Dice::new(1),
            identity: name.to_owned(),
        };
        Engine::new(config, profile::built_in(), ports)
    }

    /// Where the engine keeps its clone.
    pub(crate) fn clone_dir(&self) -> PathBuf {
        self.dir.path().join("clone")
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        self.clock.sleep_until(later(self.clock.now(), Duration::from_secs(seconds))).await;
    }

    /// The same in tenths of a second.
    pub(crate) async fn pass_tenths(&self, tenths: u64) {
        self.clock.sleep_until(later(self.clock.now(), Duration::from_millis(100 * tenths))).await;
    }

    /// Status of a CNIUpgrade, read beside the API.
    pub(crate) fn status(&self, name: &str) -> Option<CniUpgradeStatus> {
        let at = ObjRef::cluster(Kind::CniUpgrade, name);
        let stored = self.cluster.model(|model| model.get(&at).cloned())?;
        let Body::Plain(plain) = &stored.body else { panic!("{at} is typed") };
        Some(serde_json::from_value(plain.status.as_deref()?.clone()).unwrap())
    }

    /// Waits until the status is as told; fails after that many virtual minutes.
    pub(crate) async fn until(
        &self,
        name: &str,
        minutes: u64,
        holds: impl Fn(&CniUpgradeStatus) -> bool,
    ) -> CniUpgradeStatus {
        let mut looked_at = None;
        for _ in 0..minutes * 60 {
            let version = self.cluster.model(|model| model.rv());
            if looked_at.replace(version) != Some(version)
                && let Some(status) = self.status(name).filter(|status| holds(status))
            {
                return status;
            }
            self.pass(1).await;
        }
        panic!("not within {minutes} minutes; last seen: {:#?}", self.status(name));
    }

    /// Waits for a phase.
    pub(crate) async fn until_phase(&self, name: &str, phase: CniPhase, minutes: u64) -> CniUpgradeStatus {
        self.until(name, minutes, |status| status.phase == phase).await
    }
}

/// Polls a future so many times and then drops it.
async fn dying(mut future: Pin<&mut impl Future<Output = std::io::Result<()>>>, mut polls: usize) {
    std::future::poll_fn(move |cx| {
        if polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        future.as_mut().poll(cx).map(Result::unwrap)
    })
    .await;
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.world.abort();
    }
}
