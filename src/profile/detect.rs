//! Which profile and which DaemonSet a declaration means.

use super::{Profile, format::Detect};
use crate::{
    manifest::nearest,
    rollout::waiting::Refusal,
    world::{Agent, AgentKey, World},
};

/// Finds the one profile and agent DaemonSet that a declaration means.
///
/// With `provider` only that profile is asked; none or several matches are refused with the list.
pub fn resolve<'p>(
    profiles: &'p [Profile],
    world: &World,
    provider: Option<&str>,
) -> Result<(&'p Profile, AgentKey), Refusal> {
    let asked: Vec<&Profile> =
        profiles.iter().filter(|profile| provider.is_none_or(|name| profile.name == name)).collect();
    if let (Some(name), true) = (provider, asked.is_empty()) {
        return Err(unknown(profiles, name));
    }
    let mut found = asked.iter().copied().flat_map(|profile| {
        let agents = world.agents.iter().filter(|(key, seen)| profile.detects(key, &seen.is));
        agents.map(move |(key, _)| (profile, key))
    });
    match (found.next(), found.next()) {
        (None, _) => Err(Refusal::ProviderNotFound {
            provider: provider.map(str::to_owned),
            looked_for: asked.iter().map(|profile| profile.looks_for()).collect(),
            counted: None,
        }),
        (Some((profile, key)), None) => Ok((profile, key.clone())),
        (Some(first), Some(second)) => Err(Refusal::ProviderAmbiguous {
            found: [first, second]
                .into_iter()
                .chain(found)
                .map(|(profile, key)| (profile.name.clone(), key.clone()))
                .collect(),
        }),
    }
}

fn unknown(profiles: &[Profile], name: &str) -> Refusal {
    let known: Vec<String> = profiles.iter().map(|profile| profile.name.clone()).collect();
    Refusal::ProviderUnknown {
        provider: name.to_owned(),
        nearest: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
        known,
    }
}

impl Profile {
    /// Whether one entry of `detect` means this DaemonSet.
    fn detects(&self, key: &AgentKey, agent: &Agent) -> bool {
        self.detect.iter().any(|entry| entry.matches(key, agent))
    }

    /// `calico: DaemonSet calico-node in kube-system`.
    fn looks_for(&self) -> String {
        let entries: Vec<String> = self.detect.iter().map(Detect::describe).collect();
        format!("{}: {}", self.name, entries.join(", or "))
    }
}

impl Detect {
    fn matches(&self, key: &AgentKey, agent: &Agent) -> bool {
        any_glob(&self.names, &key.name)
            && (self.namespaces.is_empty() || any_glob(&self.namespaces, &key.namespace))
            && self.labels.iter().all(|(label, value)| agent.labels.get(label) == Some(value))
    }

    fn describe(&self) -> String {
        let name = format!("DaemonSet {}", self.names.join(" or "));
        let place = match self.namespaces.as_slice() {
            [] => String::new(),
            namespaces => format!(" in {}", namespaces.join(" or ")),
        };
        let labels: Vec<String> =
            self.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(" with {}", labels.join(",")) };
        format!("{name}{place}{labels}")
    }
}

/// Whether one of the patterns means the text.
pub(super) fn any_glob(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| glob(pattern, text))
}

/// Whether a pattern, in which `*` stands for any text, means this text.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    text.strip_prefix(head).is_some_and(|rest| {
        let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        ends.any(|at| rest.get(at..).is_some_and(|rest| glob(tail, rest)))
    })
}
