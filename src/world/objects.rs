//! Slim shapes of the objects that trunkline looks at: only what a decision needs.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{
    ClaimKey, CniUpgradeStatus, ServiceUpgradeStatus,
    cni_upgrade::CniPhase,
    names::{Digest, NodeName, RepoName, Rv, Uid},
    status::{Attempt, LastGood, Rollback, Truth},
};
use crate::{
    mirror::ledger::Ledger,
    world::{Labels, Target},
};

/// `namespace/name` of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// `namespace/name` of an agent DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgentKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for AgentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which object, as the API server names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectId {
    /// A Node.
    Node(NodeName),
    /// A Pod.
    Pod(PodKey),
    /// A DaemonSet.
    Agent(AgentKey),
    /// A ControllerRevision: namespace, name.
    Revision(String, String),
    /// A custom resource of ours.
    Claim(ClaimKey),
    /// A ConfigMap of ours: namespace, name.
    Store(String, String),
}

/// One object in its slim shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Which object.
    pub id: ObjectId,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub rv: Rv,
    /// What it is.
    pub shape: Shape,
}

/// The slim shapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A Node.
    Node(Node),
    /// A Pod.
    Pod(Pod),
    /// A DaemonSet.
    Agent(Agent),
    /// A ControllerRevision.
    Revision(Revision),
    /// A custom resource of ours.
    Claim(Claim),
    /// The ledger of a repository.
    Ledger(RepoName, Result<Box<Ledger>, String>),
    /// An attempt's record.
    Record(Result<Box<Record>, String>),
}

/// Facts of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// All labels.
    pub labels: Labels,
    /// `metadata.creationTimestamp`, by the API server's clock.
    pub created: Timestamp,
    /// Condition `Ready`; `Unknown` also when the condition is absent.
    pub ready: Truth,
    /// Condition `NetworkUnavailable` is `True`.
    pub network_unavailable: bool,
    /// `Ready` is not True because the network plugin is not ready (kubelet reason or message).
    pub network_not_ready: bool,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Being deleted, or tainted by autoscaler, Karpenter or shutdown: going away by itself.
    pub leaving: bool,
}

/// Why a container is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitReason {
    /// Container name.
    pub container: String,
    /// Kubelet's reason: `CrashLoopBackOff`, `ImagePullBackOff`, ...
    pub reason: String,
    /// Kubelet's message, at most 200 characters.
    pub message: String,
    /// Whether it is an init container.
    pub init: bool,
}

/// Facts of a Pod owned by a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Controller owner.
    pub owner: Option<Uid>,
    /// Node: `spec.nodeName`, else the affinity field of an unscheduled DaemonSet pod.
    pub node: Option<NodeName>,
    /// Label `controller-revision-hash`.
    pub revision: Option<Arc<str>>,
    /// Image by container name, init containers with prefix `init:`.
    pub images: Arc<BTreeMap<String, String>>,
    /// Condition `Initialized`.
    pub initialized: bool,
    /// Condition `Ready`.
    pub ready: bool,
    /// Sum of restart counts, init containers included.
    pub restarts: u32,
    /// First container that waits with a reason of failure.
    pub waiting: Option<WaitReason>,
    /// `deletionTimestamp` is set.
    pub deleting: bool,
}

/// Update strategy of a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strategy {
    /// The controller replaces pods by itself.
    RollingUpdate,
    /// A pod is replaced when it is deleted.
    OnDelete,
}

impl Strategy {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RollingUpdate => "RollingUpdate",
            Self::OnDelete => "OnDelete",
        }
    }
}

/// A pod template as it was read, with the digest of its canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// `spec.template`, every field kept.
    pub raw: Arc<Value>,
    /// Digest over canonical JSON (`world::digest::of_template`).
    pub digest: Digest,
}

/// Facts of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Labels of the DaemonSet itself.
    pub labels: BTreeMap<String, String>,
    /// Annotation `trunkline.dev/original-strategy`.
    pub original_strategy: Option<String>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// Update strategy.
    pub strategy: Strategy,
    /// `maxSurge` above zero.
    pub surge: bool,
    /// Live template.
    pub template: Template,
    /// `status.desiredNumberScheduled`.
    pub desired: i32,
    /// `status.currentNumberScheduled`.
    pub current: i32,
    /// `status.updatedNumberScheduled`.
    pub updated: i32,
    /// Managers seen in owner references, labels and annotations.
    pub marks: Vec<Mark>,
    /// Being deleted.
    pub deleting: bool,
}

/// A sign that somebody else manages an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// An owner reference with `controller: true`: `kind/name`.
    Owner(String),
    /// Helm release annotations.
    Helm,
    /// Flux labels (`kustomize.toolkit.fluxcd.io/*`, `helm.toolkit.fluxcd.io/*`).
    Flux,
    /// Argo CD tracking label or annotation.
    ArgoCD,
    /// Kubernetes' addon manager.
    AddonManager,
    /// kops channel labels.
    Kops,
    /// EKS managed add-on.
    EksAddon,
    /// An operator's label.
    Operator(String),
}

/// Facts of a ControllerRevision of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Owning DaemonSet.
    pub owner: Option<Uid>,
    /// Label `controller-revision-hash`, as on the pods.
    pub hash: Arc<str>,
    /// Digest of the template it holds.
    pub template: Digest,
}

/// Status of a claim, typed if it can be.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimStatus {
    /// Never written.
    None,
    /// Of a CNIUpgrade.
    Cni(Box<CniUpgradeStatus>),
    /// Of a ServiceUpgrade.
    Service(Box<ServiceUpgradeStatus>),
    /// Bytes that do not decode; the text says why.
    Unreadable(String),
}

impl ClaimStatus {
    /// Leader epoch of its last writer, where one is told.
    pub const fn epoch(&self) -> Option<i64> {
        match self {
            Self::Cni(status) => status.epoch,
            Self::Service(status) => status.epoch,
            Self::None | Self::Unreadable(_) => None,
        }
    }
}

/// Who put the brake on, and since when as far as the object says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Text of the annotation.
    pub reason: String,
    /// Field manager that wrote it, and when, from `managedFields`.
    pub by: Option<String>,
    /// When it was written.
    pub since: Option<Timestamp>,
}

/// A custom resource of ours (a claim about a target).
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// `metadata.generation`.
    pub generation: i64,
    /// Annotations of ours by name.
    pub annotations: BTreeMap<String, String>,
    /// The brake.
    pub hold: Option<Hold>,
    /// Flux, Argo CD or Helm marks.
    pub foreign: bool,
    /// Our finalizer is there.
    pub finalizer: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Spec as it was read; absent fields are defaulted by the server.
    pub spec: Arc<Value>,
    /// Digest over canonical JSON of `spec`.
    pub digest: Digest,
    /// Status.
    pub status: ClaimStatus,
}

/// What an attempt must not lose with its custom resource: a ConfigMap beside the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Claim that the attempt belongs to.
    pub claim: ClaimKey,
    /// Target it is about.
    pub target: Target,
    /// The attempt.
    pub attempt: Attempt,
    /// Phase it had reached.
    pub phase: CniPhase,
    /// Its last good, template included.
    pub last_good: LastGood,
    /// Why it goes back, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// UIDs of nodes that were unhealthy before.
    #[serde(default)]
    pub baseline: Vec<Uid>,
}
