//! Files to declarations and diagnostics.
//!
//! Guarantees: the same files give the same reading; one bad document holds back only itself; time and memory are
//! bounded by the limits below, whatever the bytes are.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    Code, Declaration, Diagnostic, Reading, Severity, document, source::Source, stream, tree::Fault, yaml,
};
use crate::{
    api::{
        ClaimKey,
        names::{CNI_GROUP, SERVICE_GROUP},
    },
    world::git::Files,
};

/// Documents of one file; more are not read.
pub(super) const MAX_DOCUMENTS: usize = 1_000;
/// Diagnostics of one file; more are counted.
const MAX_DIAGNOSTICS: usize = 100;
/// Characters of one message.
const MAX_MESSAGE: usize = 500;

/// Reads the files. `known` are the paths in which an object of ours stood before: in them a text that is no YAML is
/// a fault even when it names none of our groups.
pub fn read(files: &Files, known: &BTreeSet<String>) -> Reading {
    let mut reading = Reading::default();
    let mut places: BTreeMap<ClaimKey, Vec<Place>> = BTreeMap::new();
    for (path, blob) in files.iter().filter(|(path, _)| is_yaml(path)) {
        let matters = names_us(&blob.bytes) || known.contains(path);
        if !matters && !names_one_of(&blob.bytes, &["CNIUpgrade", "ServiceUpgrade"]) {
            continue;
        }
        let mut file = File { path, matters, reading: &mut reading, places: &mut places, more: 0 };
        file.read(&blob.bytes);
    }
    settle(&mut reading, places);
    reading.diagnostics.sort();
    reading
}

/// Whether a file is read as YAML: `.yaml` or `.yml`, whatever their case.
pub fn is_yaml(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    extension
        .is_some_and(|extension| ["yaml", "yml"].iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// Whether one of our groups stands in the bytes: what is wrong with them then matters.
pub fn names_us(bytes: &[u8]) -> bool {
    names_one_of(bytes, &[CNI_GROUP, SERVICE_GROUP])
}

/// Whether one of the words stands in the bytes, also in UTF-16.
fn names_one_of(bytes: &[u8], words: &[&str]) -> bool {
    let narrow: Vec<u8>;
    let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let bytes = if wide {
        narrow = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        &narrow
    } else {
        bytes
    };
    words.iter().any(|word| bytes.windows(word.len()).any(|window| window == word.as_bytes()))
}

/// One place at which an object stands.
#[derive(Debug)]
struct Place {
    path: String,
    line: u32,
    column: u32,
    snippet: String,
    declaration: Option<Declaration>,
}

/// One file on its way into the reading.
struct File<'r> {
    path: &'r str,
    matters: bool,
    reading: &'r mut Reading,
    places: &'r mut BTreeMap<ClaimKey, Vec<Place>>,
    more: usize,
}

impl File<'_> {
    fn read(&mut self, bytes: &[u8]) {
        let before = self.reading.diagnostics.len();
        if bytes.len() > yaml::MAX_BYTES {
            let message = format!("the file is larger than {} bytes and is not read", yaml::MAX_BYTES);
            self.whole(Code::Limit, message, "split the file");
            return;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => match lone_return(text).filter(|_| self.matters) {
                Some(at) => self.lone_return(&Source::new(text), at),
                None => self.documents(&Source::new(text), before),
            },
            Err(error) => self.not_text(bytes, error.valid_up_to()),
        }
        if self.more > 0 {
            let message = format!("{} more findings in this file", self.more);
            self.push(Severity::Error, Code::Limit, (0, 0), message, String::new(), String::new());
        }
    }

    fn documents(&mut self, source: &Source<'_>, before: usize) {
        let chunks = stream::documents(source.text());
        if chunks.len() > MAX_DOCUMENTS {
            let message =
                format!("the file has {} documents; the first {MAX_DOCUMENTS} are read", chunks.len());
            self.whole(Code::Limit, message, "split the file");
        }
        for (index, chunk) in chunks.into_iter().take(MAX_DOCUMENTS).enumerate() {
            let text = source.text().get(chunk.clone()).unwrap_or_default();
            match yaml::parse(text, chunk.start) {
                Ok(Some(root)) => {
                    if let Some(checked) = document::check(&root, source, self.path, index) {
                        self.take(checked, source, before);
                    }
                }
                Err(fault) if self.matters => {
                    self.reading.hiding.insert(self.path.to_owned());
                    self.fault(Severity::Error, conflict(text, &chunk).unwrap_or(fault), source, before);
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn take(&mut self, checked: document::Checked, source: &Source<'_>, before: usize) {
        if checked.hides {
            self.reading.hiding.insert(self.path.to_owned());
        }
        if let Some(key) = checked.key {
            let at = source.position(checked.named.start);
            self.places.entry(key).or_default().push(Place {
                path: self.path.to_owned(),
                line: at.line,
                column: at.column,
                snippet: source.snippet(at.line, at.column),
                declaration: checked.declaration,
            });
        }
        for (severity, fault) in checked.faults {
            self.fault(severity, fault, source, before);
        }
    }

    fn fault(&mut self, severity: Severity, fault: Fault, source: &Source<'_>, before: usize) {
        if self.reading.diagnostics.len() - before >= MAX_DIAGNOSTICS {
            self.more += 1;
            return;
        }
        let at = source.position(fault.span.start);
        let snippet = source.snippet(at.line, at.column);
        self.push(severity, fault.code, (at.line, at.column), fault.message, snippet, fault.help);
    }

    fn push(
        &mut self,
        severity: Severity,
        code: Code,
        at: (u32, u32),
        message: String,
        snippet: String,
        help: String,
    ) {
        let (line, column) = at;
        let path = self.path.to_owned();
        let (message, help) = (bounded(message), bounded(help));
        self.reading.diagnostics.push(Diagnostic {
            path,
            line,
            column,
            severity,
            code,
            message,
            snippet,
            help,
        });
    }

    fn whole(&mut self, code: Code, message: String, help: &str) {
        if self.matters {
            self.reading.hiding.insert(self.path.to_owned());
            self.push(Severity::Error, code, (0, 0), message, String::new(), help.to_owned());
        }
    }

    /// To some tools it ends a line and to others not: what one shows as a field is the end of a comment to another.
    fn lone_return(&mut self, source: &Source<'_>, at: usize) {
        self.reading.hiding.insert(self.path.to_owned());
        let at = source.position(at);
        self.push(
            Severity::Error,
            Code::Syntax,
            (at.line, at.column),
            "a carriage return stands here without a line feed".to_owned(),
            source.snippet(at.line, at.column),
            "save the file with line ends LF or CRLF".to_owned(),
        );
    }

    fn not_text(&mut self, bytes: &[u8], valid: usize) {
        if !self.matters {
            return;
        }
        self.reading.hiding.insert(self.path.to_owned());
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            self.whole(Code::NotUtf8, "the file is in UTF-16".to_owned(), "save it as UTF-8");
            return;
        }
        let text = String::from_utf8_lossy(bytes);
        let source = Source::new(&text);
        // Up to the first bad byte both texts are the same.
        let at = source.position(valid);
        let byte = bytes.get(valid).copied().unwrap_or_default();
        let message = format!("the byte {byte:#04x} is no UTF-8");
        let snippet = source.snippet(at.line, at.column);
        self.push(
            Severity::Error,
            Code::NotUtf8,
            (at.line, at.column),
            message,
            snippet,
            "save the file as UTF-8".to_owned(),
        );
    }
}

/// Place of the first carriage return that is not part of a CRLF.
fn lone_return(text: &str) -> Option<usize> {
    let found = text.match_indices('\r').map(|(at, _)| at);
    found.into_iter().find(|at| text.as_bytes().get(at + 1) != Some(&b'\n'))
}

/// A value of the file in a message may be as long as the file.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text,
    }
}

/// Markers that an unfinished merge left, which explain a syntax error better than the parser can.
fn conflict(text: &str, chunk: &Range<usize>) -> Option<Fault> {
    let at = text
        .find("<<<<<<< ")
        .filter(|at| *at == 0 || text.get(..*at).is_some_and(|text| text.ends_with('\n')))?;
    let at = chunk.start + at;
    Some(
        Fault::new(at..at, Code::Syntax, "a merge conflict was left in the file")
            .help("resolve it and remove the markers"),
    )
}

/// An object at one place without error is declared, any other is held.
fn settle(reading: &mut Reading, places: BTreeMap<ClaimKey, Vec<Place>>) {
    for (key, mut at) in places {
        if at.len() > 1 {
            for (index, place) in at.iter().enumerate() {
                let Some(other) = at.get(usize::from(index == 0)) else { continue };
                reading.diagnostics.push(duplicate(&key, place, other));
            }
        }
        let alone = at.len() == 1;
        let Some(first) = at.first_mut() else { continue };
        match (first.declaration.take(), alone) {
            (Some(declaration), true) => {
                reading.declarations.insert(key, declaration);
            }
            (Some(_) | None, _) => {
                reading.held.insert(key);
            }
        }
    }
}

fn duplicate(key: &ClaimKey, place: &Place, other: &Place) -> Diagnostic {
    Diagnostic {
        path: place.path.clone(),
        line: place.line,
        column: place.column,
        severity: Severity::Error,
        code: Code::Duplicate,
        message: format!("{key} is also declared at {}:{}:{}", other.path, other.line, other.column),
        snippet: place.snippet.clone(),
        help: "keep one of them; until then the form accepted last stays in force".to_owned(),
    }
}

#[cfg(test)]
mod tests;
