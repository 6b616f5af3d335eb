//! The wish: what shall run, apart from how carefully.
//!
//! Attempts, authority, quarantine and loop safety compare wishes by hash; a setting never has a part in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{CniUpgradeSpec, ServiceUpgradeSpec, names::WishHash},
    world::digest,
};

/// What shall run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum Wish {
    /// Of a `CNIUpgrade`.
    #[serde(rename = "CNIUpgrade")]
    Cni {
        /// Profile name as declared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// Version without a leading `v`.
        target_version: String,
        /// Nodes in scope.
        #[serde(default)]
        node_selector: BTreeMap<String, String>,
    },
    /// Of a `ServiceUpgrade`: as written, absent parts stay absent.
    #[serde(rename = "ServiceUpgrade")]
    Service {
        /// Service in the same namespace.
        service_name: String,
        /// `targetService` as written.
        target_service: Value,
    },
}

/// `v3.28.0` and `3.28.0` are one version: blanks around and one leading `v` do not count.
pub fn normalise(version: &str) -> String {
    let version = version.trim();
    match version.strip_prefix(['v', 'V']) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => rest.to_owned(),
        _ => version.to_owned(),
    }
}

/// A version as the manifest would write it: with a leading `v` if the one in `manifest` has it, else without.
pub fn written_like(version: &str, manifest: &str) -> String {
    let (version, model) = (normalise(version), manifest.trim());
    let mark = model.strip_suffix(&normalise(model)).unwrap_or_default();
    if version.starts_with(|c: char| c.is_ascii_digit()) { format!("{mark}{version}") } else { version }
}

impl Wish {
    /// The wish of a `CNIUpgrade`.
    pub fn of_cni(spec: &CniUpgradeSpec) -> Self {
        Self::Cni {
            provider: spec.provider.clone(),
            target_version: normalise(&spec.target_version),
            node_selector: spec.node_selector.clone(),
        }
    }

    /// The wish of a `ServiceUpgrade`.
    pub fn of_service(spec: &ServiceUpgradeSpec) -> Self {
        Self::Service {
            service_name: spec.service_name.clone(),
            target_service: serde_json::to_value(&spec.target_service).unwrap_or(Value::Null),
        }
    }

    /// The same wish with the provider that its target turned out to have, where it names none: to name what is found
    /// anyway is no other wish.
    #[must_use]
    pub fn on(&self, found: Option<&str>) -> Self {
        let mut wish = self.clone();
        if let Self::Cni { provider: provider @ None, .. } = &mut wish {
            *provider = found.map(str::to_owned);
        }
        wish
    }

    /// `w1:<hex>` over the canonical JSON.
    pub fn hash(&self) -> WishHash {
        let text = serde_json::to_value(self).unwrap_or(Value::Null).to_string();
        let hex = digest::hex(text.as_bytes());
        WishHash::from(format!("w1:{}", hex.get(..32).unwrap_or(&hex)))
    }

    /// The version it is about, or the Service's name.
    pub fn about(&self) -> &str {
        match self {
            Self::Cni { target_version, .. } => target_version,
            Self::Service { service_name, .. } => service_name,
        }
    }
}
