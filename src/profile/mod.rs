//! Profiles: data that says how one CNI is detected, versioned, deployed and checked (`policies/providers/*.yaml`).
//!
//! Guarantees: a profile that parses has been linted, so every rule here may rely on it; no image field of an agent is
//! changed that the profile does not name, and none is left out silently.

mod detect;
mod format;
mod image;
#[cfg(test)]
mod tests;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

pub use detect::resolve;
pub use format::{Detect, DetectKind, ImageGroup, Missing, Owner, ProfileError};
pub use image::Tag;
pub use version::{Level, Range, Reach, SkewRule, Version};

use crate::{
    api::{cni_upgrade::Driver, reasons::Reason},
    manifest::wish::normalise,
    rollout::{effect::ImageChange, waiting::Refusal},
    world::{Agent, Mark},
};
use detect::any_glob;
use image::ImageRef;
use version::Jump;

/// What a version looks like, for people.
const EXPECTED: &str = "v1.2.3 or 1.2.3";

/// One CNI, typed and linted.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name: `calico`.
    pub name: String,
    /// Default driver.
    pub driver: Driver,
    /// Health rules.
    pub health: HealthRules,
    /// DaemonSets that are the agent; one entry that matches is enough.
    pub detect: Vec<Detect>,
    /// Managers that may have written the DaemonSet.
    pub owners: BTreeSet<Owner>,
    /// Container whose tag is the version that runs.
    pub version_container: String,
    /// How far one jump may go; no two rules cover one jump.
    pub skew: Vec<SkewRule>,
    /// Containers that carry the version.
    pub images: Vec<ImageGroup>,
    /// Containers that are none of our business, `*` stands for any text.
    pub ignore: Vec<String>,
    /// Whether registry and path of the live image stay.
    pub keep_registry: bool,
    /// Whether the agent has no readiness probe, so that `Ready` only means "started".
    pub no_readiness_probe: bool,
}

/// How health is judged, in whole seconds and percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
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

impl Default for HealthRules {
    fn default() -> Self {
        Self { stable_seconds: 10, fast_fail_seconds: 60, max_restarts: 3, unhealthy_percent: 10 }
    }
}

/// The profiles that are compiled in, in order of name.
pub fn built_in() -> Vec<Profile> {
    let texts = [
        include_str!("../../policies/providers/calico.yaml"),
        include_str!("../../policies/providers/flannel.yaml"),
    ];
    // A test reads each of them, so none is lost here.
    texts.into_iter().filter_map(|text| Profile::parse(text).ok()).collect()
}

/// One container of a pod template.
struct Container<'a> {
    init: bool,
    index: usize,
    name: &'a str,
    image: &'a str,
}

impl Container<'_> {
    /// Name as in `world::Pod::images`.
    fn key(&self) -> String {
        format!("{}{}", if self.init { "init:" } else { "" }, self.name)
    }
}

/// Containers of a pod template, init containers first, each list in its order.
fn containers(template: &Value) -> impl Iterator<Item = Container<'_>> {
    [(true, "/spec/initContainers"), (false, "/spec/containers")].into_iter().flat_map(|(init, list)| {
        let list = template.pointer(list).and_then(Value::as_array).into_iter().flatten();
        list.enumerate().map(move |(index, container)| {
            let text = |field| container.get(field).and_then(Value::as_str).unwrap_or_default();
            Container { init, index, name: text("name"), image: text("image") }
        })
    })
}

impl ImageGroup {
    fn names(&self, init: bool) -> &[String] {
        if init { &self.init } else { &self.containers }
    }

    /// Image of a version, built on the live one.
    fn image(&self, version: &str, live: &str, keep_registry: bool) -> String {
        let seen = ImageRef::of(live);
        let name = if keep_registry { seen.name } else { &self.repository };
        let Some(tag) = &self.tag else {
            return self.mapped.get(version).map_or_else(|| live.to_owned(), |tag| format!("{name}:{tag}"));
        };
        // The same version stays byte for byte, with its digest: there is nothing to change.
        if seen.tag.and_then(|live| tag.read(live)).as_deref() == Some(version) && name == seen.name {
            return live.to_owned();
        }
        format!("{name}:{}", tag.write(version, seen.tag))
    }
}

impl Profile {
    /// Covered image fields of a pod template with the image that `version` means for each, equal ones included.
    ///
    /// Registry and tag style (leading `v` or not) of private mirrors are kept; a pinned digest is dropped.
    pub fn images(&self, template: &Value, version: &str) -> Result<Vec<ImageChange>, Refusal> {
        readable(version)?;
        let version = normalise(version);
        let mut changes = Vec::new();
        let mut uncovered = BTreeMap::new();
        for live in containers(template) {
            if let Some(group) = self.images.iter().find(|group| any_glob(group.names(live.init), live.name))
            {
                changes.push(ImageChange {
                    init: live.init,
                    index: live.index,
                    container: live.name.to_owned(),
                    from: live.image.to_owned(),
                    to: group.image(&version, live.image, self.keep_registry),
                });
            } else if !any_glob(&self.ignore, live.name) {
                uncovered.insert(live.key(), live.image.to_owned());
            }
        }
        if !uncovered.is_empty() {
            return Err(Refusal::ContainerNotCovered { containers: uncovered, profile: self.name.clone() });
        }
        let missing = self.missing(&changes);
        if missing.is_empty() {
            Ok(changes)
        } else {
            Err(Refusal::ContainerMissing { containers: missing, profile: self.name.clone() })
        }
    }

    /// Names that the profile needs and no live container has.
    fn missing(&self, live: &[ImageChange]) -> Vec<String> {
        let needed = self.images.iter().filter(|group| !group.optional_names).flat_map(|group| {
            let all = |init| group.names(init).iter().map(move |name| (init, name));
            all(true).chain(all(false))
        });
        needed
            .filter(|(init, name)| {
                !live.iter().any(|change| {
                    change.init == *init && any_glob(std::slice::from_ref(*name), &change.container)
                })
            })
            .map(|(init, name)| format!("{}{name}", if init { "init:" } else { "" }))
            .collect()
    }

    /// Version that a set of container images (names as in `world::Pod::images`) runs, normalised.
    pub fn version(&self, images: &BTreeMap<String, String>) -> Option<String> {
        let tag = ImageRef::of(images.get(&self.version_container)?).tag?;
        self.version_tag()?.read(tag)
    }

    /// Image of the container that carries the version, or which container there is none of.
    pub fn version_image(&self, images: &BTreeMap<String, String>) -> String {
        let name = &self.version_container;
        images.get(name).cloned().unwrap_or_else(|| format!("no container {name}"))
    }

    /// Tag pattern of the container that carries the version.
    fn version_tag(&self) -> Option<&Tag> {
        let covers = |group: &&ImageGroup| any_glob(&group.containers, &self.version_container);
        self.images.iter().find(covers)?.tag.as_ref()
    }

    /// Images of a pod template by container name, init containers with prefix `init:`.
    pub fn template_images(template: &Value) -> BTreeMap<String, String> {
        containers(template).map(|container| (container.key(), container.image.to_owned())).collect()
    }

    /// Whether owner marks allow the driver.
    pub fn owner(&self, agent: &Agent) -> Result<(), Refusal> {
        agent.marks.iter().find_map(|mark| self.forbidden_by(mark)).map_or(Ok(()), Err)
    }

    fn forbidden_by(&self, mark: &Mark) -> Option<Refusal> {
        let (reason, seen, allowed) = match mark {
            Mark::Owner(owner) => (Reason::OwnedByOperator, owner.as_str(), None),
            Mark::Operator(label) => (Reason::OwnedByOperator, label.as_str(), None),
            Mark::Flux => (Reason::OwnedByFlux, "Flux labels", None),
            Mark::ArgoCD => (Reason::OwnedByArgoCD, "Argo CD tracking", None),
            Mark::Helm => (Reason::OwnedByOperator, "Helm release annotations", Some(Owner::Helm)),
            Mark::Kops => (Reason::OwnedByOperator, "kops channel labels", Some(Owner::Kops)),
            Mark::EksAddon => (Reason::OwnedByOperator, "EKS add-on labels", Some(Owner::EksAddon)),
            Mark::AddonManager => (Reason::OwnedByOperator, "addon manager label", Some(Owner::AddonManager)),
        };
        let allowed = allowed.is_some_and(|owner| self.owners.contains(&owner));
        (!allowed).then(|| Refusal::Owned { reason, mark: seen.to_owned() })
    }

    /// Whether the jump is allowed; a warning text where the profile only warns or has no rule.
    pub fn skew(&self, from: &str, to: &str) -> Result<Option<String>, Refusal> {
        let (old, new) = (readable(from)?, readable(to)?);
        if old == new {
            return Ok(None);
        }
        let Some(rule) = self.skew.iter().find(|rule| rule.covers(&old, &new)) else {
            return Ok(Some(format!("Profile {} has no rule for the jump from {from} to {to}.", self.name)));
        };
        let (from, to) = (from.to_owned(), to.to_owned());
        match (rule.judge(&old, &new), rule.level) {
            (Jump::Allowed, Level::Warn | Level::Error) => Ok(None),
            (Jump::TooFarUp | Jump::TooFarDown, Level::Warn) => Ok(Some(format!(
                "The jump from {from} to {to} is further than profile {} advises: {rule}.",
                self.name
            ))),
            (Jump::TooFarUp, Level::Error) => Err(Refusal::VersionSkew { from, to, rule: rule.to_string() }),
            (Jump::TooFarDown, Level::Error) => Err(Refusal::Downgrade { from, to, rule: rule.to_string() }),
        }
    }
}

fn readable(text: &str) -> Result<Version, Refusal> {
    Version::parse(text)
        .ok_or_else(|| Refusal::VersionUnreadable { text: text.to_owned(), expected: EXPECTED.to_owned() })
}
