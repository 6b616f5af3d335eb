//! `trunkline validate`: what the daemon would say of these files.

pub(super) mod files;
pub(super) mod output;
mod refused;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use clap::ValueEnum;

use super::{Form, print};
use crate::{
    api::ClaimKey,
    manifest::{self, Reading, Severity},
};

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

/// What stands in files and folders.
pub(super) struct Found {
    /// Declarations, and all that is wrong with them.
    pub(super) reading: Reading,
    /// How many files were read.
    files: usize,
    /// Declarations that every cluster refuses, for what a finding says.
    pub(super) refused: BTreeSet<ClaimKey>,
}

/// Reads files and folders as the daemon would.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Found> {
    super::must_exist(paths)?;
    let found = files::gather(paths);
    // Who names a file wants to know what is wrong with it, whatever it holds.
    let named: BTreeSet<String> =
        paths.iter().filter(|path| path.is_file()).map(|path| files::shown(path)).collect();
    let mut reading = manifest::read(&found.files, &named);
    reading.diagnostics.extend(found.skipped);
    let mut refused = BTreeSet::new();
    for (key, declared) in &reading.declarations {
        let wrong = refused::of(declared, &found.files);
        if wrong.iter().any(|found| found.severity == Severity::Error) {
            refused.insert(key.clone());
        }
        reading.diagnostics.extend(wrong);
    }
    reading.diagnostics.sort();
    Ok(Found { reading, files: found.files.len(), refused })
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Found { reading, files, .. } = read(&args.paths)?;
    let text = match args.output {
        Output::Text => output::text(&reading, files, print::paint()),
        Output::Json => output::json(&reading, files)?,
        Output::Github => output::github(&reading, files),
    };
    print::text(text);
    let failed = reading.diagnostics.iter().any(|found| found.severity == Severity::Error);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
