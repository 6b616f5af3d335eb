//! What the objects of the embedded cluster hold, spec and status apart from metadata.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::{names::Digest, status::Truth},
    world::{Strategy, Template},
};

/// Everything of an object but its metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Of a Node.
    Node(NodeBody),
    /// Of a Pod.
    Pod(Box<PodBody>),
    /// Of a DaemonSet.
    DaemonSet(Box<DaemonSetBody>),
    /// Of a ControllerRevision.
    Revision(RevisionBody),
    /// Of any other kind.
    Plain(Plain),
}

/// A kind that the world machine does not act upon: kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The object without `apiVersion`, `kind`, `metadata` and `status`.
    pub content: Arc<Value>,
    /// `status`, where the kind has that subresource.
    pub status: Option<Arc<Value>>,
}

/// A condition of a Node or Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cond {
    /// Whether it holds.
    pub status: Truth,
    /// PascalCase reason; empty = none.
    pub reason: Arc<str>,
    /// Text; empty = none.
    pub message: Arc<str>,
    /// `lastTransitionTime`.
    pub since: Timestamp,
}

/// A taint of a Node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; empty = none.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeBody {
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Condition `Ready`.
    pub ready: Cond,
    /// Condition `NetworkUnavailable`, where some CNI sets it.
    pub network_unavailable: Option<Cond>,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodBody {
    /// `spec.nodeName`; absent while the scheduler has not bound it.
    pub node: Option<Arc<str>>,
    /// Node in the affinity that the DaemonSet controller puts on its pods.
    pub wanted_node: Option<Arc<str>>,
    /// Template that the pod was made from; its `spec` is the pod's.
    pub template: Template,
    /// `status.phase`.
    pub phase: PodPhase,
    /// Condition `Initialized`.
    pub initialized: Cond,
    /// Condition `Ready`.
    pub ready: Cond,
    /// Init containers first, each group in the order of the template.
    pub containers: Vec<Container>,
}

/// `status.phase` of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have been started.
    Pending,
    /// Started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl PodPhase {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// One container of a Pod with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Name in the template.
    pub name: Arc<str>,
    /// Image in the template.
    pub image: Arc<str>,
    /// In `initContainers`.
    pub init: bool,
    /// State now.
    pub state: ContainerState,
    /// `ready`; for an init container that it has ended well.
    pub ready: bool,
    /// `restartCount`.
    pub restarts: u32,
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// Not running.
    Waiting {
        /// `PodInitializing`, `ContainerCreating`, `CrashLoopBackOff`, `ImagePullBackOff`, ...
        reason: Arc<str>,
        /// Text; empty = none.
        message: Arc<str>,
    },
    /// Running.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Ended.
    Terminated {
        /// Exit code.
        code: i32,
        /// When.
        at: Timestamp,
    },
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSetBody {
    /// `spec.selector.matchLabels`.
    pub selector: Arc<BTreeMap<String, String>>,
    /// `spec.template` as written, with its digest.
    pub template: Template,
    /// `spec.updateStrategy.type`.
    pub strategy: Strategy,
    /// `spec.updateStrategy.rollingUpdate` as written; it stays under `OnDelete`.
    pub rolling_update: Option<Arc<Value>>,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`.
    pub revision_history_limit: usize,
    /// Status.
    pub status: DaemonSetStatus,
}

/// Status of a DaemonSet; the API omits fields that are zero and optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaemonSetStatus {
    /// `observedGeneration`.
    pub observed_generation: i64,
    /// `desiredNumberScheduled`.
    pub desired: i32,
    /// `currentNumberScheduled`.
    pub current: i32,
    /// `updatedNumberScheduled`.
    pub updated: i32,
    /// `numberReady`.
    pub ready: i32,
    /// `numberAvailable`.
    pub available: i32,
    /// `numberMisscheduled`.
    pub misscheduled: i32,
}

/// A ControllerRevision of a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionBody {
    /// The pod template in `data.spec.template` (on the wire with `$patch: replace`).
    pub template: Arc<Value>,
    /// Its digest.
    pub digest: Digest,
    /// `revision`.
    pub revision: i64,
}

impl Body {
    /// Whether both say the same apart from status: a difference moves `metadata.generation`.
    pub fn same_spec(&self, other: &Self) -> bool {
        self == &other.clone().with_status_of(self)
    }

    /// This spec with the status of `old`, as a write to the main resource stores it.
    #[must_use]
    pub fn with_status_of(self, old: &Self) -> Self {
        match (self, old) {
            (Self::Node(new), Self::Node(old)) => Self::Node(NodeBody {
                ready: old.ready.clone(),
                network_unavailable: old.network_unavailable.clone(),
                ..new
            }),
            (Self::Pod(mut new), Self::Pod(old)) => {
                new.phase = old.phase;
                new.initialized = old.initialized.clone();
                new.ready = old.ready.clone();
                new.containers.clone_from(&old.containers);
                Self::Pod(new)
            }
            (Self::DaemonSet(mut new), Self::DaemonSet(old)) => {
                new.status = old.status;
                Self::DaemonSet(new)
            }
            (Self::Plain(new), Self::Plain(old)) => Self::Plain(Plain { status: old.status.clone(), ..new }),
            (new, Self::Node(_) | Self::Pod(_) | Self::DaemonSet(_) | Self::Revision(_) | Self::Plain(_)) => {
                new
            }
        }
    }
}
