//! One repository in `trunkline status`: what is acted on, and its problems.

use jiff::Timestamp;
use serde::Serialize;

use super::{problems::place, tree::ago};
use crate::{
    api::Oid,
    manifest::Diagnostic,
    mirror::ledger::{Ledger, RepoState},
};

/// One repository.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryReport {
    /// Its name.
    pub name: String,
    /// Tracked branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Newest revision acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Oid>,
    /// Newest head seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Oid>,
    /// States with their way out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<RepoState>,
    /// Findings in its files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
    /// Findings beyond the list.
    pub more_diagnostics: u32,
    /// Why its ledger cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RepositoryReport {
    /// Reports on a repository by its ledger, or by why that cannot be read.
    pub(super) fn of(name: &str, ledger: &Result<Box<Ledger>, String>) -> Self {
        let (ledger, unreadable) = match ledger {
            Ok(ledger) => (Some(ledger), None),
            Err(why) => (None, Some(why.clone())),
        };
        Self {
            name: name.to_owned(),
            branch: ledger.map(|ledger| ledger.branch.clone()),
            accepted: ledger.and_then(|ledger| ledger.accepted.clone()),
            seen: ledger.and_then(|ledger| ledger.seen.clone()),
            states: ledger.map(|ledger| ledger.states.clone()).unwrap_or_default(),
            diagnostics: ledger.map(|ledger| ledger.diagnostics.clone()).unwrap_or_default(),
            more_diagnostics: ledger.map_or(0, |ledger| ledger.more_diagnostics),
            unreadable,
        }
    }

    /// The repository, its branch and what is acted on of it.
    pub(super) fn head(&self) -> String {
        let branch = self.branch.as_deref().unwrap_or("?");
        match &self.accepted {
            Some(accepted) => format!("Repository {}  {branch} at {}", self.name, accepted.short()),
            None => format!("Repository {}  {branch}, nothing accepted yet", self.name),
        }
    }

    /// What is not as it should be.
    pub(super) fn lines(&self, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(seen) = self.seen.as_ref().filter(|seen| Some(*seen) != self.accepted.as_ref()) {
            lines.push(format!("head     {} is not accepted yet", seen.short()));
        }
        lines.extend(self.unreadable.iter().map(|why| format!("ledger   cannot be read: {why}")));
        for state in &self.states {
            lines.push(format!(
                "problem  {} since {}: {}",
                state.reason,
                ago(state.since, now),
                state.message
            ));
        }
        for found in &self.diagnostics {
            let help = if found.help.is_empty() { String::new() } else { format!(" ({})", found.help) };
            lines.push(format!("problem  {}: {}{help}", place(found), found.message));
        }
        if self.more_diagnostics > 0 {
            lines.push(format!("problem  {} more", self.more_diagnostics));
        }
        lines
    }
}
