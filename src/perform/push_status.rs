//! Pushes one commit to the status branch.

use super::{
    Permit,
    git::{GitPort, PushKind},
};
use crate::{
    rollout::effect::EffectOutcome,
    world::{Observation, git::NewCommit},
};

pub(super) async fn perform(
    git: &GitPort,
    commit: &NewCommit,
    permit: Permit,
) -> (EffectOutcome, Vec<Observation>) {
    git.push(PushKind::Status, commit.clone(), permit.until).await
}
