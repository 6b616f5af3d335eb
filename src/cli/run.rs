//! `trunkline run`: the daemon.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use kube::core::Request;
use serde::Deserialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use super::cluster::ClusterArgs;
use crate::{
    clock::Clock,
    config::{Config, ServeAt},
    dice::Dice,
    engine::{Engine, Ports, Threads, Vitals},
    git::{Git2Remote, GitOptions, Remote},
    metrics::Metrics,
    profile,
    serve::{self, Served},
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
    /// Where health, readiness and metrics are served: `host:port`, `:port`, or `0` for nowhere; otherwise as
    /// `server.metrics` of the configuration says, which is `:8080` by default.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<ServeAt>,
    /// Namespace of the ledgers and attempt records.
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

async fn follow(args: &Args) -> anyhow::Result<()> {
    super::must_exist([&args.config])?;
    let text = std::fs::read_to_string(&args.config)
        .with_context(|| format!("{} cannot be read", args.config.display()))?;
    // The file is checked before the cluster is asked for anything.
    let checked =
        Config::parse(&text, &args.namespace, "").with_context(|| args.config.display().to_string())?;
    let (clock, metrics, vitals) = (Clock::real(), Metrics::default(), Vitals::default());
    let served = Served { metrics: metrics.clone(), vitals: vitals.clone(), clock };
    let _server =
        start_server(args.metrics_bind_address.as_ref().unwrap_or(&checked.metrics), served).await?;
    let kube = args.cluster.client().await?;
    let cluster_uid = cluster_uid(&kube).await.context("the cluster gives no answer")?;
    let config = Config::parse(&text, &args.namespace, &cluster_uid)?;
    metrics.config_read(true, clock.now());
    let ports = Ports {
        kube,
        remotes: remotes(&config, args)?,
        threads: Threads::Own,
        clock,
        dice: Dice::new(seed(clock)),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        cluster = config.cluster,
        uid = cluster_uid,
        repositories = config.repositories.len(),
        "starts with epoch 1; leader election is not built yet, so run one replica only"
    );
    let stop = stopped(vitals.clone())?;
    let engine = Engine::new(config, profile::built_in(), ports).shown(metrics, vitals);
    engine.run(stop).await.context("the engine could not start")?;
    tracing::info!("stopped");
    Ok(())
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

fn remotes(config: &Config, args: &Args) -> anyhow::Result<BTreeMap<crate::api::RepoName, Box<dyn Remote>>> {
    let clones = args.data_dir.clone().unwrap_or_else(data_dir).join("clones");
    let mut remotes: BTreeMap<_, Box<dyn Remote>> = BTreeMap::new();
    for repository in &config.repositories {
        let clone_dir = clones.join(repository.name.as_str());
        std::fs::create_dir_all(&clone_dir)
            .with_context(|| format!("{} cannot be made", clone_dir.display()))?;
        let remote = Git2Remote::open(GitOptions {
            url: repository.url.clone(),
            clone_dir,
            credentials: repository.credentials.as_ref().map(PathBuf::from),
            allow_local: args.allow_local,
            connect_timeout: GIT_CONNECT,
            read_timeout: GIT_READ,
        })
        .with_context(|| format!("repository {}", repository.name))?;
        remotes.insert(repository.name.clone(), Box::new(remote));
    }
    Ok(remotes)
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
