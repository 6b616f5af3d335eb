//! Byte-exact edits of a manifest: the wish of one document is put back, or the document goes.
//!
//! Guarantees: bytes outside of the wish's fields stay, whatever they are: comments, line ends, anchors, other
//! documents. Every edit is read again; if more than the wish changed its meaning, there is no edit but an error.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Value};

use super::{
    Declaration, document, flow,
    source::Source,
    splice::{self, Splice},
    stream,
    tree::{Fault, Node},
    wish::{Wish, normalise},
    yaml,
};
use crate::api::ClaimKey;

/// What a document goes back to.
#[derive(Debug, Clone, PartialEq)]
pub enum PutBack {
    /// It declares this wish again.
    Wish {
        /// The wish.
        wish: Wish,
        /// Texts of its fields as they stood before (`Declaration::written`); used where they still mean the wish.
        written: BTreeMap<String, String>,
    },
    /// It was not there before, so it goes.
    Remove,
}

/// Why a file cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Not UTF-8.
    #[error("the file is not UTF-8")]
    NotText,
    /// The document, or one that may be it, cannot be read.
    #[error("{line}:{column}: {message}")]
    Unreadable {
        /// Line from 1.
        line: u32,
        /// Column in characters from 1.
        column: u32,
        /// What is wrong.
        message: String,
    },
    /// The file has no such document.
    #[error("the file does not declare {0}")]
    Absent(ClaimKey),
    /// The file has the document twice.
    #[error("the file declares {0} twice")]
    Twice(ClaimKey),
    /// A field cannot be changed without changing others, which share its text through anchors or merges.
    #[error("{line}:{column}: {field} cannot be changed without changing other fields")]
    Entangled {
        /// Line from 1.
        line: u32,
        /// Column in characters from 1.
        column: u32,
        /// Field of the spec, or `document`.
        field: String,
    },
}

/// The wish of a document in these bytes; none when they do not declare the object.
pub fn carries(bytes: &[u8], key: &ClaimKey) -> Result<Option<Wish>, EditError> {
    match find(text_of(bytes)?, key) {
        Ok(found) => Ok(Some(found.declaration.wish)),
        Err(EditError::Absent(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes with one document put back; equal bytes when it is so already.
pub fn put_back(bytes: &[u8], key: &ClaimKey, to: &PutBack) -> Result<Vec<u8>, EditError> {
    let text = text_of(bytes)?;
    let edited = match to {
        PutBack::Wish { wish, written } => restore(text, key, wish, written)?,
        PutBack::Remove => remove(text, key)?,
    };
    Ok(edited.into_bytes())
}

fn text_of(bytes: &[u8]) -> Result<&str, EditError> {
    std::str::from_utf8(bytes).map_err(|_| EditError::NotText)
}

/// A document found by its key.
struct Found {
    chunk: Range<usize>,
    root: Node,
    value: Value,
    declaration: Declaration,
}

/// A broken document is an error only when the wanted one is nowhere else.
fn find(text: &str, key: &ClaimKey) -> Result<Found, EditError> {
    let source = Source::new(text);
    let mut found = None;
    let mut broken = None;
    for (index, chunk) in stream::documents(text).into_iter().enumerate() {
        let root = match yaml::parse(text.get(chunk.clone()).unwrap_or_default(), chunk.start) {
            Ok(Some(root)) => root,
            Ok(None) => continue,
            Err(fault) => {
                broken = broken.or(Some(unreadable(&source, &fault)));
                continue;
            }
        };
        let Some(checked) = document::check(&root, &source, "", index) else { continue };
        let trouble = checked.faults.first().map(|(_, fault)| unreadable(&source, fault));
        if checked.key.as_ref() != Some(key) {
            if checked.hides {
                broken = broken.or(trouble);
            }
            continue;
        }
        let Some(declaration) = checked.declaration else {
            return Err(trouble.unwrap_or(EditError::Absent(key.clone())));
        };
        let value = root.value().0;
        if found.replace(Found { chunk, root, value, declaration }).is_some() {
            return Err(EditError::Twice(key.clone()));
        }
    }
    found.ok_or_else(|| broken.unwrap_or(EditError::Absent(key.clone())))
}

fn unreadable(source: &Source<'_>, fault: &Fault) -> EditError {
    let at = source.position(fault.span.start);
    EditError::Unreadable { line: at.line, column: at.column, message: fault.message.clone() }
}

/// Puts back field by field; each is written as it stood before if that still means the wish, else from the wish.
fn restore(
    text: &str,
    key: &ClaimKey,
    wish: &Wish,
    written: &BTreeMap<String, String>,
) -> Result<String, EditError> {
    let wanted = parts(wish);
    let mut text = text.to_owned();
    for &field in document::wish_fields(key.kind) {
        let found = find(&text, key)?;
        let present = parts(&found.declaration.wish);
        if present.get(field) == wanted.get(field) {
            continue;
        }
        let changed = wanted.get(field).map(|value| (field.to_owned(), value.clone()));
        let goal = present.into_iter().filter(|(name, _)| name.as_str() != field).chain(changed).collect();
        let candidates = candidates(field, wanted.get(field), written.get(field), &found);
        let edits = candidates
            .iter()
            .filter_map(|candidate| splice::field(&text, &found.root, field, candidate.as_deref()));
        let edited = edits
            .filter_map(|splices| splice::apply(&text, splices))
            .find(|edited| keeps_the_rest(&text, edited, &found, key, &goal));
        text = edited.ok_or_else(|| entangled(&text, &found, field))?;
    }
    Ok(text)
}

/// The fields of a wish as JSON; what is empty is absent.
fn parts(wish: &Wish) -> Map<String, Value> {
    let fields = match wish {
        Wish::Cni { provider, target_version, node_selector } => vec![
            ("targetVersion", Value::from(target_version.as_str())),
            ("provider", provider.as_deref().map_or(Value::Null, Value::from)),
            ("nodeSelector", node_selector.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
        ],
        Wish::Service { service_name, target_service } => {
            vec![
                ("serviceName", Value::from(service_name.as_str())),
                ("targetService", target_service.clone()),
            ]
        }
    };
    let there = |value: &Value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty());
    fields
        .into_iter()
        .filter(|(_, value)| there(value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Texts for a field, the best first; none = without the field.
fn candidates(
    field: &str,
    wanted: Option<&Value>,
    written: Option<&String>,
    found: &Found,
) -> Vec<Option<String>> {
    let Some(wanted) = wanted else { return vec![None, Some("{}".to_owned())] };
    let plain = match wanted {
        Value::String(version) if field == "targetVersion" => Value::from(in_style(version, found)),
        other => other.clone(),
    };
    written.cloned().into_iter().chain([flow::text(&plain)]).map(Some).collect()
}

/// A version with a leading `v` if the present one has it.
fn in_style(version: &str, found: &Found) -> String {
    let present =
        found.value.pointer("/spec/targetVersion").and_then(Value::as_str).unwrap_or_default().trim();
    let prefix = present.strip_suffix(&normalise(present)).unwrap_or_default();
    format!("{prefix}{version}")
}

/// Whether an edit gave the wish its parts and left every other meaning as it was.
fn keeps_the_rest(
    before: &str,
    after: &str,
    found: &Found,
    key: &ClaimKey,
    goal: &Map<String, Value>,
) -> bool {
    let Ok(edited) = find(after, key) else { return false };
    let others = |text: &str, ours: &Range<usize>| -> Vec<String> {
        let chunks = stream::documents(text).into_iter().filter(|chunk| chunk != ours);
        chunks.map(|chunk| text.get(chunk).unwrap_or_default().to_owned()).collect()
    };
    parts(&edited.declaration.wish) == *goal
        && without_wish(&edited, key) == without_wish(found, key)
        && others(after, &edited.chunk) == others(before, &found.chunk)
}

fn without_wish(found: &Found, key: &ClaimKey) -> Value {
    let mut value = found.value.clone();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|name, _| !document::wish_fields(key.kind).contains(&name.as_str()));
    }
    value
}

fn entangled(text: &str, found: &Found, field: &str) -> EditError {
    let spec = found.root.find("spec").map(|entry| &entry.value);
    let entry =
        spec.and_then(|spec| spec.find(field).map(|entry| entry.key.span.start).or(Some(spec.span.start)));
    let at = Source::new(text).position(entry.unwrap_or(found.chunk.start));
    EditError::Entangled { line: at.line, column: at.column, field: field.to_owned() }
}

/// Takes the document out; a file left without documents keeps one comment line, since other files may list it.
fn remove(text: &str, key: &ClaimKey) -> Result<String, EditError> {
    let found = find(text, key)?;
    let chunks = stream::documents(text);
    if chunks.len() == 1 {
        return Ok(format!("# {key} was rolled back; see git log.{}", splice::line_end(text)));
    }
    let gone = splice::document(text, &found.chunk, &found.root);
    let edited = splice::apply(text, vec![Splice { range: gone, text: String::new() }]).unwrap_or_default();
    let values = |text: &str, chunks: Vec<Range<usize>>| -> Vec<Option<Value>> {
        let parse =
            |chunk: Range<usize>| yaml::parse(text.get(chunk.clone()).unwrap_or_default(), chunk.start);
        chunks.into_iter().map(|chunk| parse(chunk).ok().flatten().map(|root| root.value().0)).collect()
    };
    let others = chunks.into_iter().filter(|chunk| *chunk != found.chunk).collect();
    if values(text, others) == values(&edited, stream::documents(&edited)) {
        Ok(edited)
    } else {
        Err(entangled(text, &found, "document"))
    }
}

#[cfg(test)]
mod tests;
