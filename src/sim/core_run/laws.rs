//! The invariants, each its own function, judged from the outside: by what was written and what the cluster holds,
//! not by the machine's own reasoning.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;

use crate::{
    api::{
        ClaimKey, CniUpgradeSpec, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{NodeName, Uid},
        status::{Intent, IntentKind, Outcome, Truth},
    },
    rollout::ledger_entry,
    sim::model::{
        Model,
        store::{Kind, Stored},
    },
    world::{Agent, AgentKey, Claim, Node, Pod, PodKey, Seen, Target, World},
};

/// Names of the invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// I1: in flight ≤ `maxParallel`.
    Budget,
    /// I2: nothing outside the scope is acted on.
    Scope,
    /// I3: nobody new starts while the verdict fails.
    NoStartOnFailure,
    /// I4: no promotion past the canary before it held for the whole period.
    Promotion,
    /// I5: unhealthy before us is never a canary, never a success, never a failure.
    Baseline,
    /// I6: a failed verdict starts rollback or hold within one pass.
    FailedVerdict,
    /// I7: rollback goes to last good, recorded before the first change.
    LastGood,
    /// I8: every mutation has an earlier stored intent, and settles only when its effect is done.
    Intent,
    /// I11: phases move along declared edges.
    Edges,
    /// I12: `observedGeneration` never goes back.
    Generation,
    /// I13: one active attempt per target, numbered upwards.
    OneAttempt,
    /// I14: pause and brake let nothing new start.
    Brake,
    /// The first deletion waits for the DaemonSet controller.
    ControllerSeen,
    /// The strategy goes back last.
    StrategyLast,
    /// Only the accepted form of a declaration acts.
    Accepted,
    /// V1: it ends within a bound, and then nothing more is written.
    Ends,
    /// V2: no slot stays taken.
    Slots,
    /// V3: status and cluster agree at the end.
    Agreement,
    /// V4: no hot loop.
    HotLoop,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{law:?} at {at}: {what}")]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// What was seen.
    pub what: String,
    /// When, by the cluster's clock.
    pub at: Timestamp,
}

/// The verdict of one invariant.
pub(super) type Checked = Result<(), Violation>;

/// What a status write is judged by: the world in which it was decided, and the status before.
pub(super) struct StatusChange<'a> {
    pub(super) model: &'a Model,
    pub(super) world: &'a World,
    pub(super) claim: &'a Seen<Claim>,
    pub(super) key: &'a ClaimKey,
    pub(super) target: &'a Target,
    pub(super) agent_key: &'a AgentKey,
    pub(super) spec: &'a CniUpgradeSpec,
    pub(super) old: Option<&'a CniUpgradeStatus>,
    pub(super) new: &'a CniUpgradeStatus,
    pub(super) at: Timestamp,
}

pub(super) fn broken<T>(law: Law, at: Timestamp, what: impl fmt::Display) -> Result<T, Violation> {
    Err(Violation { law, what: what.to_string(), at })
}

impl<'a> StatusChange<'a> {
    /// All invariants of a status write.
    pub(super) fn check(&self) -> Checked {
        self.edges()?;
        self.generation()?;
        self.one_attempt()?;
        self.last_good()?;
        self.baseline()?;
        self.failed_verdict()?;
        self.settled_intents()?;
        let opened = self.opened();
        if opened.is_empty() {
            return Ok(());
        }
        self.accepted()?;
        self.budget(&opened)?;
        for intent in opened.iter().filter(|intent| intent.kind == IntentKind::Upgrade) {
            self.brake(intent)?;
            self.scope(intent)?;
            self.no_start_on_failure(intent)?;
            self.no_baseline_canary(intent)?;
        }
        Ok(())
    }

    /// Intents that this write opens.
    fn opened(&self) -> Vec<&'a Intent> {
        let known = |intent: &&Intent| {
            let before = self.old.map_or(&[][..], |old| &old.nodes.open);
            !before.iter().any(|old| old.node_uid == intent.node_uid)
        };
        self.new.nodes.open.iter().filter(known).collect()
    }

    fn agent(&self) -> Option<&'a Seen<Agent>> {
        self.world.agents.get(self.agent_key)
    }

    /// Agent pods that are not being deleted, by node.
    fn pods(&self) -> BTreeMap<&'a NodeName, (&'a PodKey, &'a Seen<Pod>)> {
        let Some(agent) = self.agent() else { return BTreeMap::new() };
        let pods = self.world.pods.of(&agent.uid).filter(|(_, pod)| !pod.is.deleting);
        pods.filter_map(|(key, pod)| pod.is.node.as_ref().map(|node| (node, (key, pod)))).collect()
    }

    fn in_scope(&self, node: &Node) -> bool {
        self.spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }

    fn on_target(&self, pod: &Pod) -> bool {
        let version = format!(":{}", self.spec.target_version.trim());
        pod.images.values().any(|image| image.ends_with(&version))
    }

    fn is_baseline(&self, node: &Uid) -> bool {
        self.new.nodes.baseline.contains(node)
    }

    fn threshold(&self) -> f64 {
        self.spec.canary.as_ref().map_or(1.0, |canary| canary.health_threshold)
    }

    fn budget(&self, opened: &[&Intent]) -> Checked {
        let max = usize::try_from(self.spec.max_parallel).unwrap_or(1);
        let open = &self.new.nodes.open;
        let failed = |intent: &&Intent| {
            let known =
                self.new.nodes.failures.iter().chain(self.old.iter().flat_map(|old| &old.nodes.failures));
            known.clone().any(|failure| failure.node_uid == intent.node_uid)
        };
        let back = opened.iter().any(|intent| intent.kind == IntentKind::PutBack);
        let sound = open.iter().filter(|intent| !failed(intent)).count();
        let fits = if back {
            let opens_sound = opened.iter().any(|intent| !failed(intent));
            open.len() <= max.max(10) && (sound <= max || !opens_sound)
        } else {
            open.len() <= max
        };
        if fits {
            return Ok(());
        }
        broken(
            Law::Budget,
            self.at,
            format!("{} in flight, {sound} of them sound, {max} allowed", open.len()),
        )
    }

    fn brake(&self, intent: &Intent) -> Checked {
        let held = self
            .world
            .claims
            .iter()
            .any(|(key, claim)| self.world.target_of(key) == *self.target && claim.is.hold.is_some());
        if self.spec.paused || held {
            return broken(Law::Brake, self.at, format!("{} started while paused or held", intent.node));
        }
        Ok(())
    }

    fn scope(&self, intent: &Intent) -> Checked {
        let node = self.world.nodes.get(&intent.node).filter(|node| node.uid == intent.node_uid);
        if node.is_some_and(|node| self.in_scope(&node.is)) {
            return Ok(());
        }
        broken(Law::Scope, self.at, format!("{} is not in scope", intent.node))
    }

    fn accepted(&self) -> Checked {
        let entry = ledger_entry(self.world, self.key).map(|(_, entry)| entry);
        if entry.is_some_and(|entry| entry.spec == self.claim.is.digest) {
            return Ok(());
        }
        broken(Law::Accepted, self.at, "a node is acted on for a form that Git does not have")
    }

    /// Nodes in scope that can be counted at most.
    fn countable(&self) -> usize {
        let pods = self.pods();
        let nodes = self.world.nodes.iter().filter(|(name, node)| {
            let counted =
                self.in_scope(&node.is) || pods.get(name).is_some_and(|(_, pod)| self.on_target(&pod.is));
            counted && !self.is_baseline(&node.uid)
        });
        nodes.count()
    }

    fn failures(&self) -> usize {
        self.new.nodes.failures.iter().filter(|failure| !failure.in_rollback).count()
    }

    fn failed_verdict(&self) -> Checked {
        let failed = self.failures();
        let counted = match self.new.phase {
            CniPhase::RollingOut => self.countable().max(failed),
            CniPhase::Canary => {
                let canaries = usize::try_from(self.new.nodes.canaries).unwrap_or(0);
                let touched = self.pods().values().filter(|(_, pod)| self.on_target(&pod.is)).count();
                (canaries + touched).max(failed)
            }
            CniPhase::Pending | CniPhase::Completed | CniPhase::Rollback | CniPhase::Failed => return Ok(()),
        };
        if reaches(counted - failed, failed, self.threshold()) {
            return Ok(());
        }
        broken(Law::FailedVerdict, self.at, format!("{failed} of {counted} failed and the phase stays"))
    }

    fn no_start_on_failure(&self, intent: &Intent) -> Checked {
        let failed = self.failures();
        let counted = self.countable().max(failed);
        if !reaches(counted - failed, failed, self.threshold()) {
            return broken(
                Law::NoStartOnFailure,
                self.at,
                format!("{} started after the verdict failed", intent.node),
            );
        }
        let lost = self.lost_untouched();
        if lost.len() >= 2.max(self.countable().div_ceil(100)) {
            let what = format!("{} started while untouched nodes are bad: {lost:?}", intent.node);
            return broken(Law::NoStartOnFailure, self.at, what);
        }
        if let Some(name) = self.unwell_early() {
            let what =
                format!("{} started while {name} took the target by itself and is not well", intent.node);
            return broken(Law::NoStartOnFailure, self.at, what);
        }
        Ok(())
    }

    /// A node that came onto the target by itself and whose agent is not Ready, while its kubelet reports.
    fn unwell_early(&self) -> Option<&NodeName> {
        let ours = |node: &Uid| {
            let failed = self.new.nodes.failures.iter().any(|failure| failure.node_uid == *node);
            let open = self.new.nodes.open.iter().any(|intent| intent.node_uid == *node);
            failed || open || self.is_baseline(node)
        };
        let pods = self.pods();
        let found = self.world.nodes.iter().find(|(name, node)| {
            let reports = node.is.ready == Truth::True && !node.is.leaving;
            let pod = pods.get(name).map(|(_, pod)| &pod.is);
            reports && !ours(&node.uid) && pod.is_some_and(|pod| self.on_target(pod) && !pod.ready)
        });
        found.map(|(name, _)| name)
    }

    fn lost_untouched(&self) -> Vec<&NodeName> {
        let pods = self.pods();
        let ours = |node: &Uid| {
            let open = self.new.nodes.open.iter().any(|intent| intent.node_uid == *node);
            open || self.is_baseline(node)
        };
        let bad = |name: &NodeName, node: &Seen<Node>| {
            let reports = node.is.ready != Truth::Unknown && !node.is.leaving;
            let Some((_, pod)) = pods.get(name) else { return false };
            let unwell = !pod.is.ready || node.is.network_unavailable || node.is.network_not_ready;
            self.in_scope(&node.is) && !ours(&node.uid) && reports && unwell && self.on_last_good(&pod.is)
        };
        self.world.nodes.iter().filter(|(name, node)| bad(name, node)).map(|(name, _)| name).collect()
    }

    fn on_last_good(&self, pod: &Pod) -> bool {
        let version = self.new.last_good.as_ref().map(|good| good.version.as_str());
        version.is_some_and(|version| pod.images.values().any(|image| image.ends_with(&tag(version))))
    }

    fn baseline(&self) -> Checked {
        let wrong = self.new.nodes.failures.iter().find(|f| !f.in_rollback && self.is_baseline(&f.node_uid));
        match wrong {
            Some(failure) => broken(
                Law::Baseline,
                self.at,
                format!("{} was unhealthy before us and counts as failed", failure.node),
            ),
            None => Ok(()),
        }
    }

    fn no_baseline_canary(&self, intent: &Intent) -> Checked {
        let pods = self.pods();
        let old = pods.get(&intent.node).is_some_and(|(_, pod)| self.on_last_good(&pod.is));
        if self.new.phase == CniPhase::Canary && self.is_baseline(&intent.node_uid) && old {
            let what = format!("{} was unhealthy before us and is a canary", intent.node);
            return broken(Law::Baseline, self.at, what);
        }
        Ok(())
    }

    fn last_good(&self) -> Checked {
        let Some(old) = self.old.filter(|old| old.last_good.is_some()) else { return Ok(()) };
        let digest = |status: &CniUpgradeStatus| {
            status.last_good.as_ref().and_then(|good| good.template_digest.clone())
        };
        let ended = old.attempt.as_ref().is_none_or(|attempt| attempt.outcome.is_some());
        if digest(old) == digest(self.new) || ended {
            return Ok(());
        }
        broken(Law::LastGood, self.at, "last good changed within an unfinished attempt")
    }

    fn generation(&self) -> Checked {
        let old = self.old.and_then(|old| old.observed_generation);
        if old > self.new.observed_generation {
            return broken(
                Law::Generation,
                self.at,
                format!("{old:?} to {:?}", self.new.observed_generation),
            );
        }
        Ok(())
    }

    fn one_attempt(&self) -> Checked {
        let number = |status: &CniUpgradeStatus| status.attempt.as_ref().map_or(0, |attempt| attempt.number);
        let before = self.old.map_or(0, number);
        if number(self.new) < before {
            return broken(Law::OneAttempt, self.at, format!("attempt {} after {before}", number(self.new)));
        }
        let active = self.world.claims.iter().filter(|(key, claim)| {
            let unfinished = crate::rollout::cni_status(claim)
                .and_then(|status| status.attempt.as_ref())
                .is_some_and(|attempt| attempt.outcome.is_none());
            unfinished && *key != self.key && self.world.target_of(key) == *self.target
        });
        let mine = self.new.attempt.as_ref().is_some_and(|attempt| attempt.outcome.is_none());
        if mine && active.count() > 0 {
            return broken(Law::OneAttempt, self.at, "two attempts on one target");
        }
        Ok(())
    }

    fn edges(&self) -> Checked {
        let old = self.old.map_or(&[][..], |old| &old.transitions);
        let new = &self.new.transitions;
        let known = old.last().and_then(|last| new.iter().rposition(|transition| transition == last));
        let mut before =
            self.old.map(|old| (old.phase, old.transitions.last().map_or(0, |last| last.attempt)));
        for transition in new.iter().skip(known.map_or(0, |index| index + 1)) {
            let Some(phase) = phase_of(&transition.phase) else {
                return broken(Law::Edges, self.at, format!("no phase is called {}", transition.phase));
            };
            // A custom resource that was made anew goes on in the phase that its record names.
            if let Some((from, attempt)) = before
                && !edge(from, phase, transition.attempt > attempt)
            {
                return broken(Law::Edges, self.at, format!("{from:?} to {phase:?}"));
            }
            before = Some((phase, transition.attempt));
        }
        Ok(())
    }

    /// A closed intent was done: the pod of before is gone, unless it was right as it was or its node is lost.
    fn settled_intents(&self) -> Checked {
        let Some(old) = self.old else { return Ok(()) };
        let closed = old
            .nodes
            .open
            .iter()
            .filter(|intent| !self.new.nodes.open.iter().any(|open| open.node_uid == intent.node_uid));
        for intent in closed {
            let failed = self.new.nodes.failures.iter().any(|failure| failure.node_uid == intent.node_uid);
            let node = self.world.nodes.get(&intent.node).filter(|node| node.uid == intent.node_uid);
            let lost = node.is_none_or(|node| {
                node.is.ready != Truth::True || node.is.leaving || !self.in_scope(&node.is)
            });
            let held = self.model.list(Kind::Pod, None).find(|pod| pod.uid == intent.before);
            let right = |pod: &Stored| match intent.kind {
                IntentKind::Upgrade => false,
                IntentKind::PutBack => pod.deleting.is_none(),
            };
            if !failed && !lost && held.is_some_and(|pod| !right(pod)) && self.new.phase == old.phase {
                let what = format!("{} settled while its pod of before is still there", intent.node);
                return broken(Law::Intent, self.at, what);
            }
        }
        Ok(())
    }
}

/// good ÷ (good + bad) ≥ threshold.
pub(super) fn reaches(good: usize, bad: usize, threshold: f64) -> bool {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    bad == 0 || number(good) + 1e-9 >= threshold * number(good + bad)
}

/// The image tag of a version, whether it is written with its `v` or without.
pub(super) fn tag(version: &str) -> String {
    format!(":v{}", version.trim_start_matches('v'))
}

pub(super) fn phase_of(text: &str) -> Option<CniPhase> {
    [
        CniPhase::Pending,
        CniPhase::Canary,
        CniPhase::RollingOut,
        CniPhase::Completed,
        CniPhase::Rollback,
        CniPhase::Failed,
    ]
    .into_iter()
    .find(|phase| phase.as_str() == text)
}

/// The declared edges; `fresh` = the attempt is a new one.
const fn edge(from: CniPhase, to: CniPhase, fresh: bool) -> bool {
    match to {
        CniPhase::Pending => fresh,
        CniPhase::Canary => matches!(from, CniPhase::Pending),
        CniPhase::RollingOut => matches!(from, CniPhase::Pending | CniPhase::Canary),
        CniPhase::Completed => matches!(from, CniPhase::Pending | CniPhase::RollingOut | CniPhase::Rollback),
        CniPhase::Rollback => fresh || matches!(from, CniPhase::Canary | CniPhase::RollingOut),
        CniPhase::Failed => matches!(from, CniPhase::Canary | CniPhase::RollingOut | CniPhase::Rollback),
    }
}

/// Whether an attempt ended so that the next one takes what runs as last good.
pub(super) const fn settled(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Completed
        | Outcome::AlreadyRuns
        | Outcome::CompletedWithFailures
        | Outcome::Returned
        | Outcome::RolledBack
        | Outcome::Reverted => true,
        Outcome::RollbackIncomplete | Outcome::Held | Outcome::Superseded => false,
    }
}
