//! The stories: what is pushed when, and how each must end.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::{super::print, Scenario, events, screen::Screen};
use crate::{
    api::{
        CNIUpgrade, CniUpgradeStatus,
        names::Oid,
        reasons::Reason,
        status::{Outcome, Truth},
    },
    clock::later,
    config::Repository,
    git::bare,
    manifest::yaml,
    observe,
    report::{status_file::Document, tree::StatusReport},
    sim::{
        lab::{BRANCH, CLUSTER, FOLDER, Lab, NAMESPACE},
        model::{
            body::{Body, DaemonSetBody},
            cluster::AgentKind,
            store::{Kind, ObjRef},
        },
    },
};

/// The published example, byte for byte.
const EXAMPLE: &str = include_str!("../../../examples/first-rollout/clusters/demo/calico.yaml");
/// Virtual time between two looks.
const TICK: Duration = Duration::from_secs(1);
/// Virtual time within which every story must have ended, and what each round of nodes adds to it.
const LIMIT: (Duration, Duration) = (Duration::from_secs(2 * 3600), Duration::from_secs(120));

/// A story under way.
pub(super) struct Story<'l> {
    lab: &'l Lab,
    eyes: Eyes<'l>,
    author: bare::Author,
    scenario: Scenario,
    max_parallel: u16,
    deadline: Timestamp,
}

impl<'l> Story<'l> {
    pub(super) fn new(
        lab: &'l Lab,
        screen: Screen,
        scenario: Scenario,
        nodes: u16,
        max_parallel: u16,
    ) -> anyhow::Result<Self> {
        let author = lab.author().context("the author's clone could not be made")?;
        let rounds = u32::from(nodes.div_ceil(max_parallel));
        let deadline = later(lab.clock.now(), LIMIT.0 + LIMIT.1 * rounds);
        Ok(Self { lab, eyes: Eyes::new(lab, screen), author, scenario, max_parallel, deadline })
    }

    /// What was seen last, with the screen.
    pub(super) fn into_eyes(self) -> Eyes<'l> {
        self.eyes
    }

    /// Plays it; an error says how its end differs.
    pub(super) async fn play(&mut self) -> anyhow::Result<()> {
        self.until("the empty repository is accepted", |eyes| eyes.accepted).await?;
        match self.scenario {
            Scenario::Upgrade => self.upgrade().await,
            Scenario::BadCanary => self.bad_canary(true).await,
            Scenario::BadCanaryKept => self.bad_canary(false).await,
            Scenario::Revert => self.revert().await,
        }
    }

    async fn upgrade(&mut self) -> anyhow::Result<()> {
        self.push(&self.example(), "Upgrade Calico to v3.28.0")?;
        self.until("the upgrade is completed", |eyes| eyes.ended(Outcome::Completed)).await?;
        self.settled("v3.28.0", 1).await
    }

    async fn bad_canary(&mut self, auto_rollback: bool) -> anyhow::Result<()> {
        let good = self.declared("v3.27.2", auto_rollback);
        self.push(&good, "Declare the Calico that runs")?;
        self.until("what runs is accepted", |eyes| eyes.ended(Outcome::AlreadyRuns)).await?;
        let bad = self.declared("v3.28.0", auto_rollback);
        self.push(&bad, "Upgrade Calico to v3.28.0")?;
        if auto_rollback {
            self.until("both canaries are back", |eyes| eyes.ended(Outcome::RolledBack)).await?;
            self.until("Git says so", Eyes::agrees).await?;
            self.settled("v3.27.2", 3).await?;
            let file = bare::file(&self.lab.remote(), BRANCH, &path())?;
            if file.as_deref() != Some(good.as_bytes()) {
                bail!("the rollback commit changed more than the wish");
            }
            return Ok(());
        }
        self.until("the canary failed and is kept", |eyes| eyes.ended(Outcome::Held)).await?;
        let lab = self.lab;
        self.until("the template is back", |_| template(lab).as_deref() == Some("v3.27.2")).await?;
        self.until("Git says so", Eyes::published).await?;
        self.commits(2)
    }

    async fn revert(&mut self) -> anyhow::Result<()> {
        self.push(&self.declared("v3.27.2", true), "Declare the Calico that runs")?;
        self.until("what runs is accepted", |eyes| eyes.ended(Outcome::AlreadyRuns)).await?;
        let bad = self.push(&self.declared("v3.28.0", true), "Upgrade Calico to v3.28.0")?;
        self.until("the upgrade is completed", |eyes| eyes.ended(Outcome::Completed)).await?;
        let at = self.lab.clock.now();
        let revert = self.author.revert(&bad, at)?;
        let text = format!("pushed {}: Revert \"Upgrade Calico to v3.28.0\"", revert.short());
        self.eyes.screen.say(at, "push", &text, &json!({ "commit": revert }));
        self.until("the nodes have returned", |eyes| eyes.ended(Outcome::Returned)).await?;
        self.settled("v3.27.2", 3).await
    }

    fn push(&mut self, text: &str, message: &str) -> anyhow::Result<Oid> {
        let at = self.lab.clock.now();
        let files = BTreeMap::from([(path(), Some(text.to_owned()))]);
        let oid = self.author.commit(&files, &format!("{message}\n"), at)?;
        self.eyes.screen.say(
            at,
            "push",
            &format!("pushed {}: {message}", oid.short()),
            &json!({ "commit": oid }),
        );
        Ok(oid)
    }

    fn example(&self) -> String {
        EXAMPLE.replace("maxParallel: 3", &format!("maxParallel: {}", self.max_parallel))
    }

    fn declared(&self, version: &str, auto_rollback: bool) -> String {
        self.example()
            .replace("calico-upgrade-v3.28", "calico")
            .replace(
                "targetVersion: v3.28.0",
                &format!("targetVersion: {version}  # the Calico of every node"),
            )
            .replace("autoRollback: true", &format!("autoRollback: {auto_rollback}"))
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Eyes<'l>) -> bool) -> anyhow::Result<()> {
        loop {
            self.eyes.look().await?;
            if done(&self.eyes) {
                return Ok(());
            }
            let now = self.lab.clock.now();
            if now > self.deadline {
                bail!("{what}: not by {}", self.deadline);
            }
            self.lab.clock.sleep_until(later(now, TICK)).await;
        }
    }

    /// Every node on the version, the strategy back, the status branch up to date, so many commits on main.
    async fn settled(&mut self, version: &str, commits: usize) -> anyhow::Result<()> {
        let lab = self.lab;
        self.until("the update strategy is back", |_| strategy_is_back(lab)).await?;
        self.until("Git says so", Eyes::published).await?;
        if template(lab).as_deref() != Some(version) {
            bail!("the template is not on {version}");
        }
        self.commits(commits)
    }

    fn commits(&self, wanted: usize) -> anyhow::Result<()> {
        let found = bare::log(&self.lab.remote(), BRANCH, wanted + 2)?.len();
        if found != wanted {
            bail!("{found} commits on {BRANCH} instead of {wanted}");
        }
        Ok(())
    }
}

/// What was seen last.
pub(super) struct Eyes<'l> {
    lab: &'l Lab,
    pub(super) screen: Screen,
    statuses: BTreeMap<String, CniUpgradeStatus>,
    tips: BTreeMap<String, Option<Oid>>,
    accepted: bool,
}

impl<'l> Eyes<'l> {
    fn new(lab: &'l Lab, screen: Screen) -> Self {
        Self { lab, screen, statuses: BTreeMap::new(), tips: BTreeMap::new(), accepted: false }
    }

    /// Shows what happens for as long as the process lives.
    pub(super) async fn watch(&mut self) -> anyhow::Result<()> {
        loop {
            self.look().await?;
            self.lab.clock.sleep_until(later(self.lab.clock.now(), TICK)).await;
        }
    }

    /// Looks once and shows what is new.
    async fn look(&mut self) -> anyhow::Result<()> {
        let now = self.lab.clock.now();
        let api: Api<CNIUpgrade> = Api::all(self.lab.cluster.client());
        let mut changed = false;
        for object in
            api.list(&ListParams::default()).await.context("the embedded cluster gives no answer")?
        {
            let (Some(name), Some(status)) = (object.metadata.name, object.status) else { continue };
            let old = self.statuses.get(&name).cloned().unwrap_or_default();
            if old != status {
                let events = events::between(&name, &old, &status, now);
                self.screen.show(&events);
                self.statuses.insert(name, status);
                changed = true;
            }
        }
        for branch in [BRANCH.to_owned(), Repository::status_branch_name(CLUSTER)] {
            changed |= self.look_at_branch(branch, now)?;
        }
        if !self.accepted {
            self.accepted = self.ledger_stands();
        }
        if changed && self.screen.wants_tree() {
            let world = observe::snapshot(&self.lab.cluster.client(), NAMESPACE, now).await;
            if let Ok(world) = world {
                self.screen.tree(StatusReport::of(&world, None).text(now, print::paint()));
            }
        }
        Ok(())
    }

    fn look_at_branch(&mut self, branch: String, now: Timestamp) -> anyhow::Result<bool> {
        let known = self.tips.get(&branch).cloned().flatten();
        let tip = bare::log(&self.lab.remote(), &branch, 1)?.into_iter().next().map(|commit| commit.oid);
        if tip == known {
            return Ok(false);
        }
        let commits = bare::log(&self.lab.remote(), &branch, 50)?;
        let mut fresh: Vec<_> =
            commits.iter().take_while(|commit| Some(&commit.oid) != known.as_ref()).collect();
        fresh.reverse();
        for commit in fresh {
            let subject = commit.message.lines().next().unwrap_or_default();
            let text = format!("commit {} on {branch}: {subject}", commit.oid.short());
            let data = json!({ "branch": branch, "commit": commit.oid, "subject": subject });
            self.screen.say(now, "commit", &text, &data);
        }
        self.tips.insert(branch, tip);
        Ok(true)
    }

    fn ledger_stands(&self) -> bool {
        self.lab.cluster.model(|model| {
            model
                .list(Kind::ConfigMap, Some(NAMESPACE))
                .any(|found| found.at.name.starts_with("trunkline-ledger"))
        })
    }

    fn status(&self) -> Option<&CniUpgradeStatus> {
        self.statuses.values().next()
    }

    fn ended(&self, outcome: Outcome) -> bool {
        self.status().and_then(|status| status.attempt.as_ref()).and_then(|attempt| attempt.outcome)
            == Some(outcome)
    }

    /// Git and cluster agree after a rollback.
    fn agrees(&self) -> bool {
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
    fn published(&self) -> bool {
        let Some((name, status)) = self.statuses.iter().next() else { return false };
        let branch = Repository::status_branch_name(CLUSTER);
        let file = bare::file(&self.lab.remote(), &branch, &format!("CNIUpgrade/{name}.yaml")).ok().flatten();
        let told = file.and_then(|bytes| {
            yaml::typed::<Document<CniUpgradeStatus>>(&String::from_utf8_lossy(&bytes)).ok()
        });
        told.is_some_and(|told| told.status.transitions == status.transitions)
    }
}

/// Name of the object that a story is about.
pub(super) const fn object(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Upgrade => "calico-upgrade-v3.28",
        Scenario::BadCanary | Scenario::BadCanaryKept | Scenario::Revert => "calico",
    }
}

fn path() -> String {
    format!("{FOLDER}/calico.yaml")
}

fn agent<R>(lab: &Lab, look: impl Fn(&DaemonSetBody, bool) -> R) -> Option<R> {
    let key = AgentKind::Calico.key();
    let at = ObjRef::new(Kind::DaemonSet, key.namespace, key.name);
    lab.cluster.model(|model| {
        let found = model.get(&at)?;
        let held = found.meta.annotations.contains_key(crate::api::names::ORIGINAL_STRATEGY);
        match &found.body {
            Body::DaemonSet(body) => Some(look(body, held)),
            Body::Node(_) | Body::Pod(_) | Body::Revision(_) | Body::Plain(_) => None,
        }
    })
}

fn strategy_is_back(lab: &Lab) -> bool {
    agent(lab, |body, held| !held && body.strategy == crate::world::Strategy::RollingUpdate).unwrap_or(false)
}

/// Version of the live template.
fn template(lab: &Lab) -> Option<String> {
    agent(lab, |body, _| {
        let image = body.template.raw.pointer("/spec/containers/0/image")?.as_str()?;
        image.rsplit_once(':').map(|(_, tag)| tag.to_owned())
    })
    .flatten()
}
