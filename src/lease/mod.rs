//! Leader election: which of several replicas may write, and until when, judged from the Lease as it was watched.
//!
//! Guarantees: no two replicas have the right to write at one instant. A Lease that its holder gave back is free at
//! once; any other, found without a holder or put there by hand as well, is free after nothing about it changed for its
//! duration, as the one who wants it watched it on a clock that nobody sets. A holder counts from before it sent the
//! renewal that was accepted. What people do to the Lease costs time only.
//!
//! Assumptions: the API server takes a write only at the version it was made on; clocks run at about equal rates.

#[cfg(test)]
mod tests;
mod wire;

use std::{cmp::max, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

pub use wire::{Lease, NotALease};

use crate::config::LeaderElection;

/// Most that `leaseTransitions` can say.
const LARGEST: i64 = 0x7fff_ffff;

/// One instant, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// On the wall clock, which people and NTP set.
    pub wall: Timestamp,
    /// On a clock that nobody sets, since a start that only this process knows.
    pub steady: Duration,
}

/// What a replica is to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It alone may write.
    Leader {
        /// Counts leaders; what was written under a higher one is not written over.
        epoch: i64,
    },
    /// It observes and writes nothing.
    Standby {
        /// Who holds the lease, as far as it is known.
        holder: Option<String>,
    },
}

/// The right to write that one renewal gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    epoch: i64,
    /// Just before the renewal was sent.
    sent: Moment,
    periods: LeaderElection,
}

impl Fence {
    /// Epoch of the holder.
    pub const fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Time that is left before another replica may hold the lease; zero if it has passed.
    pub fn left(&self, now: Moment) -> Duration {
        self.periods.lease_duration.saturating_sub(self.age(now))
    }

    /// How long a write that begins now may take; `None` = nothing begins before the next renewal.
    pub fn grants(&self, now: Moment) -> Option<Duration> {
        (self.age(now) < self.periods.renew_deadline).then(|| self.left(now))
    }

    /// The longer of both clocks' opinions: the wall clock may be set back, the other stand still while a machine is
    /// suspended.
    fn age(&self, now: Moment) -> Duration {
        let wall = now.wall.duration_since(self.sent.wall);
        max(now.steady.saturating_sub(self.sent.steady), Duration::try_from(wall).unwrap_or_default())
    }
}

/// Why a lease can be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vacancy {
    /// Its holder gave it back.
    Released,
    /// Nothing about it changed for as long as its holder may write.
    Expired {
        /// The holder; `None` = it had none.
        holder: Option<String>,
    },
    /// This replica holds it, and somebody wrote a higher epoch than its own.
    Ours,
}

/// Why a lease cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It was not read yet.
    Unread,
    /// The custom resources were not listed yet, so the epochs of earlier leaders are not known.
    EpochsUnknown,
    /// Somebody may hold it.
    By {
        /// The holder; `None` = it names none, and yet may have been taken from one a moment ago.
        holder: Option<String>,
    },
}

/// What a candidate does about the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Puts one there that nobody holds: from its version on it can be watched that nobody writes it.
    Create,
    /// Takes it.
    Acquire {
        /// Epoch from then on.
        epoch: i64,
        /// Why it can.
        vacancy: Vacancy,
    },
    /// Tells the others that it goes on.
    Renew {
        /// The same epoch as before.
        epoch: i64,
    },
    /// Looks again later.
    Wait {
        /// When the lease becomes free if nobody writes it, on the steady clock; `None` = not known.
        until: Option<Duration>,
        /// Why it does not take it now.
        held: Held,
    },
}

/// A Lease as it was last seen; `None` = there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// The Lease.
    pub lease: Option<Lease>,
    /// When it was first seen in this version, on the steady clock.
    pub since: Duration,
}

/// One replica and what it knows of the lease.
#[derive(Debug, Clone)]
pub struct Candidate {
    me: String,
    periods: LeaderElection,
    watched: Option<Watched>,
    fence: Option<Fence>,
    /// Whether the last write's end is known.
    sure: bool,
    /// Epoch of its last term; 0 = none.
    epoch: i64,
}

impl Candidate {
    /// A replica that has seen nothing; no two processes have the same identity `me`.
    pub const fn new(me: String, periods: LeaderElection) -> Self {
        Self { me, periods, watched: None, fence: None, sure: false, epoch: 0 }
    }

    /// What to do about the lease as it was last seen. `epochs` is the highest epoch in any status, `None` before all
    /// statuses were seen.
    pub fn evaluate(&self, epochs: Option<i64>, now: Moment) -> Step {
        let wait = |until, held| Step::Wait { until, held };
        let Some(Watched { lease, since }) = &self.watched else { return wait(None, Held::Unread) };
        let Some(lease) = lease else { return Step::Create };
        let Some(epochs) = epochs else { return wait(None, Held::EpochsUnknown) };
        let known = lease.transitions.max(epochs).max(self.epoch).min(LARGEST);
        let epoch = (known + 1).min(LARGEST);
        let holder = lease.holder.clone();
        if holder.as_ref() == Some(&self.me) && self.fence(now).is_some() {
            return if self.epoch == known {
                Step::Renew { epoch: known }
            } else {
                Step::Acquire { epoch, vacancy: Vacancy::Ours }
            };
        }
        if lease.released() {
            return Step::Acquire { epoch, vacancy: Vacancy::Released };
        }
        // Its own duration, but not less than ours: people can write a shorter one than its holder counts with.
        let ours = self.periods.lease_duration;
        let free = *since + lease.duration.map_or(ours, |duration| duration.max(ours));
        if free <= now.steady {
            return Step::Acquire { epoch, vacancy: Vacancy::Expired { holder } };
        }
        wait(Some(free), Held::By { holder })
    }

    /// Whether the lease has to be read before anything is done about it; a holder knows it from its own last write.
    pub fn must_look(&self, now: Moment) -> bool {
        !self.sure || self.fence(now).is_none()
    }

    /// The lease was read; `now` is after the answer, so that no later renewal can be older than it.
    pub fn saw(&mut self, lease: Option<Lease>, now: Moment) {
        let same = |watched: &Watched| match (&watched.lease, &lease) {
            (Some(old), Some(new)) => old.is_version_of(new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if lease.as_ref().is_none_or(|lease| lease.holder.as_ref() != Some(&self.me)) {
            self.fence = None;
        }
        self.sure = true;
        if !self.watched.as_ref().is_some_and(same) {
            self.watched = Some(Watched { lease, since: now.steady });
        }
    }

    /// A write was accepted: `sent` is before it was sent, `now` after its answer.
    pub fn wrote(&mut self, step: &Step, lease: Lease, sent: Moment, now: Moment) {
        self.saw(Some(lease), now);
        match step {
            Step::Acquire { epoch, .. } | Step::Renew { epoch } => {
                self.epoch = *epoch;
                self.fence = Some(Fence { epoch: *epoch, sent, periods: self.periods });
            }
            Step::Create | Step::Wait { .. } => {}
        }
    }

    /// A write failed, or nobody knows how it ended.
    pub const fn doubt(&mut self) {
        self.sure = false;
    }

    /// The lease is being given back: nothing begins from here on.
    pub fn resign(&mut self) {
        self.fence = None;
        self.sure = false;
    }

    /// The right to write, as far as it still holds.
    pub fn fence(&self, now: Moment) -> Option<Fence> {
        self.fence.filter(|fence| !fence.left(now).is_zero())
    }

    /// What this replica is to the others.
    pub fn role(&self, now: Moment) -> Role {
        match self.fence(now) {
            Some(fence) => Role::Leader { epoch: fence.epoch },
            None => Role::Standby {
                holder: self.watched.as_ref().and_then(|watched| watched.lease.as_ref()?.holder.clone()),
            },
        }
    }

    /// The Lease as the step writes it; `None` = the step writes nothing.
    pub fn written(&self, step: &Step, namespace: &str, now: Moment) -> Option<Value> {
        let lease = self.watched.as_ref().and_then(|watched| watched.lease.as_ref());
        match step {
            Step::Create => Some(wire::unheld(namespace, self.periods.lease_duration, now.wall)),
            Step::Acquire { epoch, .. } => {
                Some(lease?.taken(&self.me, self.periods.lease_duration, *epoch, now.wall))
            }
            Step::Renew { .. } => Some(lease?.renewed(self.periods.lease_duration, now.wall)),
            Step::Wait { .. } => None,
        }
    }

    /// The Lease as it is given back; `None` = it is not held.
    pub fn given_back(&self, now: Moment) -> Option<Value> {
        let lease = self.watched.as_ref()?.lease.as_ref()?;
        self.fence(now).map(|_| lease.given_back(now.wall))
    }
}
