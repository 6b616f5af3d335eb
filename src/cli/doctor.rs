//! `trunkline doctor`: everything that an installation needs, looked at once; nothing is changed.

mod cluster;
mod repositories;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use super::{Form, Usage, cluster::ReadArgs, print};
use crate::{
    clock::Clock,
    config::ElectionFlags,
    reload::{LoadError, Loaded, Sources},
    report::doctor::{self, Examination, Finding, Verdict},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file; without one nothing about Git is looked at.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Allow repositories that are local paths or plain http on loopback.
    #[arg(long)]
    allow_local: bool,
    /// User to impersonate at the API server, such as system:serviceaccount:kube-system:trunkline.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Form,
    #[command(flatten)]
    cluster: ReadArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::must_exist(&args.config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime could be started")?;
    let examination = runtime.block_on(args.examine(Clock::real()));
    // A Git call that hangs must not hold the exit.
    runtime.shutdown_background();
    let examination = examination?;
    match args.output {
        Form::Text => print::text(examination.text(print::paint())),
        Form::Json => print::line(serde_json::to_string_pretty(&examination)?),
    }
    let faulty = examination.count(Verdict::Fault) > 0;
    Ok(if faulty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Args {
    /// Looks at everything; only wrong usage is an error.
    async fn examine(&self, clock: Clock) -> anyhow::Result<Examination> {
        let loaded = self.load();
        let loaded = loaded.as_ref().map(Result::as_ref);
        let mut findings = match self.cluster.cluster.client_as(self.user.as_deref()).await {
            Ok(client) => {
                let loaded = loaded.and_then(Result::ok);
                cluster::examine(&client, &self.cluster.namespace, loaded, clock).await
            }
            Err(error) if error.is::<Usage>() => return Err(error),
            Err(error) => doctor::in_no_cluster(&format!("{error:#}")),
        };
        findings.extend(self.examine_git(loaded, clock).await);
        Ok(Examination { findings })
    }

    fn load(&self) -> Option<Result<Loaded, LoadError>> {
        let sources = Sources {
            config: self.config.clone()?,
            namespace: self.cluster.namespace.clone(),
            cluster_uid: String::new(),
            allow_local: self.allow_local,
            election: ElectionFlags::default(),
        };
        Some(sources.read())
    }

    async fn examine_git(&self, loaded: Option<Result<&Loaded, &LoadError>>, clock: Clock) -> Vec<Finding> {
        let config = match loaded {
            None => return vec![doctor::no_configuration()],
            Some(Err(error)) => return vec![doctor::unusable_configuration(&error.to_string())],
            Some(Ok(loaded)) => &loaded.config,
        };
        let mut findings = vec![doctor::configuration(config)];
        for repository in &config.repositories {
            findings
                .extend(repositories::examine(repository, &config.cluster, self.allow_local, clock).await);
        }
        findings
    }
}
