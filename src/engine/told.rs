//! What the engine tells metrics and vitals of itself.

use jiff::Timestamp;

use super::{Engine, Vitals};
use crate::{
    api::{ClaimKey, names::RepoName},
    lease::Role,
    report::readiness::unready,
    world::{Feed, ObjectId, Observation, Shape},
};

/// The part of an observation that metrics are about.
#[derive(Debug, Default)]
pub(super) struct About {
    feed: Option<Feed>,
    claim: Option<ClaimKey>,
    repo: Option<RepoName>,
    /// Everything of the feed may have changed.
    relisted: bool,
}

impl About {
    pub(super) fn of(observation: &Observation) -> Self {
        let (feed, id, shape) = match observation {
            Observation::Listed(feed, object) | Observation::Changed(feed, object) => {
                (Some(*feed), Some(&object.id), Some(&object.shape))
            }
            Observation::Answered(object) => (None, Some(&object.id), Some(&object.shape)),
            Observation::Gone(feed, id, _, _) => (Some(*feed), Some(id), None),
            Observation::AnsweredGone(id, _) => (None, Some(id), None),
            Observation::Relisting(feed) | Observation::Cut(feed, _) => (Some(*feed), None, None),
            Observation::Relisted(feed) => {
                return Self { feed: Some(*feed), relisted: true, ..Self::default() };
            }
            Observation::Git(seen) => return Self { repo: Some(seen.repo.clone()), ..Self::default() },
            Observation::Rejected(..)
            | Observation::Accepted(_)
            | Observation::Undecided(..)
            | Observation::Decided(_) => return Self::default(),
        };
        let claim = match id {
            Some(ObjectId::Claim(key)) => Some(key.clone()),
            _ => None,
        };
        let repo = match shape {
            Some(Shape::Ledger(repo, _)) => Some(repo.clone()),
            _ => None,
        };
        Self { feed, claim, repo, relisted: false }
    }
}

impl Engine {
    /// Brings the metrics up to date with what an observation was about.
    pub(super) fn tell_metrics(&self, about: About, now: Timestamp) {
        let About { feed, claim, repo, relisted } = about;
        if let Some(feed) = feed {
            self.metrics.heard(feed, self.world.feeds.get(&feed), now);
        }
        if let Some(key) = claim {
            self.metrics.object(&key, self.world.claims.get(&key));
        }
        if relisted && matches!(feed, Some(Feed::CniUpgrades | Feed::ServiceUpgrades)) {
            self.metrics.all_objects(&self.world.claims);
        }
        if let Some(repo) = repo.filter(|repo| self.bells.contains_key(repo)) {
            let ledger = self.world.ledgers.get(&repo).and_then(|seen| seen.is.as_ref().ok());
            let tracked = self.world.git.get(&repo).and_then(|seen| seen.tracked.as_ref());
            let accepted = ledger.and_then(|ledger| ledger.accepted.as_ref());
            self.metrics.repository(&repo, accepted, tracked.and_then(|it| it.head.as_ref()), now);
        }
    }

    /// The engine turns: how much is due, and what is not ready.
    pub(super) fn tell_turn(&self, now: Timestamp) {
        self.metrics.due(self.queue.depth(now));
        match &*self.role.borrow() {
            Role::Leader { epoch } => self.metrics.role(true, Some(*epoch)),
            Role::Standby { .. } => self.metrics.role(false, None),
        }
        if let Some(vitals) = &self.vitals {
            let repositories = self.config.repositories.iter().map(|repository| &repository.name);
            vitals.turned(now, unready(&self.world, repositories));
        }
    }

    /// When the engine turns next if nothing happens; where somebody watches, it always turns again soon. While it
    /// must not act, what is due waits.
    pub(super) fn next_turn(&self, may_act: bool) -> Option<Timestamp> {
        let due = self.queue.next_due().filter(|_| may_act);
        let Some(_) = &self.vitals else { return due };
        let beat = Vitals::next_turn(self.clock.now());
        Some(due.map_or(beat, |due| due.min(beat)))
    }
}
