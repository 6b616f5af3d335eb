//! `Completed` and `Failed`: late nodes, nodes left to put back, the strategy, drift.

use super::{
    Cx, Step,
    verdict::{Tally, Verdict},
};
use crate::{
    api::status::Outcome,
    diff::{NodeDiff, NodeState},
    rollout::{
        effect::{Effect, StepName},
        observed::later,
        waiting::Waiting,
    },
};

impl Cx<'_> {
    /// The stage `Completed`.
    pub(super) fn done(&mut self) -> Step {
        self.ensure_record();
        if self.returning() {
            self.late_back();
            self.expire();
            return Step::Stop;
        }
        let unfinished = self.agent.is.original_strategy.is_some() && !self.drifted();
        if unfinished || !self.draft.nodes.open.is_empty() {
            self.late_forward();
        }
        if unfinished && self.draft.nodes.open.is_empty() {
            let _ = self.strategy_back();
        }
        self.expire();
        Step::Stop
    }

    /// The stage `Failed`.
    pub(super) fn failed(&mut self) -> Step {
        self.ensure_record();
        match self.attempt().and_then(|attempt| attempt.outcome) {
            Some(Outcome::Held) => self.held(),
            Some(Outcome::RolledBack | Outcome::RollbackIncomplete) => self.late_back(),
            Some(
                Outcome::Completed
                | Outcome::AlreadyRuns
                | Outcome::CompletedWithFailures
                | Outcome::Returned
                | Outcome::Superseded
                | Outcome::Reverted,
            )
            | None => {}
        }
        self.expire();
        Step::Stop
    }

    /// Nodes that were skipped or that are new, while `OnDelete` stays.
    fn late_forward(&mut self) {
        let ours = self
            .attempt()
            .and_then(|attempt| attempt.template.as_ref())
            .is_some_and(|intent| intent.wrote == self.agent.is.template.digest);
        let act = ours && self.agent.is.observed_generation >= self.agent.is.generation;
        let Some(view) = self.forward() else { return };
        self.settle(&view, act);
        let Some(view) = self.forward() else { return };
        let diff = self.classify(&view);
        let waiting = |node: &&NodeDiff<'_>| node.in_scope && node.state == NodeState::Waiting;
        let startable: Vec<&NodeDiff<'_>> = diff.nodes.iter().filter(waiting).collect();
        if startable.is_empty() {
            self.wait_for_open();
            return;
        }
        let mut tally = Tally::default();
        diff.nodes.iter().filter(|node| node.in_scope || node.at_goal).for_each(|node| tally.add(node));
        if tally.verdict(self.threshold()) == Verdict::Fail {
            // What completed does not hold any more: nobody new is brought onto it.
            let failed = diff.nodes.iter().filter(|node| matches!(node.state, NodeState::Failed(..)));
            self.wait(Waiting::Judging { nodes: super::window::names(failed.map(|node| node.name)) });
            self.wait_for_open();
            return;
        }
        self.start_in_order(&startable, act);
        let open = &self.draft.nodes.open;
        let left = startable.iter().filter(|node| !open.iter().any(|intent| intent.node_uid == *node.uid()));
        let nodes = super::window::names(left.map(|node| node.name));
        if !nodes.is_empty() {
            self.wait(Waiting::LateNodes { nodes });
        }
    }

    /// Nodes that could not be put back are taken up as they return.
    fn late_back(&mut self) {
        if self.layered() {
            return self.late_layers_back();
        }
        let idle = self.agent.is.original_strategy.is_none() && self.draft.nodes.open.is_empty();
        let good = self.draft.last_good.as_ref().and_then(|good| good.template_digest.as_ref());
        if idle || good != Some(&self.agent.is.template.digest) {
            self.all_back(idle);
            return;
        }
        let back = self.put_all_back().is_some_and(|left| left.is_empty());
        if back && self.strategy_back() == Step::Next {
            self.all_back(true);
        }
    }

    /// The same where several templates run: pods that came up on the newest one meanwhile are as good as before.
    fn late_layers_back(&mut self) {
        let incomplete =
            self.attempt().is_some_and(|attempt| attempt.outcome == Some(Outcome::RollbackIncomplete));
        if incomplete {
            let back = self.put_layers_back().is_some_and(|left| left.is_empty());
            self.all_back(back);
        } else {
            let _ = self.strategy_back();
        }
    }

    /// An incomplete rollback whose last node is back is complete.
    fn all_back(&mut self, back: bool) {
        let incomplete =
            self.attempt().is_some_and(|attempt| attempt.outcome == Some(Outcome::RollbackIncomplete));
        let left = self.draft.nodes.failures.iter().any(|failure| failure.in_rollback);
        if let (true, true, false, Some(attempt)) = (back, incomplete, left, &mut self.draft.attempt) {
            attempt.outcome = Some(Outcome::RolledBack);
        }
    }

    /// Failed and held: nodes in flight settle, then the saved template stops the leak; running pods stay.
    fn held(&mut self) {
        let good = self.draft.last_good.as_ref().and_then(|good| good.template_digest.clone());
        let live = self.agent.is.template.digest.clone();
        let ours =
            self.attempt().and_then(|attempt| attempt.template.as_ref()).is_some_and(|t| t.wrote == live);
        if !self.draft.nodes.open.is_empty() {
            let Some(view) = self.forward() else { return };
            self.settle(&view, ours);
            self.wait_for_open();
            if !self.draft.nodes.open.is_empty() {
                return;
            }
        }
        if ours && good.as_ref() != Some(&live) {
            let _ = self.template_back();
        } else if good == Some(live) {
            let _ = self.strategy_back();
        }
    }

    /// What runs differs from what completed.
    pub(super) fn drifted(&self) -> bool {
        self.covered().is_ok_and(|covered| covered.iter().any(|change| change.from != change.to))
    }

    /// After the revert window the saved template and the record are let go.
    fn expire(&mut self) {
        let finished = self.attempt().and_then(|attempt| attempt.finished_at);
        let held = self.agent.is.original_strategy.is_some();
        let (Some(finished), false) = (finished, held) else { return };
        let window = i64::try_from(self.case.config.revert_window.as_secs()).unwrap_or(i64::MAX);
        let due = later(finished, window);
        if self.now.at <= due {
            self.look_at(Some(due));
            return;
        }
        if let Some(good) = &mut self.draft.last_good {
            good.template = None;
            good.beneath.iter_mut().for_each(|layer| layer.template = None);
        }
        let name = crate::rollout::record_name(self.case.target);
        self.decision.effects.retain(|id, _| id.step != StepName::RecordAttempt);
        if let Some(seen) = self.case.world.records.get(&name) {
            let uid = seen.uid.clone();
            self.want(StepName::ForgetAttempt, uid.to_string(), Effect::ForgetAttempt { name, uid });
        }
    }
}
