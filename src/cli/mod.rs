//! The commands, one file each.

mod cluster;
mod crd;
mod demo;
mod explain;
mod kubeconfig;
mod object;
mod plan;
mod print;
mod run;
mod status;
mod validate;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

use crate::telemetry::{self, LogFormat};

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// Wrong usage that only shows once files or the cluster were looked at.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

#[derive(Debug, Parser)]
#[command(name = "trunkline", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// How log lines on standard error look.
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the repositories of the configuration and change the cluster as they say.
    Run(run::Args),
    /// Play a whole story on an embedded cluster and a throw-away Git remote.
    Demo(demo::Args),
    /// Check manifests as the daemon would.
    Validate(validate::Args),
    /// Say what manifests would change on a cluster, without changing anything.
    Plan(plan::Args),
    /// Show what runs, what is under way, and what stands in the way.
    Status(status::Args),
    /// Show every gate of an object with its verdict and evidence.
    Explain(explain::Args),
    /// Print the CustomResourceDefinitions.
    Crd,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Reads the arguments and runs the command; the exit code is 0 if all is well, 1 on errors, 2 on wrong usage.
pub fn main() -> ExitCode {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    // The daemon logs what it does; the other commands print it, failed requests too.
    let level = if matches!(cli.command, Command::Run(_)) { "info" } else { "warn,kube_client=off" };
    telemetry::init(cli.log_format, level);
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Crd => crd::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        if error.is::<Usage>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    })
}

/// What an error comes from: the errors above it repeat it.
fn root(error: impl Into<anyhow::Error>) -> String {
    error.into().root_cause().to_string()
}

/// A path that is not there is a slip on the command line.
fn must_exist<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Usage> {
    match paths.into_iter().find(|path| !path.exists()) {
        Some(path) => Err(Usage(format!("{} does not exist", path.display()))),
        None => Ok(()),
    }
}

/// Runs a command that only reads.
fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime could be started")?
        .block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_contradict_nothing() {
        Cli::command().debug_assert();
    }
}
