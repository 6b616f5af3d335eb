//! `Canary`: the first nodes, and the time for which they must hold.

use super::{
    Cx, Step,
    verdict::{Tally, Verdict},
};
use crate::{
    api::{cni_upgrade::CniPhase, reasons::Reason, status::IntentKind},
    diff::{NodeDiff, NodeState, order},
    rollout::{
        guard::{Guard, on},
        observed,
        waiting::Waiting,
    },
};

impl Cx<'_> {
    /// The stage.
    pub(super) fn canary(&mut self) -> Step {
        let act = self.template_forward();
        let Some(view) = self.forward() else { return self.cover_refused() };
        self.settle(&view, act);
        let Some(view) = self.forward() else { return Step::Stop };
        let diff = self.classify(&view);
        let canaries = self.canaries();
        let mut tally = Tally::default();
        for node in &diff.nodes {
            // Canaries that were not skipped, and every node that is at the target or on the way to it.
            let touched = node.at_goal || node.intent.is_some() || node.failure.is_some();
            if touched || canaries.has(node) {
                tally.add(node);
            }
        }
        if let Some(step) = self.judge(&tally, Reason::CanaryUnhealthy, &diff) {
            return step;
        }
        let members = diff.nodes.iter().filter(|node| canaries.has(node)).count();
        if members == 0 && tally == Tally::default() && self.draft.nodes.open.is_empty() {
            return self.canaries_anew();
        }
        self.draft.nodes.canaries = i32::try_from(members).unwrap_or(i32::MAX);
        let startable: Vec<&NodeDiff<'_>> = diff
            .nodes
            .iter()
            .filter(|node| matches!(node.state, NodeState::Waiting) && node.in_scope)
            .filter(|node| canaries.has(node) || (node.ours_to_repair && !well(node)))
            .collect();
        if !startable.is_empty() {
            let (now, pause) = (self.now.at, observed::advance);
            self.draft.observed = self.draft.observed.map(|old| pause(Some(old), false, None, 1, now).0);
            self.start_in_order(&startable, act);
            return Step::Stop;
        }
        self.observe(&tally, act)
    }

    /// Every canary is gone and nothing else runs the target, so nothing is known of it: others are tried, for the
    /// whole time.
    fn canaries_anew(&mut self) -> Step {
        self.draft.observed = None;
        self.draft.nodes.canaries = 0;
        if self.choose_canaries() {
            return Step::Next;
        }
        self.wait(Waiting::NoCanary);
        Step::Stop
    }

    /// Lets observed time accumulate while the verdict holds; goes on when the period is full.
    fn observe(&mut self, tally: &Tally, act: bool) -> Step {
        let goal = self.spec.canary.as_ref().map_or(0, |canary| i64::from(canary.observation_minutes) * 60);
        let verdict = tally.verdict(self.threshold());
        let holds = verdict == Verdict::Pass && act && self.draft.nodes.open.is_empty();
        let live = self.case.world.live_since();
        let (observed, due) = observed::advance(self.draft.observed, holds, live, goal, self.now.at);
        let begun = self.draft.observed.is_some() || holds;
        self.draft.observed = begun.then_some(observed);
        if !holds {
            self.wait_for_open();
            if tally.healthy == 0 && tally.unsettled == 0 {
                self.wait(Waiting::NoNodes);
            }
            return Step::Stop;
        }
        if observed.total < goal && on(Guard::Observation) {
            self.look_at(due);
            let left = goal.saturating_sub(observed.total);
            let until = observed::later(observed.as_of.unwrap_or(self.now.at), left);
            self.wait(Waiting::Observing { left, of: goal, until });
            return Step::Stop;
        }
        if let Some(brake) = self.brakes().into_iter().next() {
            self.wait(brake);
            return Step::Stop;
        }
        self.enter(CniPhase::RollingOut);
        Step::Next
    }

    /// Opens intents for these nodes, unless something holds.
    pub(super) fn start_in_order(&mut self, startable: &[&NodeDiff<'_>], act: bool) -> usize {
        let brakes = self.brakes();
        let held = !act || !brakes.is_empty() || self.losing();
        for brake in brakes {
            self.wait(brake);
        }
        if held {
            self.wait_for_open();
            return 0;
        }
        let Some(id) = self.attempt().map(|attempt| attempt.id.clone()) else { return 0 };
        let mut room = self.room();
        if room == 0 && on(Guard::Budget) {
            // Control-plane nodes wait for all others to settle, not for room.
            if !startable.iter().all(|node| order::control_plane(node)) {
                self.no_room();
            }
            self.wait_for_open();
            return 0;
        }
        let startable = startable.iter().copied().filter(|node| node.pod.is_some());
        // One more than there is room for, so that a full window is told.
        let mut order = order::first(startable, &id, room.saturating_add(1));
        // Control-plane nodes go one at a time, and only when nothing else is in flight or left.
        let control_plane = order.iter().position(|node| order::control_plane(node));
        if control_plane == Some(0) {
            if !self.draft.nodes.open.is_empty() {
                self.wait_for_open();
                return 0;
            }
            order.truncate(1);
            room = room.min(1);
        } else if let Some(first) = control_plane {
            order.truncate(first);
        }
        let started = self.start(&order, room, IntentKind::Upgrade);
        self.wait_for_open();
        started
    }

    /// The live template cannot be read by the profile any more.
    pub(super) fn cover_refused(&mut self) -> Step {
        if let Err(refusal) = self.covered() {
            self.decision.refusals.push(refusal);
        }
        Step::Stop
    }
}

/// A node whose agent works, whatever it runs.
fn well(node: &NodeDiff<'_>) -> bool {
    node.pod.is_some_and(|(_, pod)| pod.is.ready)
}
