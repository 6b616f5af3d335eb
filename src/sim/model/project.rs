//! The slim shapes of stored objects, typed: what the HTTP front and `observe` give together, without JSON between.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    Model,
    body::{Body, Container, ContainerState, DaemonSetBody, NodeBody, Plain, PodBody},
    store::{Change, Denied, Kind, ObjRef, Stored, What},
};
use crate::{
    api::{
        ClaimKey, ClaimKind,
        names::{
            FINALIZER, HOLD, NodeName, ORIGINAL_STRATEGY, REPOSITORY, REVISION_HASH, RepoName, Rv, STORE,
        },
        status::Truth,
    },
    mirror::ledger::Ledger,
    world::{
        Agent, AgentKey, Claim, ClaimStatus, Feed, Hold, Labels, Mark, Node, Object, ObjectId, Observation,
        Pod, PodKey, Revision, Shape, WaitReason, digest,
    },
};

/// Value of the label `STORE` on a ledger, and of the one on an attempt record.
pub(super) const LEDGER: &str = "ledger";
pub(super) const ATTEMPT: &str = "attempt";
/// Keys of their content in the ConfigMap.
pub(super) const LEDGER_KEY: &str = "ledger.json";
pub(super) const ATTEMPT_KEY: &str = "attempt.json";
/// Reasons with which a container waits in the course of things.
const WAITS_WELL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Taints of nodes that go away by themselves.
const LEAVING: [&str; 5] = [
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];

impl Model {
    /// An object in its slim shape; none when it is not there or of no interest.
    pub fn object(&self, at: &ObjRef) -> Option<Object> {
        self.get(at).and_then(|stored| object(stored))
    }

    /// Watch events after a version, as the feeds give them; 410 when the log no longer reaches back that far.
    pub fn observations_since(&self, rv: u64) -> Result<Vec<Observation>, Denied> {
        Ok(self.changes_since(rv)?.filter_map(observation).collect())
    }

    /// A full list of every feed.
    pub fn relist(&self) -> Vec<Observation> {
        Feed::ALL.into_iter().flat_map(|feed| self.relist_feed(feed)).collect()
    }

    /// A full list of one feed.
    pub fn relist_feed(&self, feed: Feed) -> Vec<Observation> {
        let objects = self.store.list(kind_of(feed), None).filter_map(|stored| object(stored));
        let listed = objects.map(|object| Observation::Listed(feed, Box::new(object)));
        std::iter::once(Observation::Relisting(feed))
            .chain(listed)
            .chain(std::iter::once(Observation::Relisted(feed)))
            .collect()
    }
}

/// A change as a watch event of its feed; none for kinds that no feed follows.
pub fn observation(change: &Change) -> Option<Observation> {
    let feed = feed_of(change.object.at.kind)?;
    match change.what {
        What::Added | What::Modified => Some(Observation::Changed(feed, Box::new(object(&change.object)?))),
        What::Deleted => {
            let (uid, rv) = (change.object.uid.clone(), Rv(change.object.rv));
            Some(Observation::Gone(feed, id(&change.object)?, uid, rv))
        }
    }
}

/// The feed that follows a kind.
pub fn feed_of(kind: Kind) -> Option<Feed> {
    match kind {
        Kind::Node => Some(Feed::Nodes),
        Kind::Pod => Some(Feed::Pods),
        Kind::DaemonSet => Some(Feed::Agents),
        Kind::ControllerRevision => Some(Feed::Revisions),
        Kind::ConfigMap => Some(Feed::Stores),
        Kind::CniUpgrade => Some(Feed::CniUpgrades),
        Kind::ServiceUpgrade => Some(Feed::ServiceUpgrades),
        Kind::Namespace | Kind::Service | Kind::Event | Kind::Lease | Kind::CustomResourceDefinition => None,
    }
}

fn kind_of(feed: Feed) -> Kind {
    match feed {
        Feed::Nodes => Kind::Node,
        Feed::Pods => Kind::Pod,
        Feed::Agents => Kind::DaemonSet,
        Feed::Revisions => Kind::ControllerRevision,
        Feed::Stores => Kind::ConfigMap,
        Feed::CniUpgrades => Kind::CniUpgrade,
        Feed::ServiceUpgrades => Kind::ServiceUpgrade,
    }
}

/// The slim shape of a stored object.
pub fn object(stored: &Stored) -> Option<Object> {
    let id = id(stored)?;
    let shape = match &stored.body {
        Body::Node(node) => Shape::Node(shape_of_node(stored, node)),
        Body::Pod(pod) => Shape::Pod(shape_of_pod(stored, pod)?),
        Body::DaemonSet(body) => Shape::Agent(shape_of_agent(stored, body)),
        Body::Revision(body) => Shape::Revision(Revision {
            owner: stored.controller().map(|owner| owner.uid.clone()),
            hash: stored.meta.labels.get(REVISION_HASH).map(String::as_str).unwrap_or_default().into(),
            template: body.digest.clone(),
        }),
        Body::Plain(plain) => match &id {
            ObjectId::Claim(key) => Shape::Claim(shape_of_claim(stored, key, plain)),
            ObjectId::Store(..) => shape_of_store(stored, plain)?,
            ObjectId::Node(_) | ObjectId::Pod(_) | ObjectId::Agent(_) | ObjectId::Revision(..) => {
                return None;
            }
        },
    };
    Some(Object { id, uid: stored.uid.clone(), rv: Rv(stored.rv), shape })
}

fn id(stored: &Stored) -> Option<ObjectId> {
    let ObjRef { kind, namespace, name } = &stored.at;
    let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
    match kind {
        Kind::Node => Some(ObjectId::Node(NodeName::new(name))),
        Kind::Pod => Some(ObjectId::Pod(PodKey { namespace, name })),
        Kind::DaemonSet => {
            Some(ObjectId::Agent(AgentKey { namespace: namespace.to_string(), name: name.to_string() }))
        }
        Kind::ControllerRevision => Some(ObjectId::Revision(namespace.to_string(), name.to_string())),
        Kind::CniUpgrade => Some(ObjectId::Claim(ClaimKey::cni(&name))),
        Kind::ServiceUpgrade => Some(ObjectId::Claim(ClaimKey::service(&namespace, &name))),
        Kind::ConfigMap => {
            let ours = stored.meta.labels.contains_key(STORE);
            ours.then(|| ObjectId::Store(namespace.to_string(), name.to_string()))
        }
        Kind::Namespace | Kind::Service | Kind::Event | Kind::Lease | Kind::CustomResourceDefinition => None,
    }
}

fn shape_of_node(stored: &Stored, node: &NodeBody) -> Node {
    let network = node.network_unavailable.as_ref();
    Node {
        labels: Labels::new(Arc::clone(&stored.meta.labels)),
        created: stored.created,
        ready: node.ready.status,
        network_unavailable: network.is_some_and(|condition| condition.status == Truth::True),
        network_not_ready: node.ready.status != Truth::True
            && node.ready.message.contains("NetworkPluginNotReady"),
        cordoned: node.unschedulable,
        leaving: stored.deleting.is_some()
            || node.taints.iter().any(|taint| LEAVING.contains(&taint.key.as_str())),
    }
}

fn shape_of_pod(stored: &Stored, pod: &PodBody) -> Option<Pod> {
    let owner = stored.controller().filter(|owner| *owner.kind == *"DaemonSet")?;
    Some(Pod {
        owner: Some(owner.uid.clone()),
        node: pod.node.as_ref().or(pod.wanted_node.as_ref()).map(NodeName::new),
        revision: stored.meta.labels.get(REVISION_HASH).map(|hash| hash.as_str().into()),
        images: Arc::new(pod.containers.iter().map(image_of).collect::<BTreeMap<_, _>>()),
        initialized: pod.initialized.status == Truth::True,
        ready: pod.ready.status == Truth::True,
        restarts: pod.containers.iter().map(|part| part.restarts).sum(),
        waiting: pod.containers.iter().find_map(waiting),
        deleting: stored.deleting.is_some(),
    })
}

fn image_of(part: &Container) -> (String, String) {
    let name = if part.init { format!("init:{}", part.name) } else { part.name.to_string() };
    (name, part.image.to_string())
}

fn waiting(part: &Container) -> Option<WaitReason> {
    let ContainerState::Waiting { reason, message } = &part.state else { return None };
    if WAITS_WELL.contains(&&**reason) {
        return None;
    }
    Some(WaitReason {
        container: part.name.to_string(),
        reason: reason.to_string(),
        message: message.chars().take(200).collect(),
        init: part.init,
    })
}

fn shape_of_agent(stored: &Stored, body: &DaemonSetBody) -> Agent {
    let surge = body.rolling_update.as_ref().and_then(|rolling| rolling.get("maxSurge"));
    Agent {
        labels: BTreeMap::clone(&stored.meta.labels),
        original_strategy: stored.meta.annotations.get(ORIGINAL_STRATEGY).cloned(),
        generation: stored.generation,
        observed_generation: body.status.observed_generation,
        strategy: body.strategy,
        surge: surge.is_some_and(|surge| surge.as_i64() != Some(0) && surge.as_str() != Some("0%")),
        template: body.template.clone(),
        desired: body.status.desired,
        current: body.status.current,
        updated: body.status.updated,
        marks: marks(stored),
        deleting: stored.deleting.is_some(),
    }
}

fn marks(stored: &Stored) -> Vec<Mark> {
    let owners = stored.meta.owners.iter().filter(|owner| owner.controller);
    let mut marks: Vec<Mark> =
        owners.map(|owner| Mark::Owner(format!("{}/{}", owner.kind, owner.name))).collect();
    let keys: Vec<&String> = stored.meta.labels.keys().chain(stored.meta.annotations.keys()).collect();
    let signs = [
        ("meta.helm.sh/", Mark::Helm),
        ("kustomize.toolkit.fluxcd.io/", Mark::Flux),
        ("helm.toolkit.fluxcd.io/", Mark::Flux),
        ("argocd.argoproj.io/", Mark::ArgoCD),
        ("addonmanager.kubernetes.io/", Mark::AddonManager),
        ("addon.kops.k8s.io/", Mark::Kops),
        ("eks.amazonaws.com/", Mark::EksAddon),
    ];
    for (prefix, mark) in signs {
        if keys.iter().any(|key| key.starts_with(prefix)) && !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    marks
}

fn shape_of_claim(stored: &Stored, key: &ClaimKey, plain: &Plain) -> Claim {
    let spec = plain.content.get("spec").cloned().unwrap_or(Value::Null);
    let annotations = &stored.meta.annotations;
    let ours = annotations.iter().filter(|(key, _)| key.starts_with("trunkline.dev/"));
    let path = ["f:metadata", "f:annotations"];
    let braked = stored.meta.managers.iter().find(|manager| {
        manager.paths.iter().any(|fields| {
            fields.iter().map(String::as_str).eq(path.into_iter().chain([&*format!("f:{HOLD}")]))
        })
    });
    Claim {
        generation: stored.generation,
        annotations: ours.map(|(key, value)| (key.clone(), value.clone())).collect(),
        hold: annotations.get(HOLD).map(|reason| Hold {
            reason: reason.clone(),
            by: braked.map(|manager| manager.name.clone()),
            since: braked.map(|manager| manager.at),
        }),
        foreign: marks(stored).iter().any(|mark| matches!(mark, Mark::Flux | Mark::ArgoCD | Mark::Helm)),
        finalizer: stored.meta.finalizers.iter().any(|name| name == FINALIZER),
        deleting: stored.deleting.is_some(),
        digest: digest::of(&spec),
        spec: Arc::new(spec),
        status: plain.status.as_ref().map_or(ClaimStatus::None, |status| status_of(key, status)),
    }
}

fn status_of(key: &ClaimKey, status: &Arc<Value>) -> ClaimStatus {
    use serde::Deserialize as _;
    let typed = match key.kind {
        ClaimKind::CniUpgrade => crate::api::CniUpgradeStatus::deserialize(&**status)
            .map(|status| ClaimStatus::Cni(Box::new(status))),
        ClaimKind::ServiceUpgrade => crate::api::ServiceUpgradeStatus::deserialize(&**status)
            .map(|status| ClaimStatus::Service(Box::new(status))),
    };
    typed.unwrap_or_else(|error| ClaimStatus::Unreadable(error.to_string()))
}

fn shape_of_store(stored: &Stored, plain: &Plain) -> Option<Shape> {
    match stored.meta.labels.get(STORE).map(String::as_str) {
        Some(LEDGER) => {
            let ledger = read::<Ledger>(plain, LEDGER_KEY);
            let named = stored.meta.annotations.get(REPOSITORY).map(RepoName::new);
            let repo = ledger.as_ref().map_or(named, |ledger| Some(ledger.repository.clone()))?;
            Some(Shape::Ledger(repo, ledger))
        }
        Some(ATTEMPT) => Some(Shape::Record(read(plain, ATTEMPT_KEY))),
        Some(_) | None => None,
    }
}

fn read<T: serde::de::DeserializeOwned>(plain: &Plain, key: &str) -> Result<Box<T>, String> {
    let text = plain.content.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let text = text.ok_or_else(|| format!("the ConfigMap has no key `{key}`"))?;
    serde_json::from_str(text).map(Box::new).map_err(|error| error.to_string())
}
