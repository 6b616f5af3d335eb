//! The world machine: all objects of an embedded cluster, and what controllers and kubelets do to them in virtual
//! time.
//!
//! Guarantees: pure and seeded, so one seed and one sequence of calls give one history; nothing happens but in a
//! write or in `advance_to`, and the clock never goes back.

pub mod body;
pub mod seed;
pub mod store;

use std::sync::Arc;

use jiff::Timestamp;

use body::Body;
use seed::Seed;
use store::{Change, DeleteOptions, Deletion, Denied, Kind, Meta, ObjRef, Preconditions, Store, Stored};

/// The embedded cluster.
#[derive(Debug, Clone)]
pub struct Model {
    store: Store,
    now: Timestamp,
}

impl Model {
    /// An empty cluster.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        let mut dice = Seed::new(seed);
        Self { store: Store::new(dice.fork()), now }
    }

    /// The present.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// When something happens by itself next.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        None
    }

    /// Lets everything happen that is due until then, in order.
    pub fn advance_to(&mut self, then: Timestamp) {
        self.now = self.now.max(then);
    }

    /// The newest resourceVersion.
    pub const fn rv(&self) -> u64 {
        self.store.rv()
    }

    /// One object.
    pub fn get(&self, at: &ObjRef) -> Option<&Arc<Stored>> {
        self.store.get(at)
    }

    /// All objects of a kind in order of namespace and name; in one namespace if one is given.
    pub fn list<'m>(
        &'m self,
        kind: Kind,
        namespace: Option<&'m str>,
    ) -> impl Iterator<Item = &'m Arc<Stored>> + use<'m> {
        self.store.list(kind, namespace)
    }

    /// Changes after a version, oldest first; 410 when the log no longer reaches back that far.
    pub fn changes_since(&self, rv: u64) -> Result<impl Iterator<Item = &Change>, Denied> {
        self.store.changes_since(rv)
    }

    /// Forgets the log up to now: older watches answer 410.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    /// Creates an object; 409 when it exists.
    pub fn create(&mut self, at: ObjRef, meta: Meta, body: Body) -> Result<Arc<Stored>, Denied> {
        self.store.create(at, meta, body, self.now)
    }

    /// Replaces metadata and spec, as a write to the main resource does; status stays.
    pub fn replace(
        &mut self,
        at: &ObjRef,
        meta: Meta,
        body: Body,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        self.store.replace(at, meta, body, preconditions)
    }

    /// Replaces the status, as a write to the status subresource does; metadata and spec stay.
    pub fn replace_status(
        &mut self,
        at: &ObjRef,
        body: &Body,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        self.store.replace_status(at, body, preconditions)
    }

    /// Deletes an object, or marks it when finalizers or a kubelet have to be waited for.
    pub fn delete(&mut self, at: &ObjRef, options: &DeleteOptions) -> Result<Deletion, Denied> {
        self.store.delete(at, options, self.now)
    }
}
