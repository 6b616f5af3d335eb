//! What the accepted revision and the commits before it declare, and a memo so that no commit is parsed
//! twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::accept::Accepted;
use crate::{
    api::{ClaimKey, names::Oid},
    config::Repository,
    manifest::{self, Code, Declaration, Diagnostic, Reading, Severity},
    world::git::Files,
};

/// The readings of one accepted revision.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// Of each step, oldest first, with its commit.
    pub steps: Vec<(Oid, Arc<Reading>)>,
    /// Of the revision itself.
    pub head: Arc<Reading>,
}

/// How one key stands in one reading.
#[derive(Debug, Clone, Copy)]
pub enum Presence<'r> {
    /// Declared and usable.
    Declared(&'r Declaration),
    /// There, but not usable: its accepted form stays.
    Held,
    /// Nowhere in what could be read.
    Absent,
}

/// How a key stands in a reading.
pub fn presence<'r>(reading: &'r Reading, key: &ClaimKey) -> Presence<'r> {
    match reading.declarations.get(key) {
        Some(declaration) => Presence::Declared(declaration),
        None if reading.held.contains(key) => Presence::Held,
        None => Presence::Absent,
    }
}

/// Readings of one repository by commit; holds those of the last pass only. Losing it costs time, nothing
/// else.
#[derive(Debug, Default)]
pub struct ReadMemo {
    known: BTreeSet<String>,
    readings: BTreeMap<Oid, Arc<Reading>>,
}

impl ReadMemo {
    /// Reads the revision and every step to it; `known` are the files in which declarations stood before.
    pub fn read(&mut self, accepted: &Accepted<'_>, known: BTreeSet<String>, repo: &Repository) -> Readings {
        if self.known != known {
            self.readings.clear();
            self.known = known;
        }
        let before = std::mem::take(&mut self.readings);
        let mut last: Option<(&Files, Arc<Reading>)> = None;
        let mut read = |commit: &Oid, files| {
            let reading = match (before.get(commit), last.take()) {
                (Some(reading), _) => Arc::clone(reading),
                (None, Some((old, reading))) if same_blobs(old, files) => reading,
                (None, Some(_) | None) => Arc::new(allowed(manifest::read(files, &self.known), repo)),
            };
            last = Some((files, Arc::clone(&reading)));
            self.readings.insert(commit.clone(), Arc::clone(&reading));
            reading
        };
        let steps = accepted
            .steps
            .iter()
            .map(|step| (step.commit.oid.clone(), read(&step.commit.oid, &step.files)))
            .collect();
        let head = accepted.revision.map(|head| read(head, accepted.files)).unwrap_or_default();
        Readings { steps, head }
    }
}

fn same_blobs(one: &Files, other: &Files) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((path, a), (other, b))| path == other && a.oid == b.oid)
}

/// Holds back objects in namespaces that the config does not allow.
fn allowed(mut reading: Reading, repo: &Repository) -> Reading {
    let allow = &repo.allow_namespaces;
    if allow.iter().any(|namespace| namespace == "*") {
        return reading;
    }
    let (refused, kept): (BTreeMap<_, _>, BTreeMap<_, _>) = reading
        .declarations
        .into_iter()
        .partition(|(key, _)| key.namespace.as_ref().is_some_and(|ours| !allow.contains(ours)));
    reading.declarations = kept;
    for (key, declaration) in refused {
        reading.diagnostics.push(Diagnostic {
            path: declaration.path,
            line: declaration.line,
            column: 0,
            severity: Severity::Error,
            code: Code::BadMetadata,
            message: format!("{key} is in a namespace that repository {} may not declare", repo.name),
            snippet: String::new(),
            help: format!("move it, or add the namespace to allowNamespaces: {}", allow.join(", ")),
        });
        reading.held.insert(key);
    }
    reading
}
