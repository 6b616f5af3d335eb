//! `Rollback`: every agent pod that is not on the saved template's revision is replaced, under the same checks.
//!
//! Guarantees: failed nodes first, then canaries, then the rest; a node that cannot be put back is listed and left,
//! it never loops. The strategy goes last.

use super::{Cx, Step, window::names};
use crate::{
    api::{
        cni_upgrade::CniPhase,
        names::{NodeName, Uid},
        status::{IntentKind, Outcome},
    },
    diff::{Goal, NodeDiff, NodeState, order},
    rollout::waiting::Waiting,
};

/// Nodes that failed already may go back beside the window, up to this many in flight in all.
const FAILED_AT_ONCE: usize = 10;

impl Cx<'_> {
    /// The stage.
    pub(super) fn undo(&mut self) -> Step {
        self.ensure_record();
        let layered = self.layered();
        let left = if layered { self.put_layers_back() } else { self.put_all_back() };
        let Some(left) = left else {
            self.wait_for_open();
            return Step::Stop;
        };
        // Several templates run on: the strategy waits until one is left, the attempt does not.
        if left.is_empty() && !layered && self.strategy_back() == Step::Stop {
            return Step::Stop;
        }
        if layered && self.returning() && !left.is_empty() {
            return Step::Stop;
        }
        let (outcome, phase) = match (self.returning(), left.is_empty()) {
            (true, _) => (Outcome::Returned, CniPhase::Completed),
            (false, true) => (Outcome::RolledBack, CniPhase::Failed),
            (false, false) => (Outcome::RollbackIncomplete, CniPhase::Failed),
        };
        self.end(outcome);
        self.enter(phase);
        Step::Next
    }

    /// Goes on putting every pod back under the saved template; the nodes that are left.
    pub(super) fn put_all_back(&mut self) -> Option<Vec<NodeName>> {
        let goal = self.template_back()?;
        self.put_back(goal, |_| true, true)
    }

    /// Whether there is nothing to do for some nodes now.
    pub(super) fn is_all_back(&self, goal: Goal, which: impl Fn(&NodeDiff<'_>) -> bool) -> bool {
        let view = self.backward(goal);
        let diff = self.classify(&view);
        self.draft.nodes.open.is_empty() && !diff.nodes.iter().any(|node| which(node) && is_startable(node))
    }

    /// Goes on putting the pods of some nodes back; the nodes that are left once nothing more can be done now.
    pub(super) fn put_back(
        &mut self,
        goal: Goal,
        which: impl Fn(&NodeDiff<'_>) -> bool,
        start: bool,
    ) -> Option<Vec<NodeName>> {
        let view = self.backward(goal.clone());
        self.settle(&view, true);
        let view = self.backward(goal);
        let diff = self.classify(&view);
        let startable: Vec<&NodeDiff<'_>> =
            diff.nodes.iter().filter(|node| start && is_startable(node) && which(node)).collect();
        if !startable.is_empty() {
            if !self.hold_strategy() {
                return None;
            }
            self.start_back(&startable);
        }
        if !self.draft.nodes.open.is_empty() || !startable.is_empty() {
            self.wait_for_open();
            return None;
        }
        let bad: Vec<&Uid> =
            view.nodes.failures.iter().filter(|f| f.in_rollback).map(|f| &f.node_uid).collect();
        let left = diff.nodes.iter().filter(|node| {
            which(node)
                && node.pod.is_some()
                && (!node.at_goal || bad.contains(&node.uid()))
                && node.state != NodeState::Healthy
        });
        let left: Vec<NodeName> = left.map(|node| node.name.clone()).collect();
        if !left.is_empty() {
            self.wait(Waiting::PutBack { nodes: names(left.iter()) });
        }
        Some(left)
    }

    fn start_back(&mut self, startable: &[&NodeDiff<'_>]) {
        let Some(id) = self.attempt().map(|attempt| attempt.id.clone()) else { return };
        let failed: Vec<Uid> = self.forward_failures();
        let (first, rest): (Vec<&NodeDiff<'_>>, Vec<_>) =
            startable.iter().copied().partition(|node| failed.contains(node.uid()));
        let in_flight = self.draft.nodes.open.len();
        let beside = self.draft.nodes.open.iter().filter(|intent| failed.contains(&intent.node_uid)).count();
        let all_at_once = self.max_parallel().max(FAILED_AT_ONCE);
        let first = order::sort_by_value(first.into_iter(), &id);
        let started = self.start(&first, all_at_once.saturating_sub(in_flight), IntentKind::PutBack);
        if started < first.len() {
            return;
        }
        // Only nodes that did not fail are limited by `maxParallel`, and they never make the window larger.
        let sound = in_flight - beside;
        let room = self
            .max_parallel()
            .saturating_sub(sound.max(self.draft.nodes.open.len().min(self.max_parallel())));
        let canaries = self.canaries();
        let (canaries, others): (Vec<&NodeDiff<'_>>, Vec<_>) =
            rest.into_iter().partition(|node| canaries.has(node));
        let mut order = order::sort_by_value(canaries.into_iter(), &id);
        order.append(&mut order::sort_by_value(others.into_iter(), &id));
        self.start(&order, room, IntentKind::PutBack);
    }

    /// Nodes that failed on the way forward.
    fn forward_failures(&self) -> Vec<Uid> {
        let failures = self.draft.nodes.failures.iter().filter(|failure| !failure.in_rollback);
        failures.map(|failure| failure.node_uid.clone()).collect()
    }
}

fn is_startable(node: &NodeDiff<'_>) -> bool {
    node.in_scope && node.state == NodeState::Waiting && node.pod.is_some()
}
