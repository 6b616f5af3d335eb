//! `trunkline status`: a tree per object, the repositories with their problems, ended attempts.
//!
//! Guarantees: the JSON form has absolute times only; the text shows times relative to the `now` it is given.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{
    escape::terminal,
    paint::Paint,
    problems::place,
    readme::ended,
    status_file::{GIT_PUBLISHED, StatusFile},
};
use crate::{
    api::{
        ClaimKey, CniUpgradeStatus, Oid,
        cni_upgrade::CniPhase,
        names::{PATH, REPOSITORY},
        reasons::Reason,
        status::{Attempt, AttemptKind, Condition, NodeFailure, NodeSkip, Truth, WaitingFor},
    },
    manifest::Diagnostic,
    mirror::ledger::{AttemptEntry, Ledger, RepoState},
    world::{Claim, ClaimStatus, World},
};

/// Everything that `trunkline status` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// Objects in order of their keys.
    pub objects: Vec<ObjectReport>,
    /// Repositories in order of their names.
    pub repositories: Vec<RepositoryReport>,
    /// Ended attempts of objects that are gone, the newest first.
    pub ended: Vec<AttemptEntry>,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    /// The object.
    pub object: ClaimKey,
    /// Its phase; absent while it has no status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    /// `12/40`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Version before the attempt; the target once completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Its repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Path of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Entry into the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The attempt, with the commit that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// Nodes by state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Nodes that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<NodeFailure>,
    /// Nodes that are left alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<NodeSkip>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Commit on the tracked branch that recorded the rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_commit: Option<String>,
    /// Why nothing (more) is being done now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// What comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextPhase>,
    /// Why the status cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// Nodes by state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// In scope.
    pub in_scope: i32,
    /// Canaries among them.
    pub canaries: i32,
    /// Healthy on target.
    pub upgraded: i32,
    /// Failed.
    pub failed: i32,
    /// Being acted on.
    pub in_flight: i32,
    /// Not yet acted on.
    pub waiting: i32,
    /// Left alone with a reason.
    pub skipped: i32,
}

/// The phase that comes next if nothing fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextPhase {
    /// Its name.
    pub phase: &'static str,
    /// When at the earliest, where that is known and nobody holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Reason name of what people have to end first: a pause, the brake, another manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
}

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

impl StatusReport {
    /// Reports on everything, or on one object with its repository and its ended attempts.
    pub fn of(world: &World, only: Option<&ClaimKey>) -> Self {
        Self::about(world, |key| only.is_none_or(|only| only == key))
    }

    /// Reports on the objects of one namespace.
    pub fn in_namespace(world: &World, namespace: &str) -> Self {
        Self::about(world, |key| key.namespace.as_deref() == Some(namespace))
    }

    fn about(world: &World, wanted: impl Fn(&ClaimKey) -> bool) -> Self {
        let ledgers = || world.ledgers.values().filter_map(|seen| seen.is.as_ref().ok());
        let mut keys: Vec<&ClaimKey> =
            world.claims.keys().chain(ledgers().flat_map(|ledger| ledger.objects.keys())).collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| wanted(key));
        let ended = ledgers()
            .flat_map(|ledger| ended(ledger, |key| !wanted(key) || keys.contains(&key)).into_iter().cloned())
            .collect();
        let objects = keys.iter().map(|key| ObjectReport::of(world, key)).collect();
        // Of a repository that nobody follows and of which nothing acts, there is nothing to tell any more.
        let told = |ledger: &Ledger| !ledger.is_dropped() || ledger.acting().next().is_some();
        let repositories =
            world.ledgers.iter().filter(|(_, seen)| seen.is.as_ref().map_or(true, |ledger| told(ledger)));
        let repositories =
            repositories.map(|(name, seen)| RepositoryReport::of(name.as_str(), &seen.is)).collect();
        Self { objects, repositories, ended }
    }

    /// A tree for people; times are relative to `now`.
    pub fn text(&self, now: Timestamp, paint: Paint) -> String {
        let mut text = String::new();
        for object in &self.objects {
            branch(&mut text, &object.head(), &object.lines(now), paint);
        }
        for repository in &self.repositories {
            branch(&mut text, &repository.head(), &repository.lines(now), paint);
        }
        if !self.ended.is_empty() {
            let lines: Vec<String> = self.ended.iter().map(|attempt| ended_line(attempt, now)).collect();
            branch(&mut text, "Ended attempts of objects that are gone", &lines, paint);
        }
        if text.is_empty() {
            text.push_str("Nothing is declared.\n");
        }
        text
    }
}

pub(super) fn branch(text: &mut String, head: &str, lines: &[String], paint: Paint) {
    text.push_str(&paint.head(&terminal(head)));
    text.push('\n');
    let last = lines.len().saturating_sub(1);
    for (index, line) in lines.iter().enumerate() {
        text.push_str(if index == last { "└─ " } else { "├─ " });
        text.push_str(&paint.line(&terminal(line)));
        text.push('\n');
    }
}

impl ObjectReport {
    /// Gathers what custom resource and ledger know of an object.
    pub(super) fn of(world: &World, key: &ClaimKey) -> Self {
        let entry = world
            .ledgers
            .values()
            .filter_map(|seen| seen.is.as_ref().ok())
            .find_map(|ledger| ledger.objects.get(key));
        let claim = world.claims.get(key).map(|seen| &seen.is);
        let annotation = |name: &str| claim.and_then(|claim| claim.annotations.get(name).cloned());
        let mut report = Self {
            object: key.clone(),
            phase: None,
            progress: None,
            current: None,
            target: claim
                .and_then(|claim| claim.spec.get("targetVersion")?.as_str())
                .or_else(|| entry.map(|entry| entry.wished.about()))
                .map(str::to_owned),
            repository: annotation(REPOSITORY),
            path: annotation(PATH).or_else(|| entry.map(|entry| entry.path.clone())),
            since: None,
            attempt: None,
            nodes: None,
            failures: Vec::new(),
            skips: Vec::new(),
            conditions: Vec::new(),
            rollback_commit: None,
            waiting_for: Vec::new(),
            next: None,
            unreadable: None,
        };
        if let Some(claim) = claim {
            report.take(key, claim);
        }
        report
    }

    fn take(&mut self, key: &ClaimKey, claim: &Claim) {
        match &claim.status {
            ClaimStatus::Cni(status) => self.cni(status, claim),
            ClaimStatus::Service(status) => {
                self.phase = StatusFile::of(key, claim).map(|file| file.phase());
                self.conditions.clone_from(&status.conditions);
                self.waiting_for.clone_from(&status.waiting_for);
            }
            ClaimStatus::Unreadable(why) => self.unreadable = Some(why.clone()),
            ClaimStatus::None => {}
        }
    }

    fn cni(&mut self, status: &CniUpgradeStatus, claim: &Claim) {
        self.phase = Some(status.phase.as_str());
        self.progress.clone_from(&status.progress);
        self.current.clone_from(&status.current_version);
        self.target = status.target_version.clone().or(self.target.take());
        self.since = status.phase_started_at;
        self.attempt.clone_from(&status.attempt);
        self.nodes = status.attempt.as_ref().map(|_| NodeCounts {
            in_scope: status.nodes.in_scope,
            canaries: status.nodes.canaries,
            upgraded: status.upgraded_nodes,
            failed: status.failed_nodes,
            in_flight: status.nodes.in_flight,
            waiting: status.nodes.waiting,
            skipped: status.nodes.skipped,
        });
        self.failures.clone_from(&status.nodes.failures);
        self.skips.clone_from(&status.nodes.skips);
        self.conditions.clone_from(&status.conditions);
        self.rollback_commit = status.rollback.as_ref().and_then(|rollback| rollback.commit.clone());
        self.waiting_for.clone_from(&status.waiting_for);
        self.next = next(status, claim.spec.get("canary").is_some_and(|canary| *canary != Value::Null));
    }

    /// The object, its phase, and the step it takes.
    pub(super) fn head(&self) -> String {
        let mut head = format!("{}  {}", self.object, self.phase.unwrap_or("no status yet"));
        if let Some(progress) = &self.progress {
            head.push(' ');
            head.push_str(progress);
        }
        match (&self.current, &self.target) {
            (Some(current), Some(target)) if current != target => {
                head.push_str("  ");
                head.push_str(current);
                head.push_str(" → ");
                head.push_str(target);
            }
            (_, Some(version)) | (Some(version), None) => {
                head.push_str("  ");
                head.push_str(version);
            }
            (None, None) => {}
        }
        head
    }

    fn lines(&self, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.attempt_line(now));
        lines.extend(self.since.map(|since| format!("phase    since {}", ago(since, now))));
        if let Some(nodes) = &self.nodes {
            lines.push(format!(
                "nodes    {} on target, {} failed, {} in flight, {} waiting, {} skipped; {} in scope, {} canaries{}",
                nodes.upgraded,
                nodes.failed,
                nodes.in_flight,
                nodes.waiting,
                nodes.skipped,
                nodes.in_scope,
                nodes.canaries,
                self.not_counted_since().map(|at| format!(" (as counted {})", ago(at, now))).unwrap_or_default()
            ));
        }
        let failures = self.failures.iter();
        lines.extend(failures.map(|bad| format!("failed   {} {}: {}", bad.node, bad.reason, bad.message)));
        lines.extend(self.skips.iter().map(|skip| format!("skipped  {} {}", skip.node, skip.reason)));
        lines.extend(self.conditions_told(&[]).into_iter().map(condition_line));
        lines.extend(self.rollback_line());
        for waiting in &self.waiting_for {
            let left = waiting.until.map(|until| format!(" ({})", left(until, now))).unwrap_or_default();
            lines.push(format!("waits    {}: {}{left}", waiting.reason, waiting.message));
        }
        if let Some(next) = &self.next {
            let held = next.held_by.as_ref().map(|reason| format!(", once {reason} has ended"));
            let when = next.not_before.map(|at| format!(", {} at the earliest", within(at, now)));
            lines.push(format!("next     {}{}", next.phase, held.or(when).unwrap_or_default()));
        }
        lines.extend(self.unreadable.iter().map(|why| format!("status   cannot be read: {why}")));
        lines
    }

    /// Since when nodes cannot be counted, because their agent is not known any more or nothing is decided about it.
    fn not_counted_since(&self) -> Option<Timestamp> {
        let uncounted = [
            Reason::ProviderNotFound,
            Reason::ProviderAmbiguous,
            Reason::ProviderUnknown,
            Reason::DecisionFailed,
        ];
        let stalled = self.conditions.iter().find(|condition| condition.r#type == "Stalled")?;
        let old = uncounted.iter().any(|reason| reason.as_str() == stalled.reason);
        (stalled.status == Truth::True && old).then_some(stalled.last_transition_time)
    }

    /// The attempt, with the commit and the manifest that it comes from.
    pub(super) fn attempt_line(&self, now: Timestamp) -> Option<String> {
        self.attempt.as_ref().map(|attempt| attempt_line(attempt, self.path.as_deref(), now))
    }

    /// Conditions that say more than the phase, `said` and the reasons for waiting; each message once.
    pub(super) fn conditions_told(&self, said: &[&str]) -> Vec<&Condition> {
        let waiting = self.waiting_for.iter().map(|waiting| waiting.message.as_str());
        let mut said: Vec<&str> = said.iter().copied().chain(waiting).collect();
        let mut told = Vec::new();
        let notable = |condition: &&Condition| is_notable(condition) || self.says_why_not_ready(condition);
        for condition in self.conditions.iter().filter(notable) {
            if !said.contains(&condition.message.as_str()) {
                said.push(&condition.message);
                told.push(condition);
            }
        }
        told
    }

    /// After the end of an attempt `Ready` says what became of it, where no other condition does.
    fn says_why_not_ready(&self, condition: &Condition) -> bool {
        let ended = self.attempt.as_ref().is_some_and(|attempt| attempt.outcome.is_some());
        let stalled = self.conditions.iter().any(|known| known.r#type == "Stalled");
        let expected = condition.status == Truth::True && condition.reason != Reason::RolledBack.as_str();
        condition.r#type == "Ready" && ended && !stalled && !expected
    }

    /// The commit by which Git says that it was rolled back.
    pub(super) fn rollback_line(&self) -> Option<String> {
        self.rollback_commit.as_ref().map(|commit| format!("commit   {} says so in Git", short(commit)))
    }
}

pub(super) fn condition_line(condition: &Condition) -> String {
    let (name, reason, message) = (&condition.r#type, &condition.reason, &condition.message);
    format!("{name:<8} {} {reason}: {message}", word(condition.status))
}

fn attempt_line(attempt: &Attempt, path: Option<&str>, now: Timestamp) -> String {
    let kind = match attempt.kind {
        AttemptKind::Upgrade => "",
        AttemptKind::Return => " (return to last good)",
    };
    let mut line = format!("attempt  {}{kind}, started {}", attempt.number, ago(attempt.started_at, now));
    if let Some(revision) = &attempt.revision {
        line.push_str(", by ");
        line.push_str(&short(revision));
    }
    if let Some(path) = path {
        line.push_str(", ");
        line.push_str(path);
    }
    if let (Some(outcome), Some(at)) = (attempt.outcome, attempt.finished_at) {
        line.push_str(", ");
        line.push_str(outcome.as_str());
        line.push(' ');
        line.push_str(&ago(at, now));
    }
    line
}

/// `main@sha1:0123abc`: the revision with the digits that people read.
pub(super) fn short(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((branch, oid)) => format!("{branch}:{}", Oid::from(oid).short()),
        None => revision.to_owned(),
    }
}

/// The phase that comes next if nothing fails; none once an attempt has ended.
fn next(status: &CniUpgradeStatus, canary: bool) -> Option<NextPhase> {
    let stalled = |condition: &Condition| condition.r#type == "Stalled" && condition.status == Truth::True;
    if status.conditions.iter().any(stalled) {
        return None;
    }
    let returns = status.attempt.as_ref().is_some_and(|attempt| attempt.kind == AttemptKind::Return);
    let phase = match status.phase {
        CniPhase::Pending if canary => CniPhase::Canary,
        CniPhase::Pending | CniPhase::Canary => CniPhase::RollingOut,
        CniPhase::RollingOut => CniPhase::Completed,
        CniPhase::Rollback if returns => CniPhase::Completed,
        CniPhase::Rollback => CniPhase::Failed,
        CniPhase::Completed | CniPhase::Failed => return None,
    };
    let held = status.waiting_for.iter().find(|waiting| HELD.contains(&waiting.reason.as_str()));
    let held_by = held.filter(|_| status.phase != CniPhase::Rollback).map(|waiting| waiting.reason.clone());
    let observing = status.waiting_for.iter().find(|waiting| waiting.reason == "Observing");
    let not_before = observing.filter(|_| held_by.is_none()).and_then(|waiting| waiting.until);
    Some(NextPhase { phase: phase.as_str(), not_before, held_by })
}

/// Reasons for waiting that only people end.
const HELD: [&str; 6] =
    ["Paused", "Held", "HoldOverdue", "TemplateChanged", "OwnershipConflict", "StrategyChanged"];

/// Whether a condition says something that the phase does not.
fn is_notable(condition: &Condition) -> bool {
    match condition.r#type.as_str() {
        "Stalled" | "StrategyHeld" => condition.status == Truth::True,
        "InForce" | "CanaryHealthy" => condition.status == Truth::False,
        "RolledBack" => true,
        GIT_PUBLISHED => condition.status != Truth::True,
        _ => false,
    }
}

const fn word(truth: Truth) -> &'static str {
    match truth {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    }
}

impl RepositoryReport {
    fn of(name: &str, ledger: &Result<Box<Ledger>, String>) -> Self {
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

    fn head(&self) -> String {
        let branch = self.branch.as_deref().unwrap_or("?");
        match &self.accepted {
            Some(accepted) => format!("Repository {}  {branch} at {}", self.name, accepted.short()),
            None => format!("Repository {}  {branch}, nothing accepted yet", self.name),
        }
    }

    fn lines(&self, now: Timestamp) -> Vec<String> {
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

/// An attempt whose object is gone.
pub(super) fn ended_line(attempt: &AttemptEntry, now: Timestamp) -> String {
    let outcome = attempt.outcome.map_or("?", |outcome| outcome.as_str());
    let reason = attempt.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let when = attempt.finished_at.map(|at| format!(", {}", ago(at, now))).unwrap_or_default();
    let (claim, number, target) = (&attempt.claim, attempt.number, &attempt.target_version);
    format!("{claim} attempt {number} to {target}: {outcome}{reason}{when}")
}

/// `3m left`, or `due` once it is past.
pub fn left(at: Timestamp, now: Timestamp) -> String {
    match at.duration_since(now).as_secs() {
        ..=0 => "due".to_owned(),
        seconds => format!("{} left", span(seconds)),
    }
}

fn within(at: Timestamp, now: Timestamp) -> String {
    match at.duration_since(now).as_secs() {
        ..=0 => "now".to_owned(),
        seconds => format!("in {}", span(seconds)),
    }
}

/// `3m ago`, or `just now`.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.duration_since(at).as_secs() {
        ..=0 => "just now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// The two greatest units: `2h5m`, `45s`.
pub fn span(seconds: i64) -> String {
    let units =
        [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let shown = units.iter().skip_while(|(count, _)| *count == 0).take(2).filter(|(count, _)| *count > 0);
    shown.fold(String::new(), |text, (count, unit)| format!("{text}{count}{unit}"))
}
