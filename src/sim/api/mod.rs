//! The embedded API server: the world machine as a Kubernetes API, for a `kube::Client` in this process or, on a
//! loopback port, for `kubectl`.
//!
//! Guarantees: everything is one state behind one lock, so each request is atomic; a write is answered after it is
//! visible to every later read; no request is answered from a time before the present of the clock.
//!
//! Assumptions: [`EmbeddedCluster::run`] is polled as long as the world shall move by itself.
//!
//! Limits, against a real API server: no authorisation, admission webhooks, server-side apply, protobuf, OpenAPI,
//! aggregated discovery, streaming lists or `deletecollection`; foreground deletion is background deletion; pod
//! templates are stored as written, without the server's defaults; of Nodes, Pods and DaemonSets only the fields that
//! the world machine knows are kept; the deletion of a CustomResourceDefinition hides its objects instead of deleting
//! them; a change of a custom resource is checked whole, also where what was invalid before stays; deleting a Namespace
//! leaves its contents; only custom resources have managed fields, of a status its parts alone; a refused finalizer is
//! told once, not twice.

mod breach;
mod custom;
mod discovery;
pub mod failure;
pub mod faults;
mod fields;
mod limits;
mod list;
mod loopback;
mod openapi;
mod parse;
mod patch;
mod render;
pub mod resources;
mod reviews;
pub mod route;
mod select;
mod service;
mod table;
mod watch;
mod write;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::watch as signal;

pub use faults::{Asked, Fault, Faults, Logged};
pub use loopback::ServedCluster;
pub use service::{ApiService, Reply};

use super::model::{
    Model,
    body::{Body, Plain},
    store::{Kind, Meta, ObjRef},
};
use crate::clock::{Clock, until};

/// A Kubernetes cluster inside this process.
#[derive(Clone)]
pub struct EmbeddedCluster(Arc<Shared>);

struct Shared {
    model: Mutex<Model>,
    clock: Clock,
    /// The runtime whose clock it is: requests may come from others.
    home: Handle,
    /// Counts changes of the model.
    changed: signal::Sender<u64>,
    /// Counts the times that all watches were cut.
    cuts: AtomicU64,
    faults: Faults,
}

impl fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedCluster {{ faults: {:?} }}", self.0.faults)
    }
}

impl EmbeddedCluster {
    /// Serves a world whose present (`Model::now`) is that of the clock; namespaces `default` and `kube-system` and our CustomResourceDefinitions are added where they
    /// are missing.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(model: Model, clock: Clock) -> Self {
        let cluster = Self(Arc::new(Shared {
            model: Mutex::new(model),
            clock,
            home: Handle::current(),
            changed: signal::Sender::new(0),
            cuts: AtomicU64::new(0),
            faults: Faults::default(),
        }));
        cluster.model(furnish);
        cluster
    }

    /// A client of it; `default` is its namespace.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The tower service behind the client.
    pub fn service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.0))
    }

    /// Reads or changes the world beside the API; whatever is due has happened before, and watches see the changes.
    /// `act` must not use the cluster itself: it runs under its lock.
    pub fn model<R>(&self, act: impl FnOnce(&mut Model) -> R) -> R {
        self.0.model(act)
    }

    /// What goes wrong with requests, and their log.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// Breaks every watch that is open now.
    pub fn cut_watches(&self) {
        self.0.cuts.fetch_add(1, Ordering::Relaxed);
        self.0.wake();
    }

    /// The present of the cluster.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// Lets the world move by itself; never returns.
    pub async fn run(&self) {
        let mut changed = self.0.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let next = self.model(|model| model.next_event_at());
            self.0.change(&mut changed, next).await;
        }
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        let _home = self.home.enter();
        self.clock.now()
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn model<R>(&self, act: impl FnOnce(&mut Model) -> R) -> R {
        let now = self.now();
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (model.rv(), model.next_event_at());
        model.advance_to(now);
        let result = act(&mut model);
        let moved = before != (model.rv(), model.next_event_at());
        drop(model);
        if moved {
            self.wake();
        }
        result
    }

    /// Waits for a change of the model, but not longer than `limit`.
    async fn change(&self, changed: &mut signal::Receiver<u64>, limit: Option<Timestamp>) {
        let woken = changed.changed();
        // The sender lives as long as `self`, so a wake-up is never an error.
        let _ = match limit {
            Some(at) => self.before(at, woken).await,
            None => Some(woken.await),
        };
    }

    /// Result of the future if it ends before `at`. Another runtime than the home one may see it end late, never early.
    async fn before<T>(&self, at: Timestamp, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(until(self.now(), at), future).await.ok()
    }
}

fn furnish(model: &mut Model) {
    for name in ["default", "kube-system"] {
        let body = parse::plain(&serde_json::json!({
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        }));
        add(model, ObjRef::cluster(Kind::Namespace, name), body);
    }
    for resource in resources::all() {
        if let Some(object) = custom::definition_object(resource) {
            add(model, custom::definition_ref(resource), parse::plain(&object));
        }
    }
}

/// What is there already stays.
fn add(model: &mut Model, at: ObjRef, body: Plain) {
    if model.get(&at).is_none() {
        // It cannot exist, so nothing is denied.
        let _ = model.create(at, Meta::default(), Body::Plain(body));
    }
}
