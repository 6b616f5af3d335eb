//! Where the bytes of a field or document begin and end, and how to change them. Meaning is checked by the caller.

use std::ops::Range;

use super::{
    source::Source,
    tree::{Entry, Node},
};

/// Bytes to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// The text with some bytes replaced; none when the places overlap or cut a letter.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> Option<String> {
    splices.sort_by_key(|splice| splice.range.start);
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for Splice { range, text: new } in splices {
        edited.push_str(text.get(at..range.start)?);
        edited.push_str(&new);
        at = range.end;
    }
    edited.push_str(text.get(at..)?);
    Some(edited)
}

/// `\r\n` where the file's first line ends so.
pub(super) fn line_end(text: &str) -> &'static str {
    if text.split_inclusive('\n').next().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
}

/// Gives a field of the spec a text, or takes it out.
///
/// A text that starts with a line end is a block below the key; lines after the first are indented from the key.
pub(super) fn field(text: &str, root: &Node, field: &str, new: Option<&str>) -> Option<Vec<Splice>> {
    let spec = &root.find("spec")?.value;
    let source = Source::new(text);
    match (spec.entry(field), new) {
        (Some(entry), Some(new)) => replace(&source, entry, new),
        (Some(entry), None) => take_out(text, spec, entry),
        (None, Some(new)) => insert(&source, spec, field, new),
        (None, None) => None,
    }
}

fn replace(source: &Source<'_>, entry: &Entry, new: &str) -> Option<Vec<Splice>> {
    let text = source.text();
    let colon = after_colon(text, entry)?;
    let new = indented(new, source.indent(entry.key.span.start), line_end(text));
    let old = entry.value.span.clone();
    let is_block = new.starts_with(['\r', '\n']);
    if old.is_empty() {
        let new = if is_block { new } else { format!(" {new}") };
        return Some(vec![Splice { range: colon..colon, text: new }]);
    }
    if entry.value.is_alias() || !entry.value.content.is_block() {
        // A block begins on the line of the key, so that no blank is left there.
        let start = if is_block { colon } else { old.start };
        return Some(vec![Splice { range: start..old.end, text: new }]);
    }
    // A comment beside the key stays.
    let rest = text.get(colon..old.start)?;
    let below = colon + rest.find("\r\n").or_else(|| rest.find('\n'))?;
    if is_block {
        return Some(vec![Splice { range: below..old.end, text: new }]);
    }
    Some(vec![
        Splice { range: colon..colon, text: format!(" {new}") },
        Splice { range: below..old.end, text: String::new() },
    ])
}

/// The byte behind the colon of a key.
fn after_colon(text: &str, entry: &Entry) -> Option<usize> {
    let end = entry.key.span.end;
    let rest = text.get(end..)?;
    let blank = rest.len() - rest.trim_start().len();
    rest.trim_start().starts_with(':').then_some(end + blank + 1)
}

fn indented(new: &str, indent: usize, line_end: &str) -> String {
    let mut lines = new.split('\n');
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| {
        let indent = if line.is_empty() { 0 } else { indent };
        format!("{text}{line_end}{}{line}", " ".repeat(indent))
    })
}

/// Before the version, or before the first field where there is none.
fn insert(source: &Source<'_>, spec: &Node, field: &str, new: &str) -> Option<Vec<Splice>> {
    let before = spec.entry("targetVersion").or_else(|| spec.entries().first())?;
    let at = before.key.span.start;
    let text = if spec.content.is_block() {
        let indent = source.indent(at);
        let line_end = line_end(source.text());
        let new = indented(new, indent, line_end);
        let blank = if new.starts_with(['\r', '\n']) { "" } else { " " };
        format!("{field}:{blank}{new}{line_end}{}", " ".repeat(indent))
    } else {
        format!("{field}: {new}, ")
    };
    Some(vec![Splice { range: at..at, text }])
}

/// In a block its lines go; between braces its text and one comma.
fn take_out(text: &str, spec: &Node, entry: &Entry) -> Option<Vec<Splice>> {
    let (start, end) = (entry.key.span.start, entry.value.span.end.max(after_colon(text, entry)?));
    let range = if spec.content.is_block() {
        line_start(text, start)..line_after(text, end)
    } else {
        let entries = spec.entries();
        let at = entries.iter().position(|one| one.key.span == entry.key.span)?;
        match (entries.get(at + 1), at.checked_sub(1).and_then(|before| entries.get(before))) {
            (Some(next), _) => start..next.key.span.start,
            (None, Some(before)) => before.value.span.end..end,
            (None, None) => start..end,
        }
    };
    Some(vec![Splice { range, text: String::new() }])
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |line_end| line_end + 1)
}

fn line_after(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |line_end| at + line_end + 1)
}

/// Bytes of a document that goes: from its marker, directives and the comments right above it to its last line.
///
/// Comments before a marker, or with a blank line below them, belong to the file and stay, as do those after it.
pub(super) fn document(text: &str, chunk: &Range<usize>, root: &Node) -> Range<usize> {
    let content = line_start(text, root.span.start).max(chunk.start);
    let head = text.get(chunk.start..content).unwrap_or_default();
    let mut start = chunk.start;
    let mut at = chunk.start;
    let mut marked = false;
    for line in head.split_inclusive('\n') {
        if !marked && (line.starts_with("---") || line.starts_with('%')) {
            (start, marked) = (at, true);
        }
        at += line.len();
        if !marked && line.trim().is_empty() {
            start = at;
        }
    }
    let end = line_after(text, root.span.end).min(chunk.end);
    let tail = text.get(end..chunk.end).unwrap_or_default();
    let ended = tail.lines().any(|line| line.starts_with("..."));
    start..if ended { chunk.end } else { end }
}
