//! Pushes one commit to the status branch.

use super::git::{GitPort, PushKind};
use crate::{
    rollout::effect::EffectOutcome,
    world::{Observation, git::NewCommit},
};

pub(super) async fn perform(git: &GitPort, commit: &NewCommit) -> (EffectOutcome, Vec<Observation>) {
    git.push(PushKind::Status, commit.clone()).await
}
