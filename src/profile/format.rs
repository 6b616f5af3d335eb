//! The file form of a profile: strict keys, then lint.
//!
//! A key whose rule does not exist is an unknown key, so a profile never promises a check that nobody makes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{
    HealthRules, Profile,
    image::Tag,
    version::{SkewRule, Version},
};
use crate::{api::cni_upgrade::Driver, manifest::yaml};

/// Without a readiness probe `Ready` only means "started", so a node must stay so for this many seconds.
const BLIND_STABLE_SECONDS: i64 = 30;

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No YAML, an unknown key, a wrong value; the text has the place.
    #[error("{0}")]
    Unreadable(String),
    /// Not `trunkline.dev/v1alpha1`, kind `Provider`.
    #[error("expected apiVersion trunkline.dev/v1alpha1 and kind Provider, found {api_version} and {kind}")]
    NotAProvider {
        /// `apiVersion` as written.
        api_version: String,
        /// `kind` as written.
        kind: String,
    },
    /// A driver whose rules are not built.
    #[error("profile {profile}: only the driver daemonSet is supported yet")]
    DriverNotSupported {
        /// Profile.
        profile: String,
    },
    /// The parts do not fit together.
    #[error("profile {profile}: {faults}", faults = faults.join("; "))]
    Lint {
        /// Profile.
        profile: String,
        /// Every fault, in order of the file.
        faults: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    driver: Driver,
    detect: Vec<Detect>,
    #[serde(default)]
    owners: Owners,
    version: Versions,
    components: Components,
    #[serde(default)]
    health: HealthRules,
}

/// DaemonSets that are the agent: an entry of `detect`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Detect {
    /// Kind of the object; a DaemonSet for the drivers that exist.
    pub kind: DetectKind,
    /// Names, `*` stands for any text.
    pub names: Vec<String>,
    /// Namespaces, `*` stands for any text; none = any.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Labels that the object must carry.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Kinds that can be an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum DetectKind {
    /// `apps/v1` DaemonSet.
    DaemonSet,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owners {
    allow: BTreeSet<Owner>,
}

impl Default for Owners {
    fn default() -> Self {
        Self { allow: BTreeSet::from([Owner::Helm]) }
    }
}

/// Managers that a profile may allow beside us. Those that put a template back by themselves are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// A Helm release: writes only when somebody runs `helm`.
    Helm,
    /// A kops channel: writes only when its version changes.
    Kops,
    /// An EKS managed add-on.
    EksAddon,
    /// Kubernetes' addon manager.
    AddonManager,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versions {
    scheme: Scheme,
    read: Read,
    #[serde(default)]
    skew: Vec<SkewRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Scheme {
    Semver,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    container: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Components {
    agent: Agent,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Agent {
    images: Vec<ImageGroup>,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default = "yes")]
    keep_registry: bool,
    #[serde(default)]
    no_readiness_probe: bool,
}

const fn yes() -> bool {
    true
}

/// Containers that share one image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageGroup {
    /// Names of init containers, `*` stands for any text.
    #[serde(default)]
    pub init: Vec<String>,
    /// Names of containers, `*` stands for any text.
    #[serde(default)]
    pub containers: Vec<String>,
    /// Registry and path that the image has upstream.
    pub repository: String,
    /// Tag of a version; absent = `mapped`.
    #[serde(default)]
    pub tag: Option<Tag>,
    /// Tag by version of the CNI, for images with a version line of their own.
    #[serde(default)]
    pub mapped: BTreeMap<String, String>,
    /// What a version without an entry in `mapped` means.
    #[serde(default)]
    pub missing: Option<Missing>,
    /// Whether the live template may lack some of these containers.
    #[serde(default)]
    pub optional_names: bool,
}

/// What a version without an entry in `mapped` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// The image stays as it is.
    Keep,
}

impl Profile {
    /// Reads a profile from YAML and lints it.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let file: File = yaml::typed(text).map_err(|error| ProfileError::Unreadable(error.to_string()))?;
        if file.api_version != "trunkline.dev/v1alpha1" || file.kind != "Provider" {
            return Err(ProfileError::NotAProvider { api_version: file.api_version, kind: file.kind });
        }
        let Spec { driver, detect, owners, version, components: Components { agent }, health } = file.spec;
        let Scheme::Semver = version.scheme;
        let profile = Self {
            name: file.metadata.name,
            driver,
            health,
            detect,
            owners: owners.allow,
            version_container: version.read.container,
            skew: version.skew,
            images: agent.images,
            ignore: agent.ignore,
            keep_registry: agent.keep_registry,
            no_readiness_probe: agent.no_readiness_probe,
        };
        match driver {
            Driver::DaemonSet => {}
            Driver::OwnedTemplate | Driver::NodeJob => {
                return Err(ProfileError::DriverNotSupported { profile: profile.name });
            }
        }
        let faults = lint(&profile);
        if faults.is_empty() {
            Ok(profile)
        } else {
            Err(ProfileError::Lint { profile: profile.name, faults })
        }
    }
}

/// Every fault of a profile whose keys are right.
fn lint(profile: &Profile) -> Vec<String> {
    let mut faults = Vec::new();
    if profile.detect.is_empty() || profile.detect.iter().any(|entry| entry.names.is_empty()) {
        faults.push("detect needs at least one entry, and each entry a name".to_owned());
    }
    lint_skew(&profile.skew, &mut faults);
    for group in &profile.images {
        lint_group(group, &mut faults);
    }
    lint_coverage(profile, &mut faults);
    lint_health(profile, &mut faults);
    faults
}

fn lint_skew(rules: &[SkewRule], faults: &mut Vec<String>) {
    for (at, rule) in rules.iter().enumerate() {
        if let Some(other) = rules.iter().skip(at + 1).find(|other| rule.overlaps(other)) {
            faults.push(format!("skew rules overlap: `{rule}` and `{other}`"));
        }
    }
}

fn lint_group(group: &ImageGroup, faults: &mut Vec<String>) {
    let about = &group.repository;
    if group.init.is_empty() && group.containers.is_empty() {
        faults.push(format!("the images of {about} name no container"));
    }
    if group.tag.is_some() == group.missing.is_some() || group.missing.is_none() && !group.mapped.is_empty() {
        faults.push(format!("the images of {about} need either `tag`, or `mapped` with `missing: keep`"));
    }
    for version in group.mapped.keys().filter(|version| Version::parse(version).is_none()) {
        faults.push(format!("`{version}` in `mapped` of {about} is no version"));
    }
}

/// Each container has one meaning, and the one that carries the version is covered by a tag.
fn lint_coverage(profile: &Profile, faults: &mut Vec<String>) {
    let lists = [
        ("init container", profile.images.iter().flat_map(|group| &group.init).collect::<Vec<_>>()),
        ("container", profile.images.iter().flat_map(|group| &group.containers).collect()),
    ];
    for (kind, names) in lists {
        let mut seen = profile.ignore.iter().collect::<BTreeSet<_>>();
        for name in names.into_iter().filter(|name| !seen.insert(*name)) {
            faults.push(format!("{kind} `{name}` is named twice in `images` and `ignore`"));
        }
    }
    if profile.version_tag().is_none() {
        let name = &profile.version_container;
        faults
            .push(format!("the version is read from container `{name}`, which no image with a `tag` covers"));
    }
}

fn lint_health(profile: &Profile, faults: &mut Vec<String>) {
    let HealthRules { stable_seconds, fast_fail_seconds, max_restarts, unhealthy_percent } = profile.health;
    if stable_seconds < 0 {
        faults.push("stableSeconds must not be negative".to_owned());
    }
    if fast_fail_seconds < 1 || max_restarts < 1 {
        faults.push("fastFailSeconds and maxRestarts must be at least 1".to_owned());
    }
    if !(0..=100).contains(&unhealthy_percent) {
        faults.push("unhealthyPercent must be between 0 and 100".to_owned());
    }
    if profile.no_readiness_probe && stable_seconds < BLIND_STABLE_SECONDS {
        faults
            .push(format!("without a readiness probe stableSeconds must be at least {BLIND_STABLE_SECONDS}"));
    }
}
