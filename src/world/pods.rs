//! Agent pods, by key and per DaemonSet in order of node.
//!
//! Guarantees: both orders hold the same pods; equal image maps are one map, so that ten thousand pods of one template
//! cost one map and are told apart by pointer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    Pod, PodKey,
    state::{News, Seen},
    topology::shared,
};
use crate::api::names::{NodeName, Uid};

/// Image by container name.
type Images = Arc<BTreeMap<String, String>>;

/// What was seen of one pod over time; gone with the process, which only makes judgements later, never earlier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodMemory {
    /// It was Ready once.
    pub was_ready: bool,
    /// Since when a container waits with a reason of failure, without having been Ready in between.
    pub trouble_since: Option<Timestamp>,
}

/// Where a pod stands among those of its DaemonSet; a pod without a node stands first.
type Place = (Option<NodeName>, PodKey);

/// All DaemonSet pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pods {
    by_key: BTreeMap<PodKey, Arc<Seen<Pod>>>,
    by_owner: BTreeMap<Uid, BTreeMap<Place, Arc<Seen<Pod>>>>,
    /// By UID of the pod.
    memory: BTreeMap<Uid, PodMemory>,
    images: BTreeSet<Images>,
}

/// Whether a pod that was put in is news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Put {
    /// Nothing that matters changed.
    Same,
    /// The pod is new or changed; with the owner that it had before.
    Changed(Option<Uid>),
}

impl Pods {
    /// The pod with this key.
    pub fn get(&self, key: &PodKey) -> Option<&Seen<Pod>> {
        self.by_key.get(key).map(|pod| &**pod)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// All of them in order of key.
    pub fn iter(&self) -> impl Iterator<Item = (&PodKey, &Seen<Pod>)> {
        self.by_key.iter().map(|(key, pod)| (key, &**pod))
    }

    /// Those of one DaemonSet, in order of node.
    pub fn of<'w>(&'w self, owner: &Uid) -> impl Iterator<Item = (&'w PodKey, &'w Seen<Pod>)> + use<'w> {
        let pods = self.by_owner.get(owner).into_iter().flatten();
        pods.map(|((_, key), pod)| (key, &**pod))
    }

    /// The name of a node as its pods have it, so that they share one.
    pub(super) fn name_of(&self, node: NodeName) -> NodeName {
        let first = (Some(node.clone()), PodKey { namespace: "".into(), name: "".into() });
        let mut places = self.by_owner.values().filter_map(|places| places.range(&first..).next());
        match places.find(|((name, _), _)| name.as_ref() == Some(&node)) {
            Some(((Some(name), _), _)) => name.clone(),
            Some(((None, _), _)) | None => node,
        }
    }

    /// What was seen of a pod over time, by its UID.
    pub fn memory(&self, uid: &Uid) -> Option<&PodMemory> {
        self.memory.get(uid)
    }

    /// Puts a pod in its place; the older of two versions of one UID loses.
    pub(super) fn put(&mut self, key: PodKey, mut new: Seen<Pod>) -> Put {
        let old = self.by_key.get(&key).cloned();
        match old.as_deref().map_or(News::Changed, |old| News::of(old, &new)) {
            News::Older => Put::Same,
            News::Same => {
                if let Some(old) = old {
                    self.place(key, Seen { rv: new.rv, ..(*old).clone() });
                }
                Put::Same
            }
            News::Changed => {
                if let Some(old) = &old {
                    self.unplace(&key, old);
                    if old.uid != new.uid {
                        self.memory.remove(&old.uid);
                    }
                }
                new.is.images = shared(&mut self.images, new.is.images);
                self.remember(&new);
                self.place(key, new);
                Put::Changed(old.and_then(|old| old.is.owner.clone()))
            }
        }
    }

    /// Takes every time of before a clock was set back into the past.
    pub(super) fn set_back(&mut self, now: Timestamp) {
        let ahead = self.by_key.iter().filter(|(_, pod)| pod.since > now);
        let ahead = ahead.map(|(key, pod)| (key.clone(), Seen { since: now, ..(**pod).clone() }));
        for (key, pod) in ahead.collect::<Vec<_>>() {
            self.place(key, pod);
        }
        let troubles = self.memory.values_mut().filter_map(|memory| memory.trouble_since.as_mut());
        troubles.for_each(|since| *since = now.min(*since));
    }

    /// Takes a pod out if it is still that UID.
    pub(super) fn take(&mut self, key: &PodKey, uid: &Uid) -> Option<Arc<Seen<Pod>>> {
        let pod = self.by_key.get(key).filter(|pod| pod.uid == *uid).cloned()?;
        self.by_key.remove(key);
        self.memory.remove(uid);
        self.unplace(key, &pod);
        Some(pod)
    }

    fn place(&mut self, key: PodKey, pod: Seen<Pod>) {
        let pod = Arc::new(pod);
        if let Some(owner) = &pod.is.owner {
            let place = (pod.is.node.clone(), key.clone());
            self.by_owner.entry(owner.clone()).or_default().insert(place, Arc::clone(&pod));
        }
        self.by_key.insert(key, pod);
    }

    fn unplace(&mut self, key: &PodKey, pod: &Seen<Pod>) {
        let Some(owner) = &pod.is.owner else { return };
        let Some(places) = self.by_owner.get_mut(owner) else { return };
        places.remove(&(pod.is.node.clone(), key.clone()));
        if places.is_empty() {
            self.by_owner.remove(owner);
        }
    }

    fn remember(&mut self, pod: &Seen<Pod>) {
        let memory = self.memory.entry(pod.uid.clone()).or_default();
        if pod.is.ready {
            *memory = PodMemory { was_ready: true, trouble_since: None };
        } else if pod.is.waiting.is_some() {
            memory.trouble_since = memory.trouble_since.or(Some(pod.since));
        }
    }
}
