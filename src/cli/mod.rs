//! The commands, one file each.

mod cluster;
mod crd;
mod demo;
mod doctor;
mod election;
mod explain;
mod kubeconfig;
mod manifests;
mod object;
mod plan;
mod print;
mod run;
mod status;
mod validate;

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{ExitCode, exit},
};

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    manifest::is_label,
    telemetry::{self, LogFormat},
};

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
    /// How log lines on standard error look; by default as text, but JSON from a daemon without a terminal.
    #[arg(long, global = true, value_enum)]
    log_format: Option<LogFormat>,
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
    /// Look at everything that an installation needs, say what is wrong and how to mend it.
    Doctor(doctor::Args),
    /// Print the CustomResourceDefinitions.
    Crd,
    /// Print what the daemon's account needs: service account, RBAC, admission policies.
    Manifests(manifests::Args),
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

impl Command {
    /// Form of its report, and so of its errors.
    const fn form(&self) -> Form {
        match self {
            Self::Run(_) | Self::Crd | Self::Manifests(_) => Form::Text,
            Self::Demo(args) => args.form(),
            Self::Validate(args) => args.form(),
            Self::Plan(args) => args.output,
            Self::Status(args) => args.output,
            Self::Explain(args) => args.output,
            Self::Doctor(args) => args.output,
        }
    }
}

/// Reads the arguments and runs the command; the exit code is 0 if all is well, 1 on errors, 2 on wrong usage.
pub fn main() -> ExitCode {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::try_parse().unwrap_or_else(|error| misused(&error));
    let form = cli.command.form();
    // The daemon logs what it does; the other commands print it, failed requests too.
    let (level, fitting) = match cli.command {
        Command::Run(_) => ("info", LogFormat::fitting()),
        _ => ("warn,kube_client=off", LogFormat::Text),
    };
    telemetry::init(cli.log_format.unwrap_or(fitting), level);
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Crd => crd::run(),
        Command::Manifests(args) => manifests::run(&args),
    };
    result.unwrap_or_else(|error| {
        print::aside(form, "error", format_args!("{error:#}"));
        if error.is::<Usage>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    })
}

/// Says what is wrong with the arguments, in JSON where they ask for it, and ends; help and version are no fault.
fn misused(error: &clap::Error) -> ! {
    let args: Vec<OsString> = std::env::args_os().collect();
    let json = args.iter().any(|arg| arg == "--output=json")
        || args
            .windows(2)
            .any(|pair| matches!(pair, [option, form] if option == "--output" && form == "json"));
    if !json || !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    print::aside(Form::Json, "error", text.trim_end().trim_start_matches("error: "));
    exit(USAGE.into());
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

/// A namespace as Kubernetes takes it.
fn namespace(text: &str) -> Result<String, &'static str> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("a namespace has 1 to 63 small letters, digits and `-`, and begins and ends with a letter or digit")
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
