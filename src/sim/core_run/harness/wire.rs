//! Between engine and API server: events that come late, twice or never; answers; lists; looks at Git.

use jiff::{SignedDuration, Timestamp};

use super::{Harness, Mail, REPO, Reply};
use crate::{
    api::names::RepoName,
    rollout::effect::{EffectId, EffectOutcome, Rejection, RejectionKind, StepName},
    sim::model::project::{feed_of, observation},
    world::{Feed, FeedHealth, Key, Observation},
};

/// Seconds after which a feed that lost an event is listed anew.
const RELIST: u64 = 60;

impl Harness<'_> {
    fn in_millis(&mut self, low: u64, high: u64) -> Timestamp {
        let millis = i64::try_from(self.dice.between(low, high)).unwrap_or(0);
        self.model.now().saturating_add(SignedDuration::from_millis(millis)).unwrap_or(Timestamp::MAX)
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Sends the watch events of everything that changed on their way.
    pub(super) fn collect(&mut self) {
        let Ok(changes) = self.model.changes_since(self.seen_rv) else { return };
        let events: Vec<(Feed, Observation)> = changes
            .filter_map(|change| Some((feed_of(change.object.at.kind)?, observation(change)?)))
            .collect();
        self.seen_rv = self.model.rv();
        for (feed, observation) in events {
            if self.dice.chance(self.trouble.drop) {
                let within = self.in_millis(1_000, RELIST * 1_000);
                self.relists.insert((within, feed));
                continue;
            }
            let twice = self.dice.chance(self.trouble.repeat);
            let mut at = self.in_millis(0, self.trouble.delay);
            // One watch keeps its order.
            let last = self.last_mail.get(&feed).copied().unwrap_or(at);
            at = at.max(last);
            self.last_mail.insert(feed, at);
            if twice {
                let late = self.in_millis(0, 5_000);
                let ticket = self.ticket();
                self.mail.insert((late, ticket), Mail { observation: observation.clone() });
            }
            let ticket = self.ticket();
            self.mail.insert((at, ticket), Mail { observation });
        }
    }

    /// Takes in everything that has arrived.
    pub(super) fn arrive(&mut self) {
        let now = self.model.now();
        while let Some(entry) = self.mail.first_entry().filter(|entry| entry.key().0 <= now) {
            let mail = entry.remove();
            self.apply(mail.observation);
        }
        while let Some((at, feed)) = self.relists.first().copied().filter(|(at, _)| *at <= now) {
            self.relists.remove(&(at, feed));
            self.relist(feed);
        }
        while let Some(entry) = self.replies.first_entry().filter(|entry| entry.key().0 <= now) {
            let reply = entry.remove();
            self.replied(reply);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.look();
        }
    }

    fn relist(&mut self, feed: Feed) {
        self.note(|_| format!("{feed:?} are listed anew"));
        for observation in self.model.relist_feed(feed) {
            self.apply(observation);
        }
    }

    pub(super) fn apply(&mut self, observation: Observation) {
        let now = self.now();
        let keys = self.world.apply(observation, now);
        for key in keys {
            self.hot.remove(&key);
            self.hurry(key);
        }
        self.follow_ledger();
    }

    /// Looks at Git again when another revision was accepted: the next look starts from there.
    fn follow_ledger(&mut self) {
        let repo = RepoName::new(REPO);
        let accepted = self.world.ledgers.get(&repo).and_then(|seen| seen.is.as_ref().ok()?.accepted.clone());
        if accepted != self.looked_since && self.look_at.is_none() {
            self.look_at = Some(self.in_millis(1, 50));
        }
    }

    pub(super) fn look(&mut self) {
        let repo = RepoName::new(REPO);
        // Nothing is asked of Git before the ledgers are listed: the look has to know where to start.
        if !matches!(self.world.feeds.get(&Feed::Stores), Some(FeedHealth::Live(_))) {
            self.look_at = Some(self.in_millis(100, 200));
            return;
        }
        let accepted = self.world.ledgers.get(&repo).and_then(|seen| seen.is.as_ref().ok()?.accepted.clone());
        self.looked_since.clone_from(&accepted);
        let seen = self.branch.look(accepted.as_ref());
        self.apply(Observation::Git(Box::new(seen)));
    }

    pub(super) fn rejection(&mut self) -> EffectOutcome {
        let kind = if self.dice.chance(50) { RejectionKind::Conflict } else { RejectionKind::Unavailable };
        EffectOutcome::Rejected(Rejection { kind, message: "try again".to_owned() })
    }

    pub(super) fn answer(&mut self, id: EffectId, outcome: EffectOutcome, seen: Vec<Observation>) {
        let at = self.in_millis(1, 20);
        let ticket = self.ticket();
        self.replies.insert((at, ticket), Reply { id, seen, outcome });
    }

    fn replied(&mut self, reply: Reply) {
        let Reply { id, seen, outcome } = reply;
        self.running.remove(&id);
        for observation in seen {
            self.apply(observation);
        }
        let done = matches!(outcome, EffectOutcome::Done);
        match outcome {
            EffectOutcome::Done | EffectOutcome::Moot => self.apply(Observation::Accepted(id.clone())),
            EffectOutcome::Rejected(no) => self.apply(Observation::Rejected(id.clone(), no)),
            EffectOutcome::Unknown(message) => {
                let no = Rejection { kind: RejectionKind::Unavailable, message };
                self.apply(Observation::Rejected(id.clone(), no));
            }
        }
        if id.step == StepName::WriteStatus {
            self.status_ended(&id, done);
        }
        if done {
            self.hurry(id.key);
        } else {
            // A write that failed is not tried again in the same moment.
            let at = self.now().saturating_add(SignedDuration::from_millis(500)).unwrap_or(Timestamp::MAX);
            self.after(id.key, at);
        }
    }

    fn status_ended(&mut self, id: &EffectId, written: bool) {
        let Some(writing) = self.writing.get_mut(&id.key) else { return };
        writing.left.remove(id);
        writing.failed |= !written;
        if !writing.left.is_empty() {
            return;
        }
        if let Some(writing) = self.writing.remove(&id.key)
            && !writing.failed
        {
            self.covered.insert(id.key.clone(), writing.effects);
        }
    }

    /// The process starts: it knows nothing, lists everything, and looks at Git.
    pub(super) fn boot(&mut self) {
        self.world = crate::world::World::default();
        self.memo = crate::mirror::ReadMemo::default();
        self.due.clear();
        self.taken.clear();
        self.covered.clear();
        self.running.clear();
        self.writing.clear();
        self.mail.clear();
        self.replies.clear();
        self.relists.clear();
        self.last_mail.clear();
        self.looked_since = None;
        self.seen_rv = self.model.rv();
        for feed in Feed::ALL {
            let at = self.in_millis(5, 300);
            self.relists.insert((at, feed));
        }
        self.look_at = Some(self.in_millis(300, 400));
        self.hurry(Key::Mirror(RepoName::new(REPO)));
    }
}
