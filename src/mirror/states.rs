//! What the ledger says of the repository as a whole: states with their way out, and diagnostics.

use jiff::Timestamp;

use super::{
    accept::{Accepted, Held},
    ledger::{Ledger, RepoState, RollbackState},
    readings::Readings,
};
use crate::{
    api::reasons::Reason,
    config::{Repository, STATUS_BRANCHES},
    manifest::{Code, Declaration, Diagnostic, Severity, nearest},
    report::problems::REFUSED,
    world::git::{GitSeen, Tracked},
};

/// Branches that are named in a state.
const BRANCHES: usize = 5;
/// Most diagnostics in the ledger; the others are counted.
const DIAGNOSTICS: usize = 100;

/// States as they are now; one that was there before keeps its `since`.
pub(super) fn states(
    ledger: &Ledger,
    repo: &Repository,
    seen: Option<&GitSeen>,
    held: Option<&Held>,
    now: Timestamp,
) -> Vec<RepoState> {
    let mut states = Vec::new();
    let mut add = |reason: Reason, message: String, since: Timestamp| {
        let before =
            ledger.states.iter().find(|state| state.reason == reason.as_str() && state.message == message);
        let since = before.map_or(since, |state| state.since.min(since));
        states.push(RepoState { reason: reason.as_str().to_owned(), message, since });
    };
    if let Some(message) = held.and_then(|held| rewritten(held, repo)) {
        add(Reason::HistoryRewritten, message, now);
    }
    let tracked = seen.and_then(|seen| seen.tracked.as_ref());
    if let Some(message) = tracked.and_then(|tracked| missing_branch(tracked, repo)) {
        add(Reason::BranchMissing, message, now);
    }
    if let Some(trouble) = seen.and_then(|seen| seen.trouble.as_ref()) {
        let message = format!(
            "Repository {} cannot be read: {}. Rollouts go on with the last accepted revision, and nothing \
             is removed; it is tried again.",
            repo.name, trouble.message
        );
        add(Reason::Unreachable, message, trouble.since);
    }
    let refused = seen.iter().flat_map(|seen| seen.refused.values());
    for refused in refused.filter(|refused| is_wanted(ledger, &refused.what)) {
        let (what, said) = (&refused.what, &refused.message);
        let message = format!("The server refused the push of {what}: {said}. {REFUSED} It is tried again.");
        add(Reason::PushRefused, message, refused.at);
    }
    states
}

/// A branch that does not exist beside others may be mistyped; a repository without any is only empty.
fn missing_branch(tracked: &Tracked, repo: &Repository) -> Option<String> {
    let ours = |name: &&String| !name.starts_with(STATUS_BRANCHES);
    let others: Vec<&str> = tracked.branches.iter().filter(ours).map(String::as_str).collect();
    let (shown, more) = others.split_at(others.len().min(BRANCHES));
    let branch = &repo.branch;
    if tracked.head.is_some() || shown.is_empty() {
        return None;
    }
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let meant = nearest(branch, others.iter().copied());
    let meant = meant.map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
    Some(format!(
        "Branch {branch} does not exist in repository {}; these do: {}{more}.{meant} Correct `branch` in the \
         configuration, or push {branch}.",
        repo.name,
        shown.join(", ")
    ))
}

/// The state of a repository that the configuration does not name any more.
pub(super) fn dropped(ledger: &Ledger, now: Timestamp) -> RepoState {
    let reason = Reason::NotConfigured.as_str();
    let name = &ledger.repository;
    let in_force: Vec<String> = ledger.acting().map(ToString::to_string).collect();
    let stays = match in_force.as_slice() {
        [] => "Nothing of it is in force.".to_owned(),
        some => format!("What it declared last stays in force: {}.", some.join(", ")),
    };
    let message = format!(
        "Repository {name} is not in the configuration any more: it is not read, and nothing is written to it. {stays} \
         To change that, put the repository back into the configuration, or delete the custom resources."
    );
    let since = ledger.states.iter().find(|state| state.reason == reason).map_or(now, |state| state.since);
    RepoState { reason: reason.to_owned(), message, since }
}

/// Whether a push that was refused is still to be made: nobody is told of a rollback commit that is not needed any more.
fn is_wanted(ledger: &Ledger, what: &str) -> bool {
    let mut rollbacks = ledger.targets.values().flat_map(|target| &target.rollbacks);
    rollbacks
        .find(|rollback| rollback.attempt.as_str() == what)
        .is_none_or(|rollback| rollback.state == RollbackState::Due)
}

fn rewritten(held: &Held, repo: &Repository) -> Option<String> {
    let branch = &repo.branch;
    match held {
        Held::Unread | Held::Stale => None,
        Held::Rewritten { accepted, head } => Some(format!(
            "Branch {branch} is at {head}, which does not descend from {accepted}, the last accepted \
             revision. Running attempts go on; nothing new is mirrored and nothing is written to {branch}. \
             To go on, push a history that contains {accepted} again, for example a merge of both heads."
        )),
        Held::BranchGone { accepted } => Some(format!(
            "Branch {branch} does not exist any more; the last accepted revision is {accepted}. Running \
             attempts go on; nothing new is mirrored and nothing is removed. To go on, push {accepted} or a \
             descendant of it to {branch} again."
        )),
    }
}

/// Replaces the diagnostics by those of the accepted revision.
pub(super) fn diagnose(ledger: &mut Ledger, accepted: &Accepted<'_>, readings: &Readings) {
    let missing =
        accepted.missing.iter().filter(|path| !ledger.used_paths.contains(*path)).map(|path| missing(path));
    let entries = accepted.skipped.iter().map(|(path, why)| Diagnostic::unread(path.clone(), why));
    let left_out = readings
        .head
        .declarations
        .iter()
        .filter(|(key, _)| !ledger.objects.contains_key(*key))
        .map(|(key, declaration)| no_room(&key.to_string(), declaration));
    let found = readings.head.diagnostics.iter().cloned();
    let all: Vec<Diagnostic> = left_out.chain(found).chain(missing).chain(entries).collect();
    ledger.more_diagnostics = u32::try_from(all.len().saturating_sub(DIAGNOSTICS)).unwrap_or(u32::MAX);
    ledger.diagnostics = all.into_iter().take(DIAGNOSTICS).collect();
}

fn no_room(key: &str, declaration: &Declaration) -> Diagnostic {
    Diagnostic {
        path: declaration.path.clone(),
        line: declaration.line,
        column: 0,
        severity: Severity::Error,
        code: Code::Limit,
        message: format!(
            "{key} is not taken in: the ledger of this repository has no room for more declarations"
        ),
        snippet: String::new(),
        help: "remove declarations that are history, or spread them over several repositories".to_owned(),
    }
}

fn missing(path: &str) -> Diagnostic {
    Diagnostic {
        path: path.to_owned(),
        line: 0,
        column: 0,
        severity: Severity::Warning,
        code: Code::Skipped,
        message: "this path is configured, but the branch does not have it".to_owned(),
        snippet: String::new(),
        help: "add manifests under it".to_owned(),
    }
}
