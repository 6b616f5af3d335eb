//! Pushes one rollback commit to the tracked branch.

use super::{
    Permit,
    git::{GitPort, PushKind},
};
use crate::{
    api::names::AttemptId,
    rollout::effect::EffectOutcome,
    world::{Observation, git::NewCommit},
};

pub(super) async fn perform(
    git: &GitPort,
    attempt: &AttemptId,
    commit: &NewCommit,
    permit: Permit,
) -> (EffectOutcome, Vec<Observation>) {
    git.push(PushKind::Rollback(attempt.clone()), commit.clone(), permit.until).await
}
