//! The commands, one file each.

mod cluster;
mod crd;
mod demo;
mod run;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::telemetry::{self, LogFormat};

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
    /// Print the CustomResourceDefinitions.
    Crd,
    /// Check manifests as the daemon would.
    Validate(validate::Args),
}

/// Reads the arguments and runs the command; the exit code is 0 if all is well, 1 on errors, 2 on wrong usage.
pub fn main() -> ExitCode {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    // The daemon logs what it does; the other commands print it.
    let level = if matches!(cli.command, Command::Run(_)) { "info" } else { "warn" };
    telemetry::init(cli.log_format, level);
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Crd => crd::run(),
        Command::Validate(args) => validate::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
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
