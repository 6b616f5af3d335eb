//! Profiles: data that says how one CNI is detected, versioned, deployed and checked (`policies/providers/*.yaml`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    api::cni_upgrade::Driver,
    rollout::{effect::ImageChange, waiting::Refusal},
    world::{Agent, AgentKey, World},
};

/// One CNI, typed and linted.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name: `calico`.
    pub name: String,
    /// Default driver.
    pub driver: Driver,
    /// Health rules.
    pub health: HealthRules,
}

/// How health is judged, in whole seconds and percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthRules {
    /// Ready and without restart for this long counts as healthy.
    pub stable_seconds: i64,
    /// A wait reason without progress for this long fails the node.
    pub fast_fail_seconds: i64,
    /// Restarts that fail the node.
    pub max_restarts: u32,
    /// Percent of nodes in scope that may be unhealthy before we begin.
    pub unhealthy_percent: i64,
}

/// The profiles that are compiled in, in order of name.
pub fn built_in() -> Vec<Profile> {
    Vec::new()
}

/// Finds the one profile and agent DaemonSet that a declaration means.
pub fn resolve<'p>(
    profiles: &'p [Profile],
    world: &World,
    provider: Option<&str>,
) -> Result<(&'p Profile, AgentKey), Refusal> {
    let _ = (profiles, world);
    Err(Refusal::ProviderNotFound { provider: provider.map(str::to_owned), looked_for: Vec::new() })
}

impl Profile {
    /// Covered image fields of a pod template with the image that `version` means for each, equal ones included.
    ///
    /// Registry and tag style (leading `v` or not) of private mirrors are kept; a pinned digest is dropped.
    pub fn images(&self, template: &Value, version: &str) -> Result<Vec<ImageChange>, Refusal> {
        let _ = (template, version);
        Ok(Vec::new())
    }

    /// Version that a set of container images (names as in `world::Pod::images`) runs, normalised.
    pub fn version(&self, images: &BTreeMap<String, String>) -> Option<String> {
        let _ = images;
        None
    }

    /// Images of a pod template by container name, init containers with prefix `init:`.
    pub fn template_images(template: &Value) -> BTreeMap<String, String> {
        let _ = template;
        BTreeMap::new()
    }

    /// Whether owner marks allow the driver.
    pub fn owner(&self, agent: &Agent) -> Result<(), Refusal> {
        let _ = agent;
        Ok(())
    }

    /// Whether the jump is allowed; a warning text where the profile only warns.
    pub fn skew(&self, from: &str, to: &str) -> Result<Option<String>, Refusal> {
        let _ = (from, to);
        Ok(None)
    }
}
