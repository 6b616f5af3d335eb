//! Names and labels: every wire string that trunkline shares with Kubernetes or with people, in one place.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name(Arc<str>);

        impl Ord for $name {
            // Texts that share their bytes are equal without reading them.
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// Wraps a text as it came; nothing is trimmed or checked.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d).map(Self::from)
            }
        }
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                "string".into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
            fn inline_schema() -> bool {
                true
            }
        }
    };
}

text_type!(
    /// `metadata.uid` of an object: never reused, unlike its name.
    Uid
);
text_type!(
    /// `metadata.name` of a Node.
    NodeName
);
text_type!(
    /// One try to reach one wish: hash of target UID, number, wish and retry token.
    AttemptId
);
text_type!(
    /// `w1:<hex>`: the hash of a wish (what shall run), never of a setting (how carefully).
    WishHash
);
text_type!(
    /// `sha256:<hex>` over the canonical JSON of a pod template or a spec.
    Digest
);
text_type!(
    /// Name of a repository in the config.
    RepoName
);
text_type!(
    /// Full hexadecimal id of a Git object.
    Oid
);

impl Oid {
    /// First seven digits, as people read commits.
    pub fn short(&self) -> &str {
        self.0.get(..7).unwrap_or(&self.0)
    }
}

/// `metadata.resourceVersion` as a number, so that the newer of two shapes of one object wins (KEP-5504).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rv(pub u64);

impl Rv {
    /// Reads the wire form; a text that is no number counts as the oldest.
    pub fn parse(text: &str) -> Self {
        Self(text.parse().unwrap_or(0))
    }
}

impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// API group of `CNIUpgrade`.
pub const CNI_GROUP: &str = "cni.example.com";
/// API group of `ServiceUpgrade`.
pub const SERVICE_GROUP: &str = "service.example.com";
/// Field manager of every write.
pub const FIELD_MANAGER: &str = "trunkline";
/// Name of the Lease that replicas elect their leader by.
pub const LEASE: &str = "trunkline";
/// Keeps a custom resource until its rollback has ended.
pub const FINALIZER: &str = "trunkline.dev/rollout";
/// Repository that declared a custom resource.
pub const REPOSITORY: &str = "trunkline.dev/repository";
/// Path of the manifest.
pub const PATH: &str = "trunkline.dev/path";
/// Revision with which the mirrored form was accepted.
pub const REVISION: &str = "trunkline.dev/revision";
/// Hash of the mirrored wish.
pub const WISH: &str = "trunkline.dev/wish";
/// Retry token, written by people in the manifest.
pub const RETRY: &str = "trunkline.dev/retry";
/// The brake, written by people on the custom resource.
pub const HOLD: &str = "trunkline.dev/hold";
/// "Look now", written by people or tools.
pub const REQUESTED_AT: &str = "trunkline.dev/requestedAt";
/// Update strategy of a DaemonSet before trunkline set `OnDelete`.
pub const ORIGINAL_STRATEGY: &str = "trunkline.dev/original-strategy";
/// Label on the ConfigMaps that trunkline keeps.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label that says which of trunkline's stores a ConfigMap is: `ledger` or `attempt`.
pub const STORE: &str = "trunkline.dev/store";
/// Label of a pod and a ControllerRevision that names the template's revision.
pub const REVISION_HASH: &str = "controller-revision-hash";
