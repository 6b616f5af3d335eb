//! Watches every write to the cluster as an auditor would: what was stored before it, and what it did.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::laws::{Checked, Law, StatusChange, broken, settled};
use crate::{
    api::{
        CniUpgradeSpec, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{Digest, NodeName, REVISION_HASH, Uid},
        status::{IntentKind, Truth},
    },
    rollout::{effect::Effect, record_name},
    sim::model::{
        Model,
        actors::agent_ref,
        body::{Body, DaemonSetBody},
        store::{Kind, ObjRef, Stored},
    },
    world::{AgentKey, PodKey, Shape, Target, World, digest},
};

/// A node whose agent pod we deleted, until another one is Ready there.
#[derive(Debug, Clone)]
struct Flight {
    node: NodeName,
    before: Uid,
}

/// What an auditor remembers.
#[derive(Debug, Clone, Default)]
pub(super) struct Witness {
    /// Status as the API server has it.
    pub(super) status: Option<CniUpgradeStatus>,
    /// The custom resource that has it.
    uid: Option<Uid>,
    /// Spec in force at the last status.
    spec: Option<CniUpgradeSpec>,
    flights: BTreeMap<Uid, Flight>,
    deleted: BTreeSet<Uid>,
    /// Templates that ran before the first change of an attempt, since one template ran everywhere.
    good: BTreeSet<Digest>,
    /// An attempt begins from what an ended one left: the template that it changes ran before it.
    begins: bool,
    last_action: Option<Timestamp>,
    began: Option<Timestamp>,
    /// Clock jumps within the attempt: each may add up to two quanta of observed time.
    pub(super) jumps: i64,
}

/// Where and when a write happens.
pub(super) struct Scene<'a> {
    pub(super) model: &'a Model,
    pub(super) world: &'a World,
    pub(super) agent: &'a AgentKey,
    pub(super) target: &'a Target,
}

impl Scene<'_> {
    fn at(&self) -> Timestamp {
        self.model.now()
    }

    fn daemonset(&self) -> Option<(&Stored, &DaemonSetBody)> {
        let stored = self.model.get(&agent_ref(self.agent))?;
        match &stored.body {
            Body::DaemonSet(body) => Some((stored, body)),
            Body::Node(_) | Body::Pod(_) | Body::Revision(_) | Body::Plain(_) => None,
        }
    }

    fn pod(&self, key: &PodKey) -> Option<(&Stored, &NodeName, Uid)> {
        let at = ObjRef::new(Kind::Pod, key.namespace.clone(), key.name.clone());
        let stored = self.model.get(&at)?;
        let node = self.world.pods.get(key)?.is.node.as_ref()?;
        let held = self.model.get(&ObjRef::cluster(Kind::Node, node.as_str()))?;
        Some((stored, node, held.uid.clone()))
    }
}

impl Witness {
    /// The status before, of the custom resource with this UID.
    pub(super) fn status_of(&self, uid: &Uid) -> Option<CniUpgradeStatus> {
        self.status.clone().filter(|_| self.uid.as_ref() == Some(uid))
    }

    /// Judges a status that the API server has taken.
    pub(super) fn status_written(&mut self, change: &StatusChange<'_>) -> Checked {
        change.check()?;
        let StatusChange { model, world, agent_key: agent, target, old, new, .. } = *change;
        // A pod that is Ready now may not be at the next deletion, and then not by our doing.
        self.land(&Scene { model, world, agent, target });
        let number = |status: Option<&CniUpgradeStatus>| {
            status.and_then(|status| status.attempt.as_ref()).map(|attempt| attempt.number)
        };
        if number(old) != number(Some(new)) {
            self.began = Some(change.at);
            self.last_action = None;
            self.jumps = 0;
            let over = |status: &CniUpgradeStatus| {
                status.attempt.as_ref().is_none_or(|attempt| attempt.outcome.is_some_and(settled))
            };
            // While `OnDelete` stays, pods of older revisions are left, and what ran before them is last good as well.
            let agent = change.world.agents.get(change.agent_key);
            self.begins |= old.is_none_or(over);
            if old.is_none_or(over) && agent.is_some_and(|agent| agent.is.original_strategy.is_none()) {
                self.good.clear();
            }
        }
        self.promotion(change)?;
        let failures = &new.nodes.failures;
        self.flights.retain(|node, _| !failures.iter().any(|failure| failure.node_uid == *node));
        self.status = Some(new.clone());
        self.uid = Some(change.claim.uid.clone());
        self.spec = Some(change.spec.clone());
        Ok(())
    }

    /// I4, by the wall clock of the cluster.
    fn promotion(&self, change: &StatusChange<'_>) -> Checked {
        let was_canary = change.old.is_some_and(|old| old.phase == CniPhase::Canary);
        if !was_canary || change.new.phase != CniPhase::RollingOut {
            return Ok(());
        }
        let goal = change.spec.canary.as_ref().map_or(0, |canary| i64::from(canary.observation_minutes) * 60);
        let since = self.last_action.or(self.began).unwrap_or(change.at);
        let held = change.at.duration_since(since).as_secs();
        // Whole seconds on both sides; each clock jump may add two quanta.
        let slack = 2 + self.jumps * 2 * (goal / 20).max(15);
        if held + slack < goal {
            return broken(
                Law::Promotion,
                change.at,
                format!("the canary held for {held} of {goal} seconds"),
            );
        }
        Ok(())
    }

    /// Judges a write before it is done.
    pub(super) fn before(&mut self, scene: &Scene<'_>, effect: &Effect) -> Checked {
        match effect {
            Effect::DeletePod { pod, uid } => self.pod_deleted(scene, pod, uid),
            Effect::PatchTemplate { images, .. } => {
                let back = self.status.as_ref().is_some_and(|status| status.phase == CniPhase::Rollback);
                self.recorded(scene, if back { IntentKind::PutBack } else { IntentKind::Upgrade })?;
                self.template_intended(scene)?;
                if let (Some((_, body)), false, true) = (scene.daemonset(), images.is_empty(), self.begins) {
                    self.good.insert(body.template.digest.clone());
                    self.begins = false;
                }
                Ok(())
            }
            Effect::RestoreTemplate { template, .. } => self.restored(scene, template),
            Effect::RestoreStrategy { .. } => strategy_last(scene),
            Effect::WriteLedger { .. }
            | Effect::CreateClaim { .. }
            | Effect::ReplaceClaim { .. }
            | Effect::DeleteClaim { .. }
            | Effect::ReleaseClaim { .. }
            | Effect::WriteStatus(_)
            | Effect::RecordAttempt { .. }
            | Effect::ForgetAttempt { .. }
            | Effect::DryRunTemplate { .. }
            | Effect::PushStatus { .. }
            | Effect::PushRollback { .. }
            | Effect::RecordEvent { .. } => Ok(()),
        }
    }

    fn pod_deleted(&mut self, scene: &Scene<'_>, pod: &PodKey, uid: &Uid) -> Checked {
        let Some((stored, node, node_uid)) = scene.pod(pod).filter(|(stored, ..)| stored.uid == *uid) else {
            return Ok(());
        };
        let (node, deleting) = (node.clone(), stored.deleting.is_some());
        let status = self.status.as_ref();
        let intent = status.and_then(|s| s.nodes.open.iter().find(|open| open.before == *uid)).cloned();
        let Some(intent) = intent else {
            return broken(
                Law::Intent,
                scene.at(),
                format!("the pod of {node} is deleted without a stored intent"),
            );
        };
        if !deleting && !self.deleted.insert(uid.clone()) {
            return broken(Law::Intent, scene.at(), format!("the pod of {node} is deleted twice"));
        }
        self.recorded(scene, intent.kind)?;
        controller_seen(scene, &node)?;
        self.land(scene);
        let failed = |uid: &Uid| status_failures(self.status.as_ref()).any(|failure| failure == uid);
        self.flights.insert(node_uid, Flight { node, before: uid.clone() });
        let sound = self.flights.keys().filter(|uid| !failed(uid)).count();
        let max = self.spec.as_ref().map_or(1, |spec| usize::try_from(spec.max_parallel).unwrap_or(1));
        // Intents that were opened under a wider setting go on; nothing is opened beyond the narrower one.
        let opened = self.status.as_ref().map_or(0, |status| status.nodes.open.len());
        let bound = match intent.kind {
            IntentKind::Upgrade => max.max(opened),
            IntentKind::PutBack => max.max(10).max(opened),
        };
        if sound > bound {
            let nodes: Vec<&NodeName> = self.flights.values().map(|flight| &flight.node).collect();
            return broken(Law::Budget, scene.at(), format!("{nodes:?} are down by us, {max} allowed"));
        }
        self.last_action = Some(scene.at());
        Ok(())
    }

    /// Flights end when another pod is Ready, or when the node is gone, silent or listed as failed.
    fn land(&mut self, scene: &Scene<'_>) {
        let failures: BTreeSet<Uid> = status_failures(self.status.as_ref()).cloned().collect();
        let owner = scene.daemonset().map(|(stored, _)| stored.uid.clone());
        let mut ready: BTreeMap<&str, &Uid> = BTreeMap::new();
        for stored in scene.model.list(Kind::Pod, None) {
            if let Body::Pod(pod) = &stored.body
                && let (Some(node), Truth::True, None) = (&pod.node, pod.ready.status, stored.deleting)
                && owner.as_ref().is_some_and(|owner| stored.controlled_by(owner))
            {
                ready.insert(node, &stored.uid);
            }
        }
        self.flights.retain(|uid, flight| {
            let node = scene.model.get(&ObjRef::cluster(Kind::Node, flight.node.as_str()));
            let reports = node.is_some_and(|node| {
                let ready = match &node.body {
                    Body::Node(body) => body.ready.status,
                    Body::Pod(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => Truth::Unknown,
                };
                node.uid == *uid && ready == Truth::True
            });
            let back = ready.get(flight.node.as_str()).is_some_and(|pod| **pod != flight.before);
            reports && !back && !failures.contains(uid)
        });
    }

    /// I7: the record stands beside the ledger and holds the last good. A way back is not locked by a record that
    /// cannot be brought up to date: the one of the attempt before holds the same last good.
    fn recorded(&self, scene: &Scene<'_>, way: IntentKind) -> Checked {
        let Some(status) = &self.status else {
            return broken(Law::Intent, scene.at(), "a write without a stored status");
        };
        let at = ObjRef::new(Kind::ConfigMap, "trunkline-system", record_name(scene.target));
        let Some(Shape::Record(Ok(record))) = scene.model.object(&at).map(|object| object.shape) else {
            return broken(Law::LastGood, scene.at(), "a write without an attempt record");
        };
        let attempt = status.attempt.as_ref().map(|attempt| &attempt.id);
        let digest = status.last_good.as_ref().and_then(|good| good.template_digest.as_ref());
        let same = way == IntentKind::PutBack || attempt == Some(&record.attempt.id);
        if same && digest == record.last_good.template_digest.as_ref() {
            return Ok(());
        }
        broken(Law::LastGood, scene.at(), "the attempt record is about another attempt")
    }

    fn template_intended(&self, scene: &Scene<'_>) -> Checked {
        let status = self.status.as_ref();
        let intended = status.is_some_and(|status| {
            status.phase == CniPhase::Rollback
                || status.attempt.as_ref().is_some_and(|attempt| attempt.template.is_some())
        });
        if intended {
            Ok(())
        } else {
            broken(Law::Intent, scene.at(), "a template patch without a stored intent")
        }
    }

    fn restored(&self, scene: &Scene<'_>, template: &Value) -> Checked {
        let saved = digest::of_template(template);
        let status = self.status.as_ref().and_then(|status| status.last_good.as_ref());
        let beneath = status.into_iter().flat_map(|good| &good.beneath).map(|layer| &layer.template_digest);
        let mut noted = status.and_then(|good| good.template_digest.as_ref()).into_iter().chain(beneath);
        if noted.all(|noted| *noted != saved) {
            return broken(Law::LastGood, scene.at(), "another template than the saved one is put back");
        }
        if !self.good.is_empty() && !self.good.contains(&saved) {
            return broken(
                Law::LastGood,
                scene.at(),
                "the saved template is not what ran before the first change",
            );
        }
        Ok(())
    }

    /// A deadline far beyond what the attempt under way may need.
    pub(super) fn bound(spec: &CniUpgradeSpec, nodes: usize) -> SignedDuration {
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        let observation = spec.canary.as_ref().map_or(0, |canary| i64::from(canary.observation_minutes) * 60);
        let per_node = 3 * (i64::from(spec.timeout_seconds) + 120);
        SignedDuration::from_secs(3_600 + 3 * observation + (nodes + 2) * per_node)
    }
}

fn status_failures(status: Option<&CniUpgradeStatus>) -> impl Iterator<Item = &Uid> {
    status.into_iter().flat_map(|status| status.nodes.failures.iter().map(|failure| &failure.node_uid))
}

/// A pod whose node is gone is collected; the strategy does nothing to it.
fn has_node(model: &Model, pod: &Stored) -> bool {
    let node = match &pod.body {
        Body::Pod(pod) => pod.node.as_ref(),
        Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => None,
    };
    node.is_none_or(|node| model.get(&ObjRef::cluster(Kind::Node, &**node)).is_some())
}

/// The strategy goes back only when no pod is off the live template.
fn strategy_last(scene: &Scene<'_>) -> Checked {
    let Some((stored, body)) = scene.daemonset() else { return Ok(()) };
    let live = scene.model.list(Kind::ControllerRevision, None).find(|revision| match &revision.body {
        Body::Revision(held) => held.digest == body.template.digest && revision.controlled_by(&stored.uid),
        Body::Node(_) | Body::Pod(_) | Body::DaemonSet(_) | Body::Plain(_) => false,
    });
    let hash = live.and_then(|revision| revision.meta.labels.get(REVISION_HASH));
    let astray = scene.model.list(Kind::Pod, None).find(|pod| {
        let mine = pod.controlled_by(&stored.uid) && pod.deleting.is_none();
        mine && pod.meta.labels.get(REVISION_HASH) != hash && has_node(scene.model, pod)
    });
    match astray {
        Some(pod) => broken(Law::StrategyLast, scene.at(), format!("{} is on another revision", pod.at)),
        None => Ok(()),
    }
}

/// The first deletion waits until the DaemonSet controller has seen the patch.
fn controller_seen(scene: &Scene<'_>, node: &NodeName) -> Checked {
    let Some(agent) = scene.world.agents.get(scene.agent) else { return Ok(()) };
    if agent.is.observed_generation >= agent.is.generation {
        return Ok(());
    }
    broken(
        Law::ControllerSeen,
        scene.at(),
        format!("the pod of {node} is deleted before the controller saw the patch"),
    )
}
