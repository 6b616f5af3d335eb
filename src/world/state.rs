//! The world and how an observation changes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    git::GitSeen,
    objects::{Agent, AgentKey, Claim, Node, Object, ObjectId, Pod, PodKey, Record, Revision, Shape},
};
use crate::{
    api::{
        ClaimKey, ClaimKind,
        names::{NodeName, RepoName, Rv, Uid},
    },
    mirror::ledger::Ledger,
    rollout::effect::{EffectId, Rejection, StepName},
};

/// Deletions remembered, so that a late event cannot revive an object.
const TOMBSTONES: usize = 10_000;

/// One object as it was last seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub rv: Rv,
    /// Our time of first seeing the present shape.
    pub since: Timestamp,
    /// The shape.
    pub is: T,
}

/// One list-and-watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    /// All Nodes.
    Nodes,
    /// Pods (of the namespaces that agents live in; only pods owned by a DaemonSet are kept).
    Pods,
    /// DaemonSets.
    Agents,
    /// ControllerRevisions.
    Revisions,
    /// `CNIUpgrade`s.
    CniUpgrades,
    /// `ServiceUpgrade`s.
    ServiceUpgrades,
    /// ConfigMaps of ours.
    Stores,
}

impl Feed {
    /// All feeds.
    pub const ALL: [Self; 7] = [
        Self::Nodes,
        Self::Pods,
        Self::Agents,
        Self::Revisions,
        Self::CniUpgrades,
        Self::ServiceUpgrades,
        Self::Stores,
    ];
}

/// Whether a feed can be trusted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedHealth {
    /// The first list is not complete yet.
    Starting,
    /// Listed and watched, since then without a gap.
    Live(Timestamp),
    /// Broken since then; what is known may be stale.
    Cut(Timestamp, String),
}

/// What was seen of one pod over time; gone with the process, which only makes judgements later, never earlier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodMemory {
    /// It was Ready once.
    pub was_ready: bool,
    /// Since when a container waits with a reason of failure, without having been Ready in between.
    pub trouble_since: Option<Timestamp>,
}

/// What a rollout is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The agent DaemonSet that a CNIUpgrade resolves to.
    Agent(AgentKey),
    /// The Service that a ServiceUpgrade names: namespace, name.
    Service(String, String),
    /// No target can be told; the claim stands for itself.
    Unresolved(ClaimKey),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(key) => write!(f, "DaemonSet/{key}"),
            Self::Service(namespace, name) => write!(f, "Service/{namespace}/{name}"),
            Self::Unresolved(claim) => write!(f, "Unresolved/{claim}"),
        }
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no target");
        let (kind, rest) = text.split_once('/').ok_or_else(wrong)?;
        let pair = || rest.split_once('/').ok_or_else(wrong);
        match kind {
            "DaemonSet" => pair().map(|(namespace, name)| {
                Self::Agent(AgentKey { namespace: namespace.to_owned(), name: name.to_owned() })
            }),
            "Service" => pair().map(|(namespace, name)| Self::Service(namespace.to_owned(), name.to_owned())),
            "Unresolved" => rest.parse().map(Self::Unresolved).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What can be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Declarations of a repository against custom resources and ledger.
    Mirror(RepoName),
    /// One target.
    Rollout(Target),
    /// What a repository should say.
    Publish(RepoName),
}

/// Something seen. It carries no meaning but "this is so now".
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// A list begins.
    Relisting(Feed),
    /// One object of a list that is under way.
    Listed(Feed, Box<Object>),
    /// The list is complete: what it did not contain is gone.
    Relisted(Feed),
    /// A watch event.
    Changed(Feed, Box<Object>),
    /// A watch event: deleted at this version.
    Gone(Feed, ObjectId, Uid, Rv),
    /// The feed broke.
    Cut(Feed, String),
    /// The API server's answer to a write of ours: like a watch event.
    Answered(Box<Object>),
    /// The API server's answer to a delete of ours that left nothing: like a watch event.
    AnsweredGone(ObjectId, Uid),
    /// A write of ours was rejected.
    Rejected(EffectId, Rejection),
    /// A write (or dry run) of ours was accepted.
    Accepted(EffectId),
    /// A fact about a repository, whole.
    Git(Box<GitSeen>),
}

/// Everything seen.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, Seen<Node>>,
    /// DaemonSet pods.
    pub pods: BTreeMap<PodKey, Seen<Pod>>,
    /// DaemonSets.
    pub agents: BTreeMap<AgentKey, Seen<Agent>>,
    /// ControllerRevisions by namespace and name.
    pub revisions: BTreeMap<(String, String), Seen<Revision>>,
    /// Custom resources of ours.
    pub claims: BTreeMap<ClaimKey, Seen<Claim>>,
    /// Ledgers.
    pub ledgers: BTreeMap<RepoName, Seen<Result<Box<Ledger>, String>>>,
    /// Ledgers that cannot be read now, as they were before; gone with the process, which then only waits.
    pub(super) readable: BTreeMap<RepoName, Box<Ledger>>,
    /// Attempt records by ConfigMap name.
    pub records: BTreeMap<String, Seen<Result<Box<Record>, String>>>,
    /// Names of ConfigMaps that hold ledgers.
    pub ledger_names: BTreeMap<String, RepoName>,
    /// Rejections of the last try of each effect, with their time.
    pub rejections: BTreeMap<EffectId, (Rejection, Timestamp)>,
    /// Dry runs that were accepted.
    pub dry_runs: BTreeSet<EffectId>,
    /// Repositories.
    pub git: BTreeMap<RepoName, GitSeen>,
    /// Health of the feeds; a missing one has not started.
    pub feeds: BTreeMap<Feed, FeedHealth>,
    /// What was seen of a pod over time, by UID.
    pub pod_memory: BTreeMap<Uid, PodMemory>,
    /// Pods by owner UID.
    pub pods_by_owner: BTreeMap<Uid, BTreeSet<PodKey>>,
    /// Identifiers seen so far in lists that are under way.
    listing: BTreeMap<Feed, BTreeSet<ObjectId>>,
    /// Deletions by UID, so that a late event cannot revive an object; bounded.
    gone: BTreeMap<Uid, Rv>,
}

impl World {
    /// Takes an observation in and tells what has to be looked at again.
    ///
    /// An object whose shape is unchanged dirties nothing, so heartbeats cost nothing.
    pub fn apply(&mut self, observation: Observation, now: Timestamp) -> BTreeSet<Key> {
        match observation {
            Observation::Relisting(feed) => {
                self.listing.insert(feed, BTreeSet::new());
                BTreeSet::new()
            }
            Observation::Listed(feed, object) | Observation::Changed(feed, object) => {
                if let Some(seen) = self.listing.get_mut(&feed) {
                    seen.insert(match &object.id {
                        // All stores live in one namespace, so `known` tells them by name alone.
                        ObjectId::Store(_, name) => ObjectId::Store(String::new(), name.clone()),
                        id @ (ObjectId::Node(_)
                        | ObjectId::Pod(_)
                        | ObjectId::Agent(_)
                        | ObjectId::Revision(..)
                        | ObjectId::Claim(_)) => id.clone(),
                    });
                }
                self.see(*object, now)
            }
            Observation::Relisted(feed) => self.relisted(feed, now),
            Observation::Answered(object) => self.see(*object, now),
            Observation::Gone(_, id, uid, rv) => self.lose(&id, &uid, rv),
            Observation::AnsweredGone(id, uid) => self.lose(&id, &uid, Rv(u64::MAX)),
            Observation::Cut(feed, why) => {
                let since = match self.feeds.get(&feed) {
                    Some(FeedHealth::Cut(since, _)) => *since,
                    Some(FeedHealth::Live(_) | FeedHealth::Starting) | None => now,
                };
                self.feeds.insert(feed, FeedHealth::Cut(since, why));
                self.all_keys()
            }
            Observation::Rejected(id, rejection) => {
                let key = id.key.clone();
                self.rejections.insert(id, (rejection, now));
                BTreeSet::from([key])
            }
            Observation::Accepted(id) => {
                let known = self.rejections.remove(&id).is_some();
                let key = id.key.clone();
                let dry_run = id.step == StepName::DryRunTemplate && self.dry_runs.insert(id);
                if known || dry_run { BTreeSet::from([key]) } else { BTreeSet::new() }
            }
            Observation::Git(seen) if !seen.is_news(self.git.get(&seen.repo)) => BTreeSet::new(),
            Observation::Git(seen) => {
                let keys = self.keys_of_ledger(&seen.repo);
                self.git.insert(seen.repo.clone(), *seen);
                keys
            }
        }
    }

    /// Since when every feed has been live without a gap; `None` while one is not.
    pub fn live_since(&self) -> Option<Timestamp> {
        let mut since = None;
        for feed in Feed::ALL {
            match self.feeds.get(&feed) {
                Some(FeedHealth::Live(at)) => since = since.max(Some(*at)),
                Some(FeedHealth::Starting | FeedHealth::Cut(..)) | None => return None,
            }
        }
        since
    }

    /// Pods of a DaemonSet.
    pub fn pods_of<'w>(&'w self, owner: &Uid) -> impl Iterator<Item = (&'w PodKey, &'w Seen<Pod>)> + use<'w> {
        self.pods_by_owner.get(owner).into_iter().flatten().filter_map(|key| self.pods.get_key_value(key))
    }

    fn relisted(&mut self, feed: Feed, now: Timestamp) -> BTreeSet<Key> {
        let listed = self.listing.remove(&feed).unwrap_or_default();
        let mut keys = BTreeSet::new();
        for (id, uid, rv) in self.known(feed) {
            if !listed.contains(&id) {
                keys.append(&mut self.lose(&id, &uid, rv));
            }
        }
        let was_live = matches!(self.feeds.get(&feed), Some(FeedHealth::Live(_)));
        if !was_live {
            self.feeds.insert(feed, FeedHealth::Live(now));
            keys.append(&mut self.all_keys());
        }
        keys
    }

    fn known(&self, feed: Feed) -> Vec<(ObjectId, Uid, Rv)> {
        match feed {
            Feed::Nodes => {
                self.nodes.iter().map(|(n, s)| (ObjectId::Node(n.clone()), s.uid.clone(), s.rv)).collect()
            }
            Feed::Pods => {
                self.pods.iter().map(|(k, s)| (ObjectId::Pod(k.clone()), s.uid.clone(), s.rv)).collect()
            }
            Feed::Agents => {
                self.agents.iter().map(|(k, s)| (ObjectId::Agent(k.clone()), s.uid.clone(), s.rv)).collect()
            }
            Feed::Revisions => self
                .revisions
                .iter()
                .map(|((ns, n), s)| (ObjectId::Revision(ns.clone(), n.clone()), s.uid.clone(), s.rv))
                .collect(),
            Feed::CniUpgrades | Feed::ServiceUpgrades => {
                let kind =
                    if feed == Feed::CniUpgrades { ClaimKind::CniUpgrade } else { ClaimKind::ServiceUpgrade };
                self.claims
                    .iter()
                    .filter(|(key, _)| key.kind == kind)
                    .map(|(k, s)| (ObjectId::Claim(k.clone()), s.uid.clone(), s.rv))
                    .collect()
            }
            Feed::Stores => self
                .ledger_names
                .iter()
                .filter_map(|(name, repo)| self.ledgers.get(repo).map(|s| (name, s.uid.clone(), s.rv)))
                .chain(self.records.iter().map(|(name, s)| (name, s.uid.clone(), s.rv)))
                .map(|(name, uid, rv)| (ObjectId::Store(String::new(), name.clone()), uid, rv))
                .collect(),
        }
    }
}

/// Puts a shape in its place; the older of two versions of one UID loses. True if the shape changed.
pub(super) fn put<K: Ord, T: PartialEq>(map: &mut BTreeMap<K, Seen<T>>, key: K, new: Seen<T>) -> bool {
    match map.get_mut(&key) {
        Some(old) if old.uid == new.uid && new.rv <= old.rv => false,
        Some(old) if old.uid == new.uid && old.is == new.is => {
            old.rv = new.rv;
            false
        }
        Some(_) | None => {
            map.insert(key, new);
            true
        }
    }
}

/// Takes a shape out if it is still that UID.
fn take<K: Ord, T>(map: &mut BTreeMap<K, Seen<T>>, key: &K, uid: &Uid) -> Option<Seen<T>> {
    if map.get(key).is_some_and(|seen| seen.uid == *uid) { map.remove(key) } else { None }
}

impl World {
    fn see(&mut self, object: Object, now: Timestamp) -> BTreeSet<Key> {
        let Object { id, uid, rv, shape } = object;
        if self.gone.contains_key(&uid) {
            return BTreeSet::new();
        }
        macro_rules! seen {
            ($is:expr) => {
                Seen { uid: uid.clone(), rv, since: now, is: $is }
            };
        }
        match (id, shape) {
            (ObjectId::Node(name), Shape::Node(node)) => {
                if put(&mut self.nodes, name, seen!(node)) {
                    self.agent_keys()
                } else {
                    BTreeSet::new()
                }
            }
            (ObjectId::Pod(key), Shape::Pod(pod)) => self.see_pod(key, seen!(pod)),
            (ObjectId::Agent(key), Shape::Agent(agent)) => {
                if put(&mut self.agents, key.clone(), seen!(agent)) {
                    self.keys_of_agent(key)
                } else {
                    BTreeSet::new()
                }
            }
            (ObjectId::Revision(namespace, name), Shape::Revision(revision)) => {
                let owner = revision.owner.clone();
                let changed = put(&mut self.revisions, (namespace, name), seen!(revision));
                if changed { self.keys_of_owner(owner.as_ref()) } else { BTreeSet::new() }
            }
            (ObjectId::Claim(key), Shape::Claim(claim)) => {
                let changed = put(&mut self.claims, key.clone(), seen!(claim));
                if changed { self.keys_of_claim(&key) } else { BTreeSet::new() }
            }
            (ObjectId::Store(_, name), Shape::Ledger(repo, ledger)) => {
                self.ledger_names.insert(name, repo.clone());
                self.see_ledger(&repo, seen!(ledger))
            }
            (ObjectId::Store(_, name), Shape::Record(record)) => {
                if put(&mut self.records, name, seen!(record)) { self.all_keys() } else { BTreeSet::new() }
            }
            // An id and a shape of different kinds: nothing makes such an object.
            (
                ObjectId::Node(_)
                | ObjectId::Pod(_)
                | ObjectId::Agent(_)
                | ObjectId::Revision(..)
                | ObjectId::Claim(_)
                | ObjectId::Store(..),
                Shape::Node(_)
                | Shape::Pod(_)
                | Shape::Agent(_)
                | Shape::Revision(_)
                | Shape::Claim(_)
                | Shape::Ledger(..)
                | Shape::Record(_),
            ) => BTreeSet::new(),
        }
    }

    fn see_pod(&mut self, key: PodKey, seen: Seen<Pod>) -> BTreeSet<Key> {
        let before = self.pods.get(&key).and_then(|old| old.is.owner.clone());
        let replaced = self.pods.get(&key).map(|old| old.uid.clone()).filter(|uid| *uid != seen.uid);
        let owner = seen.is.owner.clone();
        if !put(&mut self.pods, key.clone(), seen) {
            return BTreeSet::new();
        }
        if before != owner
            && let Some(keys) = before.as_ref().and_then(|uid| self.pods_by_owner.get_mut(uid))
        {
            keys.remove(&key);
        }
        if let Some(uid) = replaced {
            self.pod_memory.remove(&uid);
        }
        self.remember(&key);
        if let Some(uid) = &owner {
            self.pods_by_owner.entry(uid.clone()).or_default().insert(key);
        }
        let mut keys = self.keys_of_owner(before.as_ref());
        keys.append(&mut self.keys_of_owner(owner.as_ref()));
        keys
    }

    fn remember(&mut self, key: &PodKey) {
        let Some(seen) = self.pods.get(key) else { return };
        let memory = self.pod_memory.entry(seen.uid.clone()).or_default();
        if seen.is.ready {
            *memory = PodMemory { was_ready: true, trouble_since: None };
        } else if seen.is.waiting.is_some() {
            memory.trouble_since = memory.trouble_since.or(Some(seen.since));
        }
    }

    fn lose(&mut self, id: &ObjectId, uid: &Uid, rv: Rv) -> BTreeSet<Key> {
        if self.gone.len() >= TOMBSTONES {
            self.gone.clear();
        }
        self.gone.insert(uid.clone(), rv);
        match id {
            ObjectId::Node(name) => {
                if take(&mut self.nodes, name, uid).is_some() {
                    self.agent_keys()
                } else {
                    BTreeSet::new()
                }
            }
            ObjectId::Pod(key) => {
                let Some(pod) = take(&mut self.pods, key, uid) else { return BTreeSet::new() };
                self.pod_memory.remove(uid);
                if let Some(owner) = &pod.is.owner
                    && let Some(keys) = self.pods_by_owner.get_mut(owner)
                {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.pods_by_owner.remove(owner);
                    }
                }
                self.keys_of_owner(pod.is.owner.as_ref())
            }
            ObjectId::Agent(key) => {
                if take(&mut self.agents, key, uid).is_some() {
                    self.keys_of_agent(key.clone())
                } else {
                    BTreeSet::new()
                }
            }
            ObjectId::Revision(namespace, name) => {
                let key = (namespace.clone(), name.clone());
                let lost = take(&mut self.revisions, &key, uid);
                self.keys_of_owner(lost.and_then(|seen| seen.is.owner).as_ref())
            }
            ObjectId::Claim(key) => {
                let keys = self.keys_of_claim(key);
                if take(&mut self.claims, key, uid).is_some() { keys } else { BTreeSet::new() }
            }
            ObjectId::Store(_, name) => {
                let keys = self.all_keys();
                if let Some(repo) = self.ledger_names.get(name).cloned() {
                    if take(&mut self.ledgers, &repo, uid).is_some() {
                        self.readable.remove(&repo);
                        self.ledger_names.remove(name);
                        return keys;
                    }
                    return BTreeSet::new();
                }
                if take(&mut self.records, name, uid).is_some() { keys } else { BTreeSet::new() }
            }
        }
    }

    /// An agent concerns its own target, the targets that could not be resolved, and the resolution itself.
    fn keys_of_agent(&self, key: AgentKey) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = self
            .all_keys()
            .into_iter()
            .filter(|key| matches!(key, Key::Mirror(_) | Key::Rollout(Target::Unresolved(_))))
            .collect();
        keys.insert(Key::Rollout(Target::Agent(key)));
        keys
    }

    fn keys_of_owner(&self, owner: Option<&Uid>) -> BTreeSet<Key> {
        let Some(owner) = owner else { return BTreeSet::new() };
        self.agents
            .iter()
            .filter(|(_, agent)| agent.uid == *owner)
            .map(|(key, _)| Key::Rollout(Target::Agent(key.clone())))
            .collect()
    }

    fn keys_of_claim(&self, claim: &ClaimKey) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([Key::Rollout(self.target_of(claim))]);
        for repo in self.ledgers.keys().chain(self.git.keys()) {
            keys.insert(Key::Mirror(repo.clone()));
            keys.insert(Key::Publish(repo.clone()));
        }
        keys
    }
}
