//! The stories, and one way to play each with engines that die.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::task::JoinHandle;
use trunkline::{
    api::{
        names::RepoName,
        status::{Outcome, Truth},
    },
    clock::later,
    mirror::ledger::Ledger,
    observe::store::{LEDGER_KEY, ledger_name},
    sim::model::{
        body::Body,
        fault::{Fault, FaultKind},
        store::{Kind, ObjRef},
    },
};

use super::{
    end::{self, End},
    fate::{Fate, Mortal},
};
use crate::flow::stage::Stage;

/// Most nodes in flight in every story.
const MAX_PARALLEL: usize = 2;
/// Virtual seconds that one step of a story may take.
const STEP_LIMIT: u32 = 3600;
/// Virtual seconds after the last step, within which cluster and Git must agree.
const REST: u32 = 400;

const NEW: &str = "\
# Network of the platform team.
apiVersion: cni.example.com/v1
kind: CNIUpgrade
metadata:
  name: calico
spec:
  targetVersion: v3.28.0  # what every node runs
  canary:
    percentage: 20
    observationMinutes: 1
    healthThreshold: 0.95
  maxParallel: 2
  autoRollback: true
";

/// What is pushed, one after the other, and how each attempt ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// The new version crash-loops on the first node that runs it.
    bad: bool,
    kept: bool,
    steps: &'static [(&'static str, Outcome)],
}

pub(crate) const STORIES: [Story; 4] = [
    Story { name: "upgrade", bad: false, kept: false, steps: &[("v3.28.0", Outcome::Completed)] },
    Story {
        name: "bad canary",
        bad: true,
        kept: false,
        steps: &[("v3.27.2", Outcome::AlreadyRuns), ("v3.28.0", Outcome::RolledBack)],
    },
    Story {
        name: "bad canary, kept",
        bad: true,
        kept: true,
        steps: &[("v3.27.2", Outcome::AlreadyRuns), ("v3.28.0", Outcome::Held)],
    },
    Story {
        name: "revert",
        bad: false,
        kept: false,
        steps: &[
            ("v3.27.2", Outcome::AlreadyRuns),
            ("v3.28.0", Outcome::Completed),
            ("v3.27.2", Outcome::Returned),
        ],
    },
];

impl Story {
    fn manifest(self, version: &str) -> String {
        NEW.replace("v3.28.0", version)
            .replace("autoRollback: true", &format!("autoRollback: {}", !self.kept))
    }
}

/// What was done to nodes, seen from beside the engine.
#[derive(Debug, Default)]
struct Watch {
    /// Node of every agent pod that ever was.
    nodes: BTreeMap<String, String>,
    most_without_agent: usize,
    most_open: usize,
    /// Version of the cluster at the last look.
    version: Option<u64>,
}

impl Watch {
    /// Looks if something changed; whether it did.
    fn look(&mut self, stage: &Stage) -> bool {
        let version = stage.cluster.model(|model| model.rv());
        if self.version.replace(version) == Some(version) {
            return false;
        }
        let mut ready = BTreeSet::new();
        let nodes = stage.cluster.model(|model| {
            for pod in model.list(Kind::Pod, Some("kube-system")) {
                let Body::Pod(body) = &pod.body else { continue };
                let Some(node) = body.node.as_deref() else { continue };
                self.nodes.insert(pod.at.name.to_string(), node.to_owned());
                if pod.deleting.is_none() && body.ready.status == Truth::True {
                    ready.insert(node.to_owned());
                }
            }
            model.list(Kind::Node, None).count()
        });
        self.most_without_agent = self.most_without_agent.max(nodes - ready.len());
        let open = stage.status("calico").map_or(0, |status| status.nodes.open.len());
        self.most_open = self.most_open.max(open);
        true
    }

    /// Agent pods deleted, by node; each counts once, however often its deletion was asked for.
    fn deletions(&self, stage: &Stage) -> BTreeMap<String, usize> {
        let log = stage.cluster.faults().log();
        let done = log.iter().filter(|line| line.asked.method == "DELETE" && line.code == Some(200));
        let pods: BTreeSet<&str> =
            done.filter_map(|line| line.asked.uri.split("/pods/").nth(1)?.split('?').next()).collect();
        let mut counts = BTreeMap::new();
        for pod in pods {
            *counts.entry(self.nodes.get(pod).cloned().unwrap_or_default()).or_default() += 1;
        }
        counts
    }
}

/// How a run went.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) end: End,
    /// Agent pods deleted, by node.
    pub(crate) deletions: BTreeMap<String, usize>,
    /// Changes made to the DaemonSet.
    pub(crate) patches: usize,
}

/// Plays a story; an error says what of it was wrong.
pub(crate) async fn play(story: Story, fate: &Fate, forgetful: bool) -> Result<Run, String> {
    let stage = Stage::new(5);
    if story.bad {
        stage.cluster.model(|model| {
            model.add_fault(Fault::new(FaultKind::CrashLoops).with_image("v3.28.0").on_first(1));
        });
    }
    let faults = fate.clone();
    stage.cluster.faults().when(move |asked| faults.of(asked));
    let mut watch = Watch::default();
    let script = async {
        until(&stage, &mut watch, |stage| ledger(stage).is_some_and(|ledger| ledger.started)).await?;
        for (version, outcome) in story.steps {
            stage.remote.commit("main", &[("calico.yaml", &story.manifest(version))]);
            let ended = |stage: &Stage| {
                let attempt = stage.status("calico").and_then(|status| status.attempt);
                attempt.and_then(|attempt| attempt.outcome) == Some(*outcome)
            };
            until(&stage, &mut watch, ended).await?;
            rest(&stage, &mut watch).await;
        }
        Ok::<(), String>(())
    };
    tokio::select! {
        biased;
        () = live_and_die(&stage, fate, forgetful) => {}
        told = script => told?,
    }
    if watch.most_without_agent > MAX_PARALLEL || watch.most_open > MAX_PARALLEL {
        return Err(format!("{} in flight, {} open", watch.most_without_agent, watch.most_open));
    }
    let log = stage.cluster.faults().log();
    let patches = log.iter().filter(|line| {
        line.asked.method == "PATCH"
            && line.code == Some(200)
            && line.asked.uri.contains("/daemonsets/")
            && !line.asked.uri.contains("dryRun")
    });
    Ok(Run { end: end::of(&stage)?, deletions: watch.deletions(&stage), patches: patches.count() })
}

/// Waits, looking once a second, and no longer than a step may take.
async fn until(stage: &Stage, watch: &mut Watch, holds: impl Fn(&Stage) -> bool) -> Result<(), String> {
    for _ in 0..STEP_LIMIT {
        if watch.look(stage) && holds(stage) {
            return Ok(());
        }
        stage.pass(1).await;
    }
    Err(format!("a step does not end; last seen: {:#?}", stage.status("calico")))
}

async fn rest(stage: &Stage, watch: &mut Watch) {
    for _ in 0..REST {
        let _ = watch.look(stage);
        stage.pass(1).await;
    }
}

/// One engine after the other, each over the same cluster, remote and clone; a forgetful one starts without the clone.
async fn live_and_die(stage: &Stage, fate: &Fate, forgetful: bool) {
    loop {
        let mut engine = start(stage, fate);
        let dropped = tokio::select! {
            biased;
            () = fate.called() => false,
            _ = &mut engine => true,
        };
        // Before the next wake-up of anything that waits for time, and after everything that does not.
        stage.clock.sleep_until(later(stage.clock.now(), Duration::from_millis(1))).await;
        fate.set_dead(true);
        if dropped {
            stage.pass(1).await;
        } else {
            stage.kill(engine).await;
        }
        fate.set_dead(false);
        if forgetful {
            std::fs::remove_dir_all(stage.clone_dir()).unwrap();
        }
    }
}

fn start(stage: &Stage, fate: &Fate) -> JoinHandle<()> {
    let engine =
        stage.make(|remote| Box::new(Mortal { remote, bare: stage.remote.clone(), fate: fate.clone() }));
    let fate = fate.clone();
    tokio::spawn(async move {
        let mut run = pin!(engine.run(std::future::pending()));
        std::future::poll_fn(move |cx| {
            if fate.dies_at_poll() { Poll::Ready(()) } else { run.as_mut().poll(cx).map(Result::unwrap) }
        })
        .await;
    })
}

/// The ledger as it is stored.
pub(crate) fn ledger(stage: &Stage) -> Option<Ledger> {
    let name = ledger_name(&RepoName::new("platform"));
    let at = ObjRef::new(Kind::ConfigMap, "trunkline-system", name);
    let stored = stage.cluster.model(|model| model.get(&at).cloned())?;
    let Body::Plain(plain) = &stored.body else { panic!("{at} is typed") };
    let text = plain.content.pointer(&format!("/data/{LEDGER_KEY}"))?.as_str()?;
    Some(serde_json::from_str(text).unwrap())
}
