//! The lease: the task that renews it or waits for it, and what it lets the engine do.
//!
//! Guarantees: without the lease there is no permit; a permit ends before another replica can hold the lease. Limits: four
//! requests per retry period.

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Client,
    api::{GetParams, PostParams},
    core::Request,
};
use tokio::sync::{oneshot, watch};

use crate::{
    api::names::{FIELD_MANAGER, LEASE},
    clock::{Clock, later},
    config::{Config, LeaderElection},
    lease::{Candidate, Fence, Lease, Role, Step},
    observe::address,
    perform::Permit,
};

/// Epoch of a replica that is the only one and finds no higher one.
pub(super) const FIRST_EPOCH: i64 = 1;

/// The right to write.
pub(super) enum Right {
    /// There is no other replica.
    Always,
    /// As long as the lease is held.
    Elected(Elected),
}

/// The engine's end of the task that keeps the lease.
pub(super) struct Elected {
    fence: watch::Receiver<Option<Fence>>,
    epochs: watch::Sender<Option<i64>>,
    release: oneshot::Sender<oneshot::Sender<()>>,
}

/// The task that keeps the lease, and the engine's end of it.
pub(super) fn election(
    config: &Config,
    kube: &Client,
    me: &str,
    clock: Clock,
    role: &watch::Sender<Role>,
) -> (Elected, impl Future<Output = ()> + use<>) {
    let periods = config.leader_election;
    let (fence, fence_seen) = watch::channel(None);
    let (epochs, epochs_seen) = watch::channel(None);
    let (release, released) = oneshot::channel();
    let elector = Elector {
        kube: kube.clone(),
        clock,
        namespace: config.namespace.clone(),
        periods,
        candidate: Candidate::new(me.to_owned(), periods),
        epochs: epochs_seen,
        fence,
        role: role.clone(),
    };
    (Elected { fence: fence_seen, epochs, release }, elector.run(released))
}

impl Right {
    /// Permit for writes that begin now and take no longer than `limit`; `None` = nothing may begin.
    pub(super) fn permit(&self, epochs: i64, clock: Clock, limit: Duration) -> Option<Permit> {
        let now = clock.moment();
        match self {
            Self::Always => Some(Permit { epoch: epochs.max(FIRST_EPOCH), until: later(now.wall, limit) }),
            Self::Elected(elected) => {
                let fence = (*elected.fence.borrow())?;
                let left = fence.grants(now)?;
                Some(Permit { epoch: fence.epoch(), until: later(now.wall, left.min(limit)) })
            }
        }
    }

    /// All statuses were seen, and this is the highest epoch in them.
    pub(super) fn tell(&self, highest: i64) {
        if let Self::Elected(elected) = self {
            elected.epochs.send_if_modified(|known| known.replace(highest) != Some(highest));
        }
    }

    /// Returns when the lease was renewed, won or lost.
    pub(super) async fn changed(&mut self) {
        let told = match self {
            Self::Elected(elected) => elected.fence.changed().await.is_ok(),
            Self::Always => false,
        };
        if !told {
            std::future::pending::<()>().await;
        }
    }

    /// Gives the lease back, so that the next replica need not wait for its end; gives up at `limit`.
    pub(super) async fn give_back(self, clock: Clock, limit: Timestamp) {
        let Self::Elected(Elected { release, .. }) = self else { return };
        let (done, told) = oneshot::channel();
        // Where the task has ended, nobody answers, and at once.
        let _ = release.send(done);
        let _ = clock.before(limit, told).await;
    }
}

/// The task that keeps the lease.
struct Elector {
    kube: Client,
    clock: Clock,
    namespace: String,
    periods: LeaderElection,
    candidate: Candidate,
    epochs: watch::Receiver<Option<i64>>,
    fence: watch::Sender<Option<Fence>>,
    role: watch::Sender<Role>,
}

impl Elector {
    async fn run(mut self, mut release: oneshot::Receiver<oneshot::Sender<()>>) {
        loop {
            let began = self.clock.moment().steady;
            self.round().await;
            self.tell();
            let next = self.next(began);
            tokio::select! {
                biased;
                asked = &mut release => {
                    if let Ok(done) = asked {
                        self.give_back().await;
                        let _ = done.send(());
                    }
                    return;
                }
                Ok(()) = self.epochs.changed() => {}
                () = self.clock.sleep_until(next) => {}
            }
        }
    }

    async fn round(&mut self) {
        // A second time, where somebody else wrote the lease before.
        for _ in 0..2 {
            if self.candidate.must_look(self.clock.moment()) && !self.look().await {
                return;
            }
            let epochs = *self.epochs.borrow_and_update();
            let step = self.candidate.evaluate(epochs, self.clock.moment());
            if !self.overtaken(&step).await {
                return;
            }
        }
    }

    /// When the next round is due: at the end of the period, or when the lease becomes free. Counted on the steady
    /// clock, since a wall clock that is set back would make the wait longer.
    fn next(&self, began: Duration) -> Timestamp {
        let now = self.clock.moment();
        let period = began + self.periods.retry_period;
        let at = match self.candidate.evaluate(*self.epochs.borrow(), now) {
            Step::Wait { until: Some(free), held: _ } => period.min(free),
            Step::Wait { until: None, held: _ }
            | Step::Create
            | Step::Acquire { .. }
            | Step::Renew { .. } => period,
        };
        later(now.wall, at.saturating_sub(now.steady))
    }

    async fn look(&mut self) -> bool {
        let request = Request::new(address::of_leases(&self.namespace)).get(LEASE, &GetParams::default());
        let lease = match self.send(request).await {
            Ok(lease) => Some(lease),
            Err(Trouble::Refused(404, _)) => None,
            Err(trouble) => {
                tracing::warn!(%trouble, "the lease cannot be read");
                return false;
            }
        };
        self.candidate.saw(lease, self.clock.moment());
        true
    }

    /// Writes what the step writes; whether somebody else was faster.
    async fn overtaken(&mut self, step: &Step) -> bool {
        let sent = self.clock.moment();
        let Some(body) = self.candidate.written(step, &self.namespace, sent) else { return false };
        self.candidate.doubt();
        match self.put(*step == Step::Create, &body).await {
            Ok(lease) => {
                if let Step::Acquire { epoch, vacancy } = step {
                    tracing::info!(epoch, ?vacancy, "acquired the lease");
                }
                self.candidate.wrote(step, lease, sent, self.clock.moment());
                false
            }
            Err(Trouble::Refused(409, _)) => true,
            // Of a lease that is there no more; a create is answered so where the namespace is not there.
            Err(Trouble::Refused(404, _)) if *step != Step::Create => true,
            Err(trouble) => {
                tracing::warn!(%trouble, ?step, "the lease cannot be written");
                false
            }
        }
    }

    async fn put(&self, create: bool, body: &serde_json::Value) -> Result<Lease, Trouble> {
        let request = Request::new(address::of_leases(&self.namespace));
        let params = PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let body = body.to_string().into_bytes();
        self.send(if create { request.create(&params, body) } else { request.replace(LEASE, &params, body) })
            .await
    }

    /// Two tries fit into the time in which a renewal has to succeed.
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Lease, Trouble> {
        let other = |error: &dyn std::fmt::Display| Trouble::Unknown(error.to_string());
        let request = request.map_err(|error| other(&error))?;
        let limit = later(self.clock.now(), self.periods.renew_deadline / 2);
        match self.clock.before(limit, self.kube.request_text(request)).await {
            Some(Ok(text)) => Lease::parse(&text).map_err(|error| other(&error)),
            Some(Err(kube::Error::Api(status))) => Err(Trouble::Refused(status.code, status.message)),
            Some(Err(error)) => Err(other(&error)),
            None => Err(other(&"no answer in time")),
        }
    }

    /// Tells the engine until when it may write, and everybody who leads.
    fn tell(&self) {
        let now = self.clock.moment();
        let fence = self.candidate.fence(now);
        self.fence.send_if_modified(|told| std::mem::replace(told, fence) != fence);
        let role = self.candidate.role(now);
        if self.role.send_if_modified(|told| {
            *told != role && {
                *told = role.clone();
                true
            }
        }) {
            match role {
                Role::Leader { epoch } => tracing::info!(epoch, "leads"),
                Role::Standby { holder } => tracing::info!(holder, "stands by"),
            }
        }
    }

    async fn give_back(&mut self) {
        if self.candidate.must_look(self.clock.moment()) {
            self.look().await;
        }
        let body = self.candidate.given_back(self.clock.moment());
        self.candidate.resign();
        self.tell();
        let Some(body) = body else { return };
        match self.put(false, &body).await {
            Ok(_) => tracing::info!("gave the lease back"),
            Err(trouble) => tracing::warn!(%trouble, "the lease could not be given back; it ends by itself"),
        }
    }
}

/// Why a request about the lease has no result.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// The server said no.
    #[error("{0} {1}")]
    Refused(u16, String),
    /// Nobody knows how it ended.
    #[error("{0}")]
    Unknown(String),
}
