//! Faults of the API server, one decision per request, and the log of requests that tests read.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    failure::Failure,
    resources::Resource,
    route::{Target, Verb},
};
use crate::api::names::Digest;

/// Requests kept in the log; the oldest are forgotten.
const LOG: usize = 20_000;

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks before anything is done.
    Unreachable,
    /// It is done, and the connection breaks before the answer.
    LostReply,
    /// It is done later by so much.
    Delay(Duration),
    /// 409 for a write, nothing done.
    Conflict,
    /// 429 with `Retry-After` in seconds, nothing done.
    TooManyRequests(u32),
    /// 500, nothing done.
    Internal,
    /// A get or list is answered from the state so many versions ago.
    Stale(u64),
    /// A watch breaks after so many events.
    CutWatch(u32),
}

/// One request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Counts from 0 over all requests.
    pub index: u64,
    /// When it came in.
    pub at: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// `User-Agent`.
    pub agent: String,
    /// Verb; absent outside of objects.
    pub verb: Option<Verb>,
    /// Objects it is about; absent outside of objects.
    pub target: Option<Target>,
    /// Digest of the body; absent when there is none.
    pub body: Option<Digest>,
}

impl Asked {
    /// Whether it is that verb on objects of that `kind`.
    pub fn is(&self, verb: Verb, kind: &str) -> bool {
        self.verb == Some(verb) && self.resource().is_some_and(|resource| resource.kind == kind)
    }

    /// Whether it may change something.
    pub fn writes(&self) -> bool {
        self.verb.is_some_and(|verb| !verb.reads())
    }

    fn resource(&self) -> Option<&'static Resource> {
        self.target.as_ref().map(|target| target.resource)
    }

    pub(super) fn conflict(&self) -> Option<Failure> {
        let target = self.target.as_ref().filter(|_| self.writes())?;
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Some(Failure::Conflict {
            resource: target.resource,
            name: target.name.clone().unwrap_or_default(),
            why: why.to_owned(),
        })
    }
}

/// A request with what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The request.
    pub asked: Asked,
    /// What was made to go wrong.
    pub fault: Option<Fault>,
    /// HTTP status of what was done; absent while it is under way and when nothing was.
    pub code: Option<u16>,
}

type Rule = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;
/// Whether a right, as the `resourceAttributes` of an access review, is denied.
type Denial = Box<dyn Fn(&Value) -> bool + Send>;

#[derive(Default)]
struct Plan {
    at: BTreeMap<u64, Fault>,
    rules: Vec<Rule>,
    denials: Vec<Denial>,
    log: VecDeque<Logged>,
    next: u64,
}

/// Chooses the fault of every request and remembers all of them.
#[derive(Default)]
pub struct Faults(Mutex<Plan>);

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        write!(f, "Faults {{ at: {:?}, rules: {}, next: {} }}", plan.at, plan.rules.len(), plan.next)
    }
}

impl Faults {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request of that index goes wrong.
    pub fn at(&self, index: u64, fault: Fault) {
        self.plan().at.insert(index, fault);
    }

    /// Every request for which the rule names a fault goes wrong; the first rule that does counts. A rule must not use
    /// these faults itself: it runs under their lock.
    pub fn when(&self, rule: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
        self.plan().rules.push(Box::new(rule));
    }

    /// The next request that matches goes wrong, once.
    pub fn once(&self, fault: Fault, matches: impl Fn(&Asked) -> bool + Send + 'static) {
        let mut left = Some(fault);
        self.when(move |asked| if left.is_some() && matches(asked) { left.take() } else { None });
    }

    /// Access reviews deny every right (`resourceAttributes`) that matches; requests are let through all the same.
    pub fn deny(&self, matches: impl Fn(&Value) -> bool + Send + 'static) {
        self.plan().denials.push(Box::new(matches));
    }

    pub(super) fn denies(&self, right: &Value) -> bool {
        self.plan().denials.iter().any(|matches| matches(right))
    }

    /// Nothing goes wrong any more.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.at.clear();
        plan.rules.clear();
        plan.denials.clear();
    }

    /// Index that the next request gets.
    pub fn next_index(&self) -> u64 {
        self.plan().next
    }

    /// All requests that are remembered, oldest first.
    pub fn log(&self) -> Vec<Logged> {
        self.plan().log.iter().cloned().collect()
    }

    /// Numbers the request, remembers it and chooses its fault.
    pub(super) fn admit(&self, asked: &mut Asked) -> Option<Fault> {
        let mut plan = self.plan();
        asked.index = plan.next;
        plan.next += 1;
        let fault =
            plan.at.remove(&asked.index).or_else(|| plan.rules.iter_mut().find_map(|rule| rule(asked)));
        if plan.log.len() >= LOG {
            plan.log.pop_front();
        }
        plan.log.push_back(Logged { asked: asked.clone(), fault, code: None });
        fault
    }

    pub(super) fn done(&self, index: u64, code: u16) {
        let mut plan = self.plan();
        if let Ok(place) = plan.log.binary_search_by_key(&index, |logged| logged.asked.index)
            && let Some(logged) = plan.log.get_mut(place)
        {
            logged.code = Some(code);
        }
    }
}
