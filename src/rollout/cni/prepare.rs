//! `Pending`: preflight. Nothing is written to a node or to the DaemonSet.

use serde_json::Value;

use super::{Cx, Step, layers::LAYERS};
use crate::{
    api::{
        cni_upgrade::{CniPhase, DeletionPolicy, Driver},
        names::NodeName,
        status::{Outcome, Truth},
    },
    diff::{NodeDiff, NodeState, Skip, order},
    rollout::{
        effect::{Effect, RejectionKind, StepName},
        gate::{Gate, GateVerdict},
        guard::{Guard, on},
        waiting::{Refusal, Waiting},
    },
};

/// Most bytes of a template that a status holds.
const TEMPLATE: usize = 128 * 1024;
/// Grace period of a pod that names none, in seconds.
const GRACE: i64 = 30;

impl Cx<'_> {
    /// The stage.
    pub(super) fn prepare(&mut self) -> Step {
        if self.runs_already() {
            let open = self.not_counted_yet();
            if !open.is_empty() {
                self.wait(Waiting::Judging { nodes: open });
                return Step::Stop;
            }
            self.end(Outcome::AlreadyRuns);
            self.enter(CniPhase::Completed);
            return Step::Next;
        }
        // A node that is well again before anything was done to it counts like any other.
        let unhealthy = self.unhealthy_now();
        self.draft.nodes.baseline.retain(|node| unhealthy.contains(node));
        // Nodes that an earlier attempt left in flight go on counting, and settle as far as they can.
        if let Some(view) = self.forward() {
            self.settle(&view, false);
        }
        let gates = self.gates();
        let mut open = true;
        for gate in gates {
            match gate.verdict {
                GateVerdict::Pass(_) | GateVerdict::Warn(_) => {}
                GateVerdict::Wait(waiting) => {
                    open = false;
                    self.wait(waiting);
                }
                GateVerdict::Refuse(refusal) => {
                    open = false;
                    if !self.decision.refusals.contains(&refusal) {
                        self.decision.refusals.push(refusal);
                    }
                }
            }
        }
        if !self.decision.refusals.is_empty() {
            self.decision.waiting.clear();
            return Step::Stop;
        }
        if self.decision.waiting == [Waiting::DryRun] {
            self.want_dry_run();
        }
        if !open {
            return Step::Stop;
        }
        if self.spec.canary.is_none() {
            self.enter(CniPhase::RollingOut);
            return Step::Next;
        }
        if !self.choose_canaries() {
            self.wait(Waiting::NoCanary);
            return Step::Stop;
        }
        self.enter(CniPhase::Canary);
        Step::Next
    }

    /// The wish is what runs: nothing has to be written.
    pub(super) fn runs_already(&self) -> bool {
        let unfinished = self.draft.nodes.open.is_empty();
        let (Some(view), Ok(covered)) = (self.forward(), self.covered()) else { return false };
        let live = covered.iter().all(|change| change.from == change.to);
        let diff = self.classify(&view);
        let mut scope = diff.in_scope().filter(|node| node.pod.is_some()).peekable();
        unfinished && live && !covered.is_empty() && scope.peek().is_some() && scope.all(|node| node.at_goal)
    }

    /// Nodes at the goal of which nobody can say yet whether they are healthy: what completes is told with its counts.
    fn not_counted_yet(&self) -> Vec<NodeName> {
        let Some(view) = self.forward() else { return Vec::new() };
        let diff = self.classify(&view);
        let open = diff.in_scope().filter(|node| node.state == NodeState::Unsettled && !self.counts(node));
        super::window::names(open.map(|node| node.name))
    }

    /// Every preflight gate with its verdict.
    pub(super) fn gates(&self) -> Vec<Gate> {
        let mut gates = vec![self.driver_gate(), self.owner_gate()];
        gates.extend(self.version_gates());
        gates.push(self.template_gate());
        gates.push(self.deadline_gate());
        gates.push(self.mid_rollout_gate());
        gates.push(self.other_attempt_gate());
        gates.extend(self.health_gates());
        gates.push(self.brake_gate());
        gates.push(self.dry_run_gate());
        gates
    }

    pub(super) fn brake_gate(&self) -> Gate {
        match self.brakes() {
            brakes if brakes.is_empty() => Gate::pass("brake", "not paused, not held"),
            mut brakes => Gate::wait("brake", brakes.swap_remove(0)),
        }
    }

    pub(super) fn driver_gate(&self) -> Gate {
        let name = "driver";
        let not_built = |what: &str| Gate::refuse(name, Refusal::NotSupported { what: what.to_owned() });
        match self.spec.driver.unwrap_or(self.profile.driver) {
            Driver::OwnedTemplate => return not_built("driver: ownedTemplate"),
            Driver::NodeJob => return not_built("driver: nodeJob"),
            Driver::DaemonSet => {}
        }
        match self.spec.deletion_policy {
            DeletionPolicy::Rollback => not_built("deletionPolicy: Rollback"),
            DeletionPolicy::Keep => {
                let provider = &self.profile.name;
                Gate::pass(
                    name,
                    format!("provider {provider}, DaemonSet {}, driver daemonSet", self.agent_key),
                )
            }
        }
    }

    pub(super) fn owner_gate(&self) -> Gate {
        match self.profile.owner(&self.agent.is) {
            Ok(()) => Gate::pass("owner", "nobody who forbids the driver owns the DaemonSet"),
            Err(refusal) => Gate::refuse("owner", refusal),
        }
    }

    fn version_gates(&self) -> Vec<Gate> {
        let covered = match self.covered() {
            Ok(covered) => covered,
            Err(refusal) => return vec![Gate::refuse("containers", refusal)],
        };
        let containers = Gate::pass("containers", format!("{} image fields move together", covered.len()));
        let (from, to) = (self.running_as_written(), self.spec.target_version.trim());
        let skew = match self.profile.skew(&from, to) {
            Ok(None) => Gate::pass("version skew", format!("{from} to {to} is allowed")),
            Ok(Some(warning)) => Gate::of("version skew", GateVerdict::Warn(warning)),
            Err(refusal) => Gate::refuse("version skew", refusal),
        };
        vec![containers, skew]
    }

    fn template_gate(&self) -> Gate {
        let good = self.draft.last_good.as_ref();
        let beneath = good.map_or(&[][..], |good| &good.beneath);
        if beneath.len() > LAYERS {
            let what = format!("more than {LAYERS} scopes while the update strategy is held");
            return Gate::refuse("template size", Refusal::NotSupported { what });
        }
        let saved = beneath.iter().filter_map(|layer| layer.template.as_ref()).map(String::len);
        let bytes = self.agent.is.template.raw.to_string().len() + saved.sum::<usize>();
        if bytes > TEMPLATE {
            return Gate::refuse("template size", Refusal::TemplateTooLarge { bytes, max: TEMPLATE });
        }
        if self.agent.is.surge {
            let warning = "the live strategy surges; under OnDelete each node has a gap".to_owned();
            return Gate::of("template size", GateVerdict::Warn(warning));
        }
        Gate::pass("template size", format!("{bytes} bytes"))
    }

    fn deadline_gate(&self) -> Gate {
        let spec = self.agent.is.template.raw.get("spec");
        let grace = spec.and_then(|spec| spec.get("terminationGracePeriodSeconds")).and_then(Value::as_i64);
        let floor = grace.unwrap_or(GRACE) + self.profile.health.stable_seconds;
        let timeout = self.timeout();
        if timeout <= floor {
            return Gate::refuse("timeout", Refusal::TimeoutTooShort { timeout, floor });
        }
        Gate::pass("timeout", format!("{timeout} s per node, more than {floor} s"))
    }

    fn mid_rollout_gate(&self) -> Gate {
        let agent = &self.agent.is;
        // With our annotation on it, the mixture of revisions is our own.
        let ours = agent.original_strategy.is_some();
        let settled = agent.observed_generation >= agent.generation && agent.updated == agent.desired;
        if ours || settled {
            return Gate::pass("mid-rollout", "nobody else is rolling the DaemonSet out");
        }
        Gate::wait("mid-rollout", Waiting::MidRollout { updated: agent.updated, desired: agent.desired })
    }

    fn other_attempt_gate(&self) -> Gate {
        let world = self.case.world;
        let other = world.claims.iter().find(|(claim, seen)| {
            *claim != self.key
                && world.target_of(claim) == *self.case.target
                && crate::rollout::cni_status(seen)
                    .and_then(|status| status.attempt.as_ref())
                    .is_some_and(|attempt| attempt.finished_at.is_none())
        });
        match other {
            Some((claim, _)) => Gate::wait("other attempt", Waiting::OtherAttempt { claim: claim.clone() }),
            None => Gate::pass("other attempt", "no other attempt is active on the DaemonSet"),
        }
    }

    fn health_gates(&self) -> Vec<Gate> {
        let Some(view) = self.forward() else { return Vec::new() };
        let diff = self.classify(&view);
        let with_agent = || diff.in_scope().filter(|node| node.pod.is_some());
        let all = with_agent().count();
        let unhealthy: Vec<_> = with_agent().filter(|node| unhealthy(node)).collect();
        let percent = usize::try_from(self.profile.health.unhealthy_percent).unwrap_or(0);
        let max = all * percent / 100;
        let health = if unhealthy.len() > max {
            let nodes = super::window::names(unhealthy.iter().map(|node| node.name));
            Gate::wait("health", Waiting::TooManyUnhealthy { nodes, count: unhealthy.len(), max })
        } else {
            Gate::pass("health", format!("{} of {all} nodes unhealthy, at most {max}", unhealthy.len()))
        };
        let countable = with_agent().filter(|node| !unhealthy_before(node)).count();
        let counted = if countable == 0 {
            Gate::wait("nodes", Waiting::NoNodes)
        } else {
            Gate::pass("nodes", format!("{countable} of {all} nodes in scope can be counted"))
        };
        vec![health, counted]
    }

    fn dry_run_unit(&self) -> String {
        format!("{}/{}/{}", self.agent.uid, self.agent.is.template.digest, self.spec.target_version)
    }

    fn dry_run_gate(&self) -> Gate {
        let unit = self.dry_run_unit();
        let accepted = self.case.world.dry_runs.iter().any(|id| id.unit == unit);
        if accepted {
            return Gate::pass("dry run", "the API server accepts the patch");
        }
        match self.rejection(StepName::DryRunTemplate, &unit) {
            Some(no) if matches!(no.kind, RejectionKind::Invalid | RejectionKind::Forbidden) => {
                Gate::refuse("dry run", Refusal::DryRunRefused { message: no.message.clone() })
            }
            Some(_) | None => Gate::wait("dry run", Waiting::DryRun),
        }
    }

    fn want_dry_run(&mut self) {
        let Ok(covered) = self.covered() else { return };
        let images = covered.into_iter().filter(|change| change.from != change.to).collect();
        let effect = Effect::DryRunTemplate {
            agent: self.agent_key.clone(),
            uid: self.agent.uid.clone(),
            rv: self.agent.rv,
            images,
        };
        self.want(StepName::DryRunTemplate, self.dry_run_unit(), effect);
    }

    /// Fixes the canaries of this attempt; false when no node can be one.
    pub(super) fn choose_canaries(&mut self) -> bool {
        let (Some(view), Some(canary)) = (self.forward(), self.spec.canary.clone()) else { return false };
        let Some(id) = self.attempt().map(|attempt| attempt.id.clone()) else { return false };
        let diff = self.classify(&view);
        let in_scope = diff.in_scope().filter(|node| node.pod.is_some()).count();
        let percent = usize::try_from(canary.percentage).unwrap_or(100);
        let count = (in_scope * percent).div_ceil(100).max(1);
        let named = !canary.node_labels.is_empty();
        let eligible: Vec<&NodeDiff<'_>> =
            diff.in_scope().filter(|node| eligible(node, &canary.node_labels)).collect();
        let workers = eligible.iter().any(|node| !order::control_plane(node));
        let pool = eligible.into_iter().filter(|node| named || !workers || !order::control_plane(node));
        // Nodes of an earlier attempt are no better canaries than others: the cut is by order value alone.
        let sorted = order::sort_by_value(pool, &id);
        let cut = order::cut(&sorted, count, &id);
        if cut.is_empty() {
            return false;
        }
        let newest = diff.nodes.iter().map(|node| node.node.is.created).max();
        if let Some(attempt) = &mut self.draft.attempt {
            attempt.canary_cut = cut;
            attempt.canaries_until = newest;
        }
        true
    }
}

fn eligible(node: &NodeDiff<'_>, labels: &std::collections::BTreeMap<String, String>) -> bool {
    let well = matches!(node.state, NodeState::Waiting | NodeState::Healthy | NodeState::Unsettled);
    let before = !node.baseline && node.node.is.ready == Truth::True;
    (before || !on(Guard::Baseline))
        && well
        && node.pod.is_some()
        && crate::diff::matches(labels, &node.node.is.labels)
}

/// Unhealthy for the health gate: nodes that an earlier attempt broke are ours to repair and do not count.
fn unhealthy(node: &NodeDiff<'_>) -> bool {
    !node.ours_to_repair
        && (node.node.is.ready != Truth::True
            || node.pod.is_some_and(|(_, pod)| !pod.is.ready && !pod.is.deleting))
}

fn unhealthy_before(node: &NodeDiff<'_>) -> bool {
    node.baseline
        || matches!(
            node.state,
            NodeState::Skipped(Skip::NotReady | Skip::Unreachable | Skip::Leaving | Skip::AgentNotReady)
        )
}
