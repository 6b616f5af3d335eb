//! `trunkline run`: the daemon.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::PathBuf,
    pin::{Pin, pin},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use kube::core::Request;
use serde::Deserialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use super::{
    cluster::ClusterArgs,
    election::{ElectionArgs, identity},
};
use crate::{
    api::RepoName,
    clock::Clock,
    config::{Config, Repository, ServeAt},
    dice::Dice,
    engine::{Engine, Ports, Threads, Vitals},
    git::{Git2Remote, GitError, GitOptions, Pushed, Remote, TrackedQuery},
    metrics::Metrics,
    reload::{Changes, Loaded, Sources},
    serve::{self, Served},
    world::git::{NewCommit, StatusBranch, Tracked},
};

/// Longest wait for a connection to a Git server.
const GIT_CONNECT: Duration = Duration::from_secs(15);
/// Longest silence of a Git server.
const GIT_READ: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/trunkline/config.yaml")]
    config: PathBuf,
    /// Allow repositories that are local paths or plain http on loopback.
    #[arg(long)]
    allow_local: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// Where health, readiness and metrics are served: `host:port`, `:port`, or `0` for nowhere; otherwise as
    /// `server.metrics` of the configuration says, which is `:8080` by default.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<ServeAt>,
    /// Namespace of the ledgers, attempt records and the lease.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", default_value = "kube-system", value_parser = super::namespace)]
    namespace: String,
    /// Folder of the clones, a cache; otherwise under XDG_CACHE_HOME or ~/.cache, or /var/lib/trunkline.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no runtime could be started")?;
    let result = runtime.block_on(follow(args));
    // A Git call that hangs must not hold the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result.map(|()| ExitCode::SUCCESS)
}

/// Why an engine ended.
enum End {
    /// The process shall end.
    Stopped,
    /// Something else was read.
    Changed(Box<Loaded>),
}

async fn follow(args: &Args) -> anyhow::Result<()> {
    super::must_exist([&args.config])?;
    let mut sources = Sources {
        config: args.config.clone(),
        namespace: args.namespace.clone(),
        cluster_uid: String::new(),
        allow_local: args.allow_local,
        election: args.election.flags(),
    };
    // The files are checked before the cluster is asked for anything.
    let checked = sources.read()?.config;
    let served = Served { metrics: Metrics::default(), vitals: Vitals::default(), clock: Clock::real() };
    let at = args.metrics_bind_address.as_ref().unwrap_or(&checked.metrics);
    let _server = start_server(at, served.clone()).await?;
    let mut stopped = pin!(stopped(served.vitals.clone())?);
    let kube = args.cluster.client().await?;
    sources.cluster_uid = cluster_uid(&kube).await.context("the cluster gives no answer")?;
    let mut loaded = sources.read()?;
    served.metrics.config_read(true, served.clock.now());
    let identity = identity()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        cluster = loaded.config.cluster,
        uid = sources.cluster_uid,
        repositories = loaded.config.repositories.len(),
        leader_election = loaded.config.leader_election.enabled,
        identity,
        "starts"
    );
    loop {
        let mut changes = Changes::of(sources.clone(), loaded.clone(), served.clock, served.metrics.clone());
        let (held, released) = mpsc::channel(1);
        let ports = Ports {
            kube: kube.clone(),
            remotes: remotes(&loaded.config, args, &held)?,
            threads: Threads::Own,
            clock: served.clock,
            dice: Dice::new(seed(served.clock)),
            identity: identity.clone(),
        };
        drop(held);
        let engine = Engine::new(loaded.config, loaded.profiles, ports)
            .shown(served.metrics.clone(), served.vitals.clone());
        match one(engine, &mut changes, stopped.as_mut(), released).await? {
            End::Stopped => break,
            End::Changed(other) => loaded = *other,
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Runs one engine until the process shall end or something else is read, and waits until its clones are left alone.
async fn one(
    engine: Engine,
    changes: &mut Changes,
    mut stopped: Pin<&mut impl Future<Output = ()>>,
    mut released: mpsc::Receiver<Infallible>,
) -> anyhow::Result<End> {
    let mut end = End::Stopped;
    let stop = async {
        tokio::select! {
            biased;
            () = stopped.as_mut() => {}
            other = changes.next() => end = End::Changed(Box::new(other)),
        }
    };
    engine.run(stop).await.context("the engine could not start")?;
    if let End::Changed(_) = end {
        tokio::select! {
            biased;
            () = stopped => end = End::Stopped,
            // Nothing is ever sent: it ends with the last of the remotes.
            _ = released.recv() => {}
        }
    }
    Ok(end)
}

/// UID of the namespace `kube-system`, which tells clusters apart.
async fn cluster_uid(kube: &kube::Client) -> anyhow::Result<String> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let request = Request::new("/api/v1/namespaces").get("kube-system", &kube::api::GetParams::default())?;
    Ok(kube.request::<Namespace>(request).await?.metadata.uid)
}

/// A remote that tells when nobody uses its clone any more: a call that is under way outlives its engine.
struct Held {
    remote: Git2Remote,
    _held: mpsc::Sender<Infallible>,
}

impl Remote for Held {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        self.remote.tracked(query)
    }

    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError> {
        self.remote.status(branch)
    }

    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError> {
        self.remote.push(commit)
    }
}

fn remotes(
    config: &Config,
    args: &Args,
    held: &mpsc::Sender<Infallible>,
) -> anyhow::Result<BTreeMap<RepoName, Box<dyn Remote>>> {
    let clones = args.data_dir.clone().unwrap_or_else(data_dir).join("clones");
    let mut remotes: BTreeMap<_, Box<dyn Remote>> = BTreeMap::new();
    for repository in &config.repositories {
        let clone_dir = clones.join(repository.name.as_str());
        std::fs::create_dir_all(&clone_dir)
            .with_context(|| format!("{} cannot be made", clone_dir.display()))?;
        let remote = Git2Remote::open(git_options(repository, clone_dir, args.allow_local))
            .with_context(|| format!("repository {}", repository.name))?;
        remotes.insert(repository.name.clone(), Box::new(Held { remote, _held: held.clone() }));
    }
    Ok(remotes)
}

/// How a repository is reached.
pub(super) fn git_options(repository: &Repository, clone_dir: PathBuf, allow_local: bool) -> GitOptions {
    GitOptions {
        url: repository.url.clone(),
        clone_dir,
        credentials: repository.credentials.as_ref().map(PathBuf::from),
        allow_local,
        connect_timeout: GIT_CONNECT,
        read_timeout: GIT_READ,
    }
}

fn data_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map_or_else(|| PathBuf::from("/var/lib/trunkline"), |cache| cache.join("trunkline"))
}

/// Differs between processes, so that a fleet does not knock in step.
fn seed(clock: Clock) -> u64 {
    clock.now().as_millisecond().unsigned_abs() ^ (u64::from(std::process::id()) << 32)
}

/// Serves health and metrics as long as the result lives.
async fn start_server(at: &ServeAt, served: Served) -> anyhow::Result<JoinSet<()>> {
    let mut server = JoinSet::new();
    let ServeAt::At(address) = at else { return Ok(server) };
    let listener = serve::listen(address).await.with_context(|| {
        format!("nothing can be served at {address}; choose another address with --metrics-bind-address")
    })?;
    server.spawn(async move {
        if let Err(error) = serve::serve(listener, served).await {
            tracing::error!(%error, "health and metrics are not served any more");
        }
    });
    Ok(server)
}

/// Ends at SIGTERM or SIGINT.
fn stopped(vitals: Vitals) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        vitals.stop();
        tracing::info!("stopping: nothing new starts, running writes may finish");
    })
}
