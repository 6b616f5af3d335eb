//! `trunkline status`: a tree per object, the repositories with their problems, ended attempts.
//!
//! Guarantees: the JSON form has absolute times only; the text shows times relative to the `now` it is given.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{
    escape::terminal,
    paint::Paint,
    readme::ended,
    repository::RepositoryReport,
    status_file::{GIT_PUBLISHED, StatusFile},
    waiting::hold_ahead,
};
use crate::{
    api::{
        ClaimKey, CniUpgradeStatus, Oid,
        cni_upgrade::CniPhase,
        names::{PATH, REPOSITORY},
        reasons::Reason,
        status::{Attempt, AttemptKind, Condition, NodeFailure, NodeSkip, Outcome, Truth, WaitingFor},
    },
    mirror::ledger::{AttemptEntry, Ledger},
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
    /// What ran everywhere in scope before the attempt.
    #[serde(skip)]
    before: Option<String>,
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
    /// What Git names, where that is passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<Quarantined>,
    /// Why nothing (more) is being done now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// Brakes that are on and keep back nothing yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<WaitingFor>,
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

/// A declaration that is passed over, since its wish failed here before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// Version that it names.
    pub version: String,
    /// `main@sha1:<hex>`: the commit that brought it in.
    pub revision: String,
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
        let declared = world
            .ledgers
            .values()
            .filter_map(|seen| seen.is.as_ref().ok())
            .find_map(|ledger| Some((ledger, ledger.objects.get(key)?)));
        let entry = declared.map(|(_, entry)| entry);
        let claim = world.claims.get(key).map(|seen| &seen.is);
        let annotation = |name: &str| claim.and_then(|claim| claim.annotations.get(name).cloned());
        let written = claim.and_then(|claim| claim.spec.get("targetVersion")?.as_str());
        let mut report = Self {
            object: key.clone(),
            phase: None,
            progress: None,
            current: None,
            target: written.or_else(|| entry.map(|entry| entry.wished.about())).map(str::to_owned),
            repository: annotation(REPOSITORY),
            path: annotation(PATH).or_else(|| entry.map(|entry| entry.path.clone())),
            since: None,
            attempt: None,
            nodes: None,
            before: None,
            failures: Vec::new(),
            skips: Vec::new(),
            conditions: Vec::new(),
            rollback_commit: None,
            quarantined: None,
            waiting_for: Vec::new(),
            holds: Vec::new(),
            next: None,
            unreadable: None,
        };
        if let Some(claim) = claim {
            report.take(key, claim);
            report.take_holds(world, key);
            report.quarantined = declared.filter(|_| report.is_passed_over()).map(|(ledger, entry)| {
                let version = written.unwrap_or_else(|| entry.wished.about()).to_owned();
                Quarantined { version, revision: ledger.revision(&entry.introduced) }
            });
        }
        report
    }

    /// Takes the brakes of its target that nothing waits for: the next change will.
    fn take_holds(&mut self, world: &World, key: &ClaimKey) {
        let told = |waiting: &WaitingFor| ["Held", "HoldOverdue"].contains(&waiting.reason.as_str());
        if self.waiting_for.iter().any(told) {
            return;
        }
        let target = world.target_of(key);
        let about = world.claims.iter().filter(|(claim, _)| world.target_of(claim) == target);
        self.holds =
            about.filter_map(|(claim, seen)| Some(hold_ahead(claim, seen.is.hold.as_ref()?))).collect();
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
        // Where scopes of several attempts differ, no single version ran before.
        let good = status.last_good.as_ref().filter(|good| good.beneath.is_empty());
        self.before = good.and(status.current_version.clone());
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
            let stale = self
                .not_counted_since()
                .map(|at| format!(" (as counted {})", ago(at, now)))
                .unwrap_or_default();
            lines.push(format!("nodes    {}{stale}", self.counted(nodes)));
        }
        let failures = self.failures.iter();
        lines.extend(failures.map(|bad| format!("failed   {} {}: {}", bad.node, bad.reason, bad.message)));
        lines.extend(self.skips.iter().map(|skip| format!("skipped  {} {}", skip.node, skip.reason)));
        lines.extend(self.conditions_told(&[]).into_iter().map(condition_line));
        lines.extend(self.rollback_line());
        lines.extend(self.hold_lines());
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

    /// The nodes by what became of them, with those that no count of the status names.
    fn counted(&self, nodes: &NodeCounts) -> String {
        let NodeCounts { in_scope, canaries, upgraded, failed, in_flight, waiting, skipped } = nodes;
        let known = [upgraded, failed, in_flight, waiting, skipped].map(|count| i64::from(*count));
        let rest = (i64::from(*in_scope) - known.iter().sum::<i64>()).max(0);
        let scope = format!("{in_scope} in scope, {canaries} canaries");
        let outcome = self.attempt.as_ref().and_then(|attempt| attempt.outcome);
        // Nodes that failed and were put back count with all others that run what ran before.
        if let (Some(Outcome::RolledBack), Some(before), Some(target)) = (outcome, &self.before, &self.target)
        {
            let back = rest + i64::from(*failed) + i64::from(*waiting);
            let tried =
                if *failed > 0 { format!(" ({failed} of them failed on {target})") } else { String::new() };
            return format!(
                "{back} on {before}{tried}, {upgraded} on target, {in_flight} in flight, {skipped} skipped; {scope}"
            );
        }
        let rest = match (rest, self.phase) {
            (0, _) => String::new(),
            (rest, Some("Failed")) => format!(", {rest} not on target"),
            (rest, _) => format!(", {rest} not settled"),
        };
        format!(
            "{upgraded} on target, {failed} failed, {in_flight} in flight, {waiting} waiting, {skipped} skipped{rest}; \
             {scope}"
        )
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

    /// Brakes that keep back nothing yet.
    pub(super) fn hold_lines(&self) -> impl Iterator<Item = String> {
        self.holds.iter().map(|hold| format!("held     {}: {}", hold.reason, hold.message))
    }

    /// Whether what is declared failed here before.
    fn is_passed_over(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.r#type == "InForce" && condition.reason == Reason::Quarantined.as_str()
        })
    }

    /// The commit by which Git says that it was rolled back, or said so until the wish was declared again.
    pub(super) fn rollback_line(&self) -> Option<String> {
        let commit = short(self.rollback_commit.as_ref()?);
        Some(match &self.quarantined {
            None => format!("commit   {commit} says so in Git"),
            Some(Quarantined { version, revision }) => {
                format!(
                    "commit   {commit} said so in Git; Git names {version} again since {}",
                    short(revision)
                )
            }
        })
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
