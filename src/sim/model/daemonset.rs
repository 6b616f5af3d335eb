//! The DaemonSet controller: ControllerRevisions, one pod per eligible node, both update strategies, status.
//!
//! It works on the nodes that something happened to, never on all of them, except when the template changes. What it
//! knows of a DaemonSet is what its watch brought, which may lag behind what is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Event, Model,
    body::{Body, Cond, DaemonSetBody, DaemonSetStatus, PodBody, PodPhase, RevisionBody},
    fault::FaultKind,
    placement::Parts,
    store::{Change, DeleteOptions, Kind, Meta, ObjRef, Owner, Preconditions, Stored, What},
};
use crate::{
    api::{
        names::{Digest, REVISION_HASH, Uid},
        status::Truth,
    },
    world::Strategy,
};

/// What the controller remembers of one DaemonSet, as a real one does in its caches.
#[derive(Debug, Clone, Default)]
pub(super) struct Tracked {
    /// The DaemonSet as its watch brought it.
    seen: Option<Arc<Stored>>,
    /// Its pods by the node they are meant for.
    pods: BTreeMap<Arc<str>, BTreeSet<ObjRef>>,
    dirty: BTreeSet<Arc<str>>,
    everything: bool,
    queued: bool,
    hash: Arc<str>,
    digest: Option<Digest>,
    parts: Arc<Parts>,
    nodes: BTreeMap<Arc<str>, Standing>,
    totals: DaemonSetStatus,
    /// Nodes with an available pod of another revision.
    stale: BTreeSet<Arc<str>>,
    /// Nodes with an unavailable pod of another revision.
    broken: BTreeSet<Arc<str>>,
    /// Nodes without an available pod.
    unavailable: i32,
}

/// How one node stands towards one DaemonSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Standing {
    wanted: bool,
    scheduled: bool,
    updated: bool,
    ready: bool,
    available: bool,
    deleting: bool,
}

impl Tracked {
    fn place(&mut self, node: &Arc<str>, new: Standing) {
        let old = self.nodes.get(node).copied().unwrap_or_default();
        self.count(old, -1);
        self.count(new, 1);
        self.stale.remove(node);
        self.broken.remove(node);
        if new.scheduled && !new.updated && new.wanted && !new.deleting {
            let side = if new.available { &mut self.stale } else { &mut self.broken };
            side.insert(Arc::clone(node));
        }
        if new == Standing::default() {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(Arc::clone(node), new);
        }
    }

    fn count(&mut self, standing: Standing, by: i32) {
        let Standing { wanted, scheduled, updated, ready, available, deleting } = standing;
        let totals = &mut self.totals;
        let on = |holds: bool| if holds { by } else { 0 };
        totals.desired += on(wanted);
        totals.current += on(wanted && scheduled);
        totals.updated += on(wanted && scheduled && updated);
        totals.ready += on(wanted && scheduled && ready);
        totals.available += on(wanted && scheduled && available);
        totals.misscheduled += on(!wanted && scheduled);
        self.unavailable += on(wanted && (!available || deleting));
    }
}

impl Model {
    /// Notes what a change means for the controller.
    pub(super) fn daemonset_sees(&mut self, change: &Change) {
        let object = &change.object;
        match object.at.kind {
            Kind::DaemonSet => match change.what {
                What::Added => {
                    let seen = Some(Arc::clone(object));
                    let set = Tracked { seen, everything: true, ..Tracked::default() };
                    self.sets.insert(object.at.clone(), set);
                    self.queue_sync(&object.at);
                }
                What::Modified => {
                    if change.before.as_ref().is_none_or(|before| before.generation != object.generation) {
                        let lag = self.timings.view;
                        if lag.high == 0 {
                            self.view(&object.at);
                        } else {
                            self.later(lag, Event::View(object.at.clone()));
                        }
                    }
                }
                What::Deleted => {
                    self.sets.remove(&object.at);
                }
            },
            Kind::Pod => self.daemonset_sees_pod(change),
            Kind::Node => {
                let same = change.before.as_ref().is_some_and(|before| {
                    before.meta.labels == object.meta.labels && before.body.same_spec(&object.body)
                });
                if !same || change.what == What::Deleted {
                    let sets: Vec<ObjRef> = self.sets.keys().cloned().collect();
                    for at in sets {
                        self.touch(&at, &object.at.name);
                    }
                }
            }
            Kind::Namespace
            | Kind::ConfigMap
            | Kind::Service
            | Kind::Event
            | Kind::ControllerRevision
            | Kind::Lease
            | Kind::CustomResourceDefinition
            | Kind::CniUpgrade
            | Kind::ServiceUpgrade => {}
        }
    }

    fn daemonset_sees_pod(&mut self, change: &Change) {
        let object = &change.object;
        let (Body::Pod(pod), Some(owner)) = (&object.body, object.controller()) else { return };
        let at = ObjRef::new(Kind::DaemonSet, Arc::clone(&object.at.namespace), Arc::clone(&owner.name));
        if self.store.get(&at).is_none_or(|set| set.uid != owner.uid) {
            return;
        }
        let Some(node) = pod.node.clone().or_else(|| pod.wanted_node.clone()) else { return };
        if let Some(set) = self.sets.get_mut(&at) {
            if change.what == What::Deleted {
                if let Some(pods) = set.pods.get_mut(&node) {
                    pods.remove(&object.at);
                    if pods.is_empty() {
                        set.pods.remove(&node);
                    }
                }
            } else {
                set.pods.entry(Arc::clone(&node)).or_default().insert(object.at.clone());
            }
        }
        self.touch(&at, &node);
    }

    fn touch(&mut self, at: &ObjRef, node: &Arc<str>) {
        if let Some(set) = self.sets.get_mut(at) {
            set.dirty.insert(Arc::clone(node));
        }
        self.queue_sync(at);
    }

    /// A node's pod may count as available by now.
    pub(super) fn recheck_availability(&mut self, at: &ObjRef, node: &Arc<str>) {
        self.touch(at, node);
    }

    fn queue_sync(&mut self, at: &ObjRef) {
        let Some(set) = self.sets.get_mut(at) else { return };
        if set.queued {
            return;
        }
        set.queued = true;
        let lag = self.timings.controller;
        self.later(lag, Event::Sync(at.clone()));
    }

    /// The watch of the controller brings the stored DaemonSet.
    pub(super) fn view(&mut self, at: &ObjRef) {
        let stored = self.store.get(at).cloned();
        if let Some(set) = self.sets.get_mut(at) {
            set.seen = stored;
            set.everything = true;
        }
        self.queue_sync(at);
    }

    /// One pass of the controller over one DaemonSet.
    pub(super) fn sync(&mut self, at: &ObjRef) {
        if let Some(until) = self.stalled_until() {
            self.schedule(until, Event::Sync(at.clone()));
            return;
        }
        let Some(set) = self.sets.get_mut(at) else { return };
        set.queued = false;
        let Some(stored) = set.seen.clone() else { return };
        let Body::DaemonSet(body) = &stored.body else { return };
        if self.store.get(at).is_none_or(|live| live.uid != stored.uid || live.deleting.is_some()) {
            return;
        }
        let Some(hash) = self.revision(&stored, body) else {
            self.queue_sync(at);
            return;
        };
        for node in self.due_nodes(at, body, &hash) {
            self.manage(&stored, body, &node);
            let standing = self.standing(&stored, body, &node);
            if let Some(set) = self.sets.get_mut(at) {
                set.place(&node, standing);
            }
        }
        if body.strategy == Strategy::RollingUpdate {
            self.roll(at, body);
        }
        self.trim_history(&stored, body);
        self.write_totals(&stored);
    }

    fn due_nodes(&mut self, at: &ObjRef, body: &DaemonSetBody, hash: &Arc<str>) -> BTreeSet<Arc<str>> {
        let Some(set) = self.sets.get_mut(at) else { return BTreeSet::new() };
        let mut due = std::mem::take(&mut set.dirty);
        if set.hash != *hash || set.digest.as_ref() != Some(&body.template.digest) {
            set.hash = Arc::clone(hash);
            set.digest = Some(body.template.digest.clone());
            set.parts = Arc::new(Parts::of(&body.template.raw, hash));
            set.everything = true;
        }
        if std::mem::take(&mut set.everything) {
            due.extend(set.pods.keys().cloned());
            due.extend(set.nodes.keys().cloned());
            due.extend(self.store.list(Kind::Node, None).map(|node| Arc::clone(&node.at.name)));
        }
        due
    }

    /// Creates the missing pod of a node and deletes the ones that do not belong there.
    fn manage(&mut self, stored: &Stored, body: &DaemonSetBody, node: &Arc<str>) {
        let Some(set) = self.sets.get(&stored.at) else { return };
        let parts = Arc::clone(&set.parts);
        let pods: Vec<ObjRef> = set.pods.get(node).into_iter().flatten().cloned().collect();
        let Some(wanted) = self.wants(&parts, node) else { return };
        if !wanted {
            for pod in &pods {
                self.delete_quietly(pod);
            }
        } else if pods.is_empty() {
            self.create_pod(stored, body, &parts, node);
        } else {
            let mut live: Vec<(Timestamp, &ObjRef)> = Vec::new();
            for at in &pods {
                let Some(pod) = self.store.get(at) else { continue };
                if pod.deleting.is_none() {
                    live.push((pod.created, at));
                }
            }
            live.sort();
            for (_, at) in live.into_iter().skip(1) {
                self.delete_quietly(at);
            }
        }
    }

    /// Whether the node shall run a pod; `None` when there is no such node: the pod collector takes its pods.
    fn wants(&self, parts: &Parts, node: &Arc<str>) -> Option<bool> {
        let stored = self.store.get(&ObjRef::cluster(Kind::Node, Arc::clone(node)))?;
        let Body::Node(body) = &stored.body else { return None };
        Some(parts.runs_on(&stored.meta.labels, body))
    }

    fn create_pod(&mut self, stored: &Stored, body: &DaemonSetBody, parts: &Parts, node: &Arc<str>) {
        let now = self.now;
        let waits = |reason: &str| Cond {
            status: Truth::False,
            reason: reason.into(),
            message: "".into(),
            since: now,
        };
        let pod = PodBody {
            node: None,
            wanted_node: Some(Arc::clone(node)),
            template: body.template.clone(),
            phase: PodPhase::Pending,
            initialized: waits("ContainersNotInitialized"),
            ready: waits("ContainersNotReady"),
            containers: parts.containers.clone(),
        };
        let labels = Arc::clone(&parts.labels);
        let meta = Meta { labels, owners: vec![owner_of(stored)], ..Meta::default() };
        for _ in 0..8 {
            let name = format!("{}-{}", stored.at.name, self.suffix());
            let at = ObjRef::new(Kind::Pod, Arc::clone(&stored.at.namespace), name);
            if self.create(at, meta.clone(), Body::Pod(Box::new(pod.clone()))).is_ok() {
                return;
            }
        }
    }

    fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).filter_map(|_| self.dice.pick(ALPHABET)).map(|byte| char::from(*byte)).collect()
    }

    fn standing(&mut self, stored: &Stored, body: &DaemonSetBody, node: &Arc<str>) -> Standing {
        let Some(set) = self.sets.get(&stored.at) else { return Standing::default() };
        let wanted = self.wants(&set.parts, node).unwrap_or(false);
        let pods = set.pods.get(node).into_iter().flatten();
        let oldest = pods.filter_map(|at| self.store.get(at)).min_by_key(|pod| pod.created);
        let Some((pod, Body::Pod(facts))) = oldest.map(|pod| (pod, &pod.body)) else {
            return Standing { wanted, ..Standing::default() };
        };
        let ready = facts.ready.status == Truth::True;
        let settle = SignedDuration::from_secs(i64::from(body.min_ready_seconds));
        let available_at = facts.ready.since.saturating_add(settle).unwrap_or(self.now);
        let standing = Standing {
            wanted,
            scheduled: true,
            updated: pod.meta.labels.get(REVISION_HASH).is_some_and(|hash| **hash == *set.hash),
            ready,
            available: ready && available_at <= self.now,
            deleting: pod.deleting.is_some(),
        };
        if ready && available_at > self.now {
            self.schedule(available_at, Event::Available(stored.at.clone(), Arc::clone(node)));
        }
        standing
    }

    /// `RollingUpdate`: all unavailable pods of other revisions at once, available ones within `maxUnavailable`.
    fn roll(&mut self, at: &ObjRef, body: &DaemonSetBody) {
        let Some(set) = self.sets.get(at) else { return };
        let budget = max_unavailable(body.rolling_update.as_deref(), set.totals.desired);
        let down = usize::try_from(set.unavailable).unwrap_or(0).saturating_sub(set.broken.len());
        let free = usize::try_from(budget).unwrap_or(0).saturating_sub(down);
        let chosen: Vec<ObjRef> = set
            .broken
            .iter()
            .chain(set.stale.iter().take(free))
            .filter_map(|node| set.pods.get(node))
            .flatten()
            .filter(|pod| self.store.get(pod).is_some_and(|pod| pod.deleting.is_none()))
            .cloned()
            .collect();
        for pod in chosen {
            self.delete_quietly(&pod);
        }
    }

    /// A pod that is gone already needs no deletion.
    fn delete_quietly(&mut self, at: &ObjRef) {
        if self.store.get(at).is_some_and(|pod| pod.deleting.is_none()) {
            let _ = self.delete(at, &DeleteOptions::default());
        }
    }

    fn write_totals(&mut self, stored: &Stored) {
        let Some(set) = self.sets.get(&stored.at) else { return };
        let status = DaemonSetStatus { observed_generation: stored.generation, ..set.totals };
        let _ = self.store.alter(&stored.at, |stored| {
            if let Body::DaemonSet(body) = &mut stored.body {
                body.status = status;
            }
        });
        self.react();
    }

    /// Hash of the revision that holds the live template, made or renumbered where needed; `None` = try again.
    fn revision(&mut self, stored: &Stored, body: &DaemonSetBody) -> Option<Arc<str>> {
        let mut newest = 0;
        let mut found: Option<(ObjRef, i64, Arc<str>)> = None;
        for held in self.store.dependents(&stored.uid) {
            let Body::Revision(revision) = &held.body else { continue };
            newest = newest.max(revision.revision);
            if revision.digest == body.template.digest {
                let hash = held.meta.labels.get(REVISION_HASH).map(String::as_str).unwrap_or_default();
                found = Some((held.at.clone(), revision.revision, hash.into()));
            }
        }
        if let Some((at, number, hash)) = found {
            if number < newest {
                let _ = self.store.alter(&at, |held| {
                    if let Body::Revision(revision) = &mut held.body {
                        revision.revision = newest + 1;
                    }
                });
                self.react();
            }
            return Some(hash);
        }
        let hash: Arc<str> = hash_of(&body.template.digest).into();
        let labels = Parts::of(&body.template.raw, &hash).labels;
        let meta = Meta { labels, owners: vec![owner_of(stored)], ..Meta::default() };
        let content = RevisionBody {
            template: Arc::clone(&body.template.raw),
            digest: body.template.digest.clone(),
            revision: newest + 1,
        };
        let name = format!("{}-{hash}", stored.at.name);
        let at = ObjRef::new(Kind::ControllerRevision, Arc::clone(&stored.at.namespace), name);
        self.create(at, meta, Body::Revision(content)).ok().map(|_| hash)
    }

    /// Deletes the oldest revisions beyond the limit; the ones of living pods and of the template stay.
    fn trim_history(&mut self, stored: &Stored, body: &DaemonSetBody) {
        let mut old: Vec<(i64, ObjRef, Arc<str>)> = Vec::new();
        for held in self.store.dependents(&stored.uid) {
            if let Body::Revision(revision) = &held.body
                && revision.digest != body.template.digest
            {
                let hash = held.meta.labels.get(REVISION_HASH).map(String::as_str).unwrap_or_default();
                old.push((revision.revision, held.at.clone(), hash.into()));
            }
        }
        let mut surplus = old.len().saturating_sub(body.revision_history_limit);
        if surplus == 0 {
            return;
        }
        let live = self.live_hashes(&stored.uid);
        old.sort();
        for (_, at, hash) in old {
            if surplus > 0 && !live.contains(&hash) {
                surplus -= 1;
                let _ = self.delete(&at, &DeleteOptions::default());
            }
        }
    }

    fn live_hashes(&self, owner: &Uid) -> BTreeSet<Arc<str>> {
        let pods = self.store.dependents(owner).filter(|held| held.at.kind == Kind::Pod);
        pods.filter_map(|pod| pod.meta.labels.get(REVISION_HASH))
            .map(|hash| Arc::from(hash.as_str()))
            .collect()
    }

    fn stalled_until(&self) -> Option<Timestamp> {
        let stalls =
            self.faults.iter().filter(|f| f.kind == FaultKind::ControllerStalled && f.active(self.now));
        stalls.filter_map(|fault| fault.until).max()
    }

    /// Takes away the pods of a node that does not exist any more, without its kubelet.
    pub(super) fn collect_pods(&mut self, node: &Arc<str>) {
        if self.store.get(&ObjRef::cluster(Kind::Node, Arc::clone(node))).is_some() {
            return;
        }
        let pods: Vec<ObjRef> = self.pods_on.get(node).into_iter().flatten().cloned().collect();
        for at in pods {
            let _ = self.delete(&at, &DeleteOptions { grace: Some(0), ..DeleteOptions::default() });
        }
    }

    /// Deletes what an object that is not there owned; where another owner is left, only the reference goes.
    pub(super) fn collect_dependents(&mut self, owner: &Uid) {
        let dependents: Vec<Arc<Stored>> = self.store.dependents(owner).cloned().collect();
        for Stored { at, uid, meta, .. } in dependents.iter().map(|held| &**held) {
            let (left, lost): (Vec<_>, Vec<_>) =
                meta.owners.iter().cloned().partition(|owner| self.store.has_owner(&at.namespace, owner));
            if lost.is_empty() {
                continue;
            }
            if left.is_empty() {
                let preconditions = Preconditions { uid: Some(uid.clone()), rv: None };
                let _ = self.delete(at, &DeleteOptions { preconditions, ..DeleteOptions::default() });
            } else {
                let _ = self.store.alter(at, |stored| stored.meta.owners = left);
            }
        }
        self.react();
    }
}

fn owner_of(stored: &Stored) -> Owner {
    Owner {
        api_version: "apps/v1".into(),
        kind: "DaemonSet".into(),
        name: Arc::clone(&stored.at.name),
        uid: stored.uid.clone(),
        controller: true,
    }
}

fn hash_of(digest: &Digest) -> String {
    digest.as_str().trim_start_matches("sha256:").chars().take(10).collect()
}

/// `maxUnavailable`: a number or a percentage rounded up; 1 when absent.
fn max_unavailable(rolling_update: Option<&Value>, desired: i32) -> i32 {
    let value = rolling_update.and_then(|rolling| rolling.get("maxUnavailable"));
    let percent = value.and_then(Value::as_str).and_then(|text| text.strip_suffix('%')?.parse::<i32>().ok());
    let number = value.and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok());
    percent.map(|percent| (desired * percent + 99) / 100).or(number).unwrap_or(1)
}
