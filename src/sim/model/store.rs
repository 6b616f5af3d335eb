//! The objects of the embedded cluster with the write semantics of a Kubernetes API server.
//!
//! Guarantees: one resourceVersion counts all writes; each write is one change in the log; a UID is never used twice;
//! a write that changes nothing is no change; generation moves with the spec only.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::Value;

pub use super::object::{
    Change, DeleteOptions, Deleting, Deletion, Denied, Kind, Manager, Meta, ObjRef, Owner, Preconditions,
    Propagation, Stored, What,
};
use super::{body::Body, seed::Seed};
use crate::api::names::Uid;

/// Changes kept for watches; older ones are compacted.
const LOG: usize = 50_000;
/// Seconds of grace of a pod that is deleted without an explicit grace and whose template names none.
const POD_GRACE: i64 = 30;

/// All objects, the counter of versions, and the log.
#[derive(Debug, Clone)]
pub struct Store {
    objects: BTreeMap<ObjRef, Arc<Stored>>,
    dependents: BTreeMap<Uid, BTreeSet<ObjRef>>,
    rv: u64,
    uids: u64,
    dice: Seed,
    log: VecDeque<Change>,
    compacted: u64,
}

impl Store {
    /// An empty store; UIDs depend on the seed.
    pub const fn new(dice: Seed) -> Self {
        Self {
            objects: BTreeMap::new(),
            dependents: BTreeMap::new(),
            rv: 0,
            uids: 0,
            dice,
            log: VecDeque::new(),
            compacted: 0,
        }
    }

    /// The newest resourceVersion.
    pub const fn rv(&self) -> u64 {
        self.rv
    }

    /// One object.
    pub fn get(&self, at: &ObjRef) -> Option<&Arc<Stored>> {
        self.objects.get(at)
    }

    /// All objects of a kind in order of namespace and name; in one namespace if one is given.
    pub fn list<'s>(
        &'s self,
        kind: Kind,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = &'s Arc<Stored>> + use<'s> {
        let first = ObjRef::new(kind, namespace.unwrap_or(""), "");
        self.objects.range((Bound::Included(first), Bound::Unbounded)).map(|(_, stored)| stored).take_while(
            move |stored| {
                stored.at.kind == kind && namespace.is_none_or(|wanted| *stored.at.namespace == *wanted)
            },
        )
    }

    /// Objects with an owner reference to this UID.
    pub fn dependents<'s>(&'s self, owner: &Uid) -> impl Iterator<Item = &'s Arc<Stored>> + use<'s> {
        self.dependents.get(owner).into_iter().flatten().filter_map(|at| self.objects.get(at))
    }

    /// Changes after a version, oldest first.
    pub fn changes_since(&self, rv: u64) -> Result<impl Iterator<Item = &Change>, Denied> {
        if rv < self.compacted {
            return Err(Denied::Expired { asked: rv, oldest: self.compacted });
        }
        let from = self.log.partition_point(|change| change.object.rv <= rv);
        Ok(self.log.range(from..))
    }

    /// Forgets the log up to now, as etcd's compaction does: older watches answer 410.
    pub fn compact(&mut self) {
        self.log.clear();
        self.compacted = self.rv;
    }

    /// Creates an object.
    pub fn create(
        &mut self,
        at: ObjRef,
        meta: Meta,
        body: Body,
        now: Timestamp,
    ) -> Result<Arc<Stored>, Denied> {
        if let Some(old) = self.objects.get(&at) {
            return Err(Denied::AlreadyExists { at, going: old.deleting.is_some() });
        }
        let generation = i64::from(at.kind.has_generation());
        let uid = self.uid();
        // Kubernetes keeps times of metadata in whole seconds.
        let created = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let stored = Stored { at, uid, rv: 0, generation, created, deleting: None, meta, body };
        Ok(self.put(stored, None))
    }

    /// Replaces metadata and spec; status stays, and so do UID, creation and deletion.
    pub fn replace(
        &mut self,
        at: &ObjRef,
        meta: Meta,
        body: Body,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        let old = self.held(at, preconditions)?;
        let added: Vec<String> = meta
            .finalizers
            .iter()
            .filter(|name| !old.meta.finalizers.contains(name))
            .map(|name| format!("{name:?}"))
            .collect();
        if old.deleting.is_some() && !added.is_empty() {
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{}}}",
                added.join(", ")
            );
            return Err(Denied::Invalid { at: at.clone(), message });
        }
        if std::mem::discriminant(&old.body) != std::mem::discriminant(&body) {
            return Err(Denied::Invalid { at: at.clone(), message: "another kind of body".to_owned() });
        }
        let body = body.with_status_of(&old.body);
        self.alter(at, |stored| {
            stored.meta = meta;
            stored.body = body;
        })
    }

    /// Replaces the status; metadata and spec stay, and so do the managers where none are given.
    pub fn replace_status(
        &mut self,
        at: &ObjRef,
        body: &Body,
        managers: Option<Vec<Manager>>,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        let old = self.held(at, preconditions)?;
        let body = old.body.clone().with_status_of(body);
        self.alter(at, |stored| {
            stored.body = body;
            if let Some(managers) = managers {
                stored.meta.managers = managers;
            }
        })
    }

    /// Changes an object in place; nothing is written when nothing differs. An object that is being deleted and has
    /// no finalizer left afterwards is gone.
    pub fn alter(&mut self, at: &ObjRef, change: impl FnOnce(&mut Stored)) -> Result<Arc<Stored>, Denied> {
        let old = self.held(at, &Preconditions::NONE)?;
        let mut new = Stored::clone(&old);
        change(&mut new);
        if new == *old {
            return Ok(old);
        }
        if at.kind.has_generation() && !new.body.same_spec(&old.body) {
            new.generation += 1;
        }
        let waits_for_kubelet = new.deleting.is_some_and(|deleting| deleting.grace > 0);
        let released = new.deleting.is_some() && new.meta.finalizers.is_empty() && !waits_for_kubelet;
        Ok(if released { self.take(new, old) } else { self.put(new, Some(old)) })
    }

    /// Deletes an object, or marks it when finalizers or a kubelet have to be waited for.
    pub fn delete(
        &mut self,
        at: &ObjRef,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Deletion, Denied> {
        let old = self.held(at, &options.preconditions)?;
        if options.propagation == Propagation::Orphan {
            self.orphan(&old.uid);
        }
        let grace = options.grace.unwrap_or_else(|| default_grace(&old)).max(0);
        let grace = old.deleting.map_or(grace, |before| before.grace.min(grace));
        if grace == 0 && old.meta.finalizers.is_empty() {
            return Ok(Deletion::Removed(self.take(Stored::clone(&old), old)));
        }
        if old.deleting.is_some_and(|before| before.grace == grace) {
            return Ok(Deletion::Marked(old));
        }
        let mut new = Stored::clone(&old);
        let at = now.saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
        new.deleting = Some(Deleting { at, grace });
        if new.generation > 0 {
            new.generation += 1;
        }
        Ok(Deletion::Marked(self.put(new, Some(old))))
    }

    fn orphan(&mut self, owner: &Uid) {
        let dependents: Vec<ObjRef> = self.dependents.get(owner).into_iter().flatten().cloned().collect();
        for at in dependents {
            // A dependent that is gone needs no orphaning.
            let _ = self.alter(&at, |stored| stored.meta.owners.retain(|reference| reference.uid != *owner));
        }
    }

    /// Whether the owner of something in a namespace is there; one of a kind that is not stored here counts as there.
    pub fn has_owner(&self, namespace: &Arc<str>, owner: &Owner) -> bool {
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == &*owner.kind) else { return true };
        let namespace = if kind.namespaced() { Arc::clone(namespace) } else { "".into() };
        let at = ObjRef::new(kind, namespace, Arc::clone(&owner.name));
        self.objects.get(&at).is_some_and(|stored| stored.uid == owner.uid)
    }

    /// One object, if it meets the preconditions.
    pub fn held(&self, at: &ObjRef, preconditions: &Preconditions) -> Result<Arc<Stored>, Denied> {
        let stored = self.objects.get(at).ok_or_else(|| Denied::NotFound(at.clone()))?;
        if let Some(uid) = preconditions.uid.as_ref().filter(|uid| **uid != stored.uid) {
            let message = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                stored.uid
            );
            return Err(Denied::Conflict { at: at.clone(), message });
        }
        if preconditions.rv.is_some_and(|rv| rv != stored.rv) {
            let message =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Denied::Conflict { at: at.clone(), message: message.to_owned() });
        }
        Ok(Arc::clone(stored))
    }

    fn put(&mut self, mut stored: Stored, before: Option<Arc<Stored>>) -> Arc<Stored> {
        self.rv += 1;
        stored.rv = self.rv;
        let object = Arc::new(stored);
        if before.as_ref().is_none_or(|old| old.meta.owners != object.meta.owners) {
            self.index(before.as_deref(), Some(&object));
        }
        self.objects.insert(object.at.clone(), Arc::clone(&object));
        let what = if before.is_some() { What::Modified } else { What::Added };
        self.record(Change { what, object: Arc::clone(&object), before });
        object
    }

    fn take(&mut self, mut last: Stored, before: Arc<Stored>) -> Arc<Stored> {
        self.rv += 1;
        last.rv = self.rv;
        self.index(Some(&before), None);
        self.objects.remove(&last.at);
        let object = Arc::new(last);
        self.record(Change { what: What::Deleted, object: Arc::clone(&object), before: Some(before) });
        object
    }

    fn index(&mut self, old: Option<&Stored>, new: Option<&Stored>) {
        for (stored, owner) in old.into_iter().flat_map(|s| s.meta.owners.iter().map(move |o| (s, o))) {
            if let Some(refs) = self.dependents.get_mut(&owner.uid) {
                refs.remove(&stored.at);
                if refs.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        for (stored, owner) in new.into_iter().flat_map(|s| s.meta.owners.iter().map(move |o| (s, o))) {
            self.dependents.entry(owner.uid.clone()).or_default().insert(stored.at.clone());
        }
    }

    fn record(&mut self, change: Change) {
        if self.log.len() >= LOG
            && let Some(oldest) = self.log.pop_front()
        {
            self.compacted = oldest.object.rv;
        }
        self.log.push_back(change);
    }

    /// Version 4 in form; the last group counts, so that none comes twice.
    fn uid(&mut self) -> Uid {
        self.uids += 1;
        let hex = format!("{:016x}", self.dice.draw());
        let (head, tail) = hex.split_at(8);
        let (b, c) = tail.split_at(4);
        let c = c.get(1..).unwrap_or_default();
        Uid::from(format!("{head}-{b}-4{c}-8000-{:012x}", self.uids))
    }
}

fn default_grace(stored: &Stored) -> i64 {
    match &stored.body {
        Body::Pod(pod) if pod.node.is_some() => {
            let declared = pod.template.raw.pointer("/spec/terminationGracePeriodSeconds");
            declared.and_then(Value::as_i64).unwrap_or(POD_GRACE)
        }
        Body::Pod(_) | Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => 0,
    }
}
