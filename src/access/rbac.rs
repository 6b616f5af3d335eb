//! Rights as RBAC objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ACCOUNT, Place, Resource, Right, Site, Which, rights};
use crate::api::names::MANAGED_BY;

/// The service account, its roles and their bindings, in the order in which they can be applied.
///
/// What is cluster-wide comes first, then each namespace; the namespaces have to be there.
pub fn objects(site: &Site) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(ACCOUNT, Some(&site.namespace)),
        "automountServiceAccountToken": false,
    });
    let mut objects = vec![account];
    objects.extend(granted(site, Place::Cluster, ACCOUNT, None));
    objects.extend(granted(site, Place::Own, ACCOUNT, Some(&site.namespace)));
    objects.extend(granted(site, Place::Default, "trunkline-events", Some("default")));
    let namespaces: BTreeSet<&str> = site.agents.iter().map(|agent| agent.namespace.as_str()).collect();
    for namespace in namespaces {
        objects.extend(granted(site, Place::Agents, "trunkline-agents", Some(namespace)));
    }
    objects
}

/// Name, namespace and label of an object.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({ "name": name, "labels": { MANAGED_BY: ACCOUNT } });
    if let (Some(map), Some(namespace)) = (metadata.as_object_mut(), namespace) {
        map.insert("namespace".to_owned(), json!(namespace));
    }
    metadata
}

/// The role of one place and its binding; nothing where the place needs no rights.
fn granted(site: &Site, place: Place, name: &str, namespace: Option<&str>) -> Vec<Value> {
    let rules = rules(site, place, namespace);
    if rules.is_empty() {
        return Vec::new();
    }
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let (kind, metadata) = (format!("{prefix}Role"), metadata(name, namespace));
    let (api, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
    vec![
        json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": api,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": kind, "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": site.namespace }],
        }),
    ]
}

/// One rule for each kind of object, with all its verbs.
fn rules(site: &Site, place: Place, namespace: Option<&str>) -> Vec<Value> {
    let mut verbs: BTreeMap<(Resource, Which), Vec<&str>> = BTreeMap::new();
    for Right { resource, which, verb, .. } in rights().into_iter().filter(|right| right.place == place) {
        verbs.entry((resource, which)).or_default().push(verb.as_str());
    }
    let rule = |((resource, which), verbs): ((Resource, Which), Vec<&str>)| {
        let mut rule = json!({
            "apiGroups": [resource.group()], "resources": [resource.plural()], "verbs": verbs,
        });
        let names = match which {
            Which::All => None,
            Which::One(name) => Some(vec![name]),
            Which::Agents => {
                let here = site.agents.iter().filter(|agent| Some(agent.namespace.as_str()) == namespace);
                Some(here.map(|agent| agent.name.as_str()).collect())
            }
        };
        if let (Some(map), Some(names)) = (rule.as_object_mut(), names) {
            map.insert("resourceNames".to_owned(), json!(names));
        }
        rule
    };
    verbs.into_iter().map(rule).collect()
}
