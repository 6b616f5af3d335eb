//! `trunkline explain`: every gate of an object, with its verdict and evidence.

use std::process::ExitCode;

use super::{
    Form,
    cluster::{ReadArgs, Seen},
    object::ObjectArgs,
    print,
};
use crate::{
    config::Config,
    profile,
    report::explain::{Explanation, Gate},
    rollout::{self, Case, Now},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    object: ObjectArgs,
    /// Form of the explanation.
    #[arg(long, value_enum, default_value_t)]
    pub(super) output: Form,
    #[command(flatten)]
    cluster: ReadArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::block_on(async {
        let view = args.cluster.open(args.output).await?;
        let Seen { world, at } = view.look().await?;
        let key = args.object.find_one(&world)?;
        let (profiles, config) = (profile::built_in(), Config::assumed());
        let target = world.target_of(&key);
        let case = Case { target: &target, world: &world, profiles: &profiles, config: &config };
        let now = Now { at, epoch: i64::MAX };
        let gates = rollout::gates(&case, &key, now).iter().map(Gate::from).collect();
        let decision = rollout::decide_one(&case, &key, now);
        let explanation = Explanation::new(&world, &key, gates, &decision.waiting, &decision.refusals);
        match args.output {
            Form::Text => print::text(explanation.text(now.at, print::paint())),
            Form::Json => print::line(serde_json::to_string_pretty(&explanation)?),
        }
        Ok(ExitCode::SUCCESS)
    })
}
