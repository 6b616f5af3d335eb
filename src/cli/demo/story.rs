//! The stories: what is pushed when, and how each must end.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;

use super::{Scenario, eyes::Eyes, screen::Screen};
use crate::{
    api::{names::Oid, status::Outcome},
    clock::later,
    git::{GitError, bare},
    sim::{
        lab::{BRANCH, FOLDER, Lab},
        model::{
            body::{Body, DaemonSetBody},
            cluster::AgentKind,
            store::{Kind, ObjRef},
        },
    },
};

/// The published example, byte for byte.
const EXAMPLE: &str = include_str!("../../../examples/first-rollout/clusters/demo/calico.yaml");
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
        Ok(Self {
            lab,
            eyes: Eyes::new(lab, screen, object(scenario)),
            author,
            scenario,
            max_parallel,
            deadline,
        })
    }

    /// What was seen last, with the screen.
    pub(super) fn into_eyes(self) -> Eyes<'l> {
        self.eyes
    }

    /// Plays it; an error says how its end differs.
    pub(super) async fn play(&mut self) -> anyhow::Result<()> {
        self.until("the empty repository is accepted", Eyes::accepted).await?;
        match self.scenario {
            Scenario::Upgrade => self.upgrade().await?,
            Scenario::BadCanary => self.bad_canary(true).await?,
            Scenario::BadCanaryKept => self.bad_canary(false).await?,
            Scenario::Revert => self.revert().await?,
        }
        self.eyes.catch_up();
        Ok(())
    }

    async fn upgrade(&mut self) -> anyhow::Result<()> {
        self.push(&self.example(), "Upgrade Calico to v3.28.0").await?;
        self.until("the upgrade is completed", |eyes| eyes.ended(Outcome::Completed)).await?;
        self.settled("v3.28.0", 1).await
    }

    async fn bad_canary(&mut self, auto_rollback: bool) -> anyhow::Result<()> {
        let good = self.declared("v3.27.2", auto_rollback);
        self.push(&good, "Declare the Calico that runs").await?;
        self.until("what runs is accepted", |eyes| eyes.ended(Outcome::AlreadyRuns)).await?;
        let bad = self.declared("v3.28.0", auto_rollback);
        self.push(&bad, "Upgrade Calico to v3.28.0").await?;
        if auto_rollback {
            self.until("both canaries are back", |eyes| eyes.ended(Outcome::RolledBack)).await?;
            self.until("Git says so", Eyes::agrees).await?;
            self.settled("v3.27.2", 3).await?;
            let file = self
                .reach("the manifest is read", |_, lab| bare::file(&lab.remote(), BRANCH, &path()))
                .await?;
            if file.as_deref() != Some(good.as_bytes()) {
                bail!("the rollback commit changed more than the wish");
            }
            return Ok(());
        }
        self.until("the canary failed and is kept", |eyes| eyes.ended(Outcome::Held)).await?;
        let lab = self.lab;
        self.until("the template is back", |_| template(lab).as_deref() == Some("v3.27.2")).await?;
        self.until("Git says so", Eyes::published).await?;
        self.commits(2).await
    }

    async fn revert(&mut self) -> anyhow::Result<()> {
        self.push(&self.declared("v3.27.2", true), "Declare the Calico that runs").await?;
        self.until("what runs is accepted", |eyes| eyes.ended(Outcome::AlreadyRuns)).await?;
        let bad = self.push(&self.declared("v3.28.0", true), "Upgrade Calico to v3.28.0").await?;
        self.until("the upgrade is completed", |eyes| eyes.ended(Outcome::Completed)).await?;
        let revert =
            self.reach("the revert is pushed", |author, lab| author.revert(&bad, lab.clock.now())).await?;
        self.eyes.pushed(&revert, "Revert \"Upgrade Calico to v3.28.0\"");
        self.until("the nodes have returned", |eyes| eyes.ended(Outcome::Returned)).await?;
        self.settled("v3.27.2", 3).await
    }

    async fn push(&mut self, text: &str, message: &str) -> anyhow::Result<Oid> {
        let files = BTreeMap::from([(path(), Some(text.to_owned()))]);
        let subject = format!("{message}\n");
        let oid = self
            .reach("the manifest is pushed", |author, lab| author.commit(&files, &subject, lab.clock.now()))
            .await?;
        self.eyes.pushed(&oid, message);
        Ok(oid)
    }

    /// What a step at the remote gives; while the remote is away it is tried again.
    async fn reach<T>(
        &mut self,
        what: &str,
        step: impl Fn(&mut bare::Author, &Lab) -> Result<T, GitError>,
    ) -> anyhow::Result<T> {
        let (lab, author, mut last) = (self.lab, &mut self.author, None);
        let step = |_: &Eyes<'l>| step(author, lab).map_err(|error| last = Some(error)).ok();
        let given = self.eyes.until(what, self.deadline, step).await;
        given.map_err(|why| match last {
            Some(error) if !self.eyes.is_away() => anyhow!("{why}: {error}"),
            Some(_) | None => why,
        })
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
        self.eyes.until(what, self.deadline, |eyes| done(eyes).then_some(())).await?;
        self.eyes.catch_up();
        Ok(())
    }

    /// Every node on the version, the strategy back, the status branch up to date, so many commits on main.
    async fn settled(&mut self, version: &str, commits: usize) -> anyhow::Result<()> {
        let lab = self.lab;
        self.until("the update strategy is back", |_| strategy_is_back(lab)).await?;
        self.until("Git says so", Eyes::published).await?;
        if template(lab).as_deref() != Some(version) {
            bail!("the template is not on {version}");
        }
        self.commits(commits).await
    }

    async fn commits(&mut self, wanted: usize) -> anyhow::Result<()> {
        let log = |_: &mut bare::Author, lab: &Lab| bare::log(&lab.remote(), BRANCH, wanted + 2);
        let found = self.reach("the commits are read", log).await?.len();
        if found != wanted {
            bail!("{found} commits on {BRANCH} instead of {wanted}");
        }
        Ok(())
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
