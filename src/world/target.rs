//! What a rollout is about.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::AgentKey;
use crate::api::ClaimKey;

/// What a rollout is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The agent DaemonSet that a CNIUpgrade resolves to.
    Agent(AgentKey),
    /// The Service that a ServiceUpgrade names: namespace, name.
    Service(String, String),
    /// No target can be told; the claim stands for itself.
    Unresolved(ClaimKey),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(key) => write!(f, "DaemonSet/{key}"),
            Self::Service(namespace, name) => write!(f, "Service/{namespace}/{name}"),
            Self::Unresolved(claim) => write!(f, "Unresolved/{claim}"),
        }
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no target");
        let (kind, rest) = text.split_once('/').ok_or_else(wrong)?;
        let pair = || rest.split_once('/').ok_or_else(wrong);
        match kind {
            "DaemonSet" => pair().map(|(namespace, name)| {
                Self::Agent(AgentKey { namespace: namespace.to_owned(), name: name.to_owned() })
            }),
            "Service" => pair().map(|(namespace, name)| Self::Service(namespace.to_owned(), name.to_owned())),
            "Unresolved" => rest.parse().map(Self::Unresolved).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
