//! What is wrong with a repository as a whole: `problems.yaml` and the texts of repository states.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    commit::by_hand,
    escape::line,
    words::{QUOTE, quoted, time},
};
use crate::{
    api::reasons::Reason,
    manifest::{
        Diagnostic, Severity,
        yaml::{self, YamlError},
    },
    mirror::ledger::{Ledger, RepoState, RollbackEntry, RollbackState},
    world::git::{GitSeen, Refused},
};

/// All that is wrong with a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problems {
    /// States of the repository.
    pub states: Vec<RepoState>,
    /// Findings in its files.
    pub diagnostics: Vec<Diagnostic>,
    /// Findings beyond the list.
    pub more_diagnostics: u32,
}

impl Problems {
    /// Collects what ledger and Git know. `Unreachable` is left out: who reads it on the branch reads of the
    /// past.
    pub fn of(ledger: &Ledger, git: &GitSeen) -> Self {
        let mut states: Vec<RepoState> = ledger
            .states
            .iter()
            .filter(|state| state.reason != Reason::Unreachable.as_str())
            .cloned()
            .collect();
        for entry in ledger.targets.values().flat_map(|target| &target.rollbacks) {
            let refused = git.refused.get(entry.attempt.as_str());
            if let (RollbackState::Due, Some(refused)) = (&entry.state, refused) {
                // The ledger knows since when; the way out is told here.
                let reason = Reason::PushRefused.as_str();
                let known = states.iter().position(|state| {
                    state.reason == reason && state.message.contains(entry.attempt.as_str())
                });
                let since = known.map_or(entry.at, |index| states.remove(index).since);
                let message = rollback_refused(entry, refused);
                states.push(RepoState { reason: reason.to_owned(), message, since });
            }
        }
        Self { states, diagnostics: ledger.diagnostics.clone(), more_diagnostics: ledger.more_diagnostics }
    }

    /// Adds, before all others, that what the repository declares is not acted on since its mirror pass panicked.
    #[must_use]
    pub fn and_unmirrored(mut self, why: &str, since: Timestamp) -> Self {
        let reason = Reason::DecisionFailed.as_str().to_owned();
        let message = undecided("what the files of the repository ask for", why);
        self.states.insert(0, RepoState { reason, message, since });
        self
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.diagnostics.is_empty() && self.more_diagnostics == 0
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let more = usize::try_from(self.more_diagnostics).unwrap_or(usize::MAX);
        self.states.len().saturating_add(self.diagnostics.len()).saturating_add(more)
    }

    /// How many there are and the first of them, for the subject of a commit, and what that one says.
    pub fn headline(&self) -> (String, String) {
        let first = self.states.first().map(|state| (state.reason.clone(), state.message.clone()));
        let first = first.or_else(|| {
            let found = self.diagnostics.first()?;
            Some((format!("{} {:?}", place(found), found.code), found.message.clone()))
        });
        match (self.count(), first) {
            (1, Some((what, message))) => (format!("1 problem: {what}"), message),
            (many, Some((what, message))) => (format!("{many} problems, first {what}"), message),
            (_, None) => ("No problems any more".to_owned(), String::new()),
        }
    }

    /// The bytes of `problems.yaml`.
    pub fn write(&self) -> Result<String, YamlError> {
        yaml::write(self)
    }
}

/// `calico.yaml:3:5`, as far as the place is known.
pub fn place(diagnostic: &Diagnostic) -> String {
    let path = line(&diagnostic.path, 1024);
    match (diagnostic.line, diagnostic.column) {
        (0, _) => path,
        (row, 0) => format!("{path}:{row}"),
        (row, column) => format!("{path}:{row}:{column}"),
    }
}

/// `error` or `warning`.
pub const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// What to look at when a server refuses a push.
pub const REFUSED: &str = "Allow the push: look at what the server says here (the words of a hook stand in it), at the \
     protection rules of the branch, and at whether the token or key may write to the repository.";

/// Says that the server refused the rollback commit, with its words, and what to commit by hand.
pub fn rollback_refused(entry: &RollbackEntry, refused: &Refused) -> String {
    format!(
        "The Git server refused the rollback commit of {}: {}. The cluster is back already. {REFUSED} Or commit by \
         hand: {} It is tried again while the manifest still carries the failed wish.",
        entry.claim,
        quoted(&refused.message),
        by_hand(entry)
    )
}

/// Says that the server refused the status branch.
pub fn status_refused(branch: &str, refused: &Refused) -> String {
    format!(
        "The Git server refused the status branch {}: {}. Rollouts and rollback commits go on. {REFUSED} It is tried \
         again.",
        line(branch, 253),
        quoted(&refused.message)
    )
}

/// Says that a decision panicked, with what it said, and when it is tried again.
pub fn undecided(about: &str, why: &str) -> String {
    format!(
        "trunkline itself failed while it decided {about}: {}. It is tried again by itself: when something about it \
         changes, at most once a minute, and otherwise after a wait that doubles from 1 minute to 30. If it fails \
         again and again, report it with these words.",
        line(why, QUOTE)
    )
}

/// Says that another cluster publishes under this name.
pub fn name_taken(cluster: &str, uid: &str) -> String {
    format!(
        "Another cluster (UID {}) publishes as {} already; nothing is written to Git, and rollouts go on. \
         Give this cluster another name in its configuration.",
        line(uid, 64),
        line(cluster, 253)
    )
}

/// Says that the repository cannot be reached.
pub fn unreachable(message: &str, since: Timestamp) -> String {
    format!(
        "The repository could not be reached since {}: {}. Rollouts go on with what was accepted; \
         everything is written when it can be reached again.",
        time(since),
        quoted(message)
    )
}

/// Says that the history was rewritten, so that the rollback commit has to wait.
pub fn rewritten(entry: &RollbackEntry) -> String {
    format!(
        "The tracked branch does not descend from the revision accepted last, so nothing is written to it; \
         the rollback commit of {} waits. It is made when the accepted revision is part of the branch again.",
        entry.claim
    )
}

/// Says where the document cannot be read, so that the rollback commit has to wait.
pub fn document_unreadable(entry: &RollbackEntry, what: &str) -> String {
    format!(
        "The manifest of {} cannot be read at head ({}), so the rollback commit waits. Correct it there; if \
         it still names the failed wish then, the commit follows.",
        entry.claim,
        line(what, 600)
    )
}
