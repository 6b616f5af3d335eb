//! What the daemon's account needs: one row for each effect and each feed; as RBAC, and as the admission policies that
//! draw the bounds which RBAC cannot draw.
//!
//! Guarantees: an effect or a feed without its row does not compile; no wildcard, no Secret, no verb that nothing uses;
//! equal input gives equal bytes.

mod needs;
mod policy;
mod rbac;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use needs::{Need, needs};
pub use policy::policies;
pub use rbac::objects;

use crate::{
    api::{
        ClaimKind,
        names::{CNI_GROUP, SERVICE_GROUP},
    },
    profile::Profile,
    rollout::effect::StepName,
    world::{AgentKey, Feed},
};

/// Name of the service account, of the Lease, and of what grants to the account.
pub const ACCOUNT: &str = "trunkline";

/// One installation: where the daemon lives, and what it may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Namespace of the daemon and of its stores.
    pub namespace: String,
    /// DaemonSets that it may change, and whose pods it may delete.
    pub agents: BTreeSet<AgentKey>,
}

/// DaemonSets that profiles find by name, and what they find by pattern, which RBAC has no form for.
pub fn agents<'p>(profiles: impl IntoIterator<Item = &'p Profile>) -> (BTreeSet<AgentKey>, BTreeSet<String>) {
    let mut named = BTreeSet::new();
    let mut patterns = BTreeSet::new();
    for entry in profiles.into_iter().flat_map(|profile| &profile.detect) {
        let anywhere = ["*".to_owned()];
        let namespaces = if entry.namespaces.is_empty() { &anywhere[..] } else { &entry.namespaces };
        for (namespace, name) in
            namespaces.iter().flat_map(|at| entry.names.iter().map(move |name| (at, name)))
        {
            if namespace.contains('*') || name.contains('*') {
                patterns.insert(format!("{namespace}/{name}"));
            } else {
                named.insert(AgentKey { namespace: namespace.clone(), name: name.clone() });
            }
        }
    }
    (named, patterns)
}

/// Where a right is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// In the whole cluster.
    Cluster,
    /// In the namespace of the daemon.
    Own,
    /// In each namespace that an agent lives in.
    Agents,
    /// In the namespace `default`, where events about objects without a namespace are.
    Default,
}

/// Kinds of objects, as rules name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    Namespaces,
    Nodes,
    Pods,
    ConfigMaps,
    Events,
    DaemonSets,
    ControllerRevisions,
    Leases,
    Claims(ClaimKind),
    ClaimStatuses(ClaimKind),
}

impl Resource {
    const fn group(self) -> &'static str {
        match self {
            Self::Namespaces | Self::Nodes | Self::Pods | Self::ConfigMaps | Self::Events => "",
            Self::DaemonSets | Self::ControllerRevisions => "apps",
            Self::Leases => "coordination.k8s.io",
            Self::Claims(kind) | Self::ClaimStatuses(kind) => match kind {
                ClaimKind::CniUpgrade => CNI_GROUP,
                ClaimKind::ServiceUpgrade => SERVICE_GROUP,
            },
        }
    }

    fn plural(self) -> String {
        match self {
            Self::Namespaces => "namespaces".to_owned(),
            Self::Nodes => "nodes".to_owned(),
            Self::Pods => "pods".to_owned(),
            Self::ConfigMaps => "configmaps".to_owned(),
            Self::Events => "events".to_owned(),
            Self::DaemonSets => "daemonsets".to_owned(),
            Self::ControllerRevisions => "controllerrevisions".to_owned(),
            Self::Leases => "leases".to_owned(),
            Self::Claims(kind) => kind.plural().to_owned(),
            Self::ClaimStatuses(kind) => format!("{}/status", kind.plural()),
        }
    }
}

/// Which objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    All,
    /// The one with this name.
    One(&'static str),
    /// The agents' DaemonSets.
    Agents,
}

/// Verbs in the order in which rules list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One thing that the account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    place: Place,
    resource: Resource,
    which: Which,
    verb: Verb,
}

/// Rights to do some things to one kind of object in one place.
fn may(place: Place, resource: Resource, which: Which, verbs: &[Verb]) -> Vec<Right> {
    verbs.iter().map(|&verb| Right { place, resource, which, verb }).collect()
}

/// Everything that the daemon does.
fn rights() -> BTreeSet<Right> {
    let steps = StepName::ALL.into_iter().flat_map(of_step);
    Feed::ALL.into_iter().flat_map(of_feed).chain(steps).chain(of_process()).collect()
}

/// What an effect sends, and the read after an end that left open what is there.
fn of_step(step: StepName) -> Vec<Right> {
    let claims = |verbs: &[Verb]| of_claims(Resource::Claims, verbs);
    let stores = |verbs: &[Verb]| may(Place::Own, Resource::ConfigMaps, Which::All, verbs);
    let daemon_sets = |verbs: &[Verb]| may(Place::Agents, Resource::DaemonSets, Which::Agents, verbs);
    match step {
        StepName::WriteLedger | StepName::RecordAttempt => stores(&[Verb::Create, Verb::Update, Verb::Get]),
        StepName::ForgetAttempt => stores(&[Verb::Delete, Verb::Get]),
        StepName::CreateClaim => claims(&[Verb::Create, Verb::Get]),
        StepName::ReplaceClaim | StepName::ReleaseClaim => claims(&[Verb::Patch, Verb::Get]),
        StepName::DeleteClaim => claims(&[Verb::Delete, Verb::Get]),
        StepName::WriteStatus => {
            let statuses = of_claims(Resource::ClaimStatuses, &[Verb::Update]);
            statuses.into_iter().chain(claims(&[Verb::Get])).collect()
        }
        StepName::DryRunTemplate
        | StepName::PatchTemplate
        | StepName::RestoreTemplate
        | StepName::RestoreStrategy => daemon_sets(&[Verb::Patch, Verb::Get]),
        StepName::DeletePod => may(Place::Agents, Resource::Pods, Which::All, &[Verb::Delete, Verb::Get]),
        StepName::PushStatus | StepName::PushRollback => Vec::new(),
        StepName::RecordEvent => may(Place::Default, Resource::Events, Which::All, &[Verb::Create]),
    }
}

/// Both kinds: the repository says which of them there are.
fn of_claims(resource: impl Fn(ClaimKind) -> Resource, verbs: &[Verb]) -> Vec<Right> {
    let kinds = [ClaimKind::CniUpgrade, ClaimKind::ServiceUpgrade];
    kinds.into_iter().flat_map(|kind| may(Place::Cluster, resource(kind), Which::All, verbs)).collect()
}

/// What a feed sends.
fn of_feed(feed: Feed) -> Vec<Right> {
    let (place, resource) = match feed {
        Feed::Nodes => (Place::Cluster, Resource::Nodes),
        Feed::Pods => (Place::Cluster, Resource::Pods),
        Feed::Agents => (Place::Cluster, Resource::DaemonSets),
        Feed::Revisions => (Place::Cluster, Resource::ControllerRevisions),
        Feed::CniUpgrades => (Place::Cluster, Resource::Claims(ClaimKind::CniUpgrade)),
        Feed::ServiceUpgrades => (Place::Cluster, Resource::Claims(ClaimKind::ServiceUpgrade)),
        Feed::Stores => (Place::Own, Resource::ConfigMaps),
    };
    may(place, resource, Which::All, &[Verb::List, Verb::Watch])
}

/// What the process does beside feeds and effects: it tells clusters apart by the UID of `kube-system`, and holds a
/// Lease.
fn of_process() -> Vec<Right> {
    [
        may(Place::Cluster, Resource::Namespaces, Which::One("kube-system"), &[Verb::Get]),
        // What is created has no name yet that a rule could tell.
        may(Place::Own, Resource::Leases, Which::All, &[Verb::Create]),
        may(Place::Own, Resource::Leases, Which::One(ACCOUNT), &[Verb::Get, Verb::Update]),
    ]
    .concat()
}
