//! Messages of the commits that trunkline makes.
//!
//! Guarantees: lines of at most 72 characters where words allow; what came from outside is on indented lines
//! of its own, so it forges no trailer; trailers are single lines in the last paragraph.

use std::fmt::Write as _;

use super::{escape::commit as harmless, status_file::StatusFile};
use crate::{
    api::ClaimKey,
    mirror::{ATTEMPT_TRAILER, ledger::RollbackEntry},
};

/// Characters of one line.
const WIDTH: usize = 72;
/// Longest evidence, in characters.
const EVIDENCE: usize = 4096;
/// Longest name, path or version, in characters.
const NAME: usize = 253;
/// Entries shown of a longer list.
const LISTED: usize = 50;

/// One change that a status commit tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Object; absent for the repository as a whole.
    pub claim: Option<ClaimKey>,
    /// Where it stands and what is new: `Canary 1/10 on v3.28.0, node n1 failed (InitFailed)`.
    pub what: String,
    /// More about it; may be empty.
    pub detail: String,
}

impl Line {
    fn text(&self) -> String {
        match &self.claim {
            Some(claim) => format!("{claim}: {}", harmless(&self.what, NAME)),
            None => harmless(&self.what, NAME),
        }
    }
}

/// Where an object stands, in the few words of a subject: `Failed 0/10 on v3.28.0 (CanaryUnhealthy)`.
pub fn standing(file: &StatusFile) -> String {
    let mut text = file.phase().to_owned();
    if let Some(status) = file.cni() {
        match (&status.progress, &status.target_version) {
            (Some(progress), Some(target)) => {
                let _ = write!(text, " {progress} on {target}");
            }
            (None, Some(target)) => {
                let _ = write!(text, ", target {target}");
            }
            (Some(_) | None, None) => {}
        }
    }
    if let Some(reason) = file.reason() {
        let _ = write!(text, " ({reason})");
    }
    text
}

/// Message of a commit on the status branch: `CNIUpgrade/calico: Canary 2/10 on v3.28.0`.
pub fn status(prefix: &str, lines: &[Line]) -> String {
    let first = lines.first().map_or_else(|| "Table of objects".to_owned(), Line::text);
    let more = lines.len().saturating_sub(1);
    let mut message = format!("{prefix}{first}");
    if more > 0 {
        let _ = write!(message, " and {more} more");
    }
    message.push_str("\n\n");
    for line in lines.iter().take(LISTED) {
        let detail = harmless(&line.detail, EVIDENCE);
        if more > 0 {
            let text = if detail.is_empty() { line.text() } else { format!("{}: {detail}", line.text()) };
            wrap(&mut message, &text, "- ", "  ");
        } else if !detail.is_empty() {
            wrap(&mut message, &detail, "  ", "  ");
        }
    }
    if lines.len() > LISTED {
        let _ = writeln!(message, "- {} more", lines.len() - LISTED);
    }
    if !message.ends_with("\n\n") {
        message.push('\n');
    }
    message.push_str("[skip ci]\n");
    message
}

/// Message of the commit that records a rollback.
///
/// `changed` are the files that it changes, `others` of the entry those of the failed commit that stay as they are.
pub fn rollback(entry: &RollbackEntry, changed: &[String], cluster: &str, prefix: &str) -> String {
    let (from, to) = (harmless(&entry.from_version, NAME), harmless(&entry.to_version, NAME));
    let (claim, cluster) = (&entry.claim, harmless(cluster, NAME));
    let mut message = format!("{prefix}Roll back {claim} to {to} on {cluster}\n\n");
    let says = if entry.to.is_none() {
        format!("{claim} was not declared before, so its document is removed; {to} runs.")
    } else {
        format!("This commit puts back the wish only, so that Git says what runs: {to}.")
    };
    let reason = harmless(&entry.reason, NAME);
    let why = format!("{from} failed on {cluster} ({reason}), and the cluster was put back. {says}");
    wrap(&mut message, &why, "", "");
    message.push_str("\nWhat was seen:\n");
    wrap(&mut message, &harmless(&entry.evidence, EVIDENCE), "  ", "  ");
    list(&mut message, "Nodes left, put back as they return:", &entry.left);
    let undone = entry.introduced.iter().map(ToString::to_string).collect::<Vec<_>>();
    list(&mut message, "Commit whose wish is undone:", &undone);
    list(&mut message, "File that is changed for it:", changed);
    if let Some(introduced) = &entry.introduced {
        let title = format!("Also changed by {} and not touched here:", introduced.short());
        list(&mut message, &title, &entry.others);
    }
    message.push('\n');
    wrap(&mut message, &format!("{from} is not tried again on {cluster} by itself. {RETRY}"), "", "");
    let trailers = [
        ("Trunkline-Object", claim.to_string()),
        ("Trunkline-Cluster", cluster),
        (ATTEMPT_TRAILER, entry.attempt.to_string()),
        ("Trunkline-From", from),
        ("Trunkline-Reason", reason),
    ];
    message.push('\n');
    for (name, value) in trailers {
        let _ = writeln!(message, "{name}: {}", harmless(&value, NAME));
    }
    message
}

const RETRY: &str = "To try it again, commit it together with the annotation `trunkline.dev/retry: <token \
     not used before>`.";

/// What a person would commit instead of us.
pub fn by_hand(entry: &RollbackEntry) -> String {
    match &entry.to {
        Some(_) => format!("set {} back to {}.", entry.claim, harmless(&entry.to_version, NAME)),
        None => format!("remove the document of {}.", entry.claim),
    }
}

fn list(message: &mut String, title: &str, entries: &[String]) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(message, "\n{title}");
    for entry in entries.iter().take(LISTED) {
        let _ = writeln!(message, "  {}", harmless(entry, NAME));
    }
    if entries.len() > LISTED {
        let _ = writeln!(message, "  and {} more", entries.len() - LISTED);
    }
}

/// Adds a text in lines of at most 72 characters; a longer word stays whole.
fn wrap(message: &mut String, text: &str, first: &str, next: &str) {
    let mut row = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && row.chars().count() + 1 + word.chars().count() > WIDTH {
            message.push_str(&row);
            message.push('\n');
            next.clone_into(&mut row);
            empty = true;
        }
        if !empty {
            row.push(' ');
        }
        row.push_str(word);
        empty = false;
    }
    message.push_str(&row);
    message.push('\n');
}
