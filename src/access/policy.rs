//! Bounds that RBAC cannot draw, as ValidatingAdmissionPolicies over the requests of the daemon's account.
//!
//! The expressions walk over the keys that objects have, not over a list of known fields, so that a field of a newer
//! Kubernetes is guarded from its first day. `dyn` lets them: the type check of a policy knows no keys of a typed object.

use serde_json::{Value, json};

use super::{ACCOUNT, Site, rbac::metadata};
use crate::api::names::STORE;

/// Parts of a DaemonSet, the new one; those of the old one are called `old_...`.
const PARTS: [(&str, &str); 8] = [
    ("metadata", "dyn(object).metadata"),
    ("annotations", "dyn(object).metadata.?annotations.orValue({})"),
    ("spec", "dyn(object).spec"),
    ("strategy", "dyn(object).spec.updateStrategy"),
    ("template", "dyn(object).spec.template"),
    ("pod", "dyn(object).spec.template.spec"),
    ("containers", "dyn(object).spec.template.spec.containers"),
    ("init_containers", "dyn(object).spec.template.spec.?initContainers.orValue([])"),
];
/// Our annotations, and the one in which Kubernetes itself counts the templates of a DaemonSet.
const NOTES: &str = "k.startsWith('trunkline.dev/') || k == 'deprecated.daemonset.template.generation'";
/// Parameters of a rolling update, as Kubernetes adds them where there are none yet.
const ROLLING_UPDATE: &str = "?rollingUpdate.orValue({'maxSurge': 0, 'maxUnavailable': 1})";
/// An image without tag and digest.
const REPOSITORY: &str = "image.find('^([^/@]+/)*[^/:@]+')";

/// An expression that must hold, and what is said where it does not.
type Rule = (String, &'static str);

/// The policies and their bindings.
pub fn policies(site: &Site) -> Vec<Value> {
    [daemon_sets(site), pods(site), stores(site)].into_iter().flatten().collect()
}

/// Of the DaemonSets that are listed only tags, the kind of update and our annotations change.
fn daemon_sets(site: &Site) -> [Value; 2] {
    let listed = format!("request.namespace + '/' + request.name in {}", list(site));
    let rules = [
        (listed, "this DaemonSet is not among those that trunkline may change"),
        (
            part_same("metadata", &keys(&["annotations", "generation", "managedFields", "resourceVersion"])),
            "of its metadata trunkline may change only annotations",
        ),
        (part_same("annotations", NOTES), "of its annotations trunkline may change only trunkline.dev/..."),
        (
            part_same("spec", &keys(&["template", "updateStrategy"])),
            "of its spec trunkline may change only images and updateStrategy.type",
        ),
        (strategy(), "of its updateStrategy trunkline may change only the type"),
        (
            part_same("template", &keys(&["spec"])),
            "of its template trunkline may change only images, no label and no annotation",
        ),
        (
            part_same("pod", &keys(&["containers", "initContainers"])),
            "of the spec of its template trunkline may change only images",
        ),
        (containers("containers"), "of its containers trunkline may change only tag and digest of images"),
        (
            containers("init_containers"),
            "of its init containers trunkline may change only tag and digest of images",
        ),
    ];
    let new = PARTS.map(|(name, is)| json!({ "name": name, "expression": is }));
    let old = PARTS.map(|(name, is)| {
        json!({ "name": format!("old_{name}"), "expression": is.replace("object", "oldObject") })
    });
    let variables = [new, old].concat();
    policy(site, "trunkline-daemonsets", ("apps", "daemonsets"), &["UPDATE"], (&variables, &rules))
}

/// Only pods of the DaemonSets that are listed are deleted.
fn pods(site: &Site) -> [Value; 2] {
    let owned = format!(
        "dyn(oldObject).metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) \
         && o.apiVersion == 'apps/v1' && o.kind == 'DaemonSet' && request.namespace + '/' + o.name in {})",
        list(site)
    );
    let rules = [(owned, "this pod is of no DaemonSet that trunkline may change")];
    policy(site, "trunkline-pods", ("", "pods"), &["DELETE"], (&[], &rules))
}

/// Of all ConfigMaps only the daemon's own stores are written.
fn stores(site: &Site) -> [Value; 2] {
    let labelled = format!(
        "[dyn(object), dyn(oldObject)].all(o, o == null || '{STORE}' in o.metadata.?labels.orValue({{}}))"
    );
    let rules = [(labelled, "this ConfigMap is no store of trunkline")];
    let operations = ["CREATE", "UPDATE", "DELETE"];
    policy(site, "trunkline-stores", ("", "configmaps"), &operations, (&[], &rules))
}

/// A policy over what the account writes to one kind of object, and its binding.
fn policy(
    site: &Site,
    name: &str,
    (group, resource): (&str, &str),
    operations: &[&str],
    (variables, rules): (&[Value], &[Rule]),
) -> [Value; 2] {
    let account =
        format!("request.userInfo.username == 'system:serviceaccount:{}:{ACCOUNT}'", site.namespace);
    let validation = |(expression, message): &Rule| json!({ "expression": expression, "message": message, "reason": "Forbidden" });
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConditions": [{ "name": "account", "expression": account }],
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resource],
            "scope": "Namespaced",
        }] },
        "validations": rules.iter().map(validation).collect::<Vec<_>>(),
    });
    if let (Some(map), false) = (spec.as_object_mut(), variables.is_empty()) {
        map.insert("variables".to_owned(), json!(variables));
    }
    let object = |kind, spec| {
        let api = "admissionregistration.k8s.io/v1";
        json!({ "apiVersion": api, "kind": kind, "metadata": metadata(name, None), "spec": spec })
    };
    [
        object("ValidatingAdmissionPolicy", spec),
        object(
            "ValidatingAdmissionPolicyBinding",
            json!({ "policyName": name, "validationActions": ["Deny"] }),
        ),
    ]
}

/// The DaemonSets, as a list of the language.
fn list(site: &Site) -> String {
    let agents: Vec<String> = site.agents.iter().map(|agent| format!("'{agent}'")).collect();
    format!("[{}]", agents.join(", "))
}

/// Whether `k` is one of these keys.
fn keys(keys: &[&str]) -> String {
    format!("k in ['{}']", keys.join("', '"))
}

/// Whether two maps have the same keys and values, but for keys that may differ.
fn same(new: &str, old: &str, but: &str) -> String {
    format!(
        "{new}.all(k, {but} || (k in {old} && {new}[k] == {old}[k])) && {old}.all(k, {but} || k in {new})"
    )
}

/// Whether a part of the DaemonSet stays as it is, but for keys that may differ.
fn part_same(part: &str, but: &str) -> String {
    same(&format!("variables.{part}"), &format!("variables.old_{part}"), but)
}

fn strategy() -> String {
    let rest = part_same("strategy", &keys(&["rollingUpdate", "type"]));
    format!("{rest} && variables.strategy.{ROLLING_UPDATE} == variables.old_strategy.{ROLLING_UPDATE}")
}

/// Whether the containers of one list stay as they are, in their order, but for tag and digest.
fn containers(list: &str) -> String {
    let (new, old) = (format!("variables.{list}"), format!("variables.old_{list}"));
    let same = same("c", &format!("{old}[i]"), &keys(&["image"]));
    format!(
        "{new}.size() == {old}.size() && {new}.all(i, c, {same} && c.{REPOSITORY} == {old}[i].{REPOSITORY})"
    )
}
