//! Watches: changes as lines of JSON, with bookmarks, time-outs, compaction and cuts.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::{
    Shared,
    failure::Failure,
    list, render,
    route::{Query, Target},
    select::Selector,
    table,
};
use crate::{
    clock::{later, until},
    sim::model::{
        Model,
        store::{Change, Stored, What},
    },
};

/// Time between bookmarks.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long before the end of a watch the last bookmark comes.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// How a watch is to run.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Collection that is watched.
    pub(super) target: Target,
    /// Objects of it.
    pub(super) selector: Selector,
    /// As tables.
    pub(super) table: bool,
    /// Breaks after so many events.
    pub(super) cut_after: Option<u32>,
}

/// An open watch.
pub(super) struct Watch {
    shared: Arc<Shared>,
    wanted: Wanted,
    changed: Receiver<u64>,
    cuts: u64,
    since: u64,
    deadline: Option<Timestamp>,
    bookmark: Option<Timestamp>,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Watch {
    /// Opens a watch at the version that the query names; without one, everything that is there comes first.
    pub(super) fn open(shared: &Arc<Shared>, wanted: Wanted, query: &Query) -> Result<Self, Failure> {
        if query.flag("sendInitialEvents") {
            return Err(Failure::BadRequest("sendInitialEvents is not served".to_owned()));
        }
        let since = query.number("resourceVersion")?.filter(|rv| *rv > 0);
        let now = shared.now();
        let timeout = query.number("timeoutSeconds")?;
        let deadline = timeout.map(|seconds| later(now, Duration::from_secs(seconds)));
        let mut watch = Self {
            shared: Arc::clone(shared),
            wanted,
            changed: shared.changed.subscribe(),
            cuts: shared.cuts.load(Ordering::Relaxed),
            since: since.unwrap_or(0),
            deadline,
            bookmark: query.flag("allowWatchBookmarks").then(|| next_bookmark(now, deadline)),
            ready: VecDeque::new(),
            ended: false,
        };
        if since.is_none() {
            watch.start_with_all()?;
        }
        Ok(watch)
    }

    /// The lines; an error is a broken connection.
    pub(super) fn lines(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        futures::stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Some(Ok(line)) => Some((Ok(line), Some(watch))),
                Some(Err(broken)) => Some((Err(broken), None)),
                None => None,
            }
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if self.is_cut() {
                return Some(Err(io::Error::new(io::ErrorKind::ConnectionReset, "the watch was cut")));
            }
            if let Some(line) = self.ready.pop_front() {
                if let Some(left) = &mut self.wanted.cut_after {
                    *left = left.saturating_sub(1);
                }
                return Some(Ok(line));
            }
            if self.ended {
                return None;
            }
            self.changed.mark_unchanged();
            self.collect();
            if self.ready.is_empty() && !self.is_cut() {
                self.wait().await;
            }
        }
    }

    fn is_cut(&self) -> bool {
        self.wanted.cut_after == Some(0) || self.shared.cuts.load(Ordering::Relaxed) != self.cuts
    }

    async fn wait(&mut self) {
        let next = [self.deadline, self.bookmark].into_iter().flatten().min();
        let shared = Arc::clone(&self.shared);
        shared.change(&mut self.changed, next).await;
        let now = shared.now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.ended = true;
        } else if self.bookmark.is_some_and(|bookmark| bookmark <= now) {
            self.bookmark = Some(next_bookmark(now, self.deadline));
            self.collect();
            let line = self.bookmark_line();
            self.ready.push_back(line);
        }
    }

    fn start_with_all(&mut self) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        let all = Query::default();
        let page = shared.model(|model| list::page(model, &self.wanted.target, &all, 0))?;
        self.since = page.rv;
        for object in page.items.iter().filter(|object| self.wanted.selector.matches(object)) {
            let line = self.line("ADDED", object);
            self.ready.push_back(line);
        }
        Ok(())
    }

    /// Takes over all changes since the last time.
    fn collect(&mut self) {
        let shared = Arc::clone(&self.shared);
        let since = self.since;
        let (changes, rv) = shared.model(|model| (self.changes(model, since), model.rv()));
        match changes {
            Ok(changes) => {
                self.since = rv;
                for (kind, object) in changes {
                    let line = self.line(kind, &object);
                    self.ready.push_back(line);
                }
            }
            Err(failure) => {
                self.ready.push_back(line_of("ERROR", &failure.status()));
                self.ended = true;
            }
        }
    }

    fn changes(&self, model: &Model, since: u64) -> Result<Vec<(&'static str, Arc<Stored>)>, Failure> {
        let target = &self.wanted.target;
        let in_scope = |change: &&Change| {
            let at = &change.object.at;
            at.kind == target.resource.stored
                && target.namespace.as_deref().is_none_or(|wanted| *at.namespace == *wanted)
        };
        let changes = model.changes_since(since)?.filter(in_scope);
        Ok(changes.filter_map(|change| Some((self.seen(change)?, Arc::clone(&change.object)))).collect())
    }

    /// How a change looks through the selector.
    fn seen(&self, change: &Change) -> Option<&'static str> {
        let was = change.before.as_ref().is_some_and(|before| self.wanted.selector.matches(before));
        let is = change.what != What::Deleted && self.wanted.selector.matches(&change.object);
        match (was, is) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn line(&self, kind: &str, object: &Stored) -> Bytes {
        let resource = self.wanted.target.resource;
        let rendered = if self.wanted.table {
            let meta = json!({ "resourceVersion": object.rv.to_string() });
            table::render(resource, &[object], &meta, self.shared.now())
        } else {
            render::object(resource, object)
        };
        line_of(kind, &rendered)
    }

    fn bookmark_line(&self) -> Bytes {
        let resource = self.wanted.target.resource;
        let object = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": { "resourceVersion": self.since.to_string(), "creationTimestamp": null },
        });
        line_of("BOOKMARK", &object)
    }
}

/// After a minute, or shortly before the end.
fn next_bookmark(now: Timestamp, deadline: Option<Timestamp>) -> Timestamp {
    let last = deadline.and_then(|deadline| until(now, deadline).checked_sub(LAST_BOOKMARK));
    let wait = last.filter(|wait| !wait.is_zero()).map_or(BOOKMARK, |wait| wait.min(BOOKMARK));
    later(now, wait)
}

fn line_of(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({ "type": kind, "object": object }).to_string();
    line.push('\n');
    line.into()
}
