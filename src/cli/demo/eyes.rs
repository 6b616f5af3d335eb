//! What the demo sees: custom resources and ledgers by the daemon's own watches, branches by their tips.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::bail;
use jiff::Timestamp;
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};

use super::{super::print, events, screen::Screen};
use crate::{
    api::{
        CniUpgradeStatus,
        names::Oid,
        reasons::Reason,
        status::{Outcome, Truth},
    },
    clock::later,
    config::Repository,
    dice::Dice,
    git::bare,
    manifest::yaml,
    observe::Observer,
    report::{status_file::Document, tree::StatusReport},
    sim::lab::{BRANCH, CLUSTER, Lab, NAMESPACE},
    world::{ClaimStatus, Feed, Observation, World},
};

/// Virtual time between two looks at the branches; the cluster tells by itself.
const TICK: Duration = Duration::from_secs(1);
/// Observations between a watch and the eyes.
const BUFFER: usize = 64;

/// What was seen last.
pub(super) struct Eyes<'l> {
    lab: &'l Lab,
    pub(super) screen: Screen,
    world: World,
    seen: mpsc::Receiver<Observation>,
    _watches: JoinSet<()>,
    statuses: BTreeMap<String, CniUpgradeStatus>,
    tips: BTreeMap<String, Oid>,
    pushed: BTreeSet<Oid>,
    /// The remote could not be read when it was looked at last.
    away: bool,
    /// Something is new since the tree was drawn.
    news: bool,
}

impl<'l> Eyes<'l> {
    pub(super) fn new(lab: &'l Lab, screen: Screen) -> Self {
        let (out, seen) = mpsc::channel(BUFFER);
        let mut watches = JoinSet::new();
        for feed in [Feed::CniUpgrades, Feed::Stores] {
            let observer = Observer {
                feed,
                kube: lab.cluster.client(),
                namespace: NAMESPACE.to_owned(),
                clock: lab.clock,
                dice: Dice::new(0),
                out: out.clone(),
            };
            watches.spawn(observer.run());
        }
        Self {
            lab,
            screen,
            world: World::default(),
            seen,
            _watches: watches,
            statuses: BTreeMap::new(),
            tips: BTreeMap::new(),
            pushed: BTreeSet::new(),
            away: false,
            news: false,
        }
    }

    /// Shows what happens for as long as the process lives.
    pub(super) async fn watch(&mut self) -> anyhow::Result<()> {
        self.until("", Timestamp::MAX, |_| false).await
    }

    /// Shows what happens until it is `done`; an error says what was not by then.
    pub(super) async fn until(
        &mut self,
        what: &str,
        deadline: Timestamp,
        done: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            if done(self) {
                self.look_at_branches();
                self.draw();
                return Ok(());
            }
            let now = self.lab.clock.now();
            if now > deadline {
                bail!("{what}: not by {deadline}");
            }
            match self.lab.clock.before(later(now, TICK), self.seen.recv()).await {
                Some(Some(observation)) => self.take(observation),
                Some(None) => bail!("the watches have ended"),
                None => {
                    self.look_at_branches();
                    self.draw();
                }
            }
        }
    }

    /// Takes in what a watch tells, and shows what is new in it.
    fn take(&mut self, observation: Observation) {
        let now = self.lab.clock.now();
        self.news |= !self.world.apply(observation, now).is_empty();
        for (key, claim) in &self.world.claims {
            let ClaimStatus::Cni(status) = &claim.is.status else { continue };
            let old = self.statuses.get(&key.name).cloned().unwrap_or_default();
            if old != **status {
                self.screen.show(&events::between(&key.name, &old, status, now));
                self.statuses.insert(key.name.clone(), (**status).clone());
            }
        }
    }

    fn draw(&mut self) {
        if std::mem::take(&mut self.news) && self.screen.wants_tree() {
            let now = self.lab.clock.now();
            self.screen.tree(StatusReport::of(&self.world, None).text(now, print::paint()));
        }
    }

    /// Shows a commit that the story pushed.
    pub(super) fn pushed(&mut self, commit: &Oid, subject: &str) {
        let text = format!("pushed {} to {BRANCH}: {subject}", commit.short());
        self.screen.say(self.lab.clock.now(), "push", &text, &json!({ "commit": commit }));
        self.pushed.insert(commit.clone());
    }

    /// A remote that is away for a while, as somebody may try, ends no demo.
    fn look_at_branches(&mut self) {
        let both = [BRANCH.to_owned(), Repository::status_branch_name(CLUSTER)];
        let looked = both.into_iter().try_for_each(|branch| self.look_at(branch));
        if let (Err(error), false) = (&looked, self.away) {
            let text = format!("the remote cannot be read, and is looked at again: {error}");
            self.screen.say(self.lab.clock.now(), "remote", &text, &json!({ "error": error.to_string() }));
        }
        self.away = looked.is_err();
    }

    fn look_at(&mut self, branch: String) -> anyhow::Result<()> {
        let known = self.tips.get(&branch);
        let Some(tip) = bare::head(&self.lab.remote(), &branch)?.filter(|tip| Some(tip) != known) else {
            return Ok(());
        };
        let commits = bare::log(&self.lab.remote(), &branch, 50)?;
        let fresh: Vec<_> = commits.iter().take_while(|commit| Some(&commit.oid) != known).collect();
        for commit in fresh.into_iter().rev().filter(|commit| !self.pushed.contains(&commit.oid)) {
            let subject = commit.message.lines().next().unwrap_or_default();
            let text = format!("commit {} on {branch}: {subject}", commit.oid.short());
            let data = json!({ "branch": branch, "commit": commit.oid, "subject": subject });
            self.screen.say(self.lab.clock.now(), "commit", &text, &data);
        }
        self.tips.insert(branch, tip);
        Ok(())
    }

    /// Whether the repository was read.
    pub(super) fn accepted(&self) -> bool {
        !self.world.ledgers.is_empty()
    }

    fn status(&self) -> Option<&CniUpgradeStatus> {
        self.statuses.values().next()
    }

    pub(super) fn ended(&self, outcome: Outcome) -> bool {
        self.status().and_then(|status| status.attempt.as_ref()).and_then(|attempt| attempt.outcome)
            == Some(outcome)
    }

    /// Git and cluster agree after a rollback.
    pub(super) fn agrees(&self) -> bool {
        let ready = |status: &CniUpgradeStatus| {
            status.conditions.iter().any(|condition| {
                condition.r#type == "Ready"
                    && condition.status == Truth::True
                    && condition.reason == Reason::RolledBack.as_str()
            })
        };
        self.status().is_some_and(ready)
    }

    /// The status branch tells of every phase there was.
    pub(super) fn published(&self) -> bool {
        let Some((name, status)) = self.statuses.iter().next() else { return false };
        let branch = Repository::status_branch_name(CLUSTER);
        let file = bare::file(&self.lab.remote(), &branch, &format!("CNIUpgrade/{name}.yaml")).ok().flatten();
        let told = file.and_then(|bytes| {
            yaml::typed::<Document<CniUpgradeStatus>>(&String::from_utf8_lossy(&bytes)).ok()
        });
        told.is_some_and(|told| told.status.transitions == status.transitions)
    }
}
