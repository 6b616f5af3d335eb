//! The verdict over nodes: healthy ÷ (healthy + failed) against the threshold; unknown never passes and never fails.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Cx, Step};
use crate::{
    api::{
        names::NodeName,
        reasons::Reason,
        status::{AttemptKind, Truth},
    },
    diff::{Diff, NodeDiff, NodeState, order},
    rollout::{
        guard::{Guard, on},
        observed::{later, seconds},
        waiting::Waiting,
    },
};

/// Seconds for which untouched nodes may stay bad, with nothing in flight, before the verdict fails.
const LOSS: i64 = 120;

/// A check's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Fail,
    Unknown,
}

/// Nodes by what they mean for the verdict; nodes that were unhealthy before count nowhere here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) healthy: usize,
    pub(super) failed: usize,
    /// In flight or being looked at.
    pub(super) unsettled: usize,
    /// Not acted on yet, and startable.
    pub(super) waiting: usize,
}

impl Tally {
    pub(super) fn add(&mut self, node: &NodeDiff<'_>) {
        if node.baseline {
            return;
        }
        match node.state {
            NodeState::Healthy if node.intent.is_none() => self.healthy += 1,
            NodeState::Failed(..) => self.failed += 1,
            NodeState::Healthy
            | NodeState::Acting
            | NodeState::Astray
            | NodeState::Verifying
            | NodeState::Unsettled => self.unsettled += 1,
            NodeState::Waiting => self.waiting += 1,
            NodeState::Skipped(_) | NodeState::Unreachable => {}
        }
    }

    /// Passes when all have settled and enough are healthy; fails when that can no longer be reached.
    pub(super) fn verdict(&self, threshold: f64) -> Verdict {
        let open = self.unsettled + self.waiting;
        if !reaches(self.healthy + open, self.failed, threshold) {
            return Verdict::Fail;
        }
        if open > 0 || self.healthy == 0 {
            return Verdict::Unknown;
        }
        Verdict::Pass
    }
}

/// good ÷ (good + bad) ≥ threshold; nothing counted reaches nothing and misses nothing.
fn reaches(good: usize, bad: usize, threshold: f64) -> bool {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    bad == 0 || number(good) + 1e-9 >= threshold * number(good + bad)
}

/// Who is a canary of an attempt: fixed by the cut, so that nobody becomes one later unless all are gone.
pub(super) struct Canaries {
    cut: Option<order::Cut>,
    until: Option<Timestamp>,
    labels: BTreeMap<String, String>,
}

impl Canaries {
    pub(super) fn has(&self, node: &NodeDiff<'_>) -> bool {
        node.in_scope
            && !node.baseline
            && self.until.is_none_or(|until| node.node.is.created <= until)
            && crate::diff::matches(&self.labels, &node.node.is.labels)
            && self.cut.as_ref().is_some_and(|cut| cut.has(node))
    }
}

impl Cx<'_> {
    /// Ends the attempt if it has to end; otherwise notes what keeps new starts back.
    pub(super) fn judge(&mut self, tally: &Tally, reason: Reason, diff: &Diff<'_>) -> Option<Step> {
        if self.draft.nodes.failures.len() >= super::window::FAILURES {
            return Some(self.fail(Reason::TooManyFailures, &self.evidence(tally)));
        }
        if tally.verdict(self.threshold()) == Verdict::Fail && on(Guard::FailOnVerdict) {
            return Some(self.fail(reason, &self.evidence(tally)));
        }
        if let Some((reason, evidence)) = self.correlated_loss(diff) {
            return Some(self.fail(reason, &evidence));
        }
        self.adopted_early(diff);
        None
    }

    /// Something noted in this pass keeps new starts back.
    pub(super) fn losing(&self) -> bool {
        self.decision.waiting.iter().any(|waiting| {
            matches!(
                waiting,
                Waiting::AdoptedEarly { .. }
                    | Waiting::CorrelatedLoss { .. }
                    | Waiting::TemplateChanged { .. }
                    | Waiting::StrategyChanged
            )
        })
    }

    /// Another manager's template is live, as noted in this pass.
    pub(super) fn template_is_foreign(&self) -> bool {
        self.decision.waiting.iter().any(|waiting| matches!(waiting, Waiting::TemplateChanged { .. }))
    }

    /// The canaries of this attempt.
    pub(super) fn canaries(&self) -> Canaries {
        let attempt = self.attempt();
        Canaries {
            cut: attempt.map(|attempt| order::Cut::of(&attempt.canary_cut, &attempt.id)),
            until: attempt.and_then(|attempt| attempt.canaries_until),
            labels: self.spec.canary.as_ref().map(|canary| canary.node_labels.clone()).unwrap_or_default(),
        }
    }

    /// What a failed verdict says: how many, and the evidence of the first few.
    fn evidence(&self, tally: &Tally) -> String {
        let failures = self.draft.nodes.failures.iter().filter(|failure| !failure.in_rollback);
        let lines: Vec<String> = failures
            .take(super::window::NAMED)
            .map(|failure| format!("{}: {} ({})", failure.node, failure.reason, failure.message))
            .collect();
        let counted = tally.healthy + tally.failed + tally.unsettled;
        format!("{} of {counted} nodes failed; {}", tally.failed, lines.join("; "))
    }

    /// Untouched nodes that turned bad together: why nothing starts, or the reason that ends the attempt.
    fn correlated_loss(&mut self, diff: &Diff<'_>) -> Option<(Reason, String)> {
        let lost: Vec<_> = diff.nodes.iter().filter(|node| node.lost_untouched()).collect();
        let scope = diff.in_scope().count();
        if lost.len() < 2.max(scope.div_ceil(100)) || !on(Guard::VerdictBeforeStart) {
            self.draft.nodes.loss_since = None;
            return None;
        }
        let acted = self.first_action();
        let before_us = lost.iter().any(|node| {
            let since = node.pod.map_or(node.node.since, |(_, pod)| pod.since.max(node.node.since));
            acted.is_none_or(|acted| since <= acted)
        });
        let names: Vec<NodeName> = super::window::names(lost.iter().map(|node| node.name));
        self.wait(Waiting::CorrelatedLoss { nodes: names.clone(), before_us });
        // What others do to the DaemonSet is no verdict about the target.
        if !self.draft.nodes.open.is_empty() || before_us || self.template_is_foreign() {
            self.draft.nodes.loss_since = None;
            return None;
        }
        let since = self.draft.nodes.loss_since.map_or(self.now.at, |since| since.min(self.now.at));
        self.draft.nodes.loss_since = Some(since);
        let from = self.case.world.live_since().map_or(since, |live| since.max(live));
        if seconds(from, self.now.at) < LOSS {
            self.look_at(Some(later(from, LOSS)));
            return None;
        }
        let list: Vec<String> = names.iter().map(ToString::to_string).collect();
        let evidence =
            format!("{} nodes that were not touched turned bad, among them {}", lost.len(), list.join(", "));
        Some((Reason::CorrelatedLoss, evidence))
    }

    /// When the first node of this attempt could have been acted on.
    fn first_action(&self) -> Option<Timestamp> {
        let attempt = self.attempt().filter(|attempt| attempt.kind == AttemptKind::Upgrade)?;
        let mine = self.draft.transitions.iter().filter(|transition| transition.attempt == attempt.number);
        mine.filter(|transition| transition.phase != "Pending").map(|transition| transition.at).min()
    }

    /// Nodes that came onto the target by themselves and are not healthy: nobody new starts meanwhile.
    fn adopted_early(&mut self, diff: &Diff<'_>) {
        let unwell = |node: &&NodeDiff<'_>| {
            node.at_goal
                && node.intent.is_none()
                && node.failure.is_none()
                && !node.baseline
                && node.node.is.ready == Truth::True
                && matches!(node.state, NodeState::Unsettled)
        };
        let nodes = super::window::names(diff.nodes.iter().filter(unwell).map(|node| node.name));
        if !nodes.is_empty() && on(Guard::VerdictBeforeStart) {
            self.wait(Waiting::AdoptedEarly { nodes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(healthy: usize, failed: usize, open: usize, threshold: f64) -> Verdict {
        let settling = Tally { healthy, failed, unsettled: open, waiting: 0 }.verdict(threshold);
        let waiting = Tally { healthy, failed, unsettled: 0, waiting: open }.verdict(threshold);
        assert_eq!(settling, waiting, "who waits for a turn may turn out well like who is in flight");
        settling
    }

    #[test]
    fn a_share_that_is_the_threshold_passes_and_one_node_less_fails() {
        for (healthy, failed, threshold) in
            [(9, 1, 0.9), (19, 1, 0.95), (4, 1, 0.8), (1, 1, 0.5), (7, 3, 0.7)]
        {
            assert_eq!(verdict(healthy, failed, 0, threshold), Verdict::Pass, "{healthy} and {failed}");
            assert_eq!(
                verdict(healthy - 1, failed + 1, 0, threshold),
                Verdict::Fail,
                "{healthy} and {failed}"
            );
        }
        assert_eq!(verdict(3, 0, 0, 1.0), Verdict::Pass);
        assert_eq!(verdict(999, 1, 0, 1.0), Verdict::Fail);
    }

    #[test]
    fn while_nodes_are_open_nothing_passes_and_only_what_cannot_be_reached_any_more_fails() {
        assert_eq!(verdict(9, 0, 1, 0.9), Verdict::Unknown);
        assert_eq!(verdict(8, 1, 1, 0.9), Verdict::Unknown);
        assert_eq!(verdict(7, 2, 1, 0.9), Verdict::Fail);
        assert_eq!(verdict(0, 1, 9, 0.9), Verdict::Unknown);
    }

    #[test]
    fn without_a_healthy_node_nothing_passes() {
        assert_eq!(verdict(0, 0, 0, 0.5), Verdict::Unknown);
        assert_eq!(verdict(0, 1, 0, 0.5), Verdict::Fail);
    }
}
