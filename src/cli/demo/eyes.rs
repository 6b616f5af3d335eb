//! What the demo sees: custom resources and ledgers by the daemon's own watches, branches by their tips.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::bail;
use jiff::Timestamp;
use serde_json::{Value, json};
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
    observe::Observer,
    report::{
        status_file::{self, StatusFile},
        tree::StatusReport,
    },
    sim::lab::{BRANCH, CLUSTER, Lab, NAMESPACE},
    world::{ClaimStatus, Feed, Observation, World},
};

/// Virtual time between two looks at the branches; the cluster tells by itself.
const TICK: Duration = Duration::from_secs(1);
/// Observations between a watch and the eyes.
const BUFFER: usize = 64;
/// Virtual time that a remote may be away before the story is given up.
const PATIENCE: Duration = Duration::from_secs(3600);

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
    /// The object that the story is about.
    object: &'static str,
    /// Since when the remote cannot be read, and why.
    away: Option<(Timestamp, String)>,
    /// Something is new since the tree was drawn.
    news: bool,
}

impl<'l> Eyes<'l> {
    pub(super) fn new(lab: &'l Lab, screen: Screen, object: &'static str) -> Self {
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
            object,
            away: None,
            news: false,
        }
    }

    /// Shows what happens for as long as the process lives.
    pub(super) async fn watch(&mut self) -> anyhow::Result<()> {
        loop {
            self.look().await?;
        }
    }

    /// Shows what happens until `step` gives something; an error says `what` did not come about, and why.
    pub(super) async fn until<T>(
        &mut self,
        what: &str,
        deadline: Timestamp,
        mut step: impl FnMut(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        loop {
            if let Some(given) = step(self) {
                return Ok(given);
            }
            let now = self.lab.clock.now();
            if let Some((since, why)) = self.away.as_ref().filter(|(since, _)| now > later(*since, PATIENCE))
            {
                let remote = self.lab.remote();
                bail!("{what}: the remote {} has been away since {since}: {why}", remote.display());
            }
            if now > deadline {
                bail!("{what}: not by {deadline}");
            }
            self.look().await?;
        }
    }

    /// Takes in what a watch tells next, or looks at the branches after a while.
    async fn look(&mut self) -> anyhow::Result<()> {
        let next = later(self.lab.clock.now(), TICK);
        match self.lab.clock.before(next, self.seen.recv()).await {
            Some(Some(observation)) => self.take(observation),
            Some(None) => bail!("the watches have ended"),
            None => self.catch_up(),
        }
        Ok(())
    }

    /// Shows what the branches and the tree have to say by now.
    pub(super) fn catch_up(&mut self) {
        self.look_at_branches();
        self.draw();
    }

    /// Takes in what a watch tells, and shows what is new in it.
    fn take(&mut self, observation: Observation) {
        let now = self.lab.clock.now();
        self.news |= !self.world.apply(observation, now).is_empty();
        let changed = self.world.claims.iter().filter_map(|(key, claim)| {
            let ClaimStatus::Cni(status) = &claim.is.status else { return None };
            let known = self.statuses.get(&key.name) == Some(&**status);
            (!known).then(|| (key.name.clone(), (**status).clone()))
        });
        let changed: Vec<(String, CniUpgradeStatus)> = changed.collect();
        if !changed.is_empty() {
            // A status may tell of a commit, so that comes first.
            self.look_at_branches();
        }
        for (name, status) in changed {
            let old = self.statuses.insert(name.clone(), status.clone()).unwrap_or_default();
            self.screen.show(&events::between(&name, &old, &status, now));
        }
        let claims = &self.world.claims;
        let gone = |name: &String| !claims.keys().any(|key| key.name == *name);
        let deleted: Vec<String> = self.statuses.keys().filter(|name| gone(name)).cloned().collect();
        for name in deleted {
            self.statuses.remove(&name);
            self.screen.say(now, "deleted", &format!("{name} is deleted"), &json!({ "object": name }));
        }
    }

    fn draw(&mut self) {
        if std::mem::take(&mut self.news) && self.screen.wants_tree() {
            let now = self.lab.clock.now();
            self.screen.tree(StatusReport::of(&self.world, None).text(now, print::paint()));
        }
    }

    /// Shows one line.
    pub(super) fn say(&mut self, kind: &str, text: &str, data: &Value) {
        self.screen.say(self.lab.clock.now(), kind, text, data);
    }

    /// Shows a commit that the story pushed.
    pub(super) fn pushed(&mut self, commit: &Oid, subject: &str) {
        self.pushed.insert(commit.clone());
        self.look_at_branches();
        let text = format!("pushed {} to {BRANCH}: {subject}", commit.short());
        self.screen.say(self.lab.clock.now(), "push", &text, &json!({ "commit": commit }));
    }

    /// A remote that is away for a while, as somebody may try, ends no demo.
    fn look_at_branches(&mut self) {
        let both = [BRANCH.to_owned(), Repository::status_branch_name(CLUSTER)];
        let now = self.lab.clock.now();
        match (both.into_iter().try_for_each(|branch| self.look_at(branch)), self.away.take()) {
            (Err(error), None) => {
                let text = format!("the remote cannot be read, and is looked at again: {error}");
                self.screen.say(now, "remote", &text, &json!({ "error": error.to_string() }));
                self.away = Some((now, error.to_string()));
            }
            (Err(_), away @ Some(_)) => self.away = away,
            (Ok(()), Some((since, _))) => {
                self.screen.say(now, "remote", "the remote can be read again", &json!({ "since": since }));
            }
            (Ok(()), None) => {}
        }
    }

    pub(super) const fn is_away(&self) -> bool {
        self.away.is_some()
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

    /// Whether the repository was read; a ledger that only tells of an unreachable one does not count.
    pub(super) fn accepted(&self) -> bool {
        self.world.ledgers.values().any(|seen| seen.is.as_ref().is_ok_and(|ledger| ledger.started))
    }

    fn status(&self) -> Option<&CniUpgradeStatus> {
        self.statuses.get(self.object)
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

    /// The status branch says what the custom resource says.
    pub(super) fn published(&self) -> bool {
        let Some((key, claim)) = self.world.claims.iter().find(|(key, _)| key.name == self.object) else {
            return false;
        };
        let branch = Repository::status_branch_name(CLUSTER);
        let bytes = bare::file(&self.lab.remote(), &branch, &status_file::path(key)).ok().flatten();
        let told = bytes.and_then(|bytes| StatusFile::read(key, &bytes));
        let told = told.as_ref().and_then(StatusFile::cni);
        told.is_some() && told == StatusFile::of(key, &claim.is).as_ref().and_then(StatusFile::cni)
    }
}
