//! The template: forward by one patch, back by the saved bytes, and the strategy last.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Cx, Step};
use crate::{
    api::{
        cni_upgrade::CniPhase,
        names::Digest,
        status::{Outcome, TemplateIntent},
    },
    diff::Goal,
    profile::Profile,
    rollout::{
        effect::{Effect, ImageChange, RejectionKind, StepName},
        guard::{Guard, on},
        waiting::{Refusal, Waiting},
    },
    world::{Record, Strategy, digest},
};

/// Image by container of the containers that a profile covers, as `world::Pod::images` names them.
pub(super) fn by_container(changes: &[ImageChange]) -> BTreeMap<String, String> {
    changes.iter().map(|change| (container_key(change), change.to.clone())).collect()
}

/// Images of a template that its profile covers, as they stand.
pub(super) fn covered_only(profile: &Profile, template: &Value) -> BTreeMap<String, String> {
    let images = Profile::template_images(template);
    // The version does not matter: only which containers are covered.
    let covered = profile.images(template, "0.0.0").unwrap_or_default();
    covered
        .iter()
        .filter_map(|change| images.get_key_value(&container_key(change)))
        .map(|(container, image)| (container.clone(), image.clone()))
        .collect()
}

fn container_key(change: &ImageChange) -> String {
    if change.init { format!("init:{}", change.container) } else { change.container.clone() }
}

/// The template as the image changes leave it.
pub(super) fn patched(template: &Value, changes: &[ImageChange]) -> Value {
    let mut template = template.clone();
    for change in changes {
        let list = if change.init { "initContainers" } else { "containers" };
        let image = template
            .get_mut("spec")
            .and_then(|spec| spec.get_mut(list))
            .and_then(|list| list.get_mut(change.index))
            .and_then(|container| container.get_mut("image"));
        if let Some(image) = image {
            *image = Value::from(change.to.clone());
        }
    }
    template
}

/// Changes that change something.
fn differing(changes: &[ImageChange]) -> Vec<ImageChange> {
    changes.iter().filter(|change| change.from != change.to).cloned().collect()
}

impl Cx<'_> {
    /// Covered image fields of the live template with the images of the target.
    pub(super) fn covered(&self) -> Result<Vec<ImageChange>, Refusal> {
        let images = || self.profile.images(&self.agent.is.template.raw, &self.spec.target_version);
        self.covered.get_or_init(images).clone()
    }

    /// Stores the attempt beside the ledger; true when it stands there.
    pub(super) fn ensure_record(&mut self) -> bool {
        let (Some(attempt), Some(last_good)) = (&self.draft.attempt, &self.draft.last_good) else {
            return true;
        };
        if attempt.outcome == Some(Outcome::AlreadyRuns) {
            // Nothing was written, so there is nothing to go back to.
            return true;
        }
        let known = self.record();
        let stands = known.is_some_and(|record| record.attempt.id == attempt.id);
        let draft = &self.draft;
        let same = known.is_some_and(|record| {
            record.claim == *self.key
                && record.target == *self.case.target
                && record.attempt == *attempt
                && record.phase == draft.phase
                && record.last_good == *last_good
                && record.rollback == draft.rollback
                && record.baseline == draft.nodes.baseline
        });
        if !same {
            let record = Record {
                claim: self.key.clone(),
                target: self.case.target.clone(),
                attempt: attempt.clone(),
                phase: draft.phase,
                last_good: last_good.clone(),
                rollback: draft.rollback.clone(),
                baseline: draft.nodes.baseline.clone(),
            };
            let name = crate::rollout::record_name(self.case.target);
            let seen = self.case.world.records.get(&name).map(|seen| (seen.uid.clone(), seen.rv));
            let unit = attempt.id.to_string();
            let effect = Effect::RecordAttempt { name, seen, record: Arc::new(record) };
            self.want(StepName::RecordAttempt, unit, effect);
        }
        stands || !on(Guard::RecordFirst)
    }

    /// Brings the live template to the target, under `OnDelete`; true when pods may be deleted.
    pub(super) fn template_forward(&mut self) -> bool {
        let Ok(covered) = self.covered() else { return false };
        let live = &self.agent.is.template;
        // Worked out only while the patch would change something, since it costs a copy of the template.
        let moves = covered.iter().any(|change| change.from != change.to);
        let wrote =
            if moves { digest::of_template(&patched(&live.raw, &covered)) } else { live.digest.clone() };
        let on_delete = self.agent.is.strategy == Strategy::OnDelete;
        let there = live.digest == wrote && on_delete;
        let fresh = TemplateIntent {
            agent: Some(self.agent.uid.clone()),
            base: live.digest.clone(),
            wrote,
            applied: there,
            reasserted: false,
            strategy_reset: false,
        };
        let intent = self.attempt().and_then(|attempt| attempt.template.clone());
        let (intent, patch) = self.hold_to(intent.unwrap_or_else(|| fresh.clone()), fresh);
        let applied = intent.applied && self.agent.is.template.digest == intent.wrote && on_delete;
        if let Some(attempt) = &mut self.draft.attempt {
            attempt.template = Some(intent);
        }
        if !self.ensure_record() {
            self.wait(Waiting::Record);
            return false;
        }
        if patch {
            self.patch_images(differing(&covered));
        }
        applied && self.controller_has_seen()
    }

    /// The intent against the live template: what becomes of it, and whether the patch is wanted. What others did is
    /// noted.
    fn hold_to(&mut self, mut intent: TemplateIntent, fresh: TemplateIntent) -> (TemplateIntent, bool) {
        let live = &self.agent.is.template;
        let (ours, on_delete) = (live.digest == intent.wrote, self.agent.is.strategy == Strategy::OnDelete);
        let anew = intent.agent.as_ref().is_some_and(|uid| *uid != self.agent.uid);
        if anew && !ours {
            // Whoever made it anew decided what it runs: nothing is asserted on it.
            self.wait(Waiting::TemplateChanged { images_back: false });
            return (intent, false);
        }
        intent.agent.clone_from(&fresh.agent);
        if !intent.applied {
            intent.applied = ours && on_delete;
            if intent.applied {
                return (intent, false);
            }
            if !ours && live.digest != intent.base {
                // Somebody edited the template before our patch: the patch starts from there.
                let TemplateIntent { reasserted, strategy_reset, .. } = intent;
                intent = TemplateIntent { reasserted, strategy_reset, ..fresh };
            }
            if intent.strategy_reset {
                self.wait(Waiting::StrategyChanged);
            }
            return (intent, true);
        }
        let mut patch = false;
        if !ours {
            let images_back = covered_only(self.profile, &live.raw) == *self.saved_images();
            if images_back && !intent.reasserted {
                intent = TemplateIntent { reasserted: true, ..fresh };
                patch = true;
            }
            self.wait(Waiting::TemplateChanged { images_back });
        } else if !on_delete {
            if !intent.strategy_reset {
                // The patch is wanted until `OnDelete` is seen again, not only by the pass that notes it.
                (intent.strategy_reset, intent.applied) = (true, false);
                patch = true;
            }
            self.wait(Waiting::StrategyChanged);
        }
        (intent, patch)
    }

    /// The template of the attempt is not the live one any more, by the doing of others: a retry token starts anew.
    pub(super) fn template_taken(&self) -> bool {
        let Some(intent) = self.attempt().and_then(|attempt| attempt.template.as_ref()) else { return false };
        let acting = matches!(self.draft.phase, CniPhase::Canary | CniPhase::RollingOut);
        let anew = intent.agent.as_ref().is_some_and(|uid| *uid != self.agent.uid);
        let live = &self.agent.is;
        let changed = live.template.digest != intent.wrote || live.strategy != Strategy::OnDelete;
        acting && changed && (anew || intent.applied)
    }

    fn patch_images(&mut self, images: Vec<ImageChange>) {
        let unit = self.live_template();
        let effect = Effect::PatchTemplate {
            agent: self.agent_key.clone(),
            uid: self.agent.uid.clone(),
            rv: self.agent.rv,
            remember: self.remember(),
            images,
        };
        self.want(StepName::PatchTemplate, unit, effect);
    }

    /// The strategy to note, if none is noted yet.
    fn remember(&self) -> Option<Strategy> {
        self.agent.is.original_strategy.is_none().then_some(self.agent.is.strategy)
    }

    /// The DaemonSet controller works with the template that we see.
    pub(super) fn controller_has_seen(&mut self) -> bool {
        let (generation, observed) = (self.agent.is.generation, self.agent.is.observed_generation);
        if observed >= generation || !on(Guard::ControllerSeen) {
            return true;
        }
        self.wait(Waiting::Controller { generation, observed });
        false
    }

    /// Puts the saved template back, under `OnDelete`; the goal of the pods when they may be deleted.
    pub(super) fn template_back(&mut self) -> Option<Goal> {
        let good = self.draft.last_good.as_ref()?;
        let live = &self.agent.is.template;
        let restored = good.template_digest.as_ref() == Some(&live.digest) || !on(Guard::SavedTemplate);
        let wrote = self.attempt().and_then(|attempt| attempt.template.as_ref()).map(|intent| &intent.wrote);
        // A return puts back only what is still ours; a failed attempt puts the whole template back.
        let whole = !self.returning() || wrote.is_none_or(|wrote| *wrote == live.digest);
        if !restored {
            // Read only while something is to be put back: it is the largest part of a status.
            let saved: Value = serde_json::from_str(good.template.as_deref()?).ok()?;
            // A policy may let this account change images only. The way back must not be locked by what others edited.
            if whole && !self.restore_is_refused() {
                self.restore_template(saved);
                return None;
            }
            let images = self.images_back(&saved);
            if !images.is_empty() {
                self.patch_images(images);
                return None;
            }
        }
        if !self.controller_has_seen() {
            return None;
        }
        let Some(revision) = self.revision_of(&live.digest) else {
            self.wait(Waiting::Revision);
            return None;
        };
        Some(Goal::Revision(revision))
    }

    /// Whether the API server does not let this account put a whole template in the place of the live one.
    pub(super) fn restore_is_refused(&self) -> bool {
        let rejection = self.rejection(StepName::RestoreTemplate, &self.live_template());
        rejection.is_some_and(|rejection| {
            matches!(rejection.kind, RejectionKind::Forbidden | RejectionKind::Invalid)
        })
    }

    /// The live template, as the unit of an effect on it.
    fn live_template(&self) -> String {
        format!("{}/{}", self.agent.uid, self.agent.is.template.digest)
    }

    /// Puts a whole template in the place of the live one.
    pub(super) fn restore_template(&mut self, template: Value) {
        let unit = self.live_template();
        let effect = Effect::RestoreTemplate {
            agent: self.agent_key.clone(),
            uid: self.agent.uid.clone(),
            rv: self.agent.rv,
            remember: self.remember(),
            template: Arc::new(template),
        };
        self.want(StepName::RestoreTemplate, unit, effect);
    }

    /// Hash of the revision that holds a template.
    pub(super) fn revision_of(&self, template: &Digest) -> Option<Arc<str>> {
        let mut revisions = self.case.world.revisions.values().map(|revision| &revision.is);
        revisions
            .find(|revision| {
                revision.owner.as_ref() == Some(&self.agent.uid) && revision.template == *template
            })
            .map(|revision| revision.hash.clone())
    }

    /// Covered image fields of the live template whose image differs from the saved one.
    fn images_back(&self, saved: &Value) -> Vec<ImageChange> {
        let old = Profile::template_images(saved);
        let mut changes = self.covered().unwrap_or_default();
        for change in &mut changes {
            if let Some(image) = old.get(&container_key(change)) {
                change.to.clone_from(image);
            }
        }
        differing(&changes)
    }

    /// Keeps `OnDelete` while pods are put back one by one.
    pub(super) fn hold_strategy(&mut self) -> bool {
        if self.agent.is.strategy == Strategy::OnDelete {
            return true;
        }
        self.patch_images(Vec::new());
        false
    }

    /// Gives the update strategy back once every pod is on the template's revision; `Next` when nothing is left.
    pub(super) fn strategy_back(&mut self) -> Step {
        let agent = &self.agent.is;
        let Some(original) = &agent.original_strategy else { return Step::Next };
        let strategy = if original == Strategy::OnDelete.as_str() {
            Strategy::OnDelete
        } else {
            Strategy::RollingUpdate
        };
        if !self.controller_has_seen() {
            return Step::Stop;
        }
        let everywhere = agent.updated == agent.current && agent.current == agent.desired;
        if !everywhere && on(Guard::StrategyLast) {
            self.wait(Waiting::StrategyHeld { updated: agent.updated, desired: agent.desired });
            return Step::Stop;
        }
        let unit = self.agent.uid.to_string();
        let effect = Effect::RestoreStrategy {
            agent: self.agent_key.clone(),
            uid: self.agent.uid.clone(),
            rv: self.agent.rv,
            strategy,
        };
        self.want(StepName::RestoreStrategy, unit, effect);
        Step::Stop
    }
}
