//! The way of a push to the worker that owns the repository.

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::{
    api::names::AttemptId,
    rollout::effect::EffectOutcome,
    world::{Observation, git::NewCommit},
};

/// Which push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushKind {
    /// To the status branch.
    Status,
    /// To the tracked branch, recording this attempt.
    Rollback(AttemptId),
}

/// A push to be made by the worker, and where its end is told.
#[derive(Debug)]
pub struct Push {
    /// Which push.
    pub kind: PushKind,
    /// The commit.
    pub commit: NewCommit,
    /// The push does not begin after this.
    ///
    /// One that has begun cannot be cut, so it may arrive when another replica leads. It moves its branch only from the
    /// commit that it was decided on: where the next leader has pushed, it is refused; where it arrives first, the next
    /// leader's is refused, looks again and finds this one.
    pub until: Timestamp,
    /// How it ended, and the repository as it is seen since.
    pub reply: oneshot::Sender<(EffectOutcome, Vec<Observation>)>,
}

/// Access to the worker of one repository.
#[derive(Debug, Clone)]
pub struct GitPort(mpsc::Sender<Push>);

impl GitPort {
    /// A port and its other end.
    pub fn new() -> (Self, mpsc::Receiver<Push>) {
        let (orders, taken) = mpsc::channel(16);
        (Self(orders), taken)
    }

    /// Has the worker push and waits for the end.
    pub async fn push(
        &self,
        kind: PushKind,
        commit: NewCommit,
        until: Timestamp,
    ) -> (EffectOutcome, Vec<Observation>) {
        let (reply, told) = oneshot::channel();
        let sent = self.0.send(Push { kind, commit, until, reply }).await;
        let gone = || (EffectOutcome::Unknown("the Git worker has ended".to_owned()), Vec::new());
        if sent.is_err() { gone() } else { told.await.unwrap_or_else(|_| gone()) }
    }
}
