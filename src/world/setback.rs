//! A clock that was set back: what is known must not lie in a time that has not come yet.

use jiff::Timestamp;

use super::{FeedHealth, Seen, World, git::GitSeen};

impl World {
    /// Takes every time of before into the past. Else nothing would count for as long as the clock was set back: no
    /// observed time, no timeout of a node, and pods that are Ready for long as just Ready.
    pub fn set_back(&mut self, now: Timestamp) {
        for health in self.feeds.values_mut() {
            match health {
                FeedHealth::Live(at) | FeedHealth::Cut(at, _) => *at = now.min(*at),
                FeedHealth::Starting => {}
            }
        }
        past(self.nodes.values_mut(), now);
        past(self.agents.values_mut(), now);
        past(self.revisions.values_mut(), now);
        past(self.claims.values_mut(), now);
        past(self.ledgers.values_mut(), now);
        past(self.records.values_mut(), now);
        self.pods.set_back(now);
        self.rejections.values_mut().for_each(|(_, at)| *at = now.min(*at));
        self.undecided.values_mut().for_each(|(_, since)| *since = now.min(*since));
        self.git.values_mut().for_each(|seen| seen.set_back(now));
    }
}

impl GitSeen {
    /// The same for what is told of a repository, also later: who tells it goes on counting from before.
    pub(super) fn set_back(&mut self, now: Timestamp) {
        self.trouble.iter_mut().for_each(|trouble| trouble.since = now.min(trouble.since));
        self.refused.values_mut().for_each(|refused| refused.at = now.min(refused.at));
    }
}

fn past<'s, T: 's>(all: impl Iterator<Item = &'s mut Seen<T>>, now: Timestamp) {
    all.for_each(|seen| seen.since = now.min(seen.since));
}
