//! The gates before the next step of an attempt, whatever its phase.

use super::{Cx, later, window};
use crate::{
    api::{
        cni_upgrade::CniPhase,
        status::{Attempt, Outcome},
    },
    rollout::{
        gate::Gate,
        lifecycle::{self, Course},
        waiting::Waiting,
    },
};

impl Cx<'_> {
    /// The gates that the present phase has ahead of it.
    pub(super) fn gates_ahead(&self) -> Vec<Gate> {
        let Some(attempt) = self.attempt() else { return self.gates() };
        if let Some(outcome) = attempt.outcome {
            return vec![self.driver_gate(), self.owner_gate(), self.ended_gate(attempt, outcome)];
        }
        match self.draft.phase {
            CniPhase::Pending => self.gates(),
            CniPhase::Canary | CniPhase::RollingOut => {
                let mut gates = vec![self.driver_gate(), self.owner_gate(), self.brake_gate()];
                gates.push(self.budget_gate());
                gates.extend(self.verdict_gate());
                gates.extend(self.observation_gate());
                gates
            }
            CniPhase::Rollback | CniPhase::Completed | CniPhase::Failed => {
                vec![self.driver_gate(), self.owner_gate(), self.budget_gate()]
            }
        }
    }

    /// Whether the declaration acts: one whose wish failed here before is passed over.
    pub(super) fn standing_gate(&self) -> Gate {
        let window = self.case.config.revert_window;
        let course = lifecycle::course(&self.draft, self.entry, &self.target, window, self.now.at);
        if course == Course::Quarantined || self.declared_again() {
            return Gate::refuse("standing", self.quarantined());
        }
        Gate::pass("standing", format!("in force for {}", self.case.target))
    }

    /// A wish that failed is not tried again; one that an attempt was put back to has no step ahead.
    fn ended_gate(&self, attempt: &Attempt, outcome: Outcome) -> Gate {
        let failed = matches!(outcome, Outcome::RolledBack | Outcome::RollbackIncomplete | Outcome::Held);
        // Of one that is declared again, its standing says so.
        if failed && attempt.wish == self.entry.wish && !self.declared_again() {
            return Gate::refuse("attempt", self.quarantined());
        }
        let target = self.draft.target_version.as_deref().unwrap_or("?");
        Gate::pass(
            "attempt",
            format!("attempt {} to {target} has ended: {}", attempt.number, outcome.as_str()),
        )
    }

    fn budget_gate(&self) -> Gate {
        let (in_flight, max) = (self.draft.nodes.open.len(), self.max_parallel());
        if in_flight >= max {
            return Gate::wait("budget", Waiting::Budget { in_flight, max });
        }
        Gate::pass("budget", format!("{in_flight} of at most {max} nodes in flight"))
    }

    /// What the status counted; absent while nothing has settled.
    fn verdict_gate(&self) -> Option<Gate> {
        let open = &self.draft.nodes.open;
        if !open.is_empty() {
            let nodes = window::names(open.iter().map(|intent| &intent.node));
            return Some(Gate::wait("verdict", Waiting::Settling { nodes, count: open.len(), until: None }));
        }
        let (healthy, failed) = (self.draft.upgraded_nodes, self.draft.failed_nodes);
        let percent = self.threshold() * 100.0;
        let text = format!("{healthy} healthy, {failed} failed; at least {percent} % must be healthy");
        (healthy + failed > 0).then(|| Gate::pass("verdict", text))
    }

    /// Absent outside of the canary phase and before all canaries have settled.
    fn observation_gate(&self) -> Option<Gate> {
        let canary = self.spec.canary.as_ref().filter(|_| self.draft.phase == CniPhase::Canary)?;
        let observed = self.draft.observed?;
        let of = i64::from(canary.observation_minutes) * 60;
        let left = of.saturating_sub(observed.total).max(0);
        let until = later(observed.as_of.unwrap_or(self.now.at), left);
        Some(Gate::wait("observation", Waiting::Observing { left, of, until }))
    }
}
