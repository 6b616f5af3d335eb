//! The cluster as observations: one list-and-watch per feed, projected to slim shapes in the stream.
//!
//! Guarantees: a list counts as complete only after its last page; a gap in a watch is told (`Cut`) before anything
//! else; an object that cannot be read stops only itself. Limits: a watch lasts four minutes and is then renewed; the
//! feed is listed anew every half hour, so that a lost event costs time only.

pub mod address;
mod agent;
mod claim;
mod node;
mod pod;
mod revision;
mod snapshot;
pub mod store;
mod wire;

#[cfg(test)]
mod tests;

pub use snapshot::{list, snapshot};

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _, StreamExt as _, io::Lines};
use jiff::Timestamp;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::{
    api::ClaimKind,
    clock::{Clock, later, until},
    dice::Dice,
    world::{Feed, Object, Observation},
};

/// Objects per page of a list.
const PAGE: u32 = 500;
/// Seconds after which the server ends a watch.
const WATCH_SECONDS: u32 = 240;
/// How long a watch may last before it counts as dead.
const WATCH_LIMIT: Duration = Duration::from_secs(270);
/// How long one page may take.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Age at which a list is renewed although nothing is wrong.
const LIST_AGE: Duration = Duration::from_secs(30 * 60);
/// Waits between tries: the first one, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A feed that held for so long starts its waits anew.
const HELD: Duration = Duration::from_secs(60);

/// Projects one object of a feed; `None` = not of interest.
pub fn project(feed: Feed, text: &str) -> Result<Option<Object>, serde_json::Error> {
    Ok(match feed {
        Feed::Nodes => Some(serde_json::from_str::<node::Wire>(text)?.object()),
        Feed::Pods => serde_json::from_str::<pod::Wire>(text)?.object(),
        Feed::Agents => Some(serde_json::from_str::<agent::Wire>(text)?.object()),
        Feed::Revisions => serde_json::from_str::<revision::Wire>(text)?.object(),
        Feed::CniUpgrades => Some(serde_json::from_str::<claim::Wire>(text)?.object(ClaimKind::CniUpgrade)),
        Feed::ServiceUpgrades => {
            Some(serde_json::from_str::<claim::Wire>(text)?.object(ClaimKind::ServiceUpgrade))
        }
        Feed::Stores => serde_json::from_str::<store::Wire>(text)?.object(),
    })
}

/// One feed and where its observations go.
pub struct Observer {
    /// What is watched.
    pub feed: Feed,
    /// Connection to the API server.
    pub kube: Client,
    /// Namespace of our stores.
    pub namespace: String,
    /// Time.
    pub clock: Clock,
    /// Jitter of the waits.
    pub dice: Dice,
    /// Where observations go; closing it ends the observer.
    pub out: mpsc::Sender<Observation>,
}

/// Why a list or watch ended.
#[derive(Debug)]
enum End {
    /// Nothing is wrong; it is time.
    Due,
    /// Events may have been missed.
    Lost(String),
    /// Nobody listens any more.
    Unheard,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: Box<RawValue>,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Failure {
    code: u16,
    message: String,
}

impl Observer {
    /// Lists and watches until nobody listens.
    pub async fn run(mut self) {
        let mut tries = 0;
        loop {
            let began = self.clock.now();
            let end = match self.list().await {
                Ok(version) => self.follow(version).await,
                Err(end) => end,
            };
            if until(began, self.clock.now()) >= HELD {
                tries = 0;
            }
            match end {
                End::Unheard => return,
                End::Due => {}
                End::Lost(why) => {
                    tracing::warn!(feed = ?self.feed, why, "feed lost; listing again");
                    if self.tell(Observation::Cut(self.feed, why)).await.is_err() {
                        return;
                    }
                    tries += 1;
                    let wait = self.dice.backoff(RETRY.0, RETRY.1, tries);
                    self.clock.sleep_until(later(self.clock.now(), wait)).await;
                }
            }
        }
    }

    async fn tell(&self, observation: Observation) -> Result<(), End> {
        self.out.send(observation).await.map_err(|_| End::Unheard)
    }

    /// Lists page by page; answers with the version to watch from.
    async fn list(&self) -> Result<String, End> {
        let (path, selector) = address::of_feed(self.feed, &self.namespace);
        let request = Request::new(path);
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = selector.map(str::to_owned);
        self.tell(Observation::Relisting(self.feed)).await?;
        loop {
            let page = request.list(&params).map_err(|error| End::Lost(error.to_string()))?;
            let answer = self.kube.request::<List>(page);
            let list = match self.clock.before(later(self.clock.now(), PAGE_LIMIT), answer).await {
                Some(answer) => answer.map_err(|error| End::Lost(plain(&error)))?,
                None => return Err(End::Lost("the list did not end in time".to_owned())),
            };
            for item in list.items.unwrap_or_default() {
                if let Some(object) = self.read(item.get()) {
                    self.tell(Observation::Listed(self.feed, Box::new(object))).await?;
                }
            }
            if list.metadata.r#continue.is_empty() {
                self.tell(Observation::Relisted(self.feed)).await?;
                return Ok(list.metadata.resource_version);
            }
            params.continue_token = Some(list.metadata.r#continue);
        }
    }

    /// Watches from a version on, renewing watches that end well. One broken watch is resumed without a word, since
    /// resuming from the last version misses nothing.
    async fn follow(&mut self, mut version: String) -> End {
        let listed = self.clock.now();
        let mut broken = false;
        loop {
            let (began, from) = (self.clock.now(), version.clone());
            match self.watch(&mut version).await {
                Err(Broken::Unheard) => return End::Unheard,
                Err(Broken::Expired(why)) => return End::Lost(why),
                Err(Broken::Cut(why)) => {
                    if broken && from == version {
                        return End::Lost(why);
                    }
                    broken = true;
                }
                Ok(()) => broken = false,
            }
            if until(listed, self.clock.now()) >= LIST_AGE {
                return End::Due;
            }
            if until(began, self.clock.now()) < RETRY.0 {
                let wait = self.dice.jitter(RETRY.0);
                self.clock.sleep_until(later(self.clock.now(), wait)).await;
            }
        }
    }

    /// One watch; moves `version` along. Ends well when the server ends it.
    async fn watch(&self, version: &mut String) -> Result<(), Broken> {
        let (path, selector) = address::of_feed(self.feed, &self.namespace);
        let params = WatchParams {
            label_selector: selector.map(str::to_owned),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(path).watch(&params, version).map_err(|e| Broken::Cut(e.to_string()))?;
        let limit = later(self.clock.now(), WATCH_LIMIT);
        let opened = self.clock.before(limit, self.kube.request_stream(request)).await;
        let stream = opened.ok_or_else(Broken::silent)?.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 410 => Broken::Expired(plain(&error)),
            _ => Broken::Cut(plain(&error)),
        })?;
        futures::pin_mut!(stream);
        let mut lines = stream.lines();
        while let Some(line) = self.line(&mut lines, limit).await? {
            self.event(&line, version).await?;
        }
        Ok(())
    }

    async fn line<R: AsyncBufRead + Unpin>(
        &self,
        lines: &mut Lines<R>,
        limit: Timestamp,
    ) -> Result<Option<String>, Broken> {
        let line = self.clock.before(limit, lines.next()).await.ok_or_else(Broken::silent)?;
        line.transpose().map_err(|error| Broken::Cut(error.to_string()))
    }

    async fn event(&self, line: &str, version: &mut String) -> Result<(), Broken> {
        let event: Event = serde_json::from_str(line).map_err(|error| Broken::Cut(error.to_string()))?;
        let text = event.object.get();
        if event.r#type == "ERROR" {
            let failure: Failure = serde_json::from_str(text).unwrap_or_default();
            return Err(match failure.code {
                410 => Broken::Expired(failure.message),
                _ => Broken::Cut(failure.message),
            });
        }
        let object = if event.r#type == "BOOKMARK" { None } else { self.read(text) };
        let observation = object.map(|object| match event.r#type.as_str() {
            "DELETED" => Observation::Gone(self.feed, object.id, object.uid, object.rv),
            _ => Observation::Changed(self.feed, Box::new(object)),
        });
        if let Some(observation) = observation {
            self.tell(observation).await.map_err(|_| Broken::Unheard)?;
        }
        // Only after it was told: a watch that breaks in between starts before it again.
        if let Ok(seen) = serde_json::from_str::<Versioned>(text) {
            *version = seen.metadata.resource_version;
        }
        Ok(())
    }

    fn read(&self, text: &str) -> Option<Object> {
        project(self.feed, text)
            .inspect_err(|error| tracing::warn!(feed = ?self.feed, %error, "an object cannot be read"))
            .ok()
            .flatten()
    }
}

/// Why a watch ended badly.
#[derive(Debug)]
enum Broken {
    /// Its version is too old: events were missed.
    Expired(String),
    /// The connection ended; the last version may still be good.
    Cut(String),
    /// Nobody listens any more.
    Unheard,
}

impl Broken {
    fn silent() -> Self {
        Self::Cut("the watch was silent for too long".to_owned())
    }
}

/// Error text without the debug form that the client appends.
fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        error => error.to_string(),
    }
}
