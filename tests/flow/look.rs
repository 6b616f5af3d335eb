//! What a story looks at: the cluster beside the API, the requests that were made, and the branches of the remote.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinHandle;
use trunkline::{
    api::{
        ClaimKey, CniUpgradeStatus,
        names::{ORIGINAL_STRATEGY, REVISION_HASH},
        status::Truth,
    },
    sim::model::{
        Model,
        actors::{agent_ref, claim_ref},
        body::{Body, DaemonSetBody, PodBody},
        cluster::AgentKind,
        fault::{Fault, FaultKind},
        store::{Kind, Stored},
    },
    world::Strategy,
};

use super::stage::Stage;

/// The status branch.
pub(crate) const STATUS: &str = "trunkline/status/prod";

/// Status, reason and message of one condition.
pub(crate) fn condition(status: &CniUpgradeStatus, kind: &str) -> Option<(Truth, String, String)> {
    let found = status.conditions.iter().find(|found| found.r#type == kind)?;
    Some((found.status, found.reason.clone(), found.message.clone()))
}

/// Whether a condition has that status and reason.
pub(crate) fn says(status: &CniUpgradeStatus, kind: &str, truth: Truth, reason: &str) -> bool {
    condition(status, kind).is_some_and(|(is, why, _)| is == truth && why == reason)
}

/// Whether that reason for waiting is given.
pub(crate) fn waits(status: &CniUpgradeStatus, reason: &str) -> bool {
    status.waiting_for.iter().any(|waiting| waiting.reason == reason)
}

/// Id and number of the attempt.
pub(crate) fn attempt(status: &CniUpgradeStatus) -> (String, i64) {
    let attempt = status.attempt.as_ref().unwrap();
    (attempt.id.to_string(), attempt.number)
}

fn version(image: &str) -> String {
    image.rsplit_once(':').map_or(image, |(_, tag)| tag).to_owned()
}

fn agent_pods(model: &Model) -> Vec<(&Stored, &PodBody)> {
    model
        .list(Kind::Pod, Some("kube-system"))
        .filter_map(|stored| match &stored.body {
            Body::Pod(pod) if stored.at.name.starts_with("calico-node-") => Some((&**stored, &**pod)),
            _ => None,
        })
        .collect()
}

impl Stage {
    /// The agent DaemonSet.
    pub(crate) fn daemon_set(&self) -> DaemonSetBody {
        let at = agent_ref(&AgentKind::Calico.key());
        let stored = self.cluster.model(|model| model.get(&at).cloned()).unwrap();
        let Body::DaemonSet(body) = &stored.body else { panic!("{at} is none") };
        (**body).clone()
    }

    /// Whether the strategy is the one of before and nothing says that it was another.
    pub(crate) fn strategy_is_back(&self) -> bool {
        let at = agent_ref(&AgentKind::Calico.key());
        let stored = self.cluster.model(|model| model.get(&at).cloned()).unwrap();
        let noted = stored.meta.annotations.contains_key(ORIGINAL_STRATEGY);
        !noted && self.daemon_set().strategy == Strategy::RollingUpdate
    }

    /// Version of the live template.
    pub(crate) fn template_version(&self) -> String {
        let template = self.daemon_set().template.raw;
        version(template.pointer("/spec/containers/0/image").unwrap().as_str().unwrap())
    }

    /// Version of the agent by node; pods that go away do not count.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        self.cluster.model(|model| {
            let pods = agent_pods(model).into_iter().filter(|(stored, _)| stored.deleting.is_none());
            pods.filter_map(|(_, pod)| {
                Some((pod.node.as_deref()?.to_owned(), version(&pod.containers.last()?.image)))
            })
            .collect()
        })
    }

    /// How many nodes run that version.
    pub(crate) fn running(&self, wanted: &str) -> usize {
        self.versions().values().filter(|version| *version == wanted).count()
    }

    /// ControllerRevisions that agent pods are on.
    pub(crate) fn revisions(&self) -> BTreeSet<String> {
        self.cluster.model(|model| {
            agent_pods(model).into_iter().map(|(pod, _)| pod.meta.labels[REVISION_HASH].clone()).collect()
        })
    }

    /// UID of the agent pod by node.
    pub(crate) fn pods(&self) -> BTreeMap<String, String> {
        self.cluster.model(|model| {
            let pods = agent_pods(model).into_iter();
            pods.filter_map(|(stored, pod)| Some((pod.node.as_deref()?.to_owned(), stored.uid.to_string())))
                .collect()
        })
    }

    /// Whether there is such a custom resource.
    pub(crate) fn exists(&self, claim: &ClaimKey) -> bool {
        self.cluster.model(|model| model.get(&claim_ref(claim)).is_some())
    }

    /// Spec of a custom resource.
    pub(crate) fn spec_of(&self, name: &str) -> serde_json::Value {
        let at = claim_ref(&ClaimKey::cni(name));
        let stored = self.cluster.model(|model| model.get(&at).cloned()).unwrap();
        let Body::Plain(plain) = &stored.body else { panic!("{at} is typed") };
        plain.content["spec"].clone()
    }

    /// Attempt records beside the ledger.
    pub(crate) fn records(&self) -> usize {
        self.cluster.model(|model| {
            let stored = model.list(Kind::ConfigMap, Some("trunkline-system"));
            stored.filter(|stored| stored.at.name.starts_with("trunkline-attempt")).count()
        })
    }

    /// The agent with that version crash-loops on the first so many nodes that get it.
    pub(crate) fn let_canaries_crash(&self, nodes: usize, version: &str) {
        let fault = Fault::new(FaultKind::CrashLoops).on_first(nodes).with_image(version);
        self.cluster.model(|model| model.add_fault(fault));
    }

    /// Writes to the agent: its DaemonSet and pods, without dry runs.
    pub(crate) fn writes_to_the_agent(&self) -> Vec<String> {
        let log = self.cluster.faults().log();
        log.iter()
            .filter(|line| line.asked.writes() && !line.asked.uri.contains("dryRun"))
            .filter(|line| line.asked.uri.contains("/daemonsets/") || line.asked.uri.contains("/pods/"))
            .map(|line| format!("{} {}", line.asked.method, line.asked.uri))
            .collect()
    }

    /// Commits that the tracked branch has.
    pub(crate) fn commits(&self) -> usize {
        self.remote.log("main").len()
    }

    /// Message of the newest commit of the tracked branch.
    pub(crate) fn newest_message(&self) -> String {
        self.remote.message(&self.remote.tip("main").unwrap())
    }

    /// A file at the tip of the tracked branch.
    pub(crate) fn text(&self, path: &str) -> String {
        self.remote.file("main", path).unwrap().1
    }

    /// A file at the tip of the status branch; empty when it is not there.
    pub(crate) fn told(&self, path: &str) -> String {
        self.remote.file(STATUS, path).map_or_else(String::new, |(_, text)| text)
    }

    /// Phases in the history of the status branch, oldest first, without repetition.
    pub(crate) fn phases_told(&self, name: &str) -> Vec<String> {
        let mut phases: Vec<String> = Vec::new();
        for commit in self.remote.log(STATUS).iter().rev() {
            let file = self.remote.file_at(commit, &format!("CNIUpgrade/{name}.yaml"));
            let phase = file.and_then(|(_, text)| {
                text.lines().find_map(|line| line.strip_prefix("  phase: ").map(str::to_owned))
            });
            phases.extend(phase);
        }
        phases.dedup();
        phases
    }

    /// Waits until something holds; fails after that many virtual minutes, saying what was awaited.
    pub(crate) async fn until_so(&self, what: &str, minutes: u64, so: impl Fn(&Self) -> bool) {
        for _ in 0..minutes * 60 {
            if so(self) {
                return;
            }
            self.pass(1).await;
        }
        panic!("{what}: not within {minutes} minutes");
    }

    /// Watches how many nodes are without a ready agent at once; the task gives the highest count when asked.
    pub(crate) fn watch_nodes_in_flight(&self) -> Watch {
        let (cluster, clock) = (self.cluster.clone(), self.clock);
        let (tell, most) = tokio::sync::watch::channel(0);
        let task = tokio::spawn(async move {
            loop {
                let now = cluster.model(|model| {
                    let nodes = model.list(Kind::Node, None).count();
                    let ready = agent_pods(model)
                        .into_iter()
                        .filter(|(stored, pod)| stored.deleting.is_none() && pod.ready.status == Truth::True);
                    nodes.saturating_sub(ready.count())
                });
                tell.send_if_modified(|most| {
                    let more = now > *most;
                    *most = now.max(*most);
                    more
                });
                let next = trunkline::clock::later(clock.now(), std::time::Duration::from_millis(200));
                clock.sleep_until(next).await;
            }
        });
        Watch { most, task }
    }
}

/// A watch over the nodes in flight; it ends when dropped.
pub(crate) struct Watch {
    most: tokio::sync::watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Most nodes at once so far.
    pub(crate) fn most(&self) -> usize {
        *self.most.borrow()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
