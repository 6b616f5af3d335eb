//! The end of a pass: counts, conditions and texts of the status, and whether it has to be written.

use std::sync::Arc;

use super::{Cx, window::View};
use crate::{
    api::{
        cni_upgrade::CniPhase,
        reasons::Reason,
        status::{AttemptKind, IntentKind, NodeSkip, Outcome, Truth},
    },
    diff::{Goal, NodeDiff, NodeState},
    mirror::ledger::RollbackState,
    publish, report,
    rollout::{Decision, conditions::Conditions, observed::seconds, waiting::Waiting},
    world::{Pod, Seen},
};

/// Skips listed by name.
const SKIPS: usize = 50;
/// Reasons for waiting kept in a status.
const REASONS: usize = 10;
/// Evidence in a message, in characters: the way on stands after it and must fit as well.
const EVIDENCE: usize = 900;

/// Added where only the images could be put back.
const REST_STAYS: &str = " What others changed in the template meanwhile stays, since the API server lets this account \
                          change its images only.";

impl Cx<'_> {
    /// Turns the draft into a decision.
    pub(super) fn close(mut self) -> Decision {
        self.count();
        let waiting = std::mem::take(&mut self.decision.waiting);
        self.draft.waiting_for = waiting.iter().take(REASONS).map(report::waiting::waiting_for).collect();
        self.decision.waiting = waiting;
        self.draft.observed_generation = Some(self.claim.is.generation);
        self.draft.epoch = Some(self.now.epoch);
        if self.draft.attempt.is_none() {
            self.draft.target_version = Some(self.spec.target_version.clone());
        }
        self.name_commit();
        self.conclude();
        let write = crate::rollout::cni_status_write(self.key, self.claim, &self.draft);
        self.decision.statuses.extend(write);
        self.decision.recheck = self.recheck.map(|at| {
            let seconds = u64::try_from(seconds(self.now.at, at)).unwrap_or(0);
            // Due times are whole seconds: one more, so that the next pass is not a moment early.
            std::time::Duration::from_secs(seconds + 1)
        });
        self.decision
    }

    /// The view by which people count: nodes at the target of the attempt.
    fn counting(&self) -> Option<View> {
        let mut view = self.forward()?;
        // After a rollback commit the manifest names another version than the attempt that the status tells of.
        let target = self.draft.target_version.as_deref().unwrap_or(&self.spec.target_version);
        if target != self.spec.target_version {
            let covered = self.profile.images(&self.agent.is.template.raw, target).ok()?;
            view.goal = Goal::Images(Arc::new(super::template::by_container(&covered)));
        }
        if self.returning() {
            view.goal = Goal::Images(self.saved_images());
            view.way = IntentKind::PutBack;
        }
        Some(view)
    }

    fn count(&mut self) {
        let Some(view) = self.counting() else { return };
        let diff = self.classify(&view);
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let scope = || diff.in_scope().filter(|node| node.pod.is_some() || node.intent.is_some());
        let all = scope().count();
        let upgraded = scope().filter(|node| node.intent.is_none() && self.counts(node)).count();
        let failed = scope()
            .filter(|node| node.intent.is_none() && matches!(node.state, NodeState::Failed(..)))
            .count();
        let skipped: Vec<NodeSkip> = diff
            .in_scope()
            .filter_map(|node| match node.state {
                NodeState::Skipped(skip) => {
                    Some(NodeSkip { node: node.name.clone(), reason: skip.as_str().to_owned() })
                }
                NodeState::Waiting
                | NodeState::Acting
                | NodeState::Astray
                | NodeState::Verifying
                | NodeState::Healthy
                | NodeState::Unsettled
                | NodeState::Unreachable
                | NodeState::Failed(..) => None,
            })
            .collect();
        let waiting = scope().filter(|node| node.state == NodeState::Waiting).count();
        // After a failure nobody waits for a turn.
        let failed_for_good = self.draft.phase == CniPhase::Failed;
        // Time alone can change the counts, also where nothing else is waited for.
        self.look_at(diff.until());
        let draft = &mut self.draft;
        draft.upgraded_nodes = number(upgraded);
        draft.failed_nodes = number(failed);
        draft.remaining_nodes = number(all.saturating_sub(upgraded + failed));
        draft.progress = Some(format!("{upgraded}/{all}"));
        let nodes = &mut draft.nodes;
        nodes.in_scope = number(all);
        nodes.in_flight = number(nodes.open.len());
        nodes.waiting = if failed_for_good { 0 } else { number(waiting) };
        nodes.skipped = number(skipped.len());
        nodes.more = number(skipped.len().saturating_sub(SKIPS));
        nodes.skips = skipped.into_iter().take(SKIPS).collect();
        if draft.phase == CniPhase::Completed {
            draft.current_version.clone_from(&draft.target_version);
        }
    }

    /// The commit that recorded the rollback, once the ledger has seen it.
    fn name_commit(&mut self) {
        let id = self.attempt().map(|attempt| attempt.id.clone());
        let entry = self.target.rollbacks.iter().find(|entry| Some(&entry.attempt) == id.as_ref());
        let Some(RollbackState::Recorded(commit)) = entry.map(|entry| &entry.state) else { return };
        let commit = self.ledger.revision(commit);
        if let Some(rollback) = &mut self.draft.rollback {
            rollback.commit = Some(commit);
        }
    }

    /// Healthy for the count: a verdict waits until a pod was seen Ready long enough, but a pod that is Ready since before
    /// this process watched has not become worse by that.
    pub(super) fn counts(&self, node: &NodeDiff<'_>) -> bool {
        let from_before = |pod: &Seen<Pod>| {
            pod.is.ready && self.case.world.live_since().is_some_and(|live| pod.since <= live)
        };
        match node.state {
            NodeState::Healthy => true,
            NodeState::Unsettled => node.pod.is_some_and(|(_, pod)| from_before(pod)),
            NodeState::Waiting
            | NodeState::Skipped(_)
            | NodeState::Acting
            | NodeState::Astray
            | NodeState::Verifying
            | NodeState::Unreachable
            | NodeState::Failed(..) => false,
        }
    }

    fn conclude(&mut self) {
        let mut list = std::mem::take(&mut self.draft.conditions);
        let mut conditions = Conditions::of(&mut list, self.claim.is.generation, self.now.at);
        self.say_force(&mut conditions);
        self.say_canary(&mut conditions);
        self.say_strategy(&mut conditions);
        self.say_published(&mut conditions);
        match self.decision.refusals.first() {
            Some(refusal) => conditions.stalled(refusal.reason(), report::waiting::refusal(refusal)),
            None => self.say_phase(&mut conditions),
        }
        self.draft.conditions = list;
    }

    fn say_phase(&self, conditions: &mut Conditions<'_>) {
        let progress = self.draft.progress.clone().unwrap_or_default();
        let target = self.draft.target_version.clone().unwrap_or_default();
        let first =
            self.draft.waiting_for.first().map(|waiting| format!(" {}", waiting.message)).unwrap_or_default();
        match self.draft.phase {
            CniPhase::Pending if self.spec.paused => {
                conditions.reconciling(Reason::Paused, format!("Nothing starts.{first}"));
            }
            CniPhase::Pending | CniPhase::Canary | CniPhase::RollingOut | CniPhase::Rollback => {
                let reason = self.brake_reason().unwrap_or(Reason::Progressing);
                conditions.reconciling(reason, format!("{progress} nodes are healthy on {target}.{first}"));
            }
            CniPhase::Completed => self.say_completed(conditions, &progress, &target),
            CniPhase::Failed => self.say_failed(conditions),
        }
        self.say_rolled_back(conditions);
    }

    fn brake_reason(&self) -> Option<Reason> {
        self.decision.waiting.iter().find_map(|waiting| match waiting {
            Waiting::Paused => Some(Reason::Paused),
            Waiting::Held { overdue: false, .. } => Some(Reason::Held),
            Waiting::Held { overdue: true, .. } => Some(Reason::HoldOverdue),
            Waiting::TemplateChanged { images_back: false } => Some(Reason::TemplateChanged),
            Waiting::TemplateChanged { images_back: true } | Waiting::StrategyChanged => {
                Some(Reason::OwnershipConflict)
            }
            Waiting::Observing { .. }
            | Waiting::Settling { .. }
            | Waiting::Budget { .. }
            | Waiting::StatusBudget { .. }
            | Waiting::Judging { .. }
            | Waiting::AdoptedEarly { .. }
            | Waiting::CorrelatedLoss { .. }
            | Waiting::Feeds { .. }
            | Waiting::Controller { .. }
            | Waiting::Revision
            | Waiting::Record
            | Waiting::DryRun
            | Waiting::Mirror
            | Waiting::MidRollout { .. }
            | Waiting::OtherAttempt { .. }
            | Waiting::TooManyUnhealthy { .. }
            | Waiting::NoNodes
            | Waiting::NoCanary
            | Waiting::StrategyHeld { .. }
            | Waiting::Rejected { .. }
            | Waiting::PutBack { .. }
            | Waiting::LateNodes { .. } => None,
        })
    }

    fn say_completed(&self, conditions: &mut Conditions<'_>, progress: &str, target: &str) {
        let outcome = self.attempt().and_then(|attempt| attempt.outcome);
        let failures: Vec<String> = self
            .draft
            .nodes
            .failures
            .iter()
            .take(SKIPS)
            .map(|f| format!("{} ({})", f.node, f.reason))
            .collect();
        if self.drifted() {
            let running = self.running_as_written();
            let text = format!(
                "The DaemonSet's template runs {running}, but {target} completed. Put the image back, or declare what shall run."
            );
            conditions.set("Ready", Truth::False, Reason::Drifted, text);
            conditions.clear(&["Reconciling", "Stalled"]);
            return;
        }
        if outcome == Some(Outcome::CompletedWithFailures) || !failures.is_empty() {
            let text = format!(
                "{progress} nodes are healthy on {target}; these failed and are within the threshold: {}.",
                failures.join(", ")
            );
            conditions.set("Ready", Truth::False, Reason::CompletedWithFailures, text);
            conditions.clear(&["Reconciling", "Stalled"]);
            return;
        }
        match (outcome, self.returning()) {
            (_, true) => {
                let text = format!("Every touched node is back on {}.", self.good_words(target));
                conditions.ready(Reason::Returned, text);
            }
            (Some(Outcome::AlreadyRuns), _) => {
                conditions.ready(Reason::AlreadyRuns, format!("{target} runs already; nothing was written."));
            }
            (_, false) => {
                conditions.ready(Reason::Completed, format!("{progress} nodes are healthy on {target}."));
            }
        }
    }

    fn say_failed(&self, conditions: &mut Conditions<'_>) {
        let attempt = self.attempt();
        let outcome = attempt.and_then(|attempt| attempt.outcome);
        let good = self.draft.last_good.as_ref();
        let version = good.map(|good| good.version.clone()).unwrap_or_default();
        let agrees = good.is_some_and(|good| good.wish == self.entry.wish);
        let target = self.draft.target_version.clone().unwrap_or_default();
        let rollback = self.draft.rollback.as_ref();
        let evidence = rollback.map(|rollback| report::escape::line(&rollback.evidence, EVIDENCE));
        let evidence = evidence.unwrap_or_else(|| "its evidence is lost".to_owned());
        if outcome == Some(Outcome::RolledBack) && agrees {
            let text = format!(
                "{target} failed: {evidence}. Git and cluster agree on {version} again. To try {target} once more, \
                 commit it together with the annotation `trunkline.dev/retry: <token not used before>`."
            );
            conditions.ready(Reason::RolledBack, text);
            return;
        }
        if self.declared_again() {
            let id = attempt.map(|attempt| attempt.id.to_string()).unwrap_or_default();
            let refusal = crate::rollout::waiting::Refusal::Quarantined { version: target, attempt: id };
            conditions.stalled(Reason::Quarantined, report::waiting::refusal(&refusal));
            return;
        }
        let reason =
            rollback.and_then(|rollback| Reason::parse(&rollback.reason)).unwrap_or(Reason::FailedAndHeld);
        let next = match outcome {
            Some(Outcome::Held) => format!(
                "Nothing was put back, since autoRollback is false. Revert the commit to go back to {version}, or declare another version."
            ),
            Some(Outcome::RollbackIncomplete) => format!("Not every node is back on {version} yet."),
            Some(
                Outcome::RolledBack
                | Outcome::Completed
                | Outcome::AlreadyRuns
                | Outcome::CompletedWithFailures
                | Outcome::Returned
                | Outcome::Superseded
                | Outcome::Reverted,
            )
            | None => format!(
                "Every touched node is back on {}, and Git has to say so too: by the rollback commit, or by yours.",
                self.good_words(&version)
            ),
        };
        conditions.stalled(reason, format!("{target} failed: {evidence}. {next}"));
    }

    /// What nodes are back on, where scopes differ.
    fn good_words(&self, version: &str) -> String {
        if self.layered() {
            format!("what ran before: {version} in the scope that completed, older versions outside of it")
        } else {
            version.to_owned()
        }
    }

    /// The wish that failed was declared once more, by another commit than the one that the attempt was about.
    pub(super) fn declared_again(&self) -> bool {
        let causes = [Some(&self.entry.introduced), self.entry.asked.as_ref()];
        let revisions = causes.map(|commit| commit.map(|commit| self.ledger.revision(commit)));
        self.draft.phase == CniPhase::Failed
            && self.attempt().is_some_and(|attempt| {
                attempt.wish == self.entry.wish
                    && attempt.outcome != Some(Outcome::Held)
                    && !revisions.contains(&attempt.revision)
            })
    }

    fn say_rolled_back(&self, conditions: &mut Conditions<'_>) {
        let version = self.draft.last_good.as_ref().map(|good| good.version.clone()).unwrap_or_default();
        match self.attempt().and_then(|attempt| attempt.outcome) {
            Some(Outcome::RolledBack) => {
                let mut text = format!("Every touched node is back on {}.", self.good_words(&version));
                if self.restore_is_refused() {
                    text.push_str(REST_STAYS);
                }
                conditions.set("RolledBack", Truth::True, Reason::RolledBack, text);
            }
            Some(Outcome::RollbackIncomplete) => {
                let text = format!(
                    "Some nodes could not be put back on {version}; they are taken up as they return."
                );
                conditions.set("RolledBack", Truth::False, Reason::RollbackIncomplete, text);
            }
            None if self.draft.phase == CniPhase::Rollback && !self.returning() => {
                let text = format!("Touched nodes go back to {version}.");
                conditions.set("RolledBack", Truth::False, Reason::Progressing, text);
            }
            Some(
                Outcome::Held
                | Outcome::Completed
                | Outcome::AlreadyRuns
                | Outcome::CompletedWithFailures
                | Outcome::Returned
                | Outcome::Superseded
                | Outcome::Reverted,
            )
            | None => conditions.clear(&["RolledBack"]),
        }
    }

    fn say_canary(&self, conditions: &mut Conditions<'_>) {
        let reason = self.draft.rollback.as_ref().map(|rollback| rollback.reason.as_str());
        let canaries = self.draft.nodes.canaries;
        let upgrade = self.attempt().is_some_and(|attempt| attempt.kind == AttemptKind::Upgrade);
        let had = upgrade && self.attempt().is_some_and(|attempt| !attempt.canary_cut.is_empty());
        let number = self.attempt().map(|attempt| attempt.number);
        let passed = self.draft.transitions.iter().any(|transition| {
            Some(transition.attempt) == number && transition.phase == CniPhase::RollingOut.as_str()
        });
        match self.draft.phase {
            _ if !had => conditions.clear(&["CanaryHealthy"]),
            _ if passed => {
                let text = "The canary held for its whole observed time.";
                conditions.set("CanaryHealthy", Truth::True, Reason::Completed, text);
            }
            CniPhase::Failed | CniPhase::Rollback if reason == Some(Reason::CanaryUnhealthy.as_str()) => {
                let text = "The canary did not hold.";
                conditions.set("CanaryHealthy", Truth::False, Reason::CanaryUnhealthy, text);
            }
            CniPhase::Failed | CniPhase::Rollback => conditions.clear(&["CanaryHealthy"]),
            CniPhase::Canary | CniPhase::Pending | CniPhase::RollingOut | CniPhase::Completed => {
                let text = format!("{canaries} canary nodes are being tried or watched.");
                conditions.set("CanaryHealthy", Truth::Unknown, Reason::Progressing, text);
            }
        }
    }

    fn say_force(&self, conditions: &mut Conditions<'_>) {
        let quarantined =
            self.decision.refusals.iter().any(|refusal| refusal.reason() == Reason::Quarantined);
        if quarantined || self.declared_again() {
            let text = "The wish failed here before, so it is passed over.";
            conditions.set("InForce", Truth::False, Reason::Quarantined, text);
        } else {
            let text = format!("In force for DaemonSet {}.", self.agent_key);
            conditions.set("InForce", Truth::True, Reason::InForce, text);
        }
    }

    fn say_published(&self, conditions: &mut Conditions<'_>) {
        let (status, reason, text) = publish::git_published(self.case.world, self.case.config, self.key);
        let settled = matches!(
            self.attempt().and_then(|attempt| attempt.outcome),
            Some(Outcome::RolledBack | Outcome::RollbackIncomplete)
        );
        // That Git was not read yet by this process says nothing new.
        if status == Truth::Unknown && reason == Reason::Publishing && conditions.has("GitPublished") {
            return;
        }
        // A phase that waits a moment for its commit is no news worth a write; a rollback commit is.
        if reason == Reason::Publishing && !settled && conditions.holds("GitPublished") {
            return;
        }
        conditions.set("GitPublished", status, reason, text);
    }

    fn say_strategy(&self, conditions: &mut Conditions<'_>) {
        let held =
            self.decision.waiting.iter().find(|waiting| matches!(waiting, Waiting::StrategyHeld { .. }));
        match held {
            Some(waiting) => {
                let text = report::waiting::waiting(waiting);
                conditions.set("StrategyHeld", Truth::True, Reason::Progressing, text);
            }
            None => conditions.clear(&["StrategyHeld"]),
        }
    }
}
