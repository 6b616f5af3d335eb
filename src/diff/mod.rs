//! The only classifier: goal × world × open intents gives the state of every node.
//!
//! Guarantees: a node with an open intent is in flight whatever else is seen; missing data is never health.
//! Limits: what a pod did over time is known since this process began; that delays a judgement, it never hastens one.

pub mod health;
pub mod order;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    api::{
        names::{NodeName, Uid},
        reasons::Reason,
        status::{Intent, IntentKind, NodeFailure, Nodes, Truth},
    },
    profile::HealthRules,
    rollout::{
        guard::{Guard, on},
        observed::later,
    },
    world::{Node, Pod, PodKey, Seen, World},
};
use health::{Health, Judge};

/// Seconds after which a deletion that was under way must have been seen.
const SETTLE: i64 = 10;

/// Where the agent pods shall get to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Covered images by container name.
    Images(Arc<BTreeMap<String, String>>),
    /// The revision of the saved template (label `controller-revision-hash`).
    Revision(Arc<str>),
}

/// Whether a pod has all these images.
pub fn runs(pod: &Pod, images: &BTreeMap<String, String>) -> bool {
    !images.is_empty() && images.iter().all(|(container, image)| pod.images.get(container) == Some(image))
}

/// Everything that classification needs.
#[derive(Debug, Clone)]
pub struct Question<'w, 'a> {
    /// What was seen.
    pub world: &'w World,
    /// UID of the agent DaemonSet.
    pub agent: &'a Uid,
    /// Where pods shall get to.
    pub goal: &'a Goal,
    /// Covered images of last good, by container name, of each template that it consists of; empty when unknown.
    pub saved: &'a [Arc<BTreeMap<String, String>>],
    /// Nodes in scope.
    pub selector: &'a BTreeMap<String, String>,
    /// Open intents.
    pub open: &'a [Intent],
    /// Failures of this attempt.
    pub failures: &'a [NodeFailure],
    /// Nodes that were unhealthy before.
    pub baseline: &'a [Uid],
    /// Which failures count: those of the way forward or of the way back.
    pub way: IntentKind,
    /// Health rules of the profile.
    pub rules: HealthRules,
    /// `timeoutSeconds`.
    pub timeout: i64,
    /// The present.
    pub now: Timestamp,
}

/// Why a node is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// The kubelet reports that the node is not ready.
    NotReady,
    /// The kubelet does not report.
    Unreachable,
    /// The node goes away by itself.
    Leaving,
    /// No agent pod is on it.
    NoAgentPod,
    /// Its agent is not ready, and not by our doing.
    AgentNotReady,
}

impl Skip {
    /// The word in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Unreachable => "Unreachable",
            Self::Leaving => "Leaving",
            Self::NoAgentPod => "NoAgentPod",
            Self::AgentNotReady => "AgentNotReady",
        }
    }
}

/// State of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// Not at the goal; may be acted on.
    Waiting,
    /// Not at the goal; left alone.
    Skipped(Skip),
    /// In flight: the pod of before is still there, or none is.
    Acting,
    /// In flight: a new pod came up on another revision; it is deleted again.
    Astray,
    /// In flight: at the goal, not settled yet.
    Verifying,
    /// At the goal and healthy; with an open intent it can be closed.
    Healthy,
    /// At the goal without an intent, neither healthy nor failed.
    Unsettled,
    /// Its kubelet does not report, or it goes away: not counted.
    Unreachable,
    /// Failed, with evidence.
    Failed(Reason, String),
}

/// One node with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDiff<'a> {
    /// Its name.
    pub name: &'a NodeName,
    /// The node.
    pub node: &'a Seen<Node>,
    /// Its agent pod: the one that is not being deleted, if there is one.
    pub pod: Option<(&'a PodKey, &'a Seen<Pod>)>,
    /// Matches the selector.
    pub in_scope: bool,
    /// The pod is at the goal.
    pub at_goal: bool,
    /// Unhealthy before us: never our success, never our failure.
    pub baseline: bool,
    /// The pod runs neither last good nor the goal: an earlier attempt was here.
    pub ours_to_repair: bool,
    /// The open intent.
    pub intent: Option<Box<Intent>>,
    /// A recorded failure of this way.
    pub failure: Option<Box<NodeFailure>>,
    /// Its state.
    pub state: NodeState,
    /// When that may change without an observation.
    pub until: Option<Timestamp>,
}

impl NodeDiff<'_> {
    /// UID of the node.
    pub fn uid(&self) -> &Uid {
        &self.node.uid
    }

    /// Its kubelet does not report, or it goes away by itself: what it does is no failure of an agent.
    pub fn silent(&self) -> bool {
        self.node.is.ready == Truth::Unknown || self.node.is.leaving
    }

    /// Untouched, and bad for a reason that an agent can cause, while its kubelet reports.
    pub fn lost_untouched(&self) -> bool {
        let node = &self.node.is;
        let mine = self.intent.is_some() || self.at_goal || self.ours_to_repair || self.baseline;
        self.in_scope
            && !mine
            && !self.silent()
            && self.pod.is_some_and(|(_, pod)| {
                !pod.is.deleting && (!pod.is.ready || node.network_unavailable || node.network_not_ready)
            })
    }
}

/// All nodes that matter for a target, in order of name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff<'a> {
    /// Nodes in scope, and nodes outside that have an agent pod or an intent.
    pub nodes: Vec<NodeDiff<'a>>,
}

impl<'a> Diff<'a> {
    /// Nodes in scope.
    pub fn in_scope(&self) -> impl Iterator<Item = &NodeDiff<'a>> {
        self.nodes.iter().filter(|node| node.in_scope)
    }

    /// When a state may change without an observation.
    pub fn until(&self) -> Option<Timestamp> {
        self.nodes.iter().filter_map(|node| node.until).min()
    }
}

/// Classifies every node: one walk over nodes, agent pods, intents and failures, all in order of node.
pub fn classify<'w>(q: &Question<'w, '_>) -> Diff<'w> {
    let mut pods = Along::sorted(pods_by_node(q), |(node, ..)| node);
    let mut open = Along::new(q.open.iter().collect(), |intent: &&Intent| &intent.node);
    let mut failures = Along::new(failures(q, q.failures).collect(), |failure: &&NodeFailure| &failure.node);
    let baseline: BTreeSet<&Uid> = q.baseline.iter().filter(|_| on(Guard::Baseline)).collect();
    let mut images = Images::of(q);
    let mut nodes = Vec::with_capacity(q.world.nodes.len());
    for (name, node) in &q.world.nodes {
        // Of several, the one that is not being deleted.
        let pod = pods.at(name).iter().max_by_key(|(.., pod)| !pod.is.deleting);
        let pod = pod.map(|(_, key, pod)| (*key, *pod));
        let intent = open.at(name).iter().find(|intent| intent.node_uid == node.uid);
        let failure = failures.at(name).iter().find(|failure| failure.node_uid == node.uid);
        let in_scope = matches(q.selector, &node.is.labels) || !on(Guard::Scope);
        if !in_scope && intent.is_none() && pod.is_none() {
            continue;
        }
        let (at_goal, strayed) = pod.map_or((false, false), |(_, pod)| images.look(&pod.is));
        let mut one = NodeDiff {
            name,
            node,
            pod,
            in_scope,
            at_goal,
            baseline: baseline.contains(&node.uid),
            ours_to_repair: strayed,
            intent: intent.map(|intent| Box::new((*intent).clone())),
            failure: failure.map(|failure| Box::new((*failure).clone())),
            state: NodeState::Waiting,
            until: None,
        };
        one.judge(q);
        nodes.push(one);
    }
    Diff { nodes }
}

/// Brings a diff of the same question up to date, whose intents, failures and baseline were those of `before`: only
/// nodes of which one of them changed are looked at.
pub fn again<'w>(q: &Question<'w, '_>, before: &Nodes, mut diff: Rc<Diff<'w>>) -> Rc<Diff<'w>> {
    if before.baseline != q.baseline {
        return Rc::new(classify(q));
    }
    let intents = changed(&before.open, q.open).map(|intent| &intent.node);
    let failed = changed(&before.failures, q.failures).map(|failure| &failure.node);
    for name in intents.chain(failed).collect::<BTreeSet<_>>() {
        let Some(node) = q.world.nodes.get(name) else { continue };
        let Ok(place) = diff.nodes.binary_search_by(|one| one.name.cmp(name)) else {
            return Rc::new(classify(q));
        };
        let intent = q.open.iter().find(|intent| intent.node == *name && intent.node_uid == node.uid);
        let mut failures = failures(q, q.failures);
        let failure = failures.find(|failure| failure.node == *name && failure.node_uid == node.uid);
        let Some(one) = Rc::make_mut(&mut diff).nodes.get_mut(place) else { continue };
        if !one.in_scope && one.pod.is_none() {
            return Rc::new(classify(q));
        }
        one.intent = intent.cloned().map(Box::new);
        one.failure = failure.cloned().map(Box::new);
        one.judge(q);
    }
    diff
}

/// What is in only one of two lists.
fn changed<'l, T: PartialEq>(before: &'l [T], now: &'l [T]) -> impl Iterator<Item = &'l T> {
    let gone = before.iter().filter(|one| !now.contains(one));
    gone.chain(now.iter().filter(|one| !before.contains(one)))
}

/// Failures of the way that is asked about.
fn failures<'f>(q: &Question<'_, '_>, all: &'f [NodeFailure]) -> impl Iterator<Item = &'f NodeFailure> {
    let back = q.way == IntentKind::PutBack;
    all.iter().filter(move |failure| failure.in_rollback == back)
}

type Placed<'a> = (&'a NodeName, &'a PodKey, &'a Seen<Pod>);

/// Agent pods, which the world keeps in order of node.
fn pods_by_node<'w>(q: &Question<'w, '_>) -> Vec<Placed<'w>> {
    let pods = q.world.pods.of(q.agent);
    pods.filter_map(|(key, pod)| pod.is.node.as_ref().map(|node| (node, key, pod))).collect()
}

/// A list in order of node that is read along with the nodes.
struct Along<T, F> {
    list: Vec<T>,
    next: usize,
    node: F,
}

impl<T, F: Fn(&T) -> &NodeName> Along<T, F> {
    fn sorted(list: Vec<T>, node: F) -> Self {
        Self { list, next: 0, node }
    }

    fn new(mut list: Vec<T>, node: F) -> Self {
        list.sort_by(|a, b| node(a).cmp(node(b)));
        Self::sorted(list, node)
    }

    /// What the list has for a node; nodes are asked for in order. Names are compared once, since they lie apart in
    /// memory and that is what takes the time.
    fn at(&mut self, name: &NodeName) -> &[T] {
        let rest = self.list.get(self.next..).unwrap_or_default();
        let (mut before, mut here) = (0, 0);
        for item in rest {
            match (self.node)(item).cmp(name) {
                Ordering::Less => before += 1,
                Ordering::Equal => here += 1,
                Ordering::Greater => break,
            }
        }
        self.next += before + here;
        rest.get(before..before + here).unwrap_or_default()
    }
}

/// Image by container.
type ByContainer = BTreeMap<String, String>;

/// What the images of a pod say; pods of one template share one map, so the last answer is mostly the next one too.
struct Images<'a> {
    goal: &'a Goal,
    saved: &'a [Arc<BTreeMap<String, String>>],
    /// Images that were looked at last, whether they are the wanted ones, and whether they are saved ones.
    last: Option<(&'a Arc<ByContainer>, bool, bool)>,
}

impl<'a> Images<'a> {
    const fn of(q: &Question<'_, 'a>) -> Self {
        Self { goal: q.goal, saved: q.saved, last: None }
    }

    /// Whether a pod is at the goal, and whether it runs neither that nor last good.
    fn look(&mut self, pod: &'a Pod) -> (bool, bool) {
        let (wanted, saved) = match self.last {
            Some((known, wanted, saved)) if Arc::ptr_eq(known, &pod.images) => (wanted, saved),
            Some(_) | None => {
                let wanted = match self.goal {
                    Goal::Images(images) => runs(pod, images),
                    Goal::Revision(_) => false,
                };
                (wanted, self.saved.is_empty() || self.saved.iter().any(|saved| runs(pod, saved)))
            }
        };
        self.last = Some((&pod.images, wanted, saved));
        let at_goal = match self.goal {
            Goal::Images(_) => wanted,
            Goal::Revision(hash) => pod.revision.as_deref() == Some(&**hash),
        };
        (at_goal, !at_goal && !saved)
    }
}

/// Whether labels satisfy a selector.
pub fn matches(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl<'w> NodeDiff<'w> {
    /// Judges its state anew.
    fn judge(&mut self, q: &Question<'w, '_>) {
        let mut until = None;
        self.state = state(q, self, &mut until);
        self.until = until;
    }
}

fn state(q: &Question<'_, '_>, one: &NodeDiff<'_>, until: &mut Option<Timestamp>) -> NodeState {
    let mut soon = |at: Timestamp| *until = Some(until.map_or(at, |known| known.min(at)));
    let failure = one.failure.as_deref();
    match (one.intent.as_deref(), one.pod) {
        (Some(_), None) => NodeState::Acting,
        // On the way back, the pod that was to be replaced may be right as it is: it settles once a deletion that
        // was under way would have been seen.
        (Some(intent), Some((_, pod))) if !replaced(intent, pod) && one.at_goal && !pod.is.deleting => {
            let due = later(intent.as_of, q.rules.stable_seconds.max(SETTLE));
            if q.now >= due && q.way == IntentKind::PutBack {
                NodeState::Healthy
            } else {
                soon(due);
                NodeState::Verifying
            }
        }
        (Some(intent), Some((_, pod))) if !replaced(intent, pod) => NodeState::Acting,
        (Some(_), Some((_, pod))) => match judge(q, one, pod) {
            Health::Unreachable => NodeState::Unreachable,
            Health::Healthy | Health::Settling { .. } | Health::Failed(..) if !one.at_goal => {
                NodeState::Astray
            }
            Health::Healthy => NodeState::Healthy,
            Health::Failed(reason, evidence) => NodeState::Failed(reason, evidence),
            Health::Settling { until } => {
                until.into_iter().for_each(&mut soon);
                NodeState::Verifying
            }
        },
        // A node that was acted on and has no pod since has failed; it is not skipped.
        (None, None) => match failure {
            Some(failure) if one.node.is.ready != Truth::Unknown => recorded(failure),
            Some(_) | None => NodeState::Skipped(Skip::NoAgentPod),
        },
        (None, Some((_, pod))) if one.at_goal => match (judge(q, one, pod), failure) {
            (Health::Healthy, _) => NodeState::Healthy,
            (Health::Unreachable, _) => NodeState::Unreachable,
            (Health::Failed(..), Some(failure)) => recorded(failure),
            (Health::Settling { until }, Some(failure)) => {
                until.into_iter().for_each(&mut soon);
                recorded(failure)
            }
            (Health::Failed(reason, evidence), None) => NodeState::Failed(reason, evidence),
            (Health::Settling { until }, None) => {
                until.into_iter().for_each(&mut soon);
                NodeState::Unsettled
            }
        },
        (None, Some((_, pod))) => match failure {
            Some(failure) if one.node.is.ready != Truth::Unknown => recorded(failure),
            Some(_) | None => untouched(one, pod, q.way),
        },
    }
}

fn judge(q: &Question<'_, '_>, one: &NodeDiff<'_>, pod: &Seen<Pod>) -> Health {
    // What a pod did over time matters only while it is not Ready.
    let unready = !pod.is.ready || !pod.is.initialized;
    Judge {
        node: one.node,
        pod,
        memory: unready.then(|| q.world.pods.memory(&pod.uid)).flatten(),
        baseline: one.baseline,
        expected: one.intent.is_some(),
        rules: q.rules,
        timeout: q.timeout,
        now: q.now,
    }
    .health()
}

/// The pod of before is gone and another one stands in its place.
fn replaced(intent: &Intent, pod: &Seen<Pod>) -> bool {
    (pod.uid != intent.before || !on(Guard::BeforeGone)) && !pod.is.deleting
}

fn recorded(failure: &NodeFailure) -> NodeState {
    NodeState::Failed(
        Reason::parse(&failure.reason).unwrap_or(Reason::AgentNotReady),
        failure.message.clone(),
    )
}

fn untouched(one: &NodeDiff<'_>, pod: &Seen<Pod>, way: IntentKind) -> NodeState {
    let node = &one.node.is;
    if node.leaving {
        return NodeState::Skipped(Skip::Leaving);
    }
    if node.ready == Truth::Unknown {
        return NodeState::Skipped(Skip::Unreachable);
    }
    // A node that an earlier attempt broke is ours to repair, and on the way back every node is.
    if way == IntentKind::PutBack || one.ours_to_repair {
        return NodeState::Waiting;
    }
    if node.ready == Truth::False {
        return NodeState::Skipped(Skip::NotReady);
    }
    if !pod.is.ready {
        return NodeState::Skipped(Skip::AgentNotReady);
    }
    NodeState::Waiting
}

#[cfg(test)]
mod tests;
