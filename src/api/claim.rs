//! Identity of a declaration and of the custom resource that mirrors it: kind, namespace, name; never the path.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::names::{CNI_GROUP, SERVICE_GROUP};

/// The two kinds that trunkline follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimKind {
    /// `cni.example.com/v1`, cluster-scoped.
    #[serde(rename = "CNIUpgrade")]
    CniUpgrade,
    /// `service.example.com/v1`, namespaced.
    #[serde(rename = "ServiceUpgrade")]
    ServiceUpgrade,
}

impl ClaimKind {
    /// `kind` on the wire.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::CniUpgrade => "CNIUpgrade",
            Self::ServiceUpgrade => "ServiceUpgrade",
        }
    }
    /// API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::CniUpgrade => CNI_GROUP,
            Self::ServiceUpgrade => SERVICE_GROUP,
        }
    }
    /// Plural, as in request paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::CniUpgrade => "cniupgrades",
            Self::ServiceUpgrade => "serviceupgrades",
        }
    }
    /// `apiVersion` on the wire.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::CniUpgrade => "cni.example.com/v1",
            Self::ServiceUpgrade => "service.example.com/v1",
        }
    }
    /// Whether objects live in a namespace.
    pub const fn namespaced(self) -> bool {
        match self {
            Self::CniUpgrade => false,
            Self::ServiceUpgrade => true,
        }
    }
}

/// `CNIUpgrade/<name>` or `ServiceUpgrade/<namespace>/<name>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// Which of the two kinds.
    pub kind: ClaimKind,
    /// Present exactly when the kind is namespaced.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
}

impl ClaimKey {
    /// Key of a cluster-scoped `CNIUpgrade`.
    pub fn cni(name: &str) -> Self {
        Self { kind: ClaimKind::CniUpgrade, namespace: None, name: name.to_owned() }
    }
    /// Key of a `ServiceUpgrade`.
    pub fn service(namespace: &str, name: &str) -> Self {
        Self { kind: ClaimKind::ServiceUpgrade, namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind.kind(), self.name),
            None => write!(f, "{}/{}", self.kind.kind(), self.name),
        }
    }
}

impl fmt::Debug for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no claim key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `CNIUpgrade/<name>` or `ServiceUpgrade/<namespace>/<name>`")]
pub struct NotAClaimKey(String);

impl FromStr for ClaimKey {
    type Err = NotAClaimKey;

    fn from_str(text: &str) -> Result<Self, NotAClaimKey> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("CNIUpgrade"), Some(name), None, None) if !name.is_empty() => Ok(Self::cni(name)),
            (Some("ServiceUpgrade"), Some(namespace), Some(name), None) if !name.is_empty() => {
                Ok(Self::service(namespace, name))
            }
            _ => Err(NotAClaimKey(text.to_owned())),
        }
    }
}

impl Serialize for ClaimKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClaimKey {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
