//! What `trunkline doctor` finds: one finding for each check, with what is wrong and how to mend it.

mod cluster;
mod install;
mod repository;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde::Serialize;

pub use cluster::{
    LeaseSeen, ServerFault, account, clock, in_no_cluster, lease, ledgers, no_election, no_server, provider,
    server, skew,
};
pub use install::{Looked, definition, policies, rights, rights_unknown};
pub use repository::{
    GitFault, configuration, no_configuration, push, read, status_branch, unread, unusable_configuration,
};

use super::paint::{Paint, Tone};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth a look; it works all the same.
    Warning,
    /// Something does not work.
    Fault,
    /// Not looked at; the message says why.
    Skipped,
}

/// One check with its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// The way out, where there is something to mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self { check: check.into(), verdict: Verdict::Ok, message: message.into(), mend: None }
    }

    fn skipped(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped, ..Self::ok(check, message) }
    }

    fn warning(check: impl Into<String>, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, mend: Some(mend.into()), ..Self::ok(check, message) }
    }

    fn fault(check: impl Into<String>, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fault, ..Self::warning(check, message, mend) }
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Examination {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// How many findings ended like this.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// A line for each finding, the way out on a line of its own below it, and the counts at the end.
    pub fn text(&self, paint: Paint) -> String {
        let width = self.findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { check, verdict, message, mend } in &self.findings {
            let (word, tone) = match verdict {
                Verdict::Ok => ("ok", Tone::Good),
                Verdict::Warning => ("warning", Tone::Open),
                Verdict::Fault => ("fault", Tone::Bad),
                Verdict::Skipped => ("skipped", Tone::Live),
            };
            let word = paint.tone(tone, &format!("{word:<7}"));
            let _ = writeln!(text, "{word}  {check:<width$}  {message}");
            if let Some(mend) = mend {
                let _ = writeln!(text, "{:7}  {:<width$}  {mend}", "", "  to mend:");
            }
        }
        let (faults, warnings) = (self.count(Verdict::Fault), self.count(Verdict::Warning));
        let _ = writeln!(text, "{}, {}", counted(faults, "fault"), counted(warnings, "warning"));
        text
    }
}

fn counted(count: usize, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}
