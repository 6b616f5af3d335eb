//! `README.md` of the status branch: what a person wants to see who opens it.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    escape::markdown,
    problems::{Problems, place, severity},
    status_file::StatusFile,
    words::time,
};
use crate::{
    api::{ClaimKey, status::Transition},
    mirror::ledger::{AttemptEntry, Ledger},
};

/// Problems shown before the table; all of them are in `problems.yaml`.
const SHOWN: usize = 20;
/// Ended attempts shown.
const ENDED: usize = 20;
/// Longest cell, in characters.
const CELL: usize = 600;

/// Renders the page. `files` are the objects as the same commit tells of them.
pub fn readme(
    cluster: &str,
    files: &BTreeMap<ClaimKey, StatusFile>,
    problems: &Problems,
    ledger: &Ledger,
) -> String {
    let mut page = format!("# {}\n\n", markdown(cluster, CELL));
    if !problems.is_empty() {
        section_of_problems(&mut page, problems);
    }
    section_of_objects(&mut page, files, ledger);
    section_of_ended(&mut page, files, ledger);
    let branch = markdown(&ledger.branch, CELL);
    let _ = writeln!(
        page,
        "\nWritten by trunkline from the branch {branch}; the history of each file is the history of its \
         object. What others change here is overwritten."
    );
    page
}

fn section_of_problems(page: &mut String, problems: &Problems) {
    page.push_str("## Problems\n\n");
    let states = problems.states.iter().map(|state| {
        format!(
            "- **{}** since {}: {}",
            markdown(&state.reason, CELL),
            time(state.since),
            markdown(&state.message, CELL)
        )
    });
    let diagnostics = problems.diagnostics.iter().map(|diagnostic| {
        let help = markdown(&diagnostic.help, CELL);
        let help = if help.is_empty() { help } else { format!(" ({help})") };
        format!(
            "- **{}** {}: {}{help}",
            markdown(&place(diagnostic), CELL),
            severity(diagnostic.severity),
            markdown(&diagnostic.message, CELL),
        )
    });
    for line in states.chain(diagnostics).take(SHOWN) {
        page.push_str(&line);
        page.push('\n');
    }
    let more = problems.count().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(page, "- and {more} more in `problems.yaml`");
    }
    page.push('\n');
}

fn section_of_objects(page: &mut String, files: &BTreeMap<ClaimKey, StatusFile>, ledger: &Ledger) {
    page.push_str("## Objects\n\n");
    if files.is_empty() {
        page.push_str("Nothing is declared.\n");
        return;
    }
    page.push_str(
        "| object | phase | progress | target | since | why waiting |\n|---|---|---|---|---|---|\n",
    );
    for (claim, file) in files {
        let status = file.cni();
        let progress = status.and_then(|status| status.progress.clone());
        let target = status
            .and_then(|status| status.target_version.clone())
            .or_else(|| Some(ledger.objects.get(claim)?.wished.about().to_owned()));
        let since = status.and_then(|status| {
            status.phase_started_at.or_else(|| status.transitions.last().map(|Transition { at, .. }| *at))
        });
        let _ = writeln!(
            page,
            "| {claim} | {} | {} | {} | {} | {} |",
            file.phase(),
            cell(progress.as_deref()),
            cell(target.as_deref()),
            since.map_or_else(|| "-".to_owned(), time),
            markdown(&file.why(), CELL)
        );
    }
}

fn section_of_ended(page: &mut String, files: &BTreeMap<ClaimKey, StatusFile>, ledger: &Ledger) {
    let ended = ended(ledger, |claim| files.contains_key(claim) || ledger.objects.contains_key(claim));
    if ended.is_empty() {
        return;
    }
    page.push_str("\n## Ended attempts of objects that are gone\n\n");
    page.push_str("| object | attempt | target | outcome | reason | ended |\n|---|---|---|---|---|---|\n");
    for attempt in ended.iter().take(ENDED) {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            attempt.claim,
            attempt.number,
            cell(Some(&attempt.target_version)),
            attempt.outcome.map_or("-", |outcome| outcome.as_str()),
            cell(attempt.reason.as_deref()),
            attempt.finished_at.map_or_else(|| "-".to_owned(), time)
        );
    }
}

/// Ended attempts of objects that are not shown otherwise, the newest first.
pub fn ended(ledger: &Ledger, shown: impl Fn(&ClaimKey) -> bool) -> Vec<&AttemptEntry> {
    let mut ended: Vec<&AttemptEntry> = ledger
        .targets
        .values()
        .flat_map(|target| &target.attempts)
        .filter(|attempt| attempt.outcome.is_some() && !shown(&attempt.claim))
        .collect();
    ended.sort_by(|a, b| b.finished_at.cmp(&a.finished_at).then_with(|| a.claim.cmp(&b.claim)));
    ended
}

fn cell(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| markdown(text, CELL))
}
