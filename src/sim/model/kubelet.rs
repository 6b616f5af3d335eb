//! Scheduler, kubelets and the node controller: how pods start, run, fail and end, and what Nodes say.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    Event, Model, Span,
    body::{Body, Cond, Container, ContainerState, NodeBody, PodBody, PodPhase},
    fault::{Fault, FaultKind},
    store::{Change, DeleteOptions, Kind, ObjRef, What},
};
use crate::api::{names::Uid, status::Truth};

/// Longest wait between two tries of a kubelet, in seconds.
const LONGEST_BACKOFF: i64 = 300;
/// Message of a container that is not started again yet.
const BACK_OFF: &str = "back-off restarting failed container";

/// Where a pod stands with its kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    stage: Stage,
    /// Number of the newest event about it; older ones are void.
    ticket: u64,
    /// Failed tries in a row.
    tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The scheduler has not bound it.
    Unbound,
    /// Images and init containers.
    Setup,
    /// Running, not Ready yet.
    Starting,
    /// Ready.
    Ready,
    /// Running and not Ready any more.
    Unready,
    /// Being stopped.
    Stopping,
}

/// What the world machine knows of a machine behind a Node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// Some agent has been Ready on it, so that the kubelet found a network plugin.
    pub joined: bool,
    /// It answers no more since then.
    lost: Option<Timestamp>,
}

impl Model {
    /// Notes what a change means for kubelets.
    pub(super) fn kubelet_sees(&mut self, change: &Change) {
        match change.object.at.kind {
            Kind::Pod => self.kubelet_sees_pod(change),
            Kind::Node => {
                let name = Arc::clone(&change.object.at.name);
                match change.what {
                    What::Added => {
                        self.machines.insert(Arc::clone(&name), Machine::default());
                        self.schedule(self.now, Event::Node(name));
                    }
                    What::Modified => {}
                    What::Deleted => {
                        self.machines.remove(&name);
                        let wait = self.timings.collect;
                        self.later(wait, Event::CollectPods(name));
                    }
                }
            }
            Kind::Namespace
            | Kind::ConfigMap
            | Kind::Service
            | Kind::Event
            | Kind::DaemonSet
            | Kind::ControllerRevision
            | Kind::Lease
            | Kind::CustomResourceDefinition
            | Kind::CniUpgrade
            | Kind::ServiceUpgrade => {}
        }
    }

    fn kubelet_sees_pod(&mut self, change: &Change) {
        let object = &change.object;
        let Body::Pod(pod) = &object.body else { return };
        let node = pod.node.clone();
        if change.what == What::Deleted {
            self.runs.remove(&object.uid);
            if let Some(node) = node {
                if let Some(pods) = self.pods_on.get_mut(&node) {
                    pods.remove(&object.at);
                }
                self.schedule(self.now, Event::Node(node));
            }
            return;
        }
        if let Some(node) = &node {
            self.pods_on.entry(Arc::clone(node)).or_default().insert(object.at.clone());
        }
        let was_deleting = change.before.as_ref().is_some_and(|before| before.deleting.is_some());
        let stage = self.runs.get(&object.uid).map(|run| run.stage);
        match (stage, &node) {
            (None, None) => self.step(&object.at, &object.uid, Stage::Unbound, self.timings.bind),
            (None | Some(Stage::Unbound), Some(_)) => {
                self.step(&object.at, &object.uid, Stage::Setup, self.timings.setup);
            }
            (
                Some(
                    Stage::Unbound
                    | Stage::Setup
                    | Stage::Starting
                    | Stage::Ready
                    | Stage::Unready
                    | Stage::Stopping,
                ),
                _,
            ) => {}
        }
        if object.deleting.is_some() && !was_deleting {
            self.step(&object.at, &object.uid, Stage::Stopping, self.timings.stop);
        }
    }

    /// Puts a pod into a stage, and looks at it again after a while.
    fn step(&mut self, at: &ObjRef, uid: &Uid, stage: Stage, after: Span) {
        let ticket = self.later(after, Event::Pod(at.clone(), uid.clone()));
        let tries = self.runs.get(uid).map_or(0, |run| run.tries);
        self.runs.insert(uid.clone(), Run { stage, ticket, tries });
    }

    fn retry(&mut self, at: &ObjRef, uid: &Uid, stage: Stage) {
        let tries = self.runs.get(uid).map_or(0, |run| run.tries);
        let wait = (10_i64 << tries.min(5)).min(LONGEST_BACKOFF);
        let ticket = self.later(Span::seconds(wait), Event::Pod(at.clone(), uid.clone()));
        self.runs.insert(uid.clone(), Run { stage, ticket, tries: tries + 1 });
    }

    /// Leaves a pod as it is until something else moves it.
    fn park(&mut self, uid: &Uid, stage: Stage) {
        if let Some(run) = self.runs.get_mut(uid) {
            run.stage = stage;
            run.ticket = 0;
        }
    }

    /// The time of a pod has come.
    pub(super) fn pod_event(&mut self, at: &ObjRef, uid: &Uid, ticket: u64) {
        let Some(run) = self.runs.get(uid).copied() else { return };
        if run.ticket == ticket {
            self.pod_step(at, uid, run.stage);
        }
    }

    fn pod_step(&mut self, at: &ObjRef, uid: &Uid, stage: Stage) {
        let Some(stored) = self.store.get(at).filter(|stored| stored.uid == *uid).cloned() else { return };
        let Body::Pod(pod) = &stored.body else { return };
        let Some(node) = pod.node.clone() else {
            self.bind(at, uid, pod);
            return;
        };
        if self.machines.get(&node).is_none_or(|machine| machine.lost.is_some()) {
            self.park(uid, stage);
            return;
        }
        match stage {
            Stage::Unbound | Stage::Setup => self.set_up(at, uid, &node, pod),
            Stage::Starting => self.start(at, uid, &node, pod),
            Stage::Ready => self.wear(at, uid, &node, pod),
            Stage::Unready => self.recover(at, uid, &node, pod),
            Stage::Stopping => self.stop(at, uid, &node, pod),
        }
    }

    fn bind(&mut self, at: &ObjRef, uid: &Uid, pod: &PodBody) {
        let Some(node) = pod.wanted_node.clone() else { return };
        if self.store.get(&ObjRef::cluster(Kind::Node, Arc::clone(&node))).is_none() {
            self.step(at, uid, Stage::Unbound, Span::seconds(5));
            return;
        }
        self.change_pod(at, |pod| pod.node = Some(node));
    }

    fn set_up(&mut self, at: &ObjRef, uid: &Uid, node: &Arc<str>, pod: &PodBody) {
        let kinds = [FaultKind::ImagePull, FaultKind::ConfigError, FaultKind::InitFails];
        let Some(fault) = self.strikes(node, &pod.containers, |kind| kinds.contains(&kind)) else {
            let slow = self.slowness(node, &pod.containers);
            self.step(at, uid, Stage::Starting, self.timings.ready.plus(slow));
            let now = self.now;
            self.change_pod(at, |pod| running(pod, now));
            self.schedule(now, Event::Node(Arc::clone(node)));
            return;
        };
        let first = self.runs.get(uid).is_none_or(|run| run.tries == 0);
        self.retry(at, uid, Stage::Setup);
        self.change_pod(at, |pod| {
            if fault == FaultKind::ImagePull {
                let reason = if first { "ErrImagePull" } else { "ImagePullBackOff" };
                blame(pod, Part::First, reason, "manifest unknown", false);
            } else if fault == FaultKind::ConfigError {
                let message = "configmap \"agent-config\" not found";
                blame(pod, Part::Main, "CreateContainerConfigError", message, false);
            } else {
                blame(pod, Part::LastInit, "CrashLoopBackOff", BACK_OFF, true);
            }
        });
    }

    fn start(&mut self, at: &ObjRef, uid: &Uid, node: &Arc<str>, pod: &PodBody) {
        let kinds = [FaultKind::CrashLoops, FaultKind::NeverReady];
        let Some(fault) = self.strikes(node, &pod.containers, |kind| kinds.contains(&kind)) else {
            let now = self.now;
            self.park(uid, Stage::Ready);
            self.runs.entry(uid.clone()).and_modify(|run| run.tries = 0);
            self.change_pod(at, |pod| ready(pod, Truth::True, "", now));
            if let Some(machine) = self.machines.get_mut(node) {
                machine.joined = true;
            }
            self.schedule(now, Event::Node(Arc::clone(node)));
            self.wear(at, uid, node, pod);
            return;
        };
        if fault == FaultKind::CrashLoops {
            self.retry(at, uid, Stage::Unready);
            self.change_pod(at, |pod| blame(pod, Part::Main, "CrashLoopBackOff", BACK_OFF, true));
        } else {
            self.park(uid, Stage::Starting);
        }
    }

    /// A Ready pod may have something coming to it.
    fn wear(&mut self, at: &ObjRef, uid: &Uid, node: &Arc<str>, pod: &PodBody) {
        let struck =
            self.strikes(node, &pod.containers, |kind| matches!(kind, FaultKind::TurnsUnready { .. }));
        let Some(FaultKind::TurnsUnready { after }) = struck else { return };
        let since = self.ready_since(at);
        let due = since.saturating_add(SignedDuration::from_secs(after)).unwrap_or(since);
        if due <= self.now {
            let now = self.now;
            self.park(uid, Stage::Unready);
            self.change_pod(at, |pod| ready(pod, Truth::False, "ContainersNotReady", now));
        } else {
            let ticket = self.schedule(due, Event::Pod(at.clone(), uid.clone()));
            if let Some(run) = self.runs.get_mut(uid) {
                run.ticket = ticket;
            }
        }
    }

    fn ready_since(&self, at: &ObjRef) -> Timestamp {
        match self.store.get(at).map(|stored| &stored.body) {
            Some(Body::Pod(pod)) => pod.ready.since,
            Some(Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_)) | None => self.now,
        }
    }

    /// Another start after a crash, or after a fault is over.
    fn recover(&mut self, at: &ObjRef, uid: &Uid, node: &Arc<str>, pod: &PodBody) {
        let kinds = |kind| matches!(kind, FaultKind::TurnsUnready { .. });
        if self.strikes(node, &pod.containers, kinds).is_some() {
            self.park(uid, Stage::Unready);
            return;
        }
        let now = self.now;
        self.step(at, uid, Stage::Starting, self.timings.ready);
        self.change_pod(at, |pod| running(pod, now));
    }

    fn stop(&mut self, at: &ObjRef, uid: &Uid, node: &Arc<str>, pod: &PodBody) {
        if self.strikes(node, &pod.containers, |kind| kind == FaultKind::StuckTerminating).is_some() {
            self.park(uid, Stage::Stopping);
            return;
        }
        let _ = self.delete(at, &DeleteOptions { grace: Some(0), ..DeleteOptions::default() });
    }

    fn change_pod(&mut self, at: &ObjRef, change: impl FnOnce(&mut PodBody)) {
        let _ = self.store.alter(at, |stored| {
            if let Body::Pod(pod) = &mut stored.body {
                change(pod);
            }
        });
        self.react();
    }

    fn strikes(
        &mut self,
        node: &Arc<str>,
        agent: &[Container],
        wanted: impl Fn(FaultKind) -> bool,
    ) -> Option<FaultKind> {
        let now = self.now;
        self.faults
            .iter_mut()
            .filter(|fault| wanted(fault.kind))
            .find_map(|fault| fault.strikes(node, Some(agent), now).then_some(fault.kind))
    }

    fn slowness(&mut self, node: &Arc<str>, agent: &[Container]) -> i64 {
        match self.strikes(node, agent, |kind| matches!(kind, FaultKind::Slow { .. })) {
            Some(FaultKind::Slow { by }) => by,
            Some(_) | None => 0,
        }
    }

    /// Begins or ends faults: every machine and every pod that does not run well is looked at.
    pub(super) fn fault_edge(&mut self) {
        let nodes: Vec<Arc<str>> = self.machines.keys().cloned().collect();
        for node in nodes {
            self.node_event(&node);
            self.wake_pods(&node);
        }
    }

    fn wake_pods(&mut self, node: &Arc<str>) {
        let pods: Vec<ObjRef> = self.pods_on.get(node).into_iter().flatten().cloned().collect();
        for at in pods {
            let Some(uid) = self.store.get(&at).map(|stored| stored.uid.clone()) else { continue };
            let Some(run) = self.runs.get(&uid).copied() else { continue };
            let waits = run.ticket == 0 || run.tries > 0;
            if waits {
                self.step(&at, &uid, run.stage, Span::seconds(1));
            }
        }
    }

    /// Brings the conditions of a Node up to date.
    pub(super) fn node_event(&mut self, name: &Arc<str>) {
        let Some(machine) = self.machines.get(name).copied() else { return };
        let agents = self.running_on(name);
        let now = self.now;
        let mut kinds: Vec<FaultKind> = Vec::new();
        for fault in self.faults.iter_mut().filter(|fault| fault.kind.of_node()) {
            if strikes_any(fault, name, &agents, now) {
                kinds.push(fault.kind);
            }
        }
        let lost = kinds.contains(&FaultKind::Lost);
        if lost && machine.lost.is_none() {
            self.set_lost(name, Some(now));
            self.schedule(plus(now, self.timings.monitor), Event::Node(Arc::clone(name)));
            return;
        }
        if !lost && machine.lost.is_some() {
            self.set_lost(name, None);
            self.reboot(name);
        }
        let unknown = machine.lost.is_some_and(|since| lost && plus(since, self.timings.monitor) <= now);
        if lost && !unknown {
            return;
        }
        let (ready, reason, message) = verdict(&kinds, unknown, machine.joined);
        let network = kinds.contains(&FaultKind::NetworkUnavailable);
        self.change_node(name, |node| {
            turn(&mut node.ready, ready, reason, message, now);
            if let Some(condition) = &mut node.network_unavailable {
                let (status, reason) = if network || !machine.joined {
                    (Truth::True, "NoRouteCreated")
                } else {
                    (Truth::False, "CalicoIsUp")
                };
                turn(condition, status, reason, "", now);
            }
        });
        if unknown {
            self.unready_pods(name);
        }
    }

    fn running_on(&self, name: &Arc<str>) -> Vec<Vec<Container>> {
        if !self.faults.iter().any(|fault| fault.kind.of_node()) {
            return Vec::new();
        }
        let pods = self.pods_on.get(name).into_iter().flatten();
        pods.filter_map(|at| match &self.store.get(at)?.body {
            Body::Pod(pod) if pod.phase == PodPhase::Running => Some(pod.containers.clone()),
            Body::Pod(_) | Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => None,
        })
        .collect()
    }

    fn set_lost(&mut self, name: &Arc<str>, lost: Option<Timestamp>) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.lost = lost;
        }
    }

    /// The machine is back: its kubelet starts everything again.
    fn reboot(&mut self, name: &Arc<str>) {
        let pods: Vec<ObjRef> = self.pods_on.get(name).into_iter().flatten().cloned().collect();
        for at in pods {
            let Some(stored) = self.store.get(&at).cloned() else { continue };
            let (stage, after) = if stored.deleting.is_some() {
                (Stage::Stopping, self.timings.stop)
            } else {
                (Stage::Setup, self.timings.setup)
            };
            self.step(&at, &stored.uid, stage, after);
        }
    }

    fn unready_pods(&mut self, name: &Arc<str>) {
        let now = self.now;
        let pods: Vec<ObjRef> = self.pods_on.get(name).into_iter().flatten().cloned().collect();
        for at in pods {
            self.change_pod(&at, |pod| turn(&mut pod.ready, Truth::False, "NodeNotReady", "", now));
        }
    }

    fn change_node(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodeBody)) {
        let at = ObjRef::cluster(Kind::Node, Arc::clone(name));
        let _ = self.store.alter(&at, |stored| {
            if let Body::Node(node) = &mut stored.body {
                change(node);
            }
        });
        self.react();
    }
}

fn plus(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(at)
}

fn strikes_any(fault: &mut Fault, node: &Arc<str>, agents: &[Vec<Container>], now: Timestamp) -> bool {
    if fault.image.is_none() {
        return fault.strikes(node, None, now);
    }
    agents.iter().any(|agent| fault.strikes(node, Some(agent), now))
}

fn verdict(kinds: &[FaultKind], unknown: bool, joined: bool) -> (Truth, &'static str, &'static str) {
    const NO_PLUGIN: &str = "container runtime network not ready: NetworkReady=false \
                             reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
    if unknown {
        (Truth::Unknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
    } else if kinds.contains(&FaultKind::NotReady) {
        (Truth::False, "KubeletNotReady", "PLEG is not healthy")
    } else if kinds.contains(&FaultKind::NetworkNotReady) || !joined {
        (Truth::False, "KubeletNotReady", NO_PLUGIN)
    } else {
        (Truth::True, "KubeletReady", "kubelet is posting ready status")
    }
}

fn turn(condition: &mut Cond, status: Truth, reason: &str, message: &str, now: Timestamp) {
    if condition.status != status {
        condition.since = now;
    }
    condition.status = status;
    if *condition.reason != *reason {
        condition.reason = reason.into();
    }
    if *condition.message != *message {
        condition.message = message.into();
    }
}

fn ready(pod: &mut PodBody, status: Truth, reason: &str, now: Timestamp) {
    turn(&mut pod.ready, status, reason, "", now);
    for part in pod.containers.iter_mut().filter(|part| !part.init) {
        part.ready = status == Truth::True;
    }
}

/// Init containers have ended well, the others run.
fn running(pod: &mut PodBody, now: Timestamp) {
    pod.phase = PodPhase::Running;
    turn(&mut pod.initialized, Truth::True, "", "", now);
    turn(&mut pod.ready, Truth::False, "ContainersNotReady", "", now);
    for part in &mut pod.containers {
        if part.init {
            part.ready = true;
            part.state = ContainerState::Terminated { code: 0, at: now };
        } else if !matches!(part.state, ContainerState::Running { .. }) {
            part.ready = false;
            part.state = ContainerState::Running { since: now };
        }
    }
}

/// Which container has the trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    LastInit,
    Main,
}

fn blame(pod: &mut PodBody, which: Part, reason: &str, message: &str, restart: bool) {
    let part = match which {
        Part::First => pod.containers.first_mut(),
        Part::LastInit => {
            let init = pod.containers.iter().rposition(|part| part.init).unwrap_or(0);
            pod.containers.get_mut(init)
        }
        Part::Main => pod.containers.last_mut(),
    };
    let Some(part) = part else { return };
    part.state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
    part.ready = false;
    if restart {
        part.restarts += 1;
    }
}
