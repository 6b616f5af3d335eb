//! The way to the cluster, as every command takes it.

use std::path::PathBuf;

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Which cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ClusterArgs {
    /// Kubeconfig file; otherwise KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

impl ClusterArgs {
    /// A client that retries nothing by itself: every no is decided on by the caller.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Client::try_from(config).context("no client for this cluster")
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("{} is no usable kubeconfig", path.display()))?;
            return Config::from_custom_kubeconfig(file, &options)
                .await
                .with_context(|| format!("{} names no usable cluster", path.display()));
        }
        if self.context.is_some() {
            return Config::from_kubeconfig(&options).await.context("no usable kubeconfig");
        }
        Config::infer().await.context("neither a kubeconfig nor a service account leads to a cluster")
    }
}
