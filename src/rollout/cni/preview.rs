//! What a declaration would do: the steps of `Pending`, without a write.

use super::{Case, Cx, Decision, Now};
use crate::{
    api::{
        ClaimKey,
        cni_upgrade::CniPhase,
        status::{AttemptKind, Outcome},
    },
    diff::{NodeDiff, NodeState, order},
    manifest::wish::written_like,
    mirror::ledger::AttemptEntry,
    rollout::{
        gate::{Gate, GateVerdict},
        plan::{Ahead, PlannedNode, Preview},
        waiting::Waiting,
    },
    world::AgentKey,
};

/// Looks ahead; without a provider or while something is missing, the decision says why not.
pub(in crate::rollout) fn preview(
    case: &Case<'_>,
    agent: &AgentKey,
    key: &ClaimKey,
    now: Now,
) -> Result<Preview, Box<Decision>> {
    let mut cx = Cx::open(case, agent, key, now)?;
    cx.recover();
    cx.take_course();
    if !cx.decision.refusals.is_empty() {
        return Err(Box::new(cx.decision));
    }
    let ahead = cx.ahead();
    if let Ahead::Ended(Outcome::RolledBack | Outcome::RollbackIncomplete | Outcome::Held) = ahead {
        let refusals = vec![cx.quarantined()];
        return Err(Box::new(Decision { refusals, ..Decision::default() }));
    }
    let mut gates = Vec::new();
    if ahead == Ahead::Start {
        gates = cx.gates();
        // Where no node can be counted, none can be a canary either.
        let counted = !gates.iter().any(|gate| gate.verdict == GateVerdict::Wait(Waiting::NoNodes));
        if cx.spec.canary.is_some() && !cx.choose_canaries() && counted {
            gates.push(Gate::wait("canaries", Waiting::NoCanary));
        }
    }
    if matches!(ahead, Ahead::UnderWay(CniPhase::Pending | CniPhase::Canary | CniPhase::RollingOut)) {
        gates.extend(cx.brakes().into_iter().map(|brake| Gate::wait("brake", brake)));
    }
    Ok(cx.preview(ahead, gates))
}

impl Cx<'_> {
    fn ahead(&self) -> Ahead {
        let Some(attempt) = self.attempt() else { return Ahead::Nothing };
        match (attempt.outcome, attempt.kind, self.draft.phase) {
            (Some(Outcome::Completed | Outcome::AlreadyRuns | Outcome::Returned), ..) => Ahead::Runs,
            // An attempt at another wish was put back, and this one is what it was put back to.
            (Some(_), ..) if attempt.wish != self.entry.wish => Ahead::Runs,
            (Some(outcome), ..) => Ahead::Ended(outcome),
            (None, AttemptKind::Return, _) => Ahead::Return,
            (None, AttemptKind::Upgrade, CniPhase::Pending) if self.runs_already() => Ahead::Runs,
            (None, AttemptKind::Upgrade, CniPhase::Pending) => Ahead::Start,
            (None, AttemptKind::Upgrade, phase) => Ahead::UnderWay(phase),
        }
    }

    /// Version of last good while an attempt is under way, of the nodes that go back on a return, else of the live
    /// template.
    fn version_before(&self, ahead: Ahead) -> String {
        match (ahead, &self.draft.last_good) {
            (Ahead::UnderWay(_), Some(good)) => written_like(&good.version, &self.spec.target_version),
            (Ahead::Return, _) => self.tried().unwrap_or_else(|| self.running_as_written()),
            (Ahead::Runs | Ahead::Start | Ahead::UnderWay(_) | Ahead::Ended(_) | Ahead::Nothing, _) => {
                self.running_as_written()
            }
        }
    }

    /// Version of the last attempt forward: the template may be back while nodes still run it.
    fn tried(&self) -> Option<String> {
        let forward = |attempt: &&AttemptEntry| attempt.kind == AttemptKind::Upgrade;
        let attempt = self.target.attempts.iter().rev().find(forward)?;
        Some(written_like(&attempt.target_version, &self.spec.target_version))
    }

    fn preview(&self, ahead: Ahead, gates: Vec<Gate>) -> Preview {
        let canary = self.spec.canary.as_ref().filter(|_| ahead == Ahead::Start);
        let mut preview = Preview {
            provider: self.profile.name.clone(),
            agent: self.agent_key.clone(),
            from: self.version_before(ahead),
            to: self.spec.target_version.trim().to_owned(),
            ahead,
            gates,
            nodes: Vec::new(),
            skipped: Vec::new(),
            in_scope: 0,
            outside: 0,
            max_parallel: self.max_parallel(),
            observation: canary.map(|canary| i64::from(canary.observation_minutes) * 60),
            stable: self.profile.health.stable_seconds,
        };
        let (Some(view), Some(attempt)) = (self.forward(), self.attempt()) else { return preview };
        let diff = self.classify(&view);
        preview.in_scope = diff.in_scope().count();
        preview.outside = diff.nodes.iter().filter(|node| !node.in_scope && node.pod.is_some()).count();
        for node in diff.in_scope() {
            if let NodeState::Skipped(skip) = node.state {
                preview.skipped.push((node.name.clone(), skip));
            }
        }
        let left = |node: &&NodeDiff<'_>| node.pod.is_some() && !node.at_goal && !is_skipped(node);
        // The way back knows no turn of the control plane.
        let back = ahead == Ahead::Return;
        let left = diff.in_scope().filter(left);
        let order =
            if back { order::sort_by_value(left, &attempt.id) } else { order::sort(left, &attempt.id) };
        let canaries = self.canaries();
        let (canaries, others): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|node| ahead == Ahead::Start && canaries.has(node));
        let planned = |canary: bool, node: &NodeDiff<'_>| PlannedNode {
            name: node.name.clone(),
            canary,
            control_plane: !back && order::control_plane(node),
        };
        preview.nodes.extend(canaries.into_iter().map(|node| planned(true, node)));
        preview.nodes.extend(others.into_iter().map(|node| planned(false, node)));
        preview
    }
}

const fn is_skipped(node: &NodeDiff<'_>) -> bool {
    matches!(node.state, NodeState::Skipped(_))
}
