//! Names, metadata and requests: what an API server knows of an object besides its body.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;

use super::body::Body;
use crate::api::names::Uid;

/// Kinds that the embedded cluster stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `v1` Namespace.
    Namespace,
    /// `v1` Node.
    Node,
    /// `v1` Pod.
    Pod,
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Service.
    Service,
    /// `v1` Event.
    Event,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` ControllerRevision.
    ControllerRevision,
    /// `coordination.k8s.io/v1` Lease.
    Lease,
    /// `apiextensions.k8s.io/v1` CustomResourceDefinition.
    CustomResourceDefinition,
    /// `cni.example.com/v1` CNIUpgrade.
    CniUpgrade,
    /// `service.example.com/v1` ServiceUpgrade.
    ServiceUpgrade,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::ConfigMap,
        Self::Service,
        Self::Event,
        Self::DaemonSet,
        Self::ControllerRevision,
        Self::Lease,
        Self::CustomResourceDefinition,
        Self::CniUpgrade,
        Self::ServiceUpgrade,
    ];

    /// `kind` on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::Event => "Event",
            Self::DaemonSet => "DaemonSet",
            Self::ControllerRevision => "ControllerRevision",
            Self::Lease => "Lease",
            Self::CustomResourceDefinition => "CustomResourceDefinition",
            Self::CniUpgrade => "CNIUpgrade",
            Self::ServiceUpgrade => "ServiceUpgrade",
        }
    }

    /// Whether its objects live in a namespace.
    pub const fn namespaced(self) -> bool {
        match self {
            Self::Namespace | Self::Node | Self::CustomResourceDefinition | Self::CniUpgrade => false,
            Self::Pod
            | Self::ConfigMap
            | Self::Service
            | Self::Event
            | Self::DaemonSet
            | Self::ControllerRevision
            | Self::Lease
            | Self::ServiceUpgrade => true,
        }
    }

    /// Whether `metadata.generation` counts the writes of its spec.
    pub const fn has_generation(self) -> bool {
        match self {
            Self::DaemonSet | Self::CustomResourceDefinition | Self::CniUpgrade | Self::ServiceUpgrade => {
                true
            }
            Self::Namespace
            | Self::Node
            | Self::Pod
            | Self::ConfigMap
            | Self::Service
            | Self::Event
            | Self::ControllerRevision
            | Self::Lease => false,
        }
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjRef {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for a cluster-scoped kind.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjRef {
    /// Names an object of a namespaced kind.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
    /// Names a cluster-scoped object.
    pub fn cluster(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self::new(kind, "", name)
    }
}

impl fmt::Display for ObjRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{:?}/{}", self.kind, self.name)
        } else {
            write!(f, "{:?}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// An owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion` of the owner.
    pub api_version: Arc<str>,
    /// `kind` of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Uid,
    /// `controller: true`.
    pub controller: bool,
}

/// Fields that one manager wrote last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// Whether the fields are of the status, which has entries of its own.
    pub status: bool,
    /// When it last wrote.
    pub at: Timestamp,
    /// Paths of the fields, key by key.
    pub paths: BTreeSet<Vec<String>>,
}

/// A deletion that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleting {
    /// `metadata.deletionTimestamp`.
    pub at: Timestamp,
    /// `metadata.deletionGracePeriodSeconds`.
    pub grace: i64,
}

/// Metadata that writers set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Annotations.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Owner references.
    pub owners: Vec<Owner>,
    /// Who wrote which field last; the HTTP front keeps it for custom resources.
    pub managers: Vec<Manager>,
}

/// One object as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Which object.
    pub at: ObjRef,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub rv: u64,
    /// `metadata.generation`; 0 for kinds without one.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Set while it waits for finalizers or, as a pod, for its kubelet.
    pub deleting: Option<Deleting>,
    /// Metadata that writers set.
    pub meta: Meta,
    /// Spec and status.
    pub body: Body,
}

impl Stored {
    /// Whether a controller owner reference names this UID.
    pub fn controlled_by(&self, uid: &Uid) -> bool {
        self.controller().is_some_and(|owner| owner.uid == *uid)
    }
    /// The controller owner reference.
    pub fn controller(&self) -> Option<&Owner> {
        self.meta.owners.iter().find(|owner| owner.controller)
    }
}

/// What must hold for a write to be taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID that the object must have.
    pub uid: Option<Uid>,
    /// Version that the object must have.
    pub rv: Option<u64>,
}

impl Preconditions {
    /// Nothing is asked.
    pub const NONE: Self = Self { uid: None, rv: None };

    /// Both UID and version are asked.
    pub const fn exact(uid: Uid, rv: u64) -> Self {
        Self { uid: Some(uid), rv: Some(rv) }
    }
}

/// What becomes of objects that the deleted one owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    #[default]
    Background,
    /// They stay and lose the owner reference.
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// What must hold.
    pub preconditions: Preconditions,
    /// Seconds of grace; absent = the kind's own. Zero takes a pod away without its kubelet.
    pub grace: Option<i64>,
    /// What becomes of dependents.
    pub propagation: Propagation,
}

/// How a delete ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Deletion {
    /// It is gone; this is its last version.
    Removed(Arc<Stored>),
    /// It waits for finalizers or for its kubelet.
    Marked(Arc<Stored>),
}

/// A request that the API server says no to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// 404.
    #[error("{0} not found")]
    NotFound(ObjRef),
    /// 409 with reason `AlreadyExists`.
    #[error("{at} already exists")]
    AlreadyExists {
        /// Which object.
        at: ObjRef,
        /// Whether it is being deleted, so that the name will be free.
        going: bool,
    },
    /// 409 with reason `Conflict`: another UID or version.
    #[error("{at}: {message}")]
    Conflict {
        /// Which object.
        at: ObjRef,
        /// What was asked and what is.
        message: String,
    },
    /// 410: the log no longer reaches back that far.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// Version asked for.
        asked: u64,
        /// Oldest version that can still be watched from.
        oldest: u64,
    },
    /// 422.
    #[error("{at} is invalid: {message}")]
    Invalid {
        /// Which object.
        at: ObjRef,
        /// Why.
        message: String,
    },
}

impl Denied {
    /// HTTP status code.
    pub const fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::AlreadyExists { .. } | Self::Conflict { .. } => 409,
            Self::Expired { .. } => 410,
            Self::Invalid { .. } => 422,
        }
    }
    /// `reason` of `metav1.Status`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } => "Conflict",
            Self::Expired { .. } => "Expired",
            Self::Invalid { .. } => "Invalid",
        }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One entry of the log; its version is `object.rv`.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What happened.
    pub what: What,
    /// The object after it; of a deletion the last version, under the deletion's own resourceVersion.
    pub object: Arc<Stored>,
    /// The object before it; absent for a creation.
    pub before: Option<Arc<Stored>>,
}
