//! `trunkline validate`: what the daemon would say of these files.

mod files;
mod output;

use std::{
    collections::BTreeSet,
    io::{IsTerminal as _, Write as _, stdout},
    path::PathBuf,
    process::ExitCode,
};

use clap::ValueEnum;

use crate::manifest::{self, Severity};

/// Exit code of wrong usage.
const USAGE: u8 = 2;

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

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = args.paths.iter().find(|path| !path.exists()) {
        eprintln!("error: {} does not exist", path.display());
        return Ok(ExitCode::from(USAGE));
    }
    let found = files::gather(&args.paths);
    // Who names a file wants to know what is wrong with it, whatever it holds.
    let named: BTreeSet<String> =
        args.paths.iter().filter(|path| path.is_file()).map(|path| files::shown(path)).collect();
    let mut reading = manifest::read(&found.files, &named);
    reading.diagnostics.extend(found.skipped);
    reading.diagnostics.sort();
    let mut out = stdout().lock();
    let text = match args.output {
        Output::Text => output::text(&reading, found.files.len(), colours(out.is_terminal())),
        Output::Json => output::json(&reading, found.files.len())?,
        Output::Github => output::github(&reading, found.files.len()),
    };
    out.write_all(text.as_bytes())?;
    let failed = reading.diagnostics.iter().any(|found| found.severity == Severity::Error);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// <https://no-color.org>: a variable that is set and not empty switches colours off.
fn colours(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
