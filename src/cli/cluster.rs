//! The way to the cluster, as every command takes it.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, anyhow, bail};
use http::{StatusCode, header::DATE};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::ListParams,
    client::Body,
    config::{InClusterError, KubeConfigOptions},
};

use super::{Form, kubeconfig, print, root};
use crate::{
    api::names::STORE,
    clock::Clock,
    observe,
    world::{Feed, World},
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

/// Which cluster, and where trunkline keeps its stores in it.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Namespace of the ledgers and attempt records.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", default_value = "kube-system", value_parser = super::namespace)]
    pub(super) namespace: String,
}

/// What a command that only reads looks at.
pub(super) struct View {
    client: Client,
    namespace: String,
    form: Form,
}

/// What was seen, and when.
pub(super) struct Seen {
    pub(super) world: World,
    /// The cluster's own present when the look began: however long the look takes, equal clusters give equal reports.
    pub(super) at: Timestamp,
}

impl ReadArgs {
    /// The way to the cluster, which is not asked yet.
    pub(super) async fn open(&self, form: Form) -> anyhow::Result<View> {
        Ok(View { client: self.cluster.client().await?, namespace: self.namespace.clone(), form })
    }
}

impl View {
    /// Looks at everything; an error says what is wrong and the way out.
    pub(super) async fn look(&self) -> anyhow::Result<Seen> {
        let at = its_present(&self.client).await?.unwrap_or_else(|| Clock::real().now());
        let world = observe::snapshot(&self.client, &self.namespace, at)
            .await
            .map_err(|why| anyhow!("{why}; the account needs to get, list and watch what the daemon does"))?;
        if world.ledgers.is_empty() {
            let why = match self.with_ledgers().await {
                found if found.is_empty() => "trunkline has read no repository yet, or keeps its ledgers \
                                              elsewhere (--namespace)"
                    .to_owned(),
                found => format!(
                    "trunkline keeps its ledgers in {} (--namespace)",
                    Vec::from_iter(found).join(", ")
                ),
            };
            print::aside(self.form, "note", format_args!("no ledger in namespace {}: {why}", self.namespace));
        }
        Ok(Seen { world, at })
    }

    /// Namespaces with ledgers, as far as the account may look for them.
    async fn with_ledgers(&self) -> BTreeSet<String> {
        let stores: Api<ConfigMap> = Api::all(self.client.clone());
        let ledgers = ListParams::default().labels(&format!("{STORE}=ledger"));
        let found = stores.list(&ledgers).await.map(|list| list.items).unwrap_or_default();
        found.into_iter().filter_map(|store| store.metadata.namespace).collect()
    }
}

/// Asks for our custom resources once: what is wrong shows here, and the answer carries the server's time.
async fn its_present(client: &Client) -> anyhow::Result<Option<Timestamp>> {
    let (path, _) = observe::address::of_feed(Feed::CniUpgrades, "");
    let request = http::Request::get(format!("{path}?limit=1")).body(Body::empty())?;
    let answer = client.send(request).await.map_err(|error| {
        let cause = root(error);
        anyhow!("the API server cannot be reached; check --kubeconfig, --context and the network: {cause}")
    })?;
    match answer.status() {
        status if status.is_success() => {}
        StatusCode::UNAUTHORIZED => bail!("the API server does not know these credentials; renew them"),
        StatusCode::FORBIDDEN => {
            bail!("this account may not list CNIUpgrades; it needs to get and list what the daemon does")
        }
        StatusCode::NOT_FOUND => bail!(
            "the cluster does not know CNIUpgrade; install the CustomResourceDefinitions with \
             `trunkline crd | kubectl apply -f -`"
        ),
        status => bail!("the API server answers {status} when asked for CNIUpgrades"),
    }
    Ok(date(&answer))
}

/// The server's time of an answer, in whole seconds.
pub(super) fn date<B>(answer: &http::Response<B>) -> Option<Timestamp> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(date).ok()
}

impl ClusterArgs {
    /// A client that retries nothing by itself: every no is decided on by the caller.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        self.client_as(None).await
    }

    /// The same, impersonating a user if one is given.
    pub(super) async fn client_as(&self, user: Option<&str>) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        if let Some(user) = user {
            config.auth_info.impersonate = Some(user.to_owned());
        }
        Client::try_from(config).context("no client for this cluster")
    }

    async fn config(&self) -> anyhow::Result<Config> {
        super::must_exist(&self.kubeconfig)?;
        let places = match &self.kubeconfig {
            Some(path) => vec![path.clone()],
            None => kubeconfig::places(),
        };
        let Some(file) = kubeconfig::merged(&places)? else { return self.of_the_pod(&places) };
        let context = kubeconfig::context(&file, self.context.as_deref(), &places)?.to_owned();
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| {
            let places = kubeconfig::listed(&places);
            anyhow!("context `{context}` of {places} names no usable cluster: {}", root(error))
        })
    }

    /// Without any kubeconfig the service account of the pod counts, unless a context is asked for.
    fn of_the_pod(&self, missing: &[PathBuf]) -> anyhow::Result<Config> {
        let missing = kubeconfig::listed(missing);
        if let Some(context) = &self.context {
            bail!("--context {context}: no kubeconfig is there ({missing}); name a file with --kubeconfig");
        }
        Config::incluster().map_err(|error| {
            let text = format!(
                "neither a kubeconfig ({missing} is not there) nor a service account leads to a cluster; name a file \
                 with --kubeconfig"
            );
            match error {
                // Outside of a pod there is nothing to add.
                InClusterError::ReadEnvironmentVariable(_) => anyhow!(text),
                // What else a pod lacks.
                error => anyhow!("{text}: {}", root(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::until,
        sim::{
            api::{EmbeddedCluster, Fault},
            model::cluster::ClusterSpec,
        },
        world::FeedHealth,
    };

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_is_of_the_moment_when_it_began() {
        let model = ClusterSpec::new(1, 3, "2026-03-01T10:00:00Z".parse().unwrap()).build();
        let clock = Clock::embedded(model.now());
        let (began, cluster) = (clock.now(), EmbeddedCluster::new(model, clock));
        cluster.faults().once(Fault::Delay(Duration::from_secs(3)), |asked| asked.uri.contains("/pods"));
        let view = View { client: cluster.client(), namespace: "kube-system".to_owned(), form: Form::Text };
        let seen = view.look().await.unwrap();
        assert_eq!(seen.world.nodes.len(), 3);
        // The server tells whole seconds.
        assert_eq!(seen.at.as_second(), began.as_second());
        assert_eq!(until(began, clock.now()), Duration::from_secs(3), "nothing took long");
        assert!(seen.world.feeds.values().all(|health| *health == FeedHealth::Live(seen.at)));
    }
}
