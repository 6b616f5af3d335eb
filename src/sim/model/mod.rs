//! The world machine: all objects of an embedded cluster, and what controllers and kubelets do to them in virtual
//! time.
//!
//! Guarantees: pure and seeded, so one seed and one sequence of calls give one history; nothing happens but in a
//! write or in `advance_to`, and the clock never goes back.

pub mod actors;
pub mod body;
pub mod cluster;
mod daemonset;
pub mod fault;
mod kubelet;
mod object;
pub mod perform;
mod placement;
pub mod project;
pub mod remote;
pub mod seed;
pub mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use crate::api::names::Uid;
use body::Body;
use daemonset::Tracked;
use fault::Fault;
use kubelet::{Machine, Run};
use remote::Remotes;
use seed::Seed;
use store::{
    Change, DeleteOptions, Deletion, Denied, Kind, Manager, Meta, ObjRef, Preconditions, Store, Stored, What,
};

/// A range of milliseconds from which a delay is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Shortest.
    pub low: u64,
    /// Longest.
    pub high: u64,
}

impl Span {
    /// From so many to so many milliseconds.
    pub const fn millis(low: u64, high: u64) -> Self {
        Self { low, high }
    }
    /// Exactly so many seconds; negative counts as none.
    pub fn seconds(seconds: i64) -> Self {
        let millis = u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
        Self { low: millis, high: millis }
    }
    /// So many seconds later.
    #[must_use]
    pub fn plus(self, seconds: i64) -> Self {
        let more = Self::seconds(seconds).low;
        Self { low: self.low.saturating_add(more), high: self.high.saturating_add(more) }
    }
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// From an object's change until the DaemonSet controller looks at it: also the lag of `observedGeneration`.
    pub controller: Span,
    /// From a change of a DaemonSet until the controller's watch brings it: before, pods come up on the old template.
    pub view: Span,
    /// From a pod's creation until the scheduler has bound it.
    pub bind: Span,
    /// From then until images are there and init containers have ended.
    pub setup: Span,
    /// From then until Ready.
    pub ready: Span,
    /// From a pod's deletion until it is gone.
    pub stop: Span,
    /// From a Node's deletion until its pods are collected, and from an owner's until its dependents are.
    pub collect: Span,
    /// Seconds without a heartbeat until a Node is `Unknown`.
    pub monitor: i64,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            controller: Span::millis(5, 60),
            view: Span::millis(0, 0),
            bind: Span::millis(1, 20),
            setup: Span::millis(1_500, 6_000),
            ready: Span::millis(1_000, 5_000),
            stop: Span::millis(300, 3_000),
            collect: Span::millis(500, 2_000),
            monitor: 40,
        }
    }
}

/// What happens by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// The DaemonSet controller learns of a changed set.
    View(ObjRef),
    /// The DaemonSet controller looks at a set.
    Sync(ObjRef),
    /// A pod may count as available.
    Available(ObjRef, Arc<str>),
    /// A kubelet takes the next step with a pod.
    Pod(ObjRef, Uid),
    /// A Node's conditions may change.
    Node(Arc<str>),
    /// A fault begins or ends.
    Fault,
    /// Pods of a Node that is gone are taken away.
    CollectPods(Arc<str>),
    /// What a deleted object owned is deleted.
    Collect(Uid),
}

/// The embedded cluster.
#[derive(Debug, Clone)]
pub struct Model {
    store: Store,
    now: Timestamp,
    dice: Seed,
    events: BTreeMap<(Timestamp, u64), Event>,
    tickets: u64,
    timings: Timings,
    reacted: u64,
    sets: BTreeMap<ObjRef, Tracked>,
    runs: BTreeMap<Uid, Run>,
    machines: BTreeMap<Arc<str>, Machine>,
    pods_on: BTreeMap<Arc<str>, BTreeSet<ObjRef>>,
    faults: Vec<Fault>,
    remotes: Remotes,
}

impl Model {
    /// An empty cluster.
    pub fn new(seed: u64, now: Timestamp, timings: Timings) -> Self {
        let mut dice = Seed::new(seed);
        Self {
            store: Store::new(dice.fork()),
            now,
            dice,
            events: BTreeMap::new(),
            tickets: 0,
            timings,
            reacted: 0,
            sets: BTreeMap::new(),
            runs: BTreeMap::new(),
            machines: BTreeMap::new(),
            pods_on: BTreeMap::new(),
            faults: Vec::new(),
            remotes: Remotes::default(),
        }
    }

    /// The present.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The Git remotes that pushes go to.
    pub const fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// When something happens by itself next.
    pub fn next_event_at(&self) -> Option<Timestamp> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due until then, in order.
    pub fn advance_to(&mut self, then: Timestamp) {
        while let Some(entry) = self.events.first_entry() {
            let (at, ticket) = *entry.key();
            if at > then {
                break;
            }
            let event = entry.remove();
            self.now = self.now.max(at);
            self.happen(event, ticket);
        }
        self.now = self.now.max(then);
    }

    /// Lets everything happen that is due, until nothing is or so many seconds are over.
    pub fn settle(&mut self, seconds: i64) {
        let end = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(self.now);
        while let Some(at) = self.next_event_at().filter(|at| *at <= end) {
            self.advance_to(at);
        }
    }

    /// Adds a fault; it strikes what happens from now on, and at once what stands by itself.
    pub fn add_fault(&mut self, fault: Fault) {
        for edge in [fault.from, fault.until].into_iter().flatten() {
            self.schedule(edge, Event::Fault);
        }
        self.faults.push(fault);
        self.schedule(self.now, Event::Fault);
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        self.faults.clear();
        self.schedule(self.now, Event::Fault);
    }

    fn happen(&mut self, event: Event, ticket: u64) {
        match event {
            Event::View(at) => self.view(&at),
            Event::Sync(at) => self.sync(&at),
            Event::Available(at, node) => self.recheck_availability(&at, &node),
            Event::Pod(at, uid) => self.pod_event(&at, &uid, ticket),
            Event::Node(name) => self.node_event(&name),
            Event::Fault => self.fault_edge(),
            Event::CollectPods(node) => self.collect_pods(&node),
            Event::Collect(owner) => self.collect_dependents(&owner),
        }
    }

    fn schedule(&mut self, at: Timestamp, event: Event) -> u64 {
        self.tickets += 1;
        self.events.insert((at.max(self.now), self.tickets), event);
        self.tickets
    }

    fn later(&mut self, after: Span, event: Event) -> u64 {
        let millis = i64::try_from(self.dice.between(after.low, after.high)).unwrap_or(i64::MAX);
        let at = self.now.saturating_add(SignedDuration::from_millis(millis)).unwrap_or(self.now);
        self.schedule(at, event)
    }

    /// Tells controllers and kubelets of the writes since the last time; they act in events of their own.
    fn react(&mut self) {
        let Ok(changes) = self.store.changes_since(self.reacted) else { return };
        let changes: Vec<Change> = changes.cloned().collect();
        self.reacted = self.store.rv();
        for change in &changes {
            self.daemonset_sees(change);
            self.kubelet_sees(change);
            if change.what == What::Deleted && self.store.dependents(&change.object.uid).next().is_some() {
                let wait = self.timings.collect;
                self.later(wait, Event::Collect(change.object.uid.clone()));
            }
            if change.what == What::Added {
                let Stored { at, meta, .. } = &*change.object;
                let lost = meta.owners.iter().find(|owner| !self.store.has_owner(&at.namespace, owner));
                if let Some(owner) = lost.map(|owner| owner.uid.clone()) {
                    let wait = self.timings.collect;
                    self.later(wait, Event::Collect(owner));
                }
            }
        }
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
        let result = self.store.create(at, meta, body, self.now);
        self.react();
        result
    }

    /// Replaces metadata and spec, as a write to the main resource does; status stays.
    pub fn replace(
        &mut self,
        at: &ObjRef,
        meta: Meta,
        body: Body,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        let result = self.store.replace(at, meta, body, preconditions);
        self.react();
        result
    }

    /// Replaces the status, as a write to the status subresource does; metadata and spec stay, and so do the managers
    /// where none are given.
    pub fn replace_status(
        &mut self,
        at: &ObjRef,
        body: &Body,
        managers: Option<Vec<Manager>>,
        preconditions: &Preconditions,
    ) -> Result<Arc<Stored>, Denied> {
        let result = self.store.replace_status(at, body, managers, preconditions);
        self.react();
        result
    }

    /// Deletes an object, or marks it when finalizers or a kubelet have to be waited for.
    pub fn delete(&mut self, at: &ObjRef, options: &DeleteOptions) -> Result<Deletion, Denied> {
        let result = self.store.delete(at, options, self.now);
        self.react();
        result
    }
}

#[cfg(test)]
mod tests;
