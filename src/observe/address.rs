//! Where objects live: request paths of collections.

use crate::{
    api::{ClaimKey, ClaimKind, names::STORE},
    world::{Feed, ObjectId},
};

/// A name that cannot stand in a request path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of a Kubernetes object")]
pub struct BadName(String);

/// Path and label selector of what a feed lists; `namespace` is the one of our stores.
pub fn of_feed(feed: Feed, namespace: &str) -> (String, Option<&'static str>) {
    let path = match feed {
        Feed::Nodes => "/api/v1/nodes".to_owned(),
        Feed::Pods => "/api/v1/pods".to_owned(),
        Feed::Agents => "/apis/apps/v1/daemonsets".to_owned(),
        Feed::Revisions => "/apis/apps/v1/controllerrevisions".to_owned(),
        Feed::CniUpgrades => of_kind(ClaimKind::CniUpgrade),
        Feed::ServiceUpgrades => of_kind(ClaimKind::ServiceUpgrade),
        Feed::Stores => return (format!("/api/v1/namespaces/{namespace}/configmaps"), Some(STORE)),
    };
    (path, None)
}

fn of_kind(kind: ClaimKind) -> String {
    format!("/apis/{}/{}", kind.api_version(), kind.plural())
}

/// Path of the Leases of a namespace.
pub fn of_leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Feed that would show the object.
pub const fn feed_of(id: &ObjectId) -> Feed {
    match id {
        ObjectId::Node(_) => Feed::Nodes,
        ObjectId::Pod(_) => Feed::Pods,
        ObjectId::Agent(_) => Feed::Agents,
        ObjectId::Revision(..) => Feed::Revisions,
        ObjectId::Claim(ClaimKey { kind: ClaimKind::CniUpgrade, .. }) => Feed::CniUpgrades,
        ObjectId::Claim(ClaimKey { kind: ClaimKind::ServiceUpgrade, .. }) => Feed::ServiceUpgrades,
        ObjectId::Store(..) => Feed::Stores,
    }
}

/// Path of the Events in a namespace.
pub fn of_events(namespace: &str) -> Result<String, BadName> {
    Ok(format!("/api/v1/namespaces/{}/events", checked(namespace)?))
}

/// Path of the collection that holds the object, and its name in it. Names are checked, since they may come from Git.
pub fn of_object(id: &ObjectId) -> Result<(String, &str), BadName> {
    let (path, name) = match id {
        ObjectId::Node(name) => ("/api/v1/nodes".to_owned(), name.as_str()),
        ObjectId::Pod(key) => {
            (format!("/api/v1/namespaces/{}/pods", checked(&key.namespace)?), key.name.as_ref())
        }
        ObjectId::Agent(key) => {
            (format!("/apis/apps/v1/namespaces/{}/daemonsets", checked(&key.namespace)?), key.name.as_str())
        }
        ObjectId::Revision(namespace, name) => {
            (format!("/apis/apps/v1/namespaces/{}/controllerrevisions", checked(namespace)?), name.as_str())
        }
        ObjectId::Claim(key) => match &key.namespace {
            None => (of_kind(key.kind), key.name.as_str()),
            Some(namespace) => (
                format!(
                    "/apis/{}/namespaces/{}/{}",
                    key.kind.api_version(),
                    checked(namespace)?,
                    key.kind.plural()
                ),
                key.name.as_str(),
            ),
        },
        ObjectId::Store(namespace, name) => {
            (format!("/api/v1/namespaces/{}/configmaps", checked(namespace)?), name.as_str())
        }
    };
    checked(name).map(|name| (path, name))
}

fn checked(name: &str) -> Result<&str, BadName> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.iter().copied().all(plain) && edge(bytes.first()) && edge(bytes.last()) {
        Ok(name)
    } else {
        Err(BadName(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_git_cannot_leave_its_collection() {
        for name in ["", "..", "../pods", "a/b", "a?dryRun=All", "A", "-a", "a."] {
            assert!(of_object(&ObjectId::Claim(ClaimKey::cni(name))).is_err(), "{name}");
        }
        assert_eq!(
            of_object(&ObjectId::Claim(ClaimKey::service("shop", "cart"))),
            Ok(("/apis/service.example.com/v1/namespaces/shop/serviceupgrades".to_owned(), "cart"))
        );
    }
}
