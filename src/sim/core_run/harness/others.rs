//! What people and other controllers do meanwhile, and the calm afterwards.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;

use super::{Harness, OBJECT, claim};
use crate::{
    api::{
        CniUpgradeSpec,
        names::{HOLD, ORIGINAL_STRATEGY},
    },
    sim::{
        core_run::{
            laws::tag,
            witness::Witness,
            workload::{Deed, Trouble},
        },
        model::{
            actors::{agent_ref, claim_ref},
            cluster::{ZONE, node_labels},
            store::Kind,
        },
    },
    world::{Feed, Observation, Strategy},
};

impl Harness<'_> {
    /// Does what is due.
    pub(super) fn others(&mut self) {
        let now = self.model.now();
        while self.deeds.first().is_some_and(|(at, _)| *at <= now) {
            let (_, deed) = self.deeds.remove(0);
            self.note(|_| format!("others: {deed:?}"));
            self.act(deed);
            self.collect();
        }
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Declare(spec) => {
                self.spec = *spec;
                self.declare(None);
            }
            Deed::Retry(token) => self.declare(Some(&token)),
            Deed::Pause(paused) => {
                self.spec.paused = paused;
                self.declare(None);
            }
            Deed::Remove => {
                self.declared = false;
                self.commit(None);
            }
            Deed::Hold(on) => {
                let at = claim_ref(&claim());
                self.model.annotate(&at, HOLD, on.then_some("look first"));
            }
            Deed::EditClaim(version) => {
                let claim = claim();
                self.model.edit_claim(&claim, |spec| {
                    spec["targetVersion"] = json!(version);
                    spec["maxParallel"] = json!(50);
                });
            }
            Deed::AddNode(index) => {
                let name = format!("node-{index:03}");
                self.model.add_node(&name, node_labels(&name, index % 3, false));
            }
            Deed::RemoveNode(index) => {
                if let Some(name) = self.node(index) {
                    self.model.remove_node(&name);
                }
            }
            Deed::Cordon(index, on) => {
                if let Some(name) = self.node(index) {
                    self.model.cordon(&name, on);
                }
            }
            Deed::Relabel(index, zone) => {
                if let Some(name) = self.node(index) {
                    self.model.relabel(&name, ZONE, Some(zone));
                }
            }
            Deed::PutImagesBack | Deed::Restart | Deed::SetRollingUpdate => self.meddle(&deed),
            Deed::Crash => self.boot(),
            Deed::ClockJump(seconds) => self.jump(seconds),
            Deed::Cut(feed) => self.cut(feed),
        }
    }

    fn node(&self, index: usize) -> Option<String> {
        let count = self.model.list(Kind::Node, None).count().max(1);
        self.model.list(Kind::Node, None).nth(index % count).map(|node| node.at.name.to_string())
    }

    /// Another manager of the DaemonSet.
    fn meddle(&mut self, deed: &Deed) {
        let agent = self.agent.clone();
        if *deed == Deed::Restart {
            let now = self.model.now();
            self.model.restart_rollout(&agent, now);
        } else if *deed == Deed::SetRollingUpdate {
            self.model.set_strategy(&agent, Strategy::RollingUpdate);
        } else if let Some(good) = self.witness.status.as_ref().and_then(|status| status.last_good.clone()) {
            let target = self.spec.target_version.clone();
            self.model.replace_images(&agent, &format!(":{target}"), &tag(&good.version));
        }
    }

    fn jump(&mut self, seconds: i64) {
        self.skew = self.skew.saturating_add(SignedDuration::from_secs(seconds));
        self.witness.jumps += 1;
        if seconds < 0 {
            let now = self.now();
            self.world.set_back(now);
            let keys: Vec<_> = self.due.keys().cloned().collect();
            for key in keys {
                self.hurry(key);
            }
        }
    }

    fn cut(&mut self, feed: Feed) {
        self.apply(Observation::Cut(feed, "connection reset".to_owned()));
        let millis = i64::try_from(self.dice.between(500, 40_000)).unwrap_or(500);
        let at = self.model.now().saturating_add(SignedDuration::from_millis(millis));
        self.relists.insert((at.unwrap_or(self.calm_at), feed));
    }

    pub(super) fn declare(&mut self, token: Option<&str>) {
        self.declared = true;
        let spec = self.spec.clone();
        self.commit(Some((&spec, token)));
    }

    fn commit(&mut self, declared: Option<(&CniUpgradeSpec, Option<&str>)>) {
        let now = self.model.now();
        self.branch.commit(OBJECT, declared, now);
        let millis = i64::try_from(self.dice.between(100, 3_000)).unwrap_or(100);
        let at = now.saturating_add(SignedDuration::from_millis(millis)).unwrap_or(now);
        self.look_at = Some(self.look_at.map_or(at, |known| known.min(at)));
    }

    /// Faults are over, nobody meddles any more, and what people held is let go.
    pub(super) fn calm_down(&mut self) {
        self.note(|_| "calm".to_owned());
        self.trouble = Trouble::default();
        self.model.heal();
        let claim = claim_ref(&claim());
        self.model.annotate(&claim, HOLD, None);
        if self.declared && self.spec.paused {
            self.spec.paused = false;
            self.declare(None);
        }
        for feed in Feed::ALL {
            self.relists.insert((self.model.now(), feed));
        }
        let nodes = self.model.list(Kind::Node, None).count();
        let bound = Witness::bound(&self.spec, nodes);
        self.deadline = self.model.now().saturating_add(bound).unwrap_or(self.calm_at);
    }

    /// The strategy that the DaemonSet has, and whether it is noted that another one was there before.
    pub(super) fn strategy(&self) -> Option<(Strategy, bool)> {
        let stored = Arc::clone(self.model.get(&agent_ref(&self.agent))?);
        match &stored.body {
            crate::sim::model::body::Body::DaemonSet(body) => {
                Some((body.strategy, stored.meta.annotations.contains_key(ORIGINAL_STRATEGY)))
            }
            crate::sim::model::body::Body::Node(_)
            | crate::sim::model::body::Body::Pod(_)
            | crate::sim::model::body::Body::Revision(_)
            | crate::sim::model::body::Body::Plain(_) => None,
        }
    }
}
