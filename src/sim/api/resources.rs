//! The resources that the embedded cluster serves.

use crate::{
    api::names::{CNI_GROUP, SERVICE_GROUP},
    sim::model::store::Kind,
};

/// One resource, as discovery names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Name in request paths.
    pub plural: &'static str,
    /// `kind` of its objects.
    pub kind: &'static str,
    /// Short names that `kubectl` takes.
    pub short: &'static [&'static str],
    /// Whether `status` is a subresource.
    pub status: bool,
    /// Defined by a CustomResourceDefinition: schema, and no strategic merge patch.
    pub custom: bool,
    /// Where its objects are stored.
    pub stored: Kind,
    /// Paths that a field selector may name beside `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
}

const fn core(stored: Kind, plural: &'static str, kind: &'static str) -> Resource {
    let (short, fields): (&[&str], &[&str]) = (&[], &[]);
    Resource { group: "", version: "v1", plural, kind, short, status: false, custom: false, stored, fields }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
    "type",
];

const POD_FIELDS: &[&str] = &["spec.nodeName", "status.phase"];

static NAMESPACE: Resource = Resource { short: &["ns"], ..core(Kind::Namespace, "namespaces", "Namespace") };
static NODE: Resource = Resource { short: &["no"], status: true, ..core(Kind::Node, "nodes", "Node") };
static POD: Resource =
    Resource { short: &["po"], status: true, fields: POD_FIELDS, ..core(Kind::Pod, "pods", "Pod") };
static CONFIG_MAP: Resource = Resource { short: &["cm"], ..core(Kind::ConfigMap, "configmaps", "ConfigMap") };
static SERVICE: Resource =
    Resource { short: &["svc"], status: true, ..core(Kind::Service, "services", "Service") };
static EVENT: Resource =
    Resource { short: &["ev"], fields: EVENT_FIELDS, ..core(Kind::Event, "events", "Event") };
static DAEMON_SET: Resource = Resource {
    group: "apps",
    short: &["ds"],
    status: true,
    ..core(Kind::DaemonSet, "daemonsets", "DaemonSet")
};
static CONTROLLER_REVISION: Resource =
    Resource { group: "apps", ..core(Kind::ControllerRevision, "controllerrevisions", "ControllerRevision") };
static LEASE: Resource = Resource { group: "coordination.k8s.io", ..core(Kind::Lease, "leases", "Lease") };
static DEFINITION: Resource = Resource {
    group: "apiextensions.k8s.io",
    short: &["crd", "crds"],
    status: true,
    ..core(Kind::CustomResourceDefinition, "customresourcedefinitions", "CustomResourceDefinition")
};
static CNI_UPGRADE: Resource = Resource {
    group: CNI_GROUP,
    short: &["cniup"],
    status: true,
    custom: true,
    ..core(Kind::CniUpgrade, "cniupgrades", "CNIUpgrade")
};
static SERVICE_UPGRADE: Resource = Resource {
    group: SERVICE_GROUP,
    short: &["svcup"],
    status: true,
    custom: true,
    ..core(Kind::ServiceUpgrade, "serviceupgrades", "ServiceUpgrade")
};

/// The resource whose objects are stored under a kind.
pub fn of(kind: Kind) -> &'static Resource {
    match kind {
        Kind::Namespace => &NAMESPACE,
        Kind::Node => &NODE,
        Kind::Pod => &POD,
        Kind::ConfigMap => &CONFIG_MAP,
        Kind::Service => &SERVICE,
        Kind::Event => &EVENT,
        Kind::DaemonSet => &DAEMON_SET,
        Kind::ControllerRevision => &CONTROLLER_REVISION,
        Kind::Lease => &LEASE,
        Kind::CustomResourceDefinition => &DEFINITION,
        Kind::CniUpgrade => &CNI_UPGRADE,
        Kind::ServiceUpgrade => &SERVICE_UPGRADE,
    }
}

/// Every resource.
pub fn all() -> impl Iterator<Item = &'static Resource> {
    Kind::ALL.into_iter().map(of)
}

/// The resource of that name, if there is one.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    all().find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

impl Resource {
    /// Whether objects live in a namespace.
    pub const fn namespaced(&self) -> bool {
        self.stored.namespaced()
    }

    /// `daemonsets.apps`, or `pods` in the core group.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
