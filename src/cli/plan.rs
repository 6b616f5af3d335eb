//! `trunkline plan`: what manifests would change on a cluster.

use std::{path::PathBuf, process::ExitCode};

use serde_json::json;

use super::{
    Form,
    cluster::{ReadArgs, Seen},
    print,
    validate::{self, Found, output},
};
use crate::{
    manifest::{Reading, Severity},
    profile,
    report::plan::{PlanReport, PlanVerdict, removed},
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
    let Found { mut reading, refused, .. } = validate::read(&args.paths)?;
    // What is wrong with these is said where it stands.
    reading.declarations.retain(|key, _| !refused.contains(key));
    let (reports, left) = super::block_on(look(args, &reading))?;
    let invalid = reading.diagnostics.iter().any(|found| found.severity == Severity::Error);
    match args.output {
        Form::Json => {
            let document =
                json!({ "declarations": reports, "diagnostics": reading.diagnostics, "notes": left });
            print::line(serde_json::to_string_pretty(&document)?);
        }
        Form::Text => {
            print::text(output::findings(&reading.diagnostics, print::paint()));
            for report in &reports {
                print::text(report.text(print::paint()));
            }
            if reports.is_empty() && invalid {
                print::line("Nothing is planned before these errors are corrected.");
            } else if reports.is_empty() {
                let told = ["Nothing is declared in these files.".to_owned()].into_iter().chain(left);
                print::line(told.collect::<Vec<_>>().join(" "));
            }
        }
    }
    let refused = reports.iter().any(|report| report.verdict == PlanVerdict::Refused);
    Ok(if refused || invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What each declaration would do, and what becomes of declarations when there is none any more.
async fn look(args: &Args, reading: &Reading) -> anyhow::Result<(Vec<PlanReport>, Vec<String>)> {
    let view = args.cluster.open(args.output).await?;
    let Seen { world, at } = view.look().await?;
    let planned = plan(&world, &profile::built_in(), &reading.declarations, at);
    let report = planned.iter().map(|planned| {
        let declared = reading.declarations.get(&planned.object);
        let place = declared.map(|found| format!("{}:{}", found.path, found.line)).unwrap_or_default();
        PlanReport::of(planned, place, args.node_seconds.into())
    });
    let nothing = reading.declarations.is_empty() && reading.held.is_empty() && reading.hiding.is_empty();
    Ok((report.collect(), if nothing { removed(&world) } else { Vec::new() }))
}
