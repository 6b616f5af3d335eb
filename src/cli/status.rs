//! `trunkline status`: what runs, what is under way, and what stands in the way.

use std::{process::ExitCode, time::Duration};

use jiff::Timestamp;

use super::{
    Form,
    cluster::{ReadArgs, Seen, View},
    object::ObjectArgs,
    print,
};
use crate::{
    clock::{Clock, later},
    report::tree::StatusReport,
};

/// Time between two looks.
const TICK: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    object: ObjectArgs,
    /// Go on looking; off a terminal, what changes is printed anew.
    #[arg(long)]
    watch: bool,
    /// Form of the report; with --watch, JSON is one document per line.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Form,
    #[command(flatten)]
    cluster: ReadArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let view = args.cluster.open(args.output).await?;
        let (report, at) = args.look(&view).await?;
        if args.object.namespace().is_some() {
            print::aside(args.output, "note", "-n leaves out CNIUpgrades, which are in no namespace");
        }
        args.show(&report, at)?;
        if args.watch {
            args.follow(&view, report).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    async fn look(&self, view: &View) -> anyhow::Result<(StatusReport, Timestamp)> {
        let Seen { world, at } = view.look().await?;
        if let Some(namespace) = self.object.namespace() {
            return Ok((StatusReport::in_namespace(&world, namespace), at));
        }
        let only = self.object.find(&world)?;
        Ok((StatusReport::of(&world, only.as_ref()), at))
    }

    async fn follow(&self, view: &View, mut last: StatusReport) -> anyhow::Result<()> {
        let clock = Clock::real();
        loop {
            clock.sleep_until(later(clock.now(), TICK)).await;
            // A cluster that does not answer for a moment ends no watch.
            let (report, at) = match self.look(view).await {
                Ok(looked) => looked,
                Err(error) => {
                    print::aside(self.output, "error", format_args!("{error:#}"));
                    continue;
                }
            };
            // On a terminal the times go on by themselves.
            let live = print::on_terminal() && self.output == Form::Text;
            if live || report != last {
                self.show(&report, at)?;
            }
            last = report;
        }
    }

    fn show(&self, report: &StatusReport, at: Timestamp) -> anyhow::Result<()> {
        match self.output {
            Form::Text => {
                if self.watch && print::on_terminal() {
                    print::text("\x1b[H\x1b[2J");
                }
                print::text(report.text(at, print::paint()));
                if self.watch && !print::on_terminal() {
                    print::line("");
                }
            }
            Form::Json if self.watch => print::line(serde_json::to_string(report)?),
            Form::Json => print::line(serde_json::to_string_pretty(report)?),
        }
        Ok(())
    }
}
