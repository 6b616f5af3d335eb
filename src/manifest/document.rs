//! One document against its kind: identity, fields, values, rules.

use std::{collections::BTreeMap, ops::Range, sync::LazyLock};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Code, Declaration, Severity, Spec, nearest, rules,
    source::Source,
    tree::{Fault, Kind, Node},
    wish::Wish,
};
use crate::api::{
    ClaimKey, ClaimKind, crd,
    names::{CNI_GROUP, RETRY, SERVICE_GROUP},
    schema::{self, FieldPath, Violation, ViolationKind},
};

/// What one document of ours amounts to.
#[derive(Debug)]
pub(super) struct Checked {
    /// Its identity, as far as it can be read.
    pub(super) key: Option<ClaimKey>,
    /// Bytes of its name; of its first byte of content when there is none.
    pub(super) named: Range<usize>,
    /// A fault may hide which key stands here.
    pub(super) hides: bool,
    /// Only without an error.
    pub(super) declaration: Option<Declaration>,
    /// Everything found.
    pub(super) faults: Vec<(Severity, Fault)>,
}

/// Schema of whole objects of a kind; made once, since deriving it costs more than reading a manifest.
fn schema_of(kind: ClaimKind) -> &'static schema::Schema {
    static CNI: LazyLock<schema::Schema> = LazyLock::new(|| crd::schema(ClaimKind::CniUpgrade));
    static SERVICE: LazyLock<schema::Schema> = LazyLock::new(|| crd::schema(ClaimKind::ServiceUpgrade));
    match kind {
        ClaimKind::CniUpgrade => &CNI,
        ClaimKind::ServiceUpgrade => &SERVICE,
    }
}

/// Whether an `apiVersion` is of one of our groups.
fn is_ours(api_version: &str) -> bool {
    let group = api_version.split('/').next().unwrap_or_default().trim();
    group == CNI_GROUP || group == SERVICE_GROUP
}

const KINDS: [ClaimKind; 2] = [ClaimKind::CniUpgrade, ClaimKind::ServiceUpgrade];

/// Checks a document; none when it is somebody else's.
pub(super) fn check(root: &Node, source: &Source<'_>, path: &str, index: usize) -> Option<Checked> {
    let text = |name: &str| root.find(name).and_then(|entry| entry.value.text());
    let written = root.entries().iter().filter(|entry| entry.key.text() == Some("apiVersion"));
    if !written.filter_map(|entry| entry.value.text()).chain(text("apiVersion")).any(is_ours) {
        let kind = text("kind")?;
        return list(root, kind).or_else(|| stranger(root, text("apiVersion"), kind));
    }
    let kind = KINDS
        .into_iter()
        .find(|kind| text("apiVersion") == Some(kind.api_version()) && text("kind") == Some(kind.kind()));
    Some(match kind {
        Some(kind) => of_kind(kind, root, source, path, index),
        None => Checked {
            key: None,
            named: root.span.start..root.span.start,
            hides: true,
            declaration: None,
            faults: vec![(Severity::Error, unknown_kind(root))],
        },
    })
}

fn of_kind(kind: ClaimKind, root: &Node, source: &Source<'_>, path: &str, index: usize) -> Checked {
    let (mut value, faults) = root.value();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let mut hides = faults.iter().any(|fault| blurs_identity(fault, source));
    let mut faults: Vec<Fault> = faults.into_iter().map(|fault| explain(fault, source)).collect();
    let named = match rules::identity(kind, root, &value) {
        Ok(named) => Some(named),
        Err(bad) => {
            hides = true;
            faults.extend(bad);
            None
        }
    };
    faults.extend(rules::metadata(root, &value));
    faults.extend(against_schema(schema_of(kind), root, source, &mut value));
    if faults.is_empty() {
        faults.extend(rules::spec(kind, root, &value));
    }
    let mut declaration = None;
    if let (Some((key, _)), true) = (&named, faults.is_empty()) {
        match declare(key.clone(), &value, root, source) {
            Ok(found) => declaration = Some(Declaration { path: path.to_owned(), document: index, ..found }),
            Err(fault) => faults.push(fault),
        }
    }
    faults.sort_by_key(|fault| fault.span.start);
    let errors = faults.into_iter().map(|fault| (Severity::Error, fault));
    let remarks = rules::remarks(root).into_iter().map(|fault| (Severity::Warning, fault));
    let (key, at) = named.map_or((None, root.span.start..root.span.start), |(key, at)| (Some(key), at));
    Checked { key, named: at, hides, declaration, faults: errors.chain(remarks).collect() }
}

/// Whether kind, namespace or name may be another than it seems.
fn blurs_identity(fault: &Fault, source: &Source<'_>) -> bool {
    let key = source.text().get(fault.span.clone()).unwrap_or_default().trim_matches(['"', '\'']);
    let identifies = ["apiVersion", "kind", "metadata", "name", "namespace"].contains(&key);
    fault.code == Code::Budget || (fault.code == Code::DuplicateKey && identifies)
}

/// Manifests of ours in the items of a `List`, as `kubectl get -o yaml` prints them.
fn list(root: &Node, kind: &str) -> Option<Checked> {
    let Kind::List { items, .. } = &root.find("items").filter(|_| kind == "List")?.value.content.kind else {
        return None;
    };
    let ours =
        |item: &&Node| item.find("apiVersion").and_then(|entry| entry.value.text()).is_some_and(is_ours);
    let first = items.iter().find(ours)?;
    let at = first.span.start..first.span.start;
    let count = items.iter().filter(ours).count();
    let message = format!("{count} of the items of this `List` are for trunkline, which does not read lists");
    let fault = Fault::new(at.clone(), Code::NotSupported, message)
        .help("make each item a document of its own, with `---` between them");
    Some(Checked {
        key: None,
        named: at,
        hides: true,
        declaration: None,
        faults: vec![(Severity::Error, fault)],
    })
}

/// Our kind in a group that is not ours, or in none, is probably a slip; it is ignored all the same.
fn stranger(root: &Node, api_version: Option<&str>, kind: &str) -> Option<Checked> {
    let kind = KINDS.into_iter().find(|known| known.kind() == kind)?;
    let at = root.find("apiVersion").or_else(|| root.find("kind"))?.value.span.clone();
    let said = api_version.map_or("no `apiVersion`".to_owned(), |version| format!("`apiVersion: {version}`"));
    let fault =
        Fault::new(at.clone(), Code::Suspicious, format!("a {} with {said} is not read", kind.kind()))
            .help(format!("if it is meant for trunkline, write `apiVersion: {}`", kind.api_version()));
    Some(Checked {
        key: None,
        named: at,
        hides: true,
        declaration: None,
        faults: vec![(Severity::Warning, fault)],
    })
}

fn unknown_kind(root: &Node) -> Fault {
    let text = |name: &str| root.find(name).and_then(|entry| entry.value.text()).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let of_kind = KINDS.into_iter().find(|known| kind == known.kind());
    let of_group = KINDS.into_iter().find(|known| version.split('/').next() == Some(known.group()));
    let known = of_kind.or(of_group).unwrap_or(ClaimKind::CniUpgrade);
    let wrong = if version == known.api_version() { "kind" } else { "apiVersion" };
    let at = root.find(wrong).map_or(root.span.start..root.span.start, |entry| entry.value.span.clone());
    let message = if kind.is_empty() {
        format!("the document has no `kind` beside `apiVersion: {version}`")
    } else {
        format!("there is no kind `{kind}` in `{version}`")
    };
    let help = format!("write `kind: {}` with `apiVersion: {}`", known.kind(), known.api_version());
    Fault::new(at, Code::UnknownKind, message).help(help)
}

fn explain(fault: Fault, source: &Source<'_>) -> Fault {
    match (fault.code, fault.other) {
        (Code::DuplicateKey, Some(first)) => {
            let line = source.position(first).line;
            fault.help(format!("the first one is on line {line}; keep one of them"))
        }
        _ => fault,
    }
}

/// Breaches of the schema in their places; `value` becomes what the API server would store.
fn against_schema(
    schema: &schema::Schema,
    root: &Node,
    source: &Source<'_>,
    value: &mut Value,
) -> Vec<Fault> {
    let unknown = schema::unknown_fields(schema, value);
    schema::fill_defaults(schema, value);
    let breaches = schema::validate(schema, value);
    schema::whole_numbers(value);
    unknown.iter().chain(&breaches).map(|violation| place(schema, root, source, violation)).collect()
}

fn place(schema: &schema::Schema, root: &Node, source: &Source<'_>, violation: &Violation) -> Fault {
    let at = root.locate(&violation.path);
    let key = at.key.map_or(root.span.start..root.span.start, |key| key.span.clone());
    let value = if at.value.span.is_empty() { key.clone() } else { at.value.span.clone() };
    let message = format!("{violation}");
    match violation.kind {
        ViolationKind::Missing => {
            let name = violation.path.last_key().unwrap_or_default();
            let help = if at.whole { "it has no value".to_owned() } else { format!("add `{name}: …`") };
            Fault::new(key, Code::MissingField, message).help(help)
        }
        ViolationKind::Unknown => {
            Fault::new(key, Code::UnknownField, message).help(known_fields(schema, &violation.path))
        }
        ViolationKind::WrongType => {
            let written = source.text().get(at.value.content.span.clone()).unwrap_or_default();
            let help = beyond(schema, violation, written).unwrap_or_else(|| quoting(violation, written));
            Fault::new(value, Code::WrongType, message).help(help)
        }
        ViolationKind::OutOfRange => Fault::new(value, Code::OutOfRange, message).help(wording(violation)),
    }
}

/// A number that is greater than the ones that can be told apart, and which ones the field takes.
fn beyond(schema: &schema::Schema, violation: &Violation, written: &str) -> Option<String> {
    // What `f64` reads besides numbers are words.
    let number: f64 = written.parse().ok().filter(|_| written.contains(|c: char| c.is_ascii_digit()))?;
    let wanted = violation.message.starts_with("must be a number")
        || violation.message.starts_with("must be an integer");
    let bounds = schema::bounds(schema, &violation.path).unwrap_or_else(|| "a smaller number".to_owned());
    (wanted && number.abs() >= 2_f64.powi(63))
        .then(|| format!("`{written}` is out of range: it must be {bounds}"))
}

/// One or two numbers of a version as the three that it needs.
fn three_numbers(written: &str) -> Option<String> {
    let numbers: Vec<&str> = written.split('.').collect();
    let plain = |number: &&str| {
        number.chars().all(|digit| digit.is_ascii_digit()) && (*number == "0" || !number.starts_with('0'))
    };
    let is_short = numbers.len() < 3 && numbers.iter().all(|number| !number.is_empty() && plain(number));
    is_short.then(|| format!("{written}{}", ".0".repeat(3 - numbers.len())))
}

/// A number or boolean where text is wanted needs quotes, and text where a number is wanted has too many.
fn quoting(violation: &Violation, written: &str) -> String {
    let name = violation.path.last_key().unwrap_or_default();
    let bare = written.trim_matches(['"', '\'']);
    if violation.message.starts_with("must be a string") && !written.contains(['\n', '{', '[']) {
        if let ("targetVersion", Some(whole)) = (name, three_numbers(written)) {
            return format!("write all three numbers, in quotes: `{name}: \"{whole}\"`");
        }
        format!("put it in quotes: `{name}: \"{written}\"`")
    } else if bare != written && !bare.is_empty() && violation.message.ends_with("is a string") {
        format!("write it without quotes: `{name}: {bare}`")
    } else {
        String::new()
    }
}

fn wording(violation: &Violation) -> String {
    match violation.path.last_key() {
        Some("observationPeriod") => "write a duration such as `10m` or `1h30m`".to_owned(),
        Some("targetVersion") => "write the version that shall run, such as `v3.28.0`".to_owned(),
        Some("provider") => "name a provider, or leave it out to have it found in the cluster".to_owned(),
        Some("healthThreshold") => "1.0 means that every counted node must be healthy".to_owned(),
        Some(_) | None => String::new(),
    }
}

/// The nearest field of the same mapping, else the mapping that has a field of this name, else all there are.
fn known_fields(root: &schema::Schema, path: &FieldPath) -> String {
    let Some(name) = path.last_key() else { return String::new() };
    let parent = path.parent();
    let names = schema::field_names(root, &parent);
    if let Some(meant) = nearest(name, names.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    if let Some(elsewhere) = schema::find_field(root, name) {
        return format!("`{name}` belongs to `{}`", elsewhere.parent());
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("the fields here are {}", names.join(", "))
}

fn declare(key: ClaimKey, value: &Value, root: &Node, source: &Source<'_>) -> Result<Declaration, Fault> {
    let kind = key.kind;
    let stored = value.get("spec").cloned().unwrap_or_default();
    let (spec, wish) = match kind {
        ClaimKind::CniUpgrade => {
            let spec = Box::new(typed(&stored, root)?);
            let wish = Wish::of_cni(&spec);
            (Spec::Cni(spec), wish)
        }
        ClaimKind::ServiceUpgrade => {
            let spec = Box::new(typed(&stored, root)?);
            let wish = Wish::of_service(&spec);
            (Spec::Service(spec), wish)
        }
    };
    let annotations = value.pointer("/metadata/annotations");
    let token = annotations.and_then(|all| all.get(RETRY)).and_then(Value::as_str);
    Ok(Declaration {
        key,
        path: String::new(),
        document: 0,
        line: source.position(root.span.start).line,
        spec,
        stored,
        hash: wish.hash(),
        wish,
        token: token.filter(|token| !token.is_empty()).map(str::to_owned),
        written: written(root, source, wish_fields(kind)),
    })
}

/// Fields of the spec that are the wish.
pub(super) const fn wish_fields(kind: ClaimKind) -> &'static [&'static str] {
    match kind {
        ClaimKind::CniUpgrade => &["targetVersion", "provider", "nodeSelector"],
        ClaimKind::ServiceUpgrade => &["serviceName", "targetService"],
    }
}

fn typed<T: DeserializeOwned>(stored: &Value, root: &Node) -> Result<T, Fault> {
    serde_json::from_value(stored.clone()).map_err(|error| {
        let at = root.locate(&FieldPath::default().key("spec"));
        Fault::new(at.value.span.clone(), Code::WrongType, format!("spec: {error}"))
    })
}

/// The wish's fields as they stand in the text, in a form that does not depend on where they stand: an alias is
/// what it points at, line ends are `\n`, and a block of lines is indented relative to its key.
fn written(root: &Node, source: &Source<'_>, fields: &[&str]) -> BTreeMap<String, String> {
    let Some(spec) = root.find("spec") else { return BTreeMap::new() };
    let entries = fields.iter().filter_map(|field| spec.value.find(field).map(|entry| (*field, entry)));
    let mut texts = BTreeMap::new();
    for (field, entry) in entries {
        let content = &entry.value.content;
        let text = source.text().get(content.span.clone()).unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        let indent = if entry.value.is_alias() { 0 } else { source.indent(entry.key.span.start) };
        let own = source.indent(content.span.start);
        let text = if content.is_block() { format!("\n{}{text}", " ".repeat(own)) } else { text.to_owned() };
        texts.insert(field.to_owned(), dedent(&text, indent));
    }
    texts
}

fn dedent(text: &str, indent: usize) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| {
        let blank = line.len() - line.trim_start_matches(' ').len();
        text + "\n" + line.get(blank.min(indent)..).unwrap_or_default()
    })
}
