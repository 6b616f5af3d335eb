//! `trunkline manifests`: service account, RBAC and admission policies as YAML, for `kubectl apply -f -`.

use std::{collections::BTreeSet, process::ExitCode};

use clap::ValueEnum;

use super::{Form, Usage, namespace, print};
use crate::{
    access::{self, Site},
    manifest::{nearest, yaml},
    profile,
    world::AgentKey,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to print.
    #[arg(value_enum, default_value_t)]
    part: Part,
    /// Namespace of the daemon.
    #[arg(long, value_name = "NAME", default_value = "kube-system", value_parser = namespace)]
    namespace: String,
    /// Profile whose DaemonSets may be changed, can be repeated; otherwise those of all profiles.
    #[arg(long, value_name = "NAME")]
    provider: Vec<String>,
    /// DaemonSet that may be changed, can be repeated; then only these.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "provider", value_parser = daemon_set)]
    daemon_set: Vec<AgentKey>,
}

/// Parts of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Service account, roles and bindings.
    Rbac,
    /// Admission policies and bindings.
    Policy,
    /// Both.
    #[default]
    All,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let site = Site { namespace: args.namespace.clone(), agents: agents(args)? };
    let rbac = if args.part == Part::Policy { Vec::new() } else { access::objects(&site) };
    let policies = if args.part == Part::Rbac { Vec::new() } else { access::policies(&site) };
    for object in rbac.iter().chain(&policies) {
        print::text(format_args!("---\n{}", yaml::write(object)?));
    }
    Ok(ExitCode::SUCCESS)
}

fn agents(args: &Args) -> anyhow::Result<BTreeSet<AgentKey>> {
    if !args.daemon_set.is_empty() {
        return Ok(args.daemon_set.iter().cloned().collect());
    }
    let profiles = profile::built_in();
    let known = || profiles.iter().map(|profile| profile.name.as_str());
    if let Some(name) = args.provider.iter().find(|name| !known().any(|known| known == *name)) {
        let hint = nearest(name, known()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        return Err(Usage(format!("there is no profile {name}{hint}")).into());
    }
    let wanted = |name: &String| args.provider.is_empty() || args.provider.contains(name);
    let (agents, patterns) = access::agents(profiles.iter().filter(|profile| wanted(&profile.name)));
    for pattern in patterns {
        let note = "is a pattern, which RBAC has no form for; name such DaemonSets by --daemon-set";
        print::aside(Form::Text, "note", format_args!("{pattern} {note}"));
    }
    Ok(agents)
}

/// `namespace/name` as Kubernetes takes it.
fn daemon_set(text: &str) -> Result<AgentKey, String> {
    let (at, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
    Ok(AgentKey { namespace: namespace(at)?, name: namespace(name)? })
}
