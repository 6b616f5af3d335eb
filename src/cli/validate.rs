//! `trunkline validate`: what the daemon would say of these files.

pub(super) mod files;
pub(super) mod output;
mod refused;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::ValueEnum;

use super::{Form, print};
use crate::manifest::{self, Severity};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files and folders; folders are read with everything below them.
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Form of the findings.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Form of the findings.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// Annotations of a GitHub Actions run.
    Github,
}

impl Args {
    /// Form of errors.
    pub(super) const fn form(&self) -> Form {
        match self.output {
            Output::Text | Output::Github => Form::Text,
            Output::Json => Form::Json,
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::must_exist(&args.paths)?;
    let found = files::gather(&args.paths);
    // Who names a file wants to know what is wrong with it, whatever it holds.
    let named: BTreeSet<String> =
        args.paths.iter().filter(|path| path.is_file()).map(|path| files::shown(path)).collect();
    let mut reading = manifest::read(&found.files, &named);
    reading.diagnostics.extend(found.skipped);
    reading
        .diagnostics
        .extend(reading.declarations.values().flat_map(|declared| refused::of(declared, &found.files)));
    reading.diagnostics.sort();
    let text = match args.output {
        Output::Text => output::text(&reading, found.files.len(), print::paint()),
        Output::Json => output::json(&reading, found.files.len())?,
        Output::Github => output::github(&reading, found.files.len()),
    };
    print::text(text);
    let failed = reading.diagnostics.iter().any(|found| found.severity == Severity::Error);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
