//! The sliding window: intents settle, and new ones open while there is room.
//!
//! Guarantees: never more than `maxParallel` in flight, over all attempts of the target; on the way back, nodes that
//! failed already may go beside it, up to ten in all. An intent is stored before its pod is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use super::{Cx, seconds};
use crate::{
    api::{
        names::{NodeName, Uid},
        reasons::Reason,
        status::{Intent, IntentKind, NodeFailure, Nodes},
    },
    diff::{self, Diff, Goal, NodeDiff, NodeState, Question},
    rollout::{
        effect::{Effect, StepName},
        guard::{Guard, on},
        observed::{later, quantum},
        waiting::Waiting,
    },
};

/// Most intents open at once, whatever `maxParallel` says.
pub(super) const OPEN: usize = 200;
/// Nodes named in a reason for waiting.
pub(super) const NAMED: usize = 10;
/// The failure that ends an attempt.
pub(super) const FAILURES: usize = 51;

/// What classification borrows, apart from the draft that changes meanwhile.
#[derive(Clone)]
pub(super) struct View {
    pub(super) nodes: Rc<Nodes>,
    pub(super) goal: Goal,
    pub(super) saved: Vec<Arc<BTreeMap<String, String>>>,
    pub(super) selector: BTreeMap<String, String>,
    pub(super) way: IntentKind,
}

impl View {
    /// Whether another view differs in the draft's nodes at most.
    fn asks_as(&self, other: &Self) -> bool {
        self.way == other.way
            && self.goal == other.goal
            && self.saved == other.saved
            && self.selector == other.selector
    }
}

impl<'a> Cx<'a> {
    /// The view of the way forward.
    pub(super) fn forward(&self) -> Option<View> {
        let covered = self.covered().ok()?;
        Some(View {
            nodes: Rc::new(self.draft.nodes.clone()),
            goal: Goal::Images(Arc::new(super::template::by_container(&covered))),
            saved: self.known_images(),
            selector: self.spec.node_selector.clone(),
            way: IntentKind::Upgrade,
        })
    }

    /// The view of the way back: every agent pod counts, in scope or not.
    pub(super) fn backward(&self, goal: Goal) -> View {
        let selector = if on(Guard::Leaked) { BTreeMap::new() } else { self.spec.node_selector.clone() };
        View {
            nodes: Rc::new(self.draft.nodes.clone()),
            goal,
            saved: self.known_images(),
            selector,
            way: IntentKind::PutBack,
        }
    }

    /// Classifies all nodes. World and time stand still in a pass, so only what the draft changed since the last
    /// classification for the same goal is looked at anew.
    pub(super) fn classify(&self, view: &View) -> Rc<Diff<'a>> {
        let question = Question {
            world: self.case.world,
            agent: &self.agent.uid,
            goal: &view.goal,
            saved: &view.saved,
            selector: &view.selector,
            open: &view.nodes.open,
            failures: &view.nodes.failures,
            baseline: &view.nodes.baseline,
            way: view.way,
            rules: self.profile.health,
            timeout: self.timeout(),
            now: self.now.at,
        };
        let diff = match self.classified.take() {
            Some((before, diff)) if before.asks_as(view) => diff::again(&question, &before.nodes, diff),
            Some(_) | None => Rc::new(diff::classify(&question)),
        };
        self.classified.replace(Some((view.clone(), Rc::clone(&diff))));
        diff
    }

    /// Settles what can be settled; `act` says whether pods may be deleted now.
    ///
    /// After it, the draft's intents and failures are what the next classification starts from.
    pub(super) fn settle(&mut self, view: &View, act: bool) {
        let diff = self.classify(view);
        let mut open = Vec::with_capacity(view.nodes.open.len());
        for node in &diff.nodes {
            match &node.intent {
                Some(intent) => open.extend(self.settle_one(node, intent, view.way, act)),
                None => self.note(node, view.way),
            }
        }
        in_order(&mut open);
        self.draft.nodes.open = open;
        self.look_at(diff.until());
    }

    fn settle_one(
        &mut self,
        node: &NodeDiff<'_>,
        intent: &Intent,
        way: IntentKind,
        act: bool,
    ) -> Option<Intent> {
        let mut intent = intent.clone();
        match &node.state {
            NodeState::Healthy => {
                self.forget(node.uid(), way);
                return None;
            }
            // A silent node frees its slot; it is queued again when it is back.
            NodeState::Unreachable => return None,
            NodeState::Failed(reason, evidence) => {
                self.failed_node(node, *reason, evidence, way);
                return None;
            }
            // What the template of others brought up is not deleted again: the node waits for its turn.
            NodeState::Astray if self.template_is_foreign() => {
                if node.pod.is_some_and(|(_, pod)| pod.is.ready) {
                    return None;
                }
            }
            NodeState::Astray => {
                if let Some((_, pod)) = node.pod {
                    intent.before = pod.uid.clone();
                }
            }
            NodeState::Acting
            | NodeState::Verifying
            | NodeState::Waiting
            | NodeState::Skipped(_)
            | NodeState::Unsettled => {}
        }
        if self.spend(&mut intent) {
            // Nothing can be said of a node that fell silent under way: its slot is free again, as above.
            if node.silent() {
                return None;
            }
            let evidence = node.pod.map_or_else(
                || "no agent pod came up".to_owned(),
                |(_, pod)| crate::diff::health::evidence(&pod.is),
            );
            self.failed_node(node, Reason::NodeTimedOut, &evidence, way);
            return None;
        }
        let deletes = matches!(node.state, NodeState::Acting | NodeState::Astray);
        if let (true, true, Some((key, pod))) = (act, deletes, node.pod)
            && pod.uid == intent.before
            && !pod.is.deleting
        {
            let effect = Effect::DeletePod { pod: key.clone(), uid: pod.uid.clone() };
            self.want(StepName::DeletePod, pod.uid.to_string(), effect);
        }
        Some(intent)
    }

    /// Adds observed time to an intent; true when its time is over.
    fn spend(&mut self, intent: &mut Intent) -> bool {
        let (timeout, now) = (self.timeout(), self.now.at);
        let Some(live) = self.case.world.live_since() else { return false };
        // As for observed time: a time that has not come yet is begun anew.
        intent.as_of = intent.as_of.min(now);
        let quantum = quantum(timeout);
        let from = intent.as_of.max(live);
        let (elapsed, left) = (seconds(from, now), timeout.saturating_sub(intent.spent).max(0));
        if elapsed >= quantum.min(left) {
            let counted = elapsed.min(2 * quantum);
            intent.spent = intent.spent.saturating_add(counted);
            intent.as_of = if counted == elapsed { later(from, counted) } else { now };
            let left = timeout.saturating_sub(intent.spent);
            if left <= 0 {
                return true;
            }
            self.look_at(Some(later(intent.as_of, quantum.min(left))));
        } else {
            self.look_at(Some(later(from, quantum.min(left))));
        }
        false
    }

    /// A node without an intent: its failure is recorded, or taken back when it is healthy after all.
    fn note(&mut self, node: &NodeDiff<'_>, way: IntentKind) {
        match &node.state {
            NodeState::Healthy => self.forget(node.uid(), way),
            NodeState::Failed(reason, evidence) if node.failure.is_none() && way == IntentKind::Upgrade => {
                if !node.baseline && (node.in_scope || node.at_goal) {
                    self.failed_node(node, *reason, evidence, way);
                }
            }
            NodeState::Failed(..)
            | NodeState::Waiting
            | NodeState::Skipped(_)
            | NodeState::Acting
            | NodeState::Astray
            | NodeState::Verifying
            | NodeState::Unsettled
            | NodeState::Unreachable => {}
        }
    }

    fn forget(&mut self, node: &Uid, way: IntentKind) {
        let in_rollback = way == IntentKind::PutBack;
        self.draft
            .nodes
            .failures
            .retain(|failure| failure.node_uid != *node || failure.in_rollback != in_rollback);
    }

    fn failed_node(&mut self, node: &NodeDiff<'_>, reason: Reason, evidence: &str, way: IntentKind) {
        if node.baseline && way == IntentKind::Upgrade {
            return;
        }
        let in_rollback = way == IntentKind::PutBack;
        let message: String = evidence.chars().take(500).collect();
        let failures = &mut self.draft.nodes.failures;
        let known =
            |failure: &NodeFailure| failure.node_uid == *node.uid() && failure.in_rollback == in_rollback;
        if let Some(failure) = failures.iter_mut().find(|failure| known(failure)) {
            failure.tries = failure.tries.saturating_add(1);
            reason.as_str().clone_into(&mut failure.reason);
            failure.message = message;
            failure.at = self.now.at;
        } else if failures.len() < FAILURES {
            failures.push(NodeFailure {
                node: node.name.clone(),
                node_uid: node.uid().clone(),
                reason: reason.as_str().to_owned(),
                message,
                at: self.now.at,
                tries: 1,
                in_rollback,
            });
        }
    }

    /// Opens intents for nodes in this order, as far as there is room; the number opened.
    pub(super) fn start(&mut self, order: &[&NodeDiff<'_>], room: usize, way: IntentKind) -> usize {
        let mut started = 0;
        let now = self.now.at;
        for node in order {
            let Some((key, pod)) = node.pod else { continue };
            if started >= room && on(Guard::Budget) {
                self.no_room();
                break;
            }
            if self.draft.nodes.open.len() >= OPEN {
                self.wait(Waiting::StatusBudget { max: OPEN });
                break;
            }
            started += 1;
            self.draft.nodes.open.push(Intent {
                node: node.name.clone(),
                node_uid: node.uid().clone(),
                kind: way,
                before: pod.uid.clone(),
                started_at: now,
                spent: 0,
                as_of: now,
            });
            if !pod.is.deleting {
                let effect = Effect::DeletePod { pod: key.clone(), uid: pod.uid.clone() };
                self.want(StepName::DeletePod, pod.uid.to_string(), effect);
            }
            self.look_at(Some(later(now, quantum(self.timeout()).min(self.timeout()))));
        }
        in_order(&mut self.draft.nodes.open);
        started
    }

    /// Says that the window is full.
    pub(super) fn no_room(&mut self) {
        self.wait(Waiting::Budget { in_flight: self.draft.nodes.open.len(), max: self.max_parallel() });
    }

    /// Slots left of `maxParallel`.
    pub(super) fn room(&self) -> usize {
        self.max_parallel().saturating_sub(self.draft.nodes.open.len())
    }

    /// Says which nodes are in flight, if any are.
    pub(super) fn wait_for_open(&mut self) {
        let timeout = self.timeout();
        let open = &self.draft.nodes.open;
        if open.is_empty() {
            return;
        }
        let until = open.iter().map(|intent| later(intent.as_of, timeout.saturating_sub(intent.spent))).min();
        let nodes = open.iter().take(NAMED).map(|intent| intent.node.clone()).collect();
        let count = open.len();
        self.wait(Waiting::Settling { nodes, count, until });
    }
}

/// The order of a list in a status must not depend on names alone: who started first stands first.
fn in_order(open: &mut [Intent]) {
    open.sort_by(|a, b| a.started_at.cmp(&b.started_at).then_with(|| a.node.cmp(&b.node)));
}

/// The first few names, for a reason.
pub(super) fn names<'n>(nodes: impl Iterator<Item = &'n NodeName>) -> Vec<NodeName> {
    nodes.collect::<BTreeSet<_>>().into_iter().take(NAMED).cloned().collect()
}
