//! The world and how an observation changes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    Target,
    git::GitSeen,
    objects::{Agent, AgentKey, Claim, Node, Object, ObjectId, Pod, PodKey, Record, Revision, Shape},
    pods::{Pods, Put},
    topology::Topology,
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
    /// The decision about a key panicked, with these words.
    Undecided(Key, String),
    /// A decision about the key came again.
    Decided(Key),
}

/// Everything seen.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, Seen<Node>>,
    /// DaemonSet pods.
    pub pods: Pods,
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
    /// Keys about which there is no decision: what the panic said, and since when.
    pub undecided: BTreeMap<Key, (String, Timestamp)>,
    /// Health of the feeds; a missing one has not started.
    pub feeds: BTreeMap<Feed, FeedHealth>,
    /// Identifiers seen so far in lists that are under way.
    listing: BTreeMap<Feed, BTreeSet<ObjectId>>,
    /// One value for each topology that nodes have.
    topologies: BTreeSet<Arc<Topology>>,
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
            Observation::Git(mut seen) => {
                seen.set_back(now);
                let keys = self.keys_of_ledger(&seen.repo);
                self.git.insert(seen.repo.clone(), *seen);
                keys
            }
            Observation::Undecided(key, why) => self.note_undecided(key, why, now),
            Observation::Decided(key) => match self.undecided.remove(&key) {
                Some(_) => self.keys_that_tell(&key),
                None => BTreeSet::new(),
            },
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

/// What a version of an object is beside the one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It is no newer.
    Older,
    /// Newer, with an equal shape.
    Same,
    /// Another shape or another UID.
    Changed,
}

impl News {
    pub(super) fn of<T: PartialEq>(old: &Seen<T>, new: &Seen<T>) -> Self {
        if old.uid != new.uid {
            Self::Changed
        } else if new.rv <= old.rv {
            Self::Older
        } else if old.is == new.is {
            Self::Same
        } else {
            Self::Changed
        }
    }
}

/// Puts a shape in its place; the older of two versions of one UID loses. True if the shape changed.
pub(super) fn put<K: Ord, T: PartialEq>(map: &mut BTreeMap<K, Seen<T>>, key: K, new: Seen<T>) -> bool {
    if let Some(old) = map.get_mut(&key) {
        match News::of(old, &new) {
            News::Older => return false,
            News::Same => {
                old.rv = new.rv;
                return false;
            }
            News::Changed => {}
        }
    }
    map.insert(key, new);
    true
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
            (ObjectId::Node(name), Shape::Node(mut node)) => {
                node.labels.share(&mut self.topologies);
                let name = if self.nodes.contains_key(&name) { name } else { self.pods.name_of(name) };
                if put(&mut self.nodes, name, seen!(node)) { self.agent_keys() } else { BTreeSet::new() }
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

    fn see_pod(&mut self, key: PodKey, mut seen: Seen<Pod>) -> BTreeSet<Key> {
        // One name for a node and its pods, so that they are matched by pointer.
        if let Some(name) = &mut seen.is.node
            && let Some((known, _)) = self.nodes.get_key_value(name)
        {
            name.clone_from(known);
        }
        let owner = seen.is.owner.clone();
        let Put::Changed(before) = self.pods.put(key, seen) else { return BTreeSet::new() };
        let mut keys = self.keys_of_owner(owner.as_ref());
        if before.is_some() && before != owner {
            keys.append(&mut self.keys_of_owner(before.as_ref()));
        }
        keys
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
                let Some(pod) = self.pods.take(key, uid) else { return BTreeSet::new() };
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
}
