//! Rights one by one, as an access review asks for them.

use std::{collections::BTreeSet, fmt};

use super::{Place, Right, Site, Which, rights};

/// One thing that the account has to be allowed: one verb on one kind of object in one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural of the kind.
    pub resource: String,
    /// Part of the object, such as `status`; empty = the object itself.
    pub subresource: String,
    /// Namespace; absent = the whole cluster.
    pub namespace: Option<String>,
    /// Name of the one object; absent = all of them.
    pub name: Option<String>,
    /// What is done.
    pub verb: &'static str,
}

/// Everything that a site's account has to be allowed.
pub fn needs(site: &Site) -> BTreeSet<Need> {
    rights().into_iter().flat_map(|right| of_right(site, right)).collect()
}

fn of_right(site: &Site, right: Right) -> Vec<Need> {
    let need = |namespace: Option<&str>, name: Option<&str>| {
        let plural = right.resource.plural();
        let (resource, subresource) = plural.split_once('/').unwrap_or((&plural, ""));
        Need {
            group: right.resource.group(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            verb: right.verb.as_str(),
        }
    };
    let name = match right.which {
        Which::All | Which::Agents => None,
        Which::One(name) => Some(name),
    };
    match right.place {
        Place::Cluster => vec![need(None, name)],
        Place::Own => vec![need(Some(&site.namespace), name)],
        Place::Default => vec![need(Some("default"), name)],
        Place::Agents => {
            let agent_name = |own| if right.which == Which::Agents { Some(own) } else { name };
            let agents = site.agents.iter();
            agents.map(|agent| need(Some(&agent.namespace), agent_name(agent.name.as_str()))).collect()
        }
    }
}

impl Need {
    /// Options of `kubectl create role` (of `clusterrole` without a namespace) for this need with several verbs.
    pub fn grant(&self, verbs: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let Self { group, resource, subresource, .. } = self;
        let mut grant = format!("--verb={verbs} --resource={resource}{dot}{group}{slash}{subresource}");
        for (option, value) in [("resource-name", &self.name), ("namespace", &self.namespace)] {
            grant.extend(value.iter().map(|value| format!(" --{option}={value}")));
        }
        grant
    }
}

/// `patch daemonsets.apps/calico-node in kube-system`.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{} {}{dot}{}", self.verb, self.resource, self.group)?;
        for part in [self.name.as_deref().unwrap_or_default(), &self.subresource] {
            if !part.is_empty() {
                write!(f, "/{part}")?;
            }
        }
        self.namespace.iter().try_for_each(|namespace| write!(f, " in {namespace}"))
    }
}
