//! The objects of the embedded cluster with the write semantics of a Kubernetes API server.
//!
//! Guarantees: one resourceVersion counts all writes; each write is one change in the log; a UID is never used twice;
//! a write that changes nothing is no change; generation moves with the spec only.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;

use super::{body::Body, seed::Seed};
use crate::api::names::Uid;

/// Changes kept for watches; older ones are compacted.
const LOG: usize = 50_000;
/// Seconds of grace of a pod that is deleted without an explicit grace.
const POD_GRACE: i64 = 30;

/// Kinds that the embedded cluster stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Node.
    Node,
    /// `v1` Pod.
    Pod,
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Service.
    Service,
    /// `v1` Event.
    Event,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` ControllerRevision.
    ControllerRevision,
    /// `coordination.k8s.io/v1` Lease.
    Lease,
    /// `apiextensions.k8s.io/v1` CustomResourceDefinition.
    CustomResourceDefinition,
    /// `cni.example.com/v1` CNIUpgrade.
    CniUpgrade,
    /// `service.example.com/v1` ServiceUpgrade.
    ServiceUpgrade,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::ConfigMap,
        Self::Service,
        Self::Event,
        Self::DaemonSet,
        Self::ControllerRevision,
        Self::Lease,
        Self::CustomResourceDefinition,
        Self::CniUpgrade,
        Self::ServiceUpgrade,
    ];

    /// Whether its objects live in a namespace.
    pub const fn namespaced(self) -> bool {
        match self {
            Self::Namespace | Self::Node | Self::CustomResourceDefinition | Self::CniUpgrade => false,
            Self::Pod
            | Self::ConfigMap
            | Self::Service
            | Self::Event
            | Self::DaemonSet
            | Self::ControllerRevision
            | Self::Lease
            | Self::ServiceUpgrade => true,
        }
    }

    /// Whether `metadata.generation` counts the writes of its spec.
    pub const fn has_generation(self) -> bool {
        match self {
            Self::DaemonSet | Self::CustomResourceDefinition | Self::CniUpgrade | Self::ServiceUpgrade => {
                true
            }
            Self::Namespace
            | Self::Node
            | Self::Pod
            | Self::ConfigMap
            | Self::Service
            | Self::Event
            | Self::ControllerRevision
            | Self::Lease => false,
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjRef {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for a cluster-scoped kind.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjRef {
    /// Names an object of a namespaced kind.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
    /// Names a cluster-scoped object.
    pub fn cluster(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self::new(kind, "", name)
    }
}

impl fmt::Display for ObjRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{:?}/{}", self.kind, self.name)
        } else {
            write!(f, "{:?}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// An owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion` of the owner.
    pub api_version: Arc<str>,
    /// `kind` of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Uid,
    /// `controller: true`.
    pub controller: bool,
}

/// Fields that one manager wrote last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// When it last wrote.
    pub at: Timestamp,
    /// Paths of the fields, key by key.
    pub paths: BTreeSet<Vec<String>>,
}

/// A deletion that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleting {
    /// `metadata.deletionTimestamp`.
    pub at: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`.
    pub grace: i64,
}

/// Metadata that writers set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Annotations.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Owner references.
    pub owners: Vec<Owner>,
    /// Who wrote which field last; the HTTP front keeps it for custom resources.
    pub managers: Vec<Manager>,
}

/// One object as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Which object.
    pub at: ObjRef,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub rv: u64,
    /// `metadata.generation`; 0 for kinds without one.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Set while it waits for finalizers or, as a pod, for its kubelet.
    pub deleting: Option<Deleting>,
    /// Metadata that writers set.
    pub meta: Meta,
    /// Spec and status.
    pub body: Body,
}

impl Stored {
    /// Whether a controller owner reference names this UID.
    pub fn controlled_by(&self, uid: &Uid) -> bool {
        self.controller().is_some_and(|owner| owner.uid == *uid)
    }
    /// The controller owner reference.
    pub fn controller(&self) -> Option<&Owner> {
        self.meta.owners.iter().find(|owner| owner.controller)
    }
}

/// What must hold for a write to be taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID that the object must have.
    pub uid: Option<Uid>,
    /// Version that the object must have.
    pub rv: Option<u64>,
}

impl Preconditions {
    /// Nothing is asked.
    pub const NONE: Self = Self { uid: None, rv: None };

    /// Both UID and version are asked.
    pub const fn exact(uid: Uid, rv: u64) -> Self {
        Self { uid: Some(uid), rv: Some(rv) }
    }
}

/// What becomes of objects that the deleted one owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    #[default]
    Background,
    /// They stay and lose the owner reference.
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// What must hold.
    pub preconditions: Preconditions,
    /// Seconds of grace; absent = the kind's own. Zero takes a pod away without its kubelet.
    pub grace: Option<i64>,
    /// What becomes of dependents.
    pub propagation: Propagation,
}

/// How a delete ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Deletion {
    /// It is gone; this is its last version.
    Removed(Arc<Stored>),
    /// It waits for finalizers or for its kubelet.
    Marked(Arc<Stored>),
}

/// A request that the API server says no to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// 404.
    #[error("{0} not found")]
    NotFound(ObjRef),
    /// 409 with reason `AlreadyExists`.
    #[error("{0} already exists")]
    AlreadyExists(ObjRef),
    /// 409 with reason `Conflict`: another UID or version.
    #[error("{at}: {message}")]
    Conflict {
        /// Which object.
        at: ObjRef,
        /// What was asked and what is.
        message: String,
    },
    /// 410: the log no longer reaches back that far.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// Version asked for.
        asked: u64,
        /// Oldest version that can still be watched from.
        oldest: u64,
    },
    /// 422.
    #[error("{at} is invalid: {message}")]
    Invalid {
        /// Which object.
        at: ObjRef,
        /// Why.
        message: String,
    },
}

impl Denied {
    /// HTTP status code.
    pub const fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::AlreadyExists(_) | Self::Conflict { .. } => 409,
            Self::Expired { .. } => 410,
            Self::Invalid { .. } => 422,
        }
    }
    /// `reason` of `metav1.Status`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NotFound",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::Conflict { .. } => "Conflict",
            Self::Expired { .. } => "Expired",
            Self::Invalid { .. } => "Invalid",
        }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One entry of the log; its version is `object.rv`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened.
    pub what: What,
    /// The object after it; of a deletion the last version, under the deletion's own resourceVersion.
    pub object: Arc<Stored>,
    /// The object before it; absent for a creation.
    pub before: Option<Arc<Stored>>,
}

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
        if self.objects.contains_key(&at) {
            return Err(Denied::AlreadyExists(at));
        }
        let generation = i64::from(at.kind.has_generation());
        let uid = self.uid();
        let stored = Stored { at, uid, rv: 0, generation, created: now, deleting: None, meta, body };
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
        let added = meta.finalizers.iter().any(|name| !old.meta.finalizers.contains(name));
        if old.deleting.is_some() && added {
            let message = "no new finalizers can be added if the object is being deleted".to_owned();
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

    /// Replaces the status; metadata and spec stay.
    pub fn replace_status(
        &mut self,
        at: &ObjRef,
        body: &Body,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        let old = self.held(at, preconditions)?;
        let body = old.body.clone().with_status_of(body);
        self.alter(at, |stored| stored.body = body)
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

    fn held(&self, at: &ObjRef, preconditions: &Preconditions) -> Result<Arc<Stored>, Denied> {
        let stored = self.objects.get(at).ok_or_else(|| Denied::NotFound(at.clone()))?;
        if let Some(uid) = preconditions.uid.as_ref().filter(|uid| **uid != stored.uid) {
            let message = format!(
                "precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                stored.uid
            );
            return Err(Denied::Conflict { at: at.clone(), message });
        }
        if let Some(rv) = preconditions.rv.filter(|rv| *rv != stored.rv) {
            let message =
                format!("the object has been modified: resourceVersion {rv} was asked, it is {}", stored.rv);
            return Err(Denied::Conflict { at: at.clone(), message });
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
        Body::Pod(pod) if pod.node.is_some() => POD_GRACE,
        Body::Pod(_) | Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => 0,
    }
}
