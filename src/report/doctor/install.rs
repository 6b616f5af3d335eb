//! What `kubectl apply` brought: rights, definitions, admission policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;

use super::Finding;
use crate::{
    access::{Need, Site},
    report::{
        escape::line,
        words::{QUOTE, names},
    },
};

const RIGHTS: &str = "rights";
const DEFINITIONS: &str = "definitions";
const POLICIES: &str = "policies";
const APPLY_DEFINITIONS: &str = "trunkline crd | kubectl apply -f -";

/// What a look at an object of others came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Looked {
    /// It is there.
    There(Box<Value>),
    /// It is not there.
    Absent,
    /// This account may not look.
    Forbidden,
    /// Anything else.
    Failed(String),
}

/// Says what the account may not do of all that it needs: one finding for each kind of object in each place.
pub fn rights(site: &Site, needed: usize, denied: &BTreeSet<Need>) -> Vec<Finding> {
    if denied.is_empty() {
        return vec![Finding::ok(RIGHTS, format!("All {needed} that the daemon needs here are granted."))];
    }
    let mut verbs: BTreeMap<Need, Vec<&str>> = BTreeMap::new();
    for need in denied {
        verbs.entry(Need { verb: "", ..need.clone() }).or_default().push(need.verb);
    }
    let all = apply("rbac", site);
    let finding = |(need, verbs): (Need, Vec<&str>)| {
        let grant = need.grant(&verbs.join(","));
        let role = if need.namespace.is_some() { "role" } else { "clusterrole" };
        Finding::fault(
            RIGHTS,
            format!("The account may not {} {}.", verbs.join(", "), need.to_string().trim_start()),
            format!("{all}; or this one, bound to the account: kubectl create {role} NAME {grant}"),
        )
    };
    verbs.into_iter().map(finding).collect()
}

/// The command that installs a part of what `trunkline manifests` prints.
fn apply(part: &str, site: &Site) -> String {
    let mut command = format!("trunkline manifests {part} --namespace {}", site.namespace);
    for agent in &site.agents {
        let _ = write!(command, " --daemon-set {agent}");
    }
    command + " | kubectl apply -f -"
}

/// Says that the rights could not be asked for.
pub fn rights_unknown(why: &str) -> Finding {
    Finding::fault(
        RIGHTS,
        format!("They cannot be asked for: {}.", line(why, QUOTE)),
        "Each account may ask for its own rights by the ClusterRole system:basic-user; bind it again.",
    )
}

/// Judges one CustomResourceDefinition against that of this version; `served` = the cluster serves its kind.
pub fn definition(ours: &Value, looked: &Looked, served: bool) -> Finding {
    let name = ours.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let object = match looked {
        Looked::There(object) => object,
        Looked::Forbidden if served => {
            let text =
                format!("{name}: served. Whether it is that of this version, this account may not see.");
            return Finding::ok(DEFINITIONS, text);
        }
        Looked::Absent | Looked::Forbidden => {
            return Finding::fault(DEFINITIONS, format!("{name}: not installed."), APPLY_DEFINITIONS);
        }
        Looked::Failed(why) => {
            let mend = "Look at the log of the API server.";
            return Finding::fault(DEFINITIONS, format!("{name}: {}.", line(why, QUOTE)), mend);
        }
    };
    let mut differing = Vec::new();
    compare(ours.get("spec"), object.get("spec"), "spec", &mut differing);
    if !differing.is_empty() {
        let paths = names(differing.into_iter());
        let text = format!("{name}: not that of this version; it differs in {paths}.");
        return Finding::fault(DEFINITIONS, text, APPLY_DEFINITIONS);
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let condition = |kind: &str, status: &str| {
        conditions.clone().any(|of| {
            of.get("type").and_then(Value::as_str) == Some(kind)
                && of.get("status").and_then(Value::as_str) == Some(status)
        })
    };
    if condition("Established", "True") {
        return Finding::ok(DEFINITIONS, format!("{name}: established, and that of this version."));
    }
    Finding::fault(
        DEFINITIONS,
        format!("{name}: installed and not established."),
        format!("kubectl describe crd {name} says why; its names may be taken by another definition."),
    )
}

/// Paths at which the server's form says something else than ours. What the server adds outside of the schema are its
/// defaults; descriptions mean nothing to it.
fn compare(ours: Option<&Value>, theirs: Option<&Value>, path: &str, differing: &mut Vec<String>) {
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let in_schema = path.contains("openAPIV3Schema");
            let added = theirs.keys().filter(|key| in_schema && !ours.contains_key(*key));
            for key in
                ours.keys().chain(added).filter(|key| *key != "description" || path.ends_with("properties"))
            {
                compare(ours.get(key), theirs.get(key), &format!("{path}.{key}"), differing);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) if ours.len() == theirs.len() => {
            for (at, pair) in ours.iter().zip(theirs).enumerate() {
                compare(Some(pair.0), Some(pair.1), &format!("{path}[{at}]"), differing);
            }
        }
        (Some(Value::Number(ours)), Some(Value::Number(theirs))) if ours.as_f64() == theirs.as_f64() => {}
        (ours, theirs) if ours == theirs => {}
        (_, _) => differing.push(path.to_owned()),
    }
}

/// Says which of the admission policies and bindings are not there: names with what a look at each came to.
pub fn policies(site: &Site, looked: &[(String, Looked)]) -> Finding {
    if let Some(why) = looked.iter().find_map(|(_, looked)| match looked {
        Looked::Failed(why) => Some(why),
        Looked::There(_) | Looked::Absent | Looked::Forbidden => None,
    }) {
        let text = format!("They cannot be looked at: {}.", line(why, QUOTE));
        return Finding::warning(POLICIES, text, "Look at the log of the API server.");
    }
    let absent = looked.iter().filter(|(_, looked)| *looked == Looked::Absent);
    let absent: Vec<String> = absent.map(|(name, _)| name.clone()).collect();
    if !absent.is_empty() {
        return Finding::warning(
            POLICIES,
            format!(
                "Not installed: {}. RBAC alone lets the account change any field of its DaemonSets.",
                names(absent.into_iter())
            ),
            apply("policy", site),
        );
    }
    if looked.iter().any(|(_, looked)| *looked == Looked::Forbidden) {
        let text =
            "This account may not look at admission policies, as it should be; an administrator's may.";
        return Finding::skipped(POLICIES, text);
    }
    Finding::ok(POLICIES, "All admission policies and their bindings are installed.")
}
