//! `RollingOut`: all other nodes in a sliding window, the verdict watched all the time.

use super::{
    Cx, Step,
    verdict::{Tally, Verdict},
    window::names,
};
use crate::{
    api::{cni_upgrade::CniPhase, reasons::Reason, status::Outcome},
    diff::{Diff, NodeDiff, NodeState, Skip},
    rollout::waiting::Waiting,
};

impl Cx<'_> {
    /// The stage.
    pub(super) fn roll(&mut self) -> Step {
        let act = self.template_forward();
        let Some(view) = self.forward() else { return self.cover_refused() };
        self.settle(&view, act);
        let Some(view) = self.forward() else { return Step::Stop };
        let diff = self.classify(&view);
        let mut tally = Tally::default();
        diff.nodes.iter().filter(|node| node.in_scope || node.at_goal).for_each(|node| tally.add(node));
        if let Some(step) = self.judge(&tally, Reason::RolloutUnhealthy, &diff) {
            return step;
        }
        let waiting = |node: &&NodeDiff<'_>| node.in_scope && node.state == NodeState::Waiting;
        let mut startable: Vec<&NodeDiff<'_>> = diff.nodes.iter().filter(waiting).collect();
        if startable.is_empty() && self.draft.nodes.open.is_empty() {
            // Failed nodes are tried once more at the end.
            let again = |node: &&NodeDiff<'_>| {
                matches!(node.state, NodeState::Failed(..))
                    && node.failure.as_ref().is_some_and(|failure| failure.tries < 2)
            };
            startable = diff.nodes.iter().filter(again).collect();
        }
        if !startable.is_empty() {
            self.start_in_order(&startable, act);
            return Step::Stop;
        }
        self.wait_for_open();
        if !self.draft.nodes.open.is_empty() || !act {
            return Step::Stop;
        }
        self.complete(&tally, &diff)
    }

    fn complete(&mut self, tally: &Tally, diff: &Diff<'_>) -> Step {
        let open =
            |node: &&NodeDiff<'_>| node.state == NodeState::Unsettled && node.in_scope && !node.baseline;
        let judging = names(diff.nodes.iter().filter(open).map(|node| node.name));
        let with_agent = diff.nodes.iter().filter(|node| node.pod.is_some()).count();
        let desired = usize::try_from(self.agent.is.desired).unwrap_or(0);
        let without = |node: &&NodeDiff<'_>| node.state == NodeState::Skipped(Skip::NoAgentPod);
        let missing = names(diff.nodes.iter().filter(without).map(|node| node.name));
        if !judging.is_empty() || (with_agent < desired && !missing.is_empty()) {
            self.wait(Waiting::Judging { nodes: if judging.is_empty() { missing } else { judging } });
            return Step::Stop;
        }
        if tally.verdict(self.threshold()) != Verdict::Pass {
            self.wait(Waiting::NoNodes);
            return Step::Stop;
        }
        let clean = self.draft.nodes.failures.is_empty();
        self.end(if clean { Outcome::Completed } else { Outcome::CompletedWithFailures });
        self.enter(CniPhase::Completed);
        Step::Next
    }
}
