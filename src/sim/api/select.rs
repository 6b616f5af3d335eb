//! Label and field selectors, as they stand in a query string.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{failure::Failure, resources::Resource, route::Query};
use crate::sim::model::{body::Body, store::Stored};

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Exists(String),
    Absent(String),
}

/// Which objects a list or watch wants; every requirement must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

impl Selector {
    /// Reads the selectors of a query.
    pub(super) fn of(query: &Query, resource: &Resource) -> Result<Self, Failure> {
        Self::parse(query.text("labelSelector"), query.text("fieldSelector"), resource)
    }

    /// Reads `labelSelector` and `fieldSelector`; absent = everything.
    fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, Failure> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields, resource)? })
    }

    /// Whether everything is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object is wanted.
    pub(super) fn matches(&self, object: &Stored) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(&object.meta.labels))
            && self.fields.iter().all(|(path, wanted, value)| (field(object, path) == *value) == *wanted)
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
        }
    }
}

/// The text at a dotted path; an absent field is the empty text, as the server compares it.
fn field<'a>(object: &'a Stored, path: &str) -> &'a str {
    match (path, &object.body) {
        ("metadata.name", _) => &object.at.name,
        ("metadata.namespace", _) => &object.at.namespace,
        ("spec.nodeName", Body::Pod(pod)) => pod.node.as_deref().unwrap_or(""),
        ("status.phase", Body::Pod(pod)) => pod.phase.as_str(),
        (path, Body::Plain(plain)) => path
            .split('.')
            .try_fold(&*plain.content, |value, key| value.get(key))
            .and_then(Value::as_str)
            .unwrap_or(""),
        _ => "",
    }
}

fn unreadable(text: &str) -> Failure {
    Failure::BadRequest(format!("unable to parse requirement: {text:?}"))
}

/// Splits at commas that are not inside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
    .collect()
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    terms(text).into_iter().map(parse_label).collect()
}

fn parse_label(term: &str) -> Result<Requirement, Failure> {
    let key = |text: &str| {
        let key = text.trim();
        let plain = !key.is_empty() && !key.contains([' ', '(', ')', '!', '=', ',']);
        if plain { Ok(key.to_owned()) } else { Err(unreadable(term)) }
    };
    let one = |text: &str| BTreeSet::from([text.trim().to_owned()]);
    if let Some(absent) = term.strip_prefix('!') {
        return Ok(Requirement::Absent(key(absent)?));
    }
    if let Some((left, right)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(key(left)?, one(right)));
    }
    if let Some((left, right)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(key(left)?, one(right)));
    }
    let Some((head, list)) = term.split_once('(') else { return Ok(Requirement::Exists(key(term)?)) };
    let list = list.trim_end().strip_suffix(')').ok_or_else(|| unreadable(term))?;
    let values: BTreeSet<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
    match head.split_whitespace().collect::<Vec<_>>().as_slice() {
        [name, "in"] => Ok(Requirement::In(key(name)?, values)),
        [name, "notin"] => Ok(Requirement::NotIn(key(name)?, values)),
        _ => Err(unreadable(term)),
    }
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<(String, bool, String)>, Failure> {
    terms(text)
        .into_iter()
        .map(|term| {
            let (path, wanted, value) = if let Some((path, value)) = term.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (path, true, value)
            } else {
                return Err(Failure::BadRequest(format!("invalid field selector: {term:?}")));
            };
            if matches!(path, "metadata.name" | "metadata.namespace") || resource.fields.contains(&path) {
                Ok((path.to_owned(), wanted, value.to_owned()))
            } else {
                let known = ["metadata.name", "metadata.namespace"]
                    .into_iter()
                    .chain(resource.fields.iter().copied());
                let known: Vec<String> = known.map(|path| format!("{path:?}")).collect();
                Err(Failure::BadRequest(format!(
                    "{path:?} is not a known field selector: only {}",
                    known.join(", ")
                )))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::sim::{
        api::resources,
        model::{
            body::Plain,
            store::{Kind, Meta, ObjRef},
        },
    };

    fn event() -> Stored {
        let labels = [("app", "calico"), ("tier", "net")].map(|(key, value)| (key.into(), value.into()));
        Stored {
            at: ObjRef::new(Kind::Event, "a", "e1"),
            uid: "u".into(),
            rv: 1,
            generation: 0,
            created: Timestamp::UNIX_EPOCH,
            deleting: None,
            meta: Meta { labels: Arc::new(labels.into()), ..Meta::default() },
            body: Body::Plain(Plain {
                content: Arc::new(json!({ "involvedObject": { "name": "n1" } })),
                status: None,
            }),
        }
    }

    fn parse(labels: &str, fields: &str) -> Result<Selector, Failure> {
        Selector::parse(labels, fields, resources::of(Kind::Event))
    }

    #[test]
    fn every_form_of_label_requirement_is_read() {
        for yes in [
            "",
            "app",
            "app=calico",
            "app==calico",
            "app in (a, calico)",
            "app notin (a,b)",
            "!zone",
            "zone!=a",
        ] {
            assert!(parse(yes, "").unwrap().matches(&event()), "{yes}");
        }
        for no in ["!app", "app=a", "app!=calico", "app in (a)", "zone notin (a),zone", "app=calico,tier=x"] {
            assert!(!parse(no, "").unwrap().matches(&event()), "{no}");
        }
    }

    #[test]
    fn a_requirement_that_cannot_be_read_is_a_bad_request() {
        for bad in ["app in (a", "app within (a)", "=x", "a b"] {
            assert!(matches!(parse(bad, ""), Err(Failure::BadRequest(_))), "{bad}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_selected_by_is_a_bad_request() {
        assert!(parse("", "involvedObject.name=n1").unwrap().matches(&event()));
        assert!(parse("", "involvedObject.name!=n2,metadata.name=e1").unwrap().matches(&event()));
        assert!(!parse("", "involvedObject.name=").unwrap().matches(&event()));
        let unknown = parse("", "spec.other=a");
        assert!(
            matches!(unknown, Err(Failure::BadRequest(why)) if why.starts_with("\"spec.other\" is not a known"))
        );
    }
}
