//! `trunkline plan`: what manifests would change on a cluster.

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use serde_json::json;

use super::{
    Form,
    cluster::{ReadArgs, Seen},
    print,
    validate::{files, output},
};
use crate::{
    manifest::{self, Reading, Severity},
    profile,
    report::plan::{PlanReport, PlanVerdict},
    rollout::plan::plan,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files and folders; folders are read with everything below them.
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Seconds after which a new agent is assumed to be ready, for the estimate.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=86_400))]
    node_seconds: u32,
    /// Form of the plan.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Form,
    #[command(flatten)]
    cluster: ReadArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::must_exist(&args.paths)?;
    let found = files::gather(&args.paths);
    let named: BTreeSet<String> =
        args.paths.iter().filter(|path| path.is_file()).map(|path| files::shown(path)).collect();
    let mut reading = manifest::read(&found.files, &named);
    reading.diagnostics.extend(found.skipped);
    reading.diagnostics.sort();
    let reports = super::block_on(look(args, &reading))?;
    show(args, &reading, &reports)?;
    let refused = reports.iter().any(|report| report.verdict == PlanVerdict::Refused);
    let invalid = reading.diagnostics.iter().any(|found| found.severity == Severity::Error);
    Ok(if refused || invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn look(args: &Args, reading: &Reading) -> anyhow::Result<Vec<PlanReport>> {
    let view = args.cluster.open(args.output).await?;
    let Seen { world, at } = view.look().await?;
    let planned = plan(&world, &profile::built_in(), &reading.declarations, at);
    let report = planned.iter().map(|planned| {
        let declared = reading.declarations.get(&planned.object);
        let place = declared.map(|found| format!("{}:{}", found.path, found.line)).unwrap_or_default();
        PlanReport::of(planned, place, args.node_seconds.into())
    });
    Ok(report.collect())
}

fn show(args: &Args, reading: &Reading, reports: &[PlanReport]) -> anyhow::Result<()> {
    match args.output {
        Form::Json => {
            let document = json!({ "declarations": reports, "diagnostics": reading.diagnostics });
            print::line(serde_json::to_string_pretty(&document)?);
        }
        Form::Text => {
            print::text(output::findings(&reading.diagnostics, print::paint()));
            for report in reports {
                print::text(report.text(print::paint()));
            }
            if reports.is_empty() {
                print::line("Nothing is declared in these files.");
            }
        }
    }
    Ok(())
}
