//! How an attempt begins: the one before ends, last good is fixed, numbers go on.

use std::collections::{BTreeMap, BTreeSet};

use super::Cx;
use crate::{
    api::{
        cni_upgrade::CniPhase,
        names::{Uid, WishHash},
        status::{Attempt, AttemptKind, IntentKind, LastGood, Nodes, Outcome, PastAttempt, Truth},
    },
    manifest::wish::{Wish, normalise, written_like},
    profile::Profile,
    rollout::lifecycle::{attempt_id, fresh_token},
    world::Record,
};

/// Attempts kept in `status.history`.
const HISTORY: usize = 10;

impl Cx<'_> {
    /// A custom resource that lost its status gets it back from the record beside the ledger, and a phase that no
    /// transition led to is put right.
    pub(super) fn recover(&mut self) {
        if self.draft.attempt.is_some() {
            self.put_right();
            return;
        }
        let Some(record) = self.record().filter(|record| record.claim == *self.key).cloned() else { return };
        self.name_versions(&record);
        self.draft.attempt = Some(record.attempt);
        self.draft.last_good = Some(record.last_good);
        self.draft.rollback = record.rollback;
        self.draft.nodes.baseline = record.baseline;
        self.enter(record.phase);
    }

    /// The record has no version of its own: the ledger knows what the attempt was about, and before that it is what is
    /// declared.
    fn name_versions(&mut self, record: &Record) {
        let known = self.target.attempts.iter().find(|known| known.id == record.attempt.id);
        let target = known.map_or(&self.spec.target_version, |known| &known.target_version).clone();
        let ended = record.phase == CniPhase::Completed;
        let before = written_like(&record.last_good.version, &self.spec.target_version);
        self.draft.current_version = Some(if ended { target.clone() } else { before });
        self.draft.target_version = Some(target);
    }

    /// The phase is the one that was entered last, whatever somebody wrote into the status; an attempt whose phase is
    /// not an end has not ended, unless it was taken back before it acted.
    fn put_right(&mut self) {
        let entered = self.draft.transitions.last().and_then(|last| CniPhase::parse(&last.phase));
        let Some(entered) = entered.filter(|phase| *phase != self.draft.phase) else { return };
        self.draft.phase = entered;
        let ended = matches!(entered, CniPhase::Completed | CniPhase::Failed);
        if let (false, Some(attempt)) = (ended, &mut self.draft.attempt) {
            attempt.outcome = attempt.outcome.filter(|outcome| *outcome == Outcome::Reverted);
            attempt.finished_at = attempt.finished_at.filter(|_| attempt.outcome.is_some());
        }
    }

    /// The record of this target, if there is one that can be read.
    pub(super) fn record(&self) -> Option<&Record> {
        let seen = self.case.world.records.get(&crate::rollout::record_name(self.case.target))?;
        seen.is.as_ref().ok().map(|record| &**record).filter(|record| record.target == *self.case.target)
    }

    /// Starts an attempt forward.
    pub(super) fn begin_upgrade(&mut self) {
        let settled = self.attempt().is_none_or(|attempt| {
            matches!(
                attempt.outcome,
                Some(
                    Outcome::Completed
                        | Outcome::CompletedWithFailures
                        | Outcome::AlreadyRuns
                        | Outcome::Returned
                        | Outcome::RolledBack
                        | Outcome::Reverted
                )
            )
        });
        let whole = self.agent.is.original_strategy.is_none();
        if (settled && whole) || self.draft.last_good.is_none() {
            self.draft.last_good = Some(self.what_runs());
            self.draft.nodes.baseline = self.unhealthy_now().into_iter().collect();
        } else if settled && let Some(good) = self.what_runs_over_others() {
            self.draft.last_good = Some(good);
            self.draft.nodes.baseline = self.unhealthy_now().into_iter().collect();
        }
        self.begin(AttemptKind::Upgrade, self.entry.wish.clone(), Outcome::Superseded);
        self.draft.target_version = Some(self.spec.target_version.clone());
        self.enter(CniPhase::Pending);
        self.turn_intents(IntentKind::Upgrade);
        // Nodes in flight have the whole time of the new attempt: what the one before took is not its failure.
        for intent in &mut self.draft.nodes.open {
            intent.spent = 0;
            intent.as_of = self.now.at;
        }
    }

    /// Starts an attempt back to last good: nothing holds it.
    pub(super) fn begin_return(&mut self) {
        let Some(good) = self.draft.last_good.clone() else { return };
        let wrote = self.attempt().and_then(|attempt| attempt.template.clone());
        self.begin(AttemptKind::Return, good.wish.clone(), Outcome::Reverted);
        if let Some(attempt) = &mut self.draft.attempt {
            attempt.template = wrote;
        }
        self.draft.target_version = Some(written_like(&good.version, &self.spec.target_version));
        self.enter(CniPhase::Rollback);
        self.turn_intents(IntentKind::PutBack);
    }

    fn begin(&mut self, kind: AttemptKind, wish: WishHash, left_as: Outcome) {
        let now = self.now.at;
        let token =
            fresh_token(self.entry, &self.target, self.attempt()).then(|| self.entry.token.clone()).flatten();
        let again = self.target.quarantine.contains(&wish)
            || self.attempt().is_some_and(|attempt| attempt.wish == wish);
        let asked = self.entry.asked.as_ref().filter(|_| again && token.is_some());
        let cause = self.ledger.revision(asked.unwrap_or(&self.entry.introduced));
        let known = self.target.attempts.iter().map(|attempt| attempt.number);
        let recorded = self.record().map(|record| record.attempt.number);
        let mine = self.attempt().map(|attempt| attempt.number);
        let number = known.chain(recorded).chain(mine).max().unwrap_or(0).max(0).saturating_add(1);
        self.leave(left_as);
        let running = self.running_version();
        let running = running.map(|version| written_like(&version, &self.spec.target_version));
        self.draft.current_version = running.or_else(|| self.draft.current_version.take());
        self.draft.rollback = None;
        let nodes = &mut self.draft.nodes;
        *nodes = Nodes {
            open: std::mem::take(&mut nodes.open),
            baseline: std::mem::take(&mut nodes.baseline),
            ..Nodes::default()
        };
        self.draft.attempt = Some(Attempt {
            id: attempt_id(&self.agent.uid, number, &wish, token.as_deref()),
            number,
            kind,
            wish,
            revision: Some(cause),
            node_selector: self.spec.node_selector.clone(),
            retry_token: token,
            started_at: now,
            finished_at: None,
            outcome: None,
            canary_cut: std::collections::BTreeMap::new(),
            canaries_until: None,
            template: None,
        });
    }

    /// Writes the attempt before into history.
    fn leave(&mut self, left_as: Outcome) {
        let Some(attempt) = self.draft.attempt.take() else { return };
        let line = PastAttempt {
            id: attempt.id,
            number: attempt.number,
            target_version: self.draft.target_version.clone().unwrap_or_default(),
            wish: attempt.wish,
            revision: attempt.revision,
            outcome: attempt.outcome.unwrap_or(left_as),
            reason: self.draft.rollback.as_ref().map(|rollback| rollback.reason.clone()),
            finished_at: attempt.finished_at.unwrap_or(self.now.at),
        };
        let history = &mut self.draft.history;
        history.push(line);
        if history.len() > HISTORY {
            history.drain(..history.len() - HISTORY);
        }
    }

    /// Version of the live template.
    pub(super) fn running_version(&self) -> Option<String> {
        self.profile.version(&Profile::template_images(&self.agent.is.template.raw))
    }

    /// The same as the manifest would write it; the image, where the profile cannot read a version in it.
    pub(super) fn running_as_written(&self) -> String {
        match self.running_version() {
            Some(version) => written_like(&version, &self.spec.target_version),
            None => self.profile.version_image(&Profile::template_images(&self.agent.is.template.raw)),
        }
    }

    /// What runs now, as last good of the attempt that begins.
    pub(super) fn what_runs(&self) -> LastGood {
        let version = self.running_version().unwrap_or_default();
        let before = self.attempt().filter(|_| {
            self.draft.target_version.as_deref().is_some_and(|target| normalise(target) == version)
        });
        // What an attempt put back runs as it did before it, in the scope and with the provider of then.
        let restored = self.draft.last_good.as_ref().filter(|good| normalise(&good.version) == version);
        let (wish, revision) = match (before, restored) {
            (Some(attempt), _) => (attempt.wish.clone(), attempt.revision.clone()),
            (None, Some(good)) => (good.wish.clone(), good.revision.clone()),
            (None, None) => (self.wish_of(&version), None),
        };
        let strategy = self.agent.is.original_strategy.clone();
        LastGood {
            version: written_like(&version, &self.spec.target_version),
            wish,
            revision,
            template: Some(self.agent.is.template.raw.to_string()),
            template_digest: Some(self.agent.is.template.digest.clone()),
            node_selector: std::collections::BTreeMap::new(),
            beneath: Vec::new(),
            strategy: Some(strategy.unwrap_or_else(|| self.agent.is.strategy.as_str().to_owned())),
        }
    }

    /// The wish that amounts to a version in the declared scope.
    fn wish_of(&self, version: &str) -> WishHash {
        let mut wish = self.entry.wished.on(Some(&self.profile.name));
        if let Wish::Cni { target_version, .. } = &mut wish {
            version.clone_into(target_version);
        }
        wish.hash()
    }

    /// UIDs of nodes that are not Ready or whose agent is not.
    pub(super) fn unhealthy_now(&self) -> BTreeSet<Uid> {
        let world = self.case.world;
        let mut agents = BTreeMap::new();
        for (_, pod) in world.pods.of(&self.agent.uid) {
            if let Some(node) = &pod.is.node {
                *agents.entry(node).or_insert(false) |= pod.is.ready;
            }
        }
        let bad = |name, node: &crate::world::Node| {
            node.ready != Truth::True || agents.get(name).is_some_and(|ready| !ready)
        };
        world
            .nodes
            .iter()
            .filter(|(name, node)| bad(*name, &node.is))
            .map(|(_, node)| node.uid.clone())
            .take(1000)
            .collect()
    }
}
