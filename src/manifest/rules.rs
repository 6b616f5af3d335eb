//! What a schema cannot say: identity, metadata, and fields whose rule is not built yet.

use std::ops::Range;

use serde_json::Value;

use super::{
    Code, label, nearest,
    tree::{Fault, Node},
};
use crate::api::{
    ClaimKey, ClaimKind,
    names::{HOLD, PATH, REPOSITORY, REQUESTED_AT, RETRY, REVISION, WISH},
    schema::FieldPath,
};

/// Most bytes of a name: `<name>.yaml` on the status branch must fit the 255 of a file system.
const MAX_NAME: usize = 250;

/// Fields of `metadata` that Kubernetes knows.
const METADATA: [&str; 15] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

fn path(keys: &[&str]) -> FieldPath {
    keys.iter().fold(FieldPath::default(), |path, key| path.key(key))
}

/// Bytes of the value at a path, else of the deepest key on the way there.
fn place(root: &Node, keys: &[&str]) -> Range<usize> {
    let at = root.locate(&path(keys));
    if at.whole && !at.value.span.is_empty() {
        return at.value.span.clone();
    }
    at.key.map_or(root.span.start..root.span.start, |key| key.span.clone())
}

fn bad(root: &Node, keys: &[&str], message: impl Into<String>) -> Fault {
    Fault::new(place(root, keys), Code::BadMetadata, message)
}

/// Kind, namespace and name, with the bytes of the name.
pub(super) fn identity(
    kind: ClaimKind,
    root: &Node,
    value: &Value,
) -> Result<(ClaimKey, Range<usize>), Vec<Fault>> {
    let mut faults = Vec::new();
    let name = text(root, value, "name", &mut faults);
    match name {
        Some(name) if !is_subdomain(name) => {
            let message = format!("`{name}` is no valid name");
            let help = "use small letters, digits, `-` and `.`, at most 250, a letter or digit at both ends";
            faults.push(bad(root, &["metadata", "name"], message).help(help));
        }
        Some(name) if name.len() > MAX_NAME => {
            let message = format!("the name has {} characters, at most {MAX_NAME} are possible", name.len());
            let help = "shorten it: its status is written to Git as a file of this name";
            faults.push(bad(root, &["metadata", "name"], message).help(help));
        }
        None if faults.is_empty() => {
            let written = value.pointer("/metadata/name").and_then(Value::as_str);
            let (message, help) = match written {
                Some(_) => ("`metadata.name` is empty", "write the name of the object between the quotes"),
                None => (
                    "the object has no `metadata.name`",
                    "add `name: …` under `metadata`; `generateName` cannot be followed in Git",
                ),
            };
            faults.push(bad(root, &["metadata", "name"], message).help(help));
        }
        Some(_) | None => {}
    }
    let namespace = text(root, value, "namespace", &mut faults);
    faults.extend(bad_namespace(kind, root, namespace));
    match (name, faults.is_empty()) {
        (Some(name), true) => {
            let key = ClaimKey { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() };
            Ok((key, place(root, &["metadata", "name"])))
        }
        (Some(_) | None, _) => Err(faults),
    }
}

fn bad_namespace(kind: ClaimKind, root: &Node, namespace: Option<&str>) -> Option<Fault> {
    match (kind.namespaced(), namespace) {
        (true, None) => {
            let message = format!("a {} needs `metadata.namespace`", kind.kind());
            Some(
                bad(root, &["metadata", "namespace"], message)
                    .help("add the namespace of the Service that it is about"),
            )
        }
        (false, Some(_)) => {
            let message =
                format!("a {} has no namespace: it is about nodes of the whole cluster", kind.kind());
            Some(bad(root, &["metadata", "namespace"], message).help("remove `namespace`"))
        }
        (true, Some(namespace)) if !is_label(namespace) => {
            let message = format!("`{namespace}` is no valid namespace");
            let help = "use small letters, digits and `-`, at most 63, a letter or digit at both ends";
            Some(bad(root, &["metadata", "namespace"], message).help(help))
        }
        (true, Some(_)) | (false, None) => None,
    }
}

/// A text of `metadata`; null and empty count as absent, anything else is a fault.
fn text<'v>(root: &Node, value: &'v Value, field: &str, faults: &mut Vec<Fault>) -> Option<&'v str> {
    match value.get("metadata")?.get(field)? {
        Value::Null => None,
        Value::String(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
        other => {
            let message = format!("metadata.{field}: must be a string, is `{other}`");
            let fault = Fault::new(place(root, &["metadata", field]), Code::WrongType, message);
            faults.push(fault.help(format!("put it in quotes: `{field}: \"{other}\"`")));
            None
        }
    }
}

/// Most characters of a retry token: those used are remembered.
const MAX_TOKEN: usize = 128;

/// Unknown fields of `metadata`, labels and annotations that are no text, and a retry token that is too long.
pub(super) fn metadata(root: &Node, value: &Value) -> Vec<Fault> {
    let Some(metadata) = value.get("metadata").and_then(Value::as_object) else { return Vec::new() };
    let mut faults = Vec::new();
    let token = metadata.get("annotations").and_then(|all| all.get(RETRY)).and_then(Value::as_str);
    let length = token.map_or(0, |token| token.chars().count());
    if length > MAX_TOKEN {
        let message = format!("a retry token must have at most {MAX_TOKEN} characters, has {length}");
        faults.push(bad(root, &["metadata", "annotations", RETRY], message));
    }
    for name in metadata.keys().filter(|name| !METADATA.contains(&name.as_str())) {
        let at = root.locate(&path(&["metadata", name]));
        let span = at.key.map_or(root.span.clone(), |key| key.span.clone());
        let help =
            nearest(name, METADATA).map_or_else(String::new, |meant| format!("did you mean `{meant}`?"));
        let message = format!("metadata.{name}: unknown field `{name}`");
        faults.push(Fault::new(span, Code::UnknownField, message).help(help));
    }
    for field in ["labels", "annotations"] {
        match metadata.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                let wrong = map.iter().filter(|(_, value)| !value.is_string());
                faults.extend(wrong.map(|(key, value)| {
                    let message = format!("metadata.{field}.{key}: must be a string, is `{value}`");
                    let fault = Fault::new(place(root, &["metadata", field, key]), Code::WrongType, message);
                    fault.help(format!("put it in quotes: `{key}: \"{value}\"`"))
                }));
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let message = format!("metadata.{field}: must be a mapping");
                faults.push(Fault::new(place(root, &["metadata", field]), Code::WrongType, message));
            }
        }
    }
    faults
}

/// Rules over a spec that fits its schema.
pub(super) fn spec(kind: ClaimKind, root: &Node, value: &Value) -> Vec<Fault> {
    let text = |keys: &[&str]| {
        let pointer = format!("/{}", keys.join("/"));
        value.pointer(&pointer).and_then(Value::as_str).unwrap_or_default()
    };
    let mut faults = Vec::new();
    let mut not_built = |keys: &[&str], allowed: &str, help: String| {
        let found = text(keys);
        if !found.is_empty() && found != allowed {
            let message = format!("{}: `{found}` is not supported yet", keys.join("."));
            faults.push(Fault::new(place(root, keys), Code::NotSupported, message).help(help));
        }
    };
    not_built(&["spec", "deletionPolicy"], "Keep", "write `Keep` or leave the field out".to_owned());
    match kind {
        ClaimKind::CniUpgrade => {
            not_built(
                &["spec", "driver"],
                "daemonSet",
                "write `daemonSet` or leave the field out".to_owned(),
            );
            let version = text(&["spec", "targetVersion"]);
            // It becomes the tag of an image; `+` stands in versions of charts.
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
            if version.trim().is_empty() || !version.trim().chars().all(fits) {
                let message = format!("spec.targetVersion: `{version}` is no version");
                let fault = Fault::new(place(root, &["spec", "targetVersion"]), Code::OutOfRange, message);
                faults.push(fault.help("use letters, digits, `.`, `_`, `-` and `+`, such as `v3.28.0`"));
            }
            faults.extend(selector(root, value, &["spec", "nodeSelector"]));
            faults.extend(selector(root, value, &["spec", "canary", "nodeLabels"]));
        }
        ClaimKind::ServiceUpgrade => {
            faults.extend(canary_service(root, value));
            faults.extend(canary_metrics(root, value));
            faults.extend(port_names(root, value));
            faults.extend(selector(root, value, &["spec", "targetService", "selector"]));
        }
    }
    faults
}

/// Labels that no node and no pod can have.
fn selector(root: &Node, value: &Value, keys: &[&str]) -> Vec<Fault> {
    let pointer = format!("/{}", keys.join("/"));
    let labels = value.pointer(&pointer).and_then(Value::as_object);
    let wrong = labels.into_iter().flatten().filter_map(|(key, value)| {
        let (message, help) = label::wrong(key, value)?;
        let at = root.locate(&path(keys).key(key));
        let span = at.key.map_or(root.span.start..root.span.start, |key| key.span.clone());
        Some(Fault::new(span, Code::OutOfRange, format!("{}: {message}", keys.join("."))).help(help))
    });
    wrong.collect()
}

/// The canary Service's name must fit, and the weights on the way must rise.
fn canary_service(root: &Node, value: &Value) -> Vec<Fault> {
    let Some(canary) = value.pointer("/spec/canary") else { return Vec::new() };
    let mut faults = Vec::new();
    let service = value.pointer("/spec/serviceName").and_then(Value::as_str).unwrap_or_default();
    let suffix = canary.get("serviceSuffix").and_then(Value::as_str).unwrap_or_default();
    let name = format!("{service}-{suffix}");
    if !is_label(&name) {
        let message = format!("the canary Service would be `{name}`, which is no valid name");
        let help = "use small letters, digits and `-`, at most 63 together";
        faults.push(Fault::new(place(root, &["spec", "serviceName"]), Code::OutOfRange, message).help(help));
    }
    let steps: Vec<i64> = canary
        .get("steps")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_i64)
        .collect();
    if !steps.is_sorted_by(|one, next| one < next) {
        let at = place(root, &["spec", "canary", "steps"]);
        faults.push(Fault::new(
            at,
            Code::OutOfRange,
            "spec.canary.steps: every weight must be above the one before",
        ));
    }
    let weight = canary.get("weight").and_then(Value::as_i64).unwrap_or_default();
    if steps.iter().any(|step| *step >= weight) {
        let at = place(root, &["spec", "canary", "steps"]);
        let message = format!("spec.canary.steps: every weight must be below the final one, {weight}");
        faults.push(Fault::new(at, Code::OutOfRange, message).help("raise `weight`, or leave the step out"));
    }
    faults
}

/// The item of a list at a path.
fn item(root: &Node, keys: &[&str], index: usize) -> Range<usize> {
    let at = root.locate(&path(keys).index(index));
    at.value.span.clone()
}

/// A gate needs a bound, and two must leave something between them.
fn canary_metrics(root: &Node, value: &Value) -> Vec<Fault> {
    let keys = ["spec", "canary", "metrics"];
    let metrics = value.pointer("/spec/canary/metrics").and_then(Value::as_array);
    let wrong = metrics.into_iter().flatten().enumerate().filter_map(|(index, metric)| {
        let bound = |key: &str| metric.get(key).and_then(Value::as_f64);
        let (message, help) = match (bound("min"), bound("max")) {
            (None, None) => ("needs `min` or `max`", "add the highest or the lowest good value"),
            (Some(least), Some(most)) if least > most => {
                ("has a `min` above its `max`", "write the lowest good value as `min`")
            }
            _ => return None,
        };
        let message = format!("spec.canary.metrics[{index}]: a metric {message}");
        Some(Fault::new(item(root, &keys, index), Code::OutOfRange, message).help(help))
    });
    wrong.collect()
}

/// Of several ports each has a name, as in a Service.
fn port_names(root: &Node, value: &Value) -> Vec<Fault> {
    let keys = ["spec", "targetService", "ports"];
    let ports = value.pointer("/spec/targetService/ports").and_then(Value::as_array);
    let ports = ports.filter(|ports| ports.len() > 1);
    let nameless = ports.into_iter().flatten().enumerate().filter(|(_, port)| port.get("name").is_none());
    let fault = |(index, _)| {
        let message = format!("spec.targetService.ports[{index}]: each of several ports needs a name");
        Fault::new(item(root, &keys, index), Code::MissingField, message).help("add `name: …`")
    };
    nameless.map(fault).collect()
}

/// What is worth a look in a document that is used all the same.
pub(super) fn remarks(root: &Node) -> Vec<Fault> {
    let status = root.find("status").map(|entry| {
        Fault::new(entry.key.span.clone(), Code::Suspicious, "`status` in a manifest is ignored")
            .help("remove it; trunkline writes the status of the object")
    });
    let annotations = root.find("metadata").and_then(|entry| entry.value.find("annotations"));
    let annotations = annotations.map_or(&[][..], |entry| entry.value.entries());
    let idle = annotations.iter().filter_map(|entry| {
        let name = entry.key.text().filter(|name| name.starts_with("trunkline.dev/"))?;
        let (why, help) = without_effect(name, entry.value.text())?;
        Some(Fault::new(entry.key.span.clone(), Code::Suspicious, format!("`{name}` {why}")).help(help))
    });
    status.into_iter().chain(idle).collect()
}

/// Why one of our annotations has no effect in a manifest, and what to do; none if it has.
fn without_effect(name: &str, value: Option<&str>) -> Option<(&'static str, String)> {
    let here = "has no effect in a manifest";
    match name {
        RETRY if value == Some("") => {
            Some(("is empty, so it is no token", "write a word not used before".to_owned()))
        }
        RETRY => None,
        HOLD => Some((
            here,
            "commit `paused: true`, or put the annotation on the custom resource with `kubectl annotate`"
                .to_owned(),
        )),
        REQUESTED_AT => Some((here, "put it on the custom resource with `kubectl annotate`".to_owned())),
        REPOSITORY | PATH | REVISION | WISH => {
            Some((here, "remove it; trunkline writes it on the custom resource".to_owned()))
        }
        _ => {
            let meant = nearest(name, [RETRY]).map(|meant| format!("did you mean `{meant}`?"));
            let help = meant.unwrap_or_else(|| format!("the only one that has is `{RETRY}`"));
            Some((here, help))
        }
    }
}

/// RFC 1123 label, such as a namespace: at most 63 of small letters, digits and `-`, a letter or digit at both ends.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// RFC 1123 subdomain: labels with dots between, at most 253 together.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}
