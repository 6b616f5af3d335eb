//! The next commit of the status branch: one per phase change, in order; progress now and then.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::{APART, CLUSTER_FILE, ClusterFile, View, held, look_again, whole_second};
use crate::{
    api::{ClaimKey, CniUpgradeStatus},
    manifest::yaml,
    mirror::ledger::{AttemptEntry, Ledger},
    report::{
        commit::{self, Line},
        problems::Problems,
        readme::readme,
        status_file::{self, StatusFile},
    },
    rollout::{
        Decision,
        effect::{Effect, StepName},
    },
    world::{
        Key,
        git::{Change, Files, NewCommit, StatusBranch},
    },
};

/// Progress below ten percent of the nodes is told this long after the last commit.
const COALESCE: SignedDuration = SignedDuration::from_secs(60);
/// Key of refused pushes to the status branch.
pub(super) const REFUSED: &str = "status";

/// Wants the next status commit, if there is one and it is time for it.
pub(super) fn want(view: &View<'_>, now: Timestamp, decision: &mut Decision) {
    let Some(seen) = view.status_branch() else { return };
    let mut draft = Draft::of(view, seen);
    let changes = draft.changes(view, seen);
    if changes.is_empty() && seen.lost.is_none() {
        return;
    }
    if draft.lines.is_empty() && changes.contains_key(LEDGER_FILE) {
        let what = ledger_news(view.ledger, &seen.files);
        draft.lines.push(Line { claim: None, what, detail: String::new() });
    }
    let branch = view.branch();
    let id = view.effect(StepName::PushStatus, None, branch.clone());
    // A refusal at another tip says nothing about this one.
    let refused = view.git.refused.get(REFUSED).filter(|refused| refused.expect == seen.tip);
    if held(decision, "push to the status branch", view.hold(&id, refused), now) {
        return;
    }
    let due = draft.due(seen);
    if due.is_some_and(|due| due > now) && !(draft.urgent && seen.at > Some(now)) {
        look_again(decision, due.unwrap_or(now), now);
        return;
    }
    let at = whole_second(draft.at.unwrap_or(now));
    let commit = NewCommit {
        branch,
        parent: seen.tip.as_ref().or(seen.lost.as_ref()).cloned(),
        again: seen.lost.is_some(),
        changes,
        message: commit::status(&view.case.repo.subject_prefix, &draft.lines),
        by: view.case.repo.by.clone(),
        at: seen.at.map_or(at, |parent| at.max(parent)),
    };
    decision
        .effects
        .insert(id, Effect::PushStatus { repo: view.case.repo.name.clone(), commit: Box::new(commit) });
}

/// Whether the status branch tells of every phase change of an object, and that it exists.
pub(super) fn told(view: &View<'_>, claim: &ClaimKey) -> bool {
    let Some(seen) = view.status_branch().filter(|seen| seen.tip.is_some()) else { return false };
    match step(view, seen, claim).next {
        Next::Moment { .. } => false,
        Next::Keep | Next::Write(_) | Next::Remove => true,
    }
}

/// What becomes of one object's file.
enum Next {
    /// It stays.
    Keep,
    /// The present state, without a phase change.
    Write(Box<StatusFile>),
    /// The first phase change that the branch does not tell of.
    Moment { file: Box<StatusFile>, at: Timestamp },
    /// The object is gone.
    Remove,
}

/// One object: its file as published, if it can be read, and what becomes of it.
struct Step {
    before: Option<StatusFile>,
    next: Next,
}

fn step(view: &View<'_>, seen: &StatusBranch, claim: &ClaimKey) -> Step {
    let published = seen.files.get(&status_file::path(claim));
    let before = published.and_then(|blob| StatusFile::read(claim, &blob.bytes));
    let known = before.as_ref();
    let present = view.case.world.claims.get(claim).and_then(|seen| StatusFile::of(claim, &seen.is));
    let moment = present.as_ref().and_then(|present| {
        let missing = present.missing_since(known);
        let first = *missing.first()?;
        let at = present.transitions().get(first)?.at;
        let file = if missing.len() == 1 { present.clone() } else { present.as_of(first) };
        Some((file, at))
    });
    let declared = view.ledger.objects.contains_key(claim);
    let moment = moment.or_else(|| {
        let attempt = last_attempt(view.ledger, claim).filter(|_| !declared && present.is_none())?;
        known?.ended(attempt)
    });
    let next = match (moment, present) {
        (Some((file, at)), _) => Next::Moment { file: Box::new(file), at },
        (None, _) if !declared => Next::Remove,
        (None, Some(present)) if known != Some(&present) => Next::Write(Box::new(present)),
        (None, Some(_) | None) => Next::Keep,
    };
    Step { before, next }
}

fn last_attempt<'l>(ledger: &'l Ledger, claim: &ClaimKey) -> Option<&'l AttemptEntry> {
    let attempts = ledger.targets.values().flat_map(|target| &target.attempts);
    attempts.filter(|attempt| attempt.claim == *claim).max_by_key(|attempt| attempt.number)
}

/// The next commit before its time and its parent.
struct Draft {
    /// Objects as the commit tells of them.
    files: BTreeMap<ClaimKey, StatusFile>,
    /// Files that are written.
    writes: BTreeMap<String, String>,
    /// Files that are removed.
    removed: BTreeSet<String>,
    /// What the message says.
    lines: Vec<Line>,
    /// Goes out at once.
    urgent: bool,
    /// When it came about, where that is known.
    at: Option<Timestamp>,
}

impl Draft {
    fn of(view: &View<'_>, seen: &StatusBranch) -> Self {
        let published = seen.files.keys().filter_map(|path| status_file::claim_of(path));
        let claims: BTreeSet<ClaimKey> = view.ledger.objects.keys().cloned().chain(published).collect();
        let steps: Vec<(ClaimKey, Step)> = claims
            .into_iter()
            .map(|claim| {
                let step = step(view, seen, &claim);
                (claim, step)
            })
            .collect();
        let moments = steps.iter().filter_map(|(_, step)| match &step.next {
            Next::Moment { at, .. } => Some(*at),
            Next::Keep | Next::Write(_) | Next::Remove => None,
        });
        let mut draft = Self {
            files: BTreeMap::new(),
            writes: BTreeMap::new(),
            removed: BTreeSet::new(),
            lines: Vec::new(),
            urgent: false,
            at: moments.min(),
        };
        for (claim, step) in steps {
            draft.take(claim, step);
        }
        draft.repository(view, seen);
        if let Some(lost) = &seen.lost {
            draft.urgent = true;
            let detail = format!("Its history up to {} is pushed again.", lost.short());
            draft.lines.push(Line { claim: None, what: "The branch had vanished".to_owned(), detail });
        }
        draft
    }

    fn take(&mut self, claim: ClaimKey, step: Step) {
        let Step { before, next } = step;
        match next {
            Next::Write(file) => {
                self.note(&claim, before.as_ref(), &file);
                self.write(claim, *file);
            }
            Next::Moment { file, at } if self.at.map(whole_second) == Some(whole_second(at)) => {
                self.urgent = true;
                self.lines.insert(
                    0,
                    Line { claim: Some(claim.clone()), what: commit::standing(&file), detail: detail(&file) },
                );
                self.write(claim, *file);
            }
            Next::Keep | Next::Moment { .. } => self.files.extend(before.map(|before| (claim, before))),
            Next::Remove => {
                self.urgent = true;
                self.removed.insert(status_file::path(&claim));
                self.lines.push(Line {
                    claim: Some(claim),
                    what: "removed".to_owned(),
                    detail: String::new(),
                });
            }
        }
    }

    fn write(&mut self, claim: ClaimKey, file: StatusFile) {
        if let Ok(text) = file.write() {
            self.writes.insert(status_file::path(&claim), text);
            self.files.insert(claim, file);
        }
    }

    /// Says what is new about an object whose phase is the same, and whether that is told at once.
    fn note(&mut self, claim: &ClaimKey, before: Option<&StatusFile>, after: &StatusFile) {
        let news = news(before, after);
        let entered = before.is_none_or(|before| before.phase() != after.phase());
        let urgent = entered || !news.is_empty() || leapt(before, after);
        self.urgent |= urgent;
        let standing = commit::standing(after);
        let what = match news.split_first() {
            Some((one, [])) => format!("{standing}, {one}"),
            Some((one, more)) => format!("{standing}, {one} and {} more", more.len()),
            None => standing,
        };
        self.lines.push(Line { claim: Some(claim.clone()), what, detail: detail(after) });
    }

    /// Adds the files that are about the repository as a whole.
    fn repository(&mut self, view: &View<'_>, seen: &StatusBranch) {
        let cluster = &view.case.config.cluster;
        let problems = Problems::of(view.ledger, view.git);
        let unmirrored = view.case.world.undecided.get(&Key::Mirror(view.case.repo.name.clone()));
        let problems = match unmirrored {
            Some((why, since)) => problems.and_unmirrored(why, *since),
            None => problems,
        };
        self.file(
            CLUSTER_FILE,
            &ClusterFile { cluster: cluster.clone(), uid: view.case.config.cluster_uid.clone() },
        );
        self.file(PROBLEMS_FILE, &problems);
        let differ =
            |path: &str, writes: &BTreeMap<String, String>| differs(&seen.files, path, writes.get(path));
        if differ(CLUSTER_FILE, &self.writes) {
            self.urgent = true;
            self.lines.push(Line {
                claim: None,
                what: format!("Status of {cluster}"),
                detail: String::new(),
            });
        } else if differ(PROBLEMS_FILE, &self.writes) {
            self.urgent = true;
            let (what, detail) = problems.headline();
            self.lines.push(Line { claim: None, what, detail });
        }
        self.writes.insert(README.to_owned(), readme(cluster, &self.files, &problems, view.ledger));
        if let Ok(text) = yaml::write(&published_ledger(view.ledger)) {
            self.writes.insert(LEDGER_FILE.to_owned(), text);
        }
    }

    fn file<T: Serialize>(&mut self, path: &str, content: &T) {
        if let Ok(text) = yaml::write(content) {
            self.writes.insert(path.to_owned(), text);
        }
    }

    /// Changes against the branch; empty when nothing but revisions moved.
    fn changes(&self, view: &View<'_>, seen: &StatusBranch) -> BTreeMap<String, Change> {
        let mut changes: BTreeMap<String, Change> = self
            .writes
            .iter()
            .filter(|(path, text)| differs(&seen.files, path, Some(text)))
            .map(|(path, text)| (path.clone(), Change::Write(text.as_bytes().into())))
            .collect();
        changes.extend(self.removed.iter().map(|path| (path.clone(), Change::Remove)));
        let only_ledger = changes.len() == 1 && changes.contains_key(LEDGER_FILE);
        if only_ledger && same_but_revisions(view.ledger, &seen.files) {
            changes.clear();
        }
        changes
    }

    /// When it may go out; absent = at once, since nothing was committed yet.
    fn due(&self, seen: &StatusBranch) -> Option<Timestamp> {
        let pause = if self.urgent { APART } else { COALESCE };
        seen.at.map(|at| at.saturating_add(pause).unwrap_or(at))
    }
}

const README: &str = "README.md";
const PROBLEMS_FILE: &str = "problems.yaml";
const LEDGER_FILE: &str = "ledger.yaml";

fn differs(files: &Files, path: &str, text: Option<&String>) -> bool {
    files.get(path).map(|blob| &*blob.bytes) != text.map(String::as_bytes)
}

/// The ledger without what `problems.yaml` says.
fn published_ledger(ledger: &Ledger) -> Ledger {
    Ledger { states: Vec::new(), diagnostics: Vec::new(), more_diagnostics: 0, ..ledger.clone() }
}

fn ledger_on_branch(files: &Files) -> Option<Value> {
    let blob = files.get(LEDGER_FILE)?;
    yaml::typed::<Value>(std::str::from_utf8(&blob.bytes).ok()?).ok()
}

/// What is new in a ledger, in the words of its own keys: `Ledger: attempts of DaemonSet/kube-system/calico-node`.
fn ledger_news(ledger: &Ledger, files: &Files) -> String {
    let wanted = serde_json::to_value(published_ledger(ledger)).map(without_revisions).unwrap_or_default();
    let known = ledger_on_branch(files).map(without_revisions).unwrap_or_default();
    let (mut news, mut rest) = (Vec::new(), Vec::new());
    for part in differing(&known, &wanted) {
        if !["objects", "targets"].contains(&part) {
            rest.push(part.to_owned());
            continue;
        }
        let (known, wanted) = (part_of(&known, part), part_of(&wanted, part));
        news.extend(differing(known, wanted).map(|name| match (known.get(name), wanted.get(name)) {
            (Some(before), Some(after)) => entry_news(name, before, after),
            (None, _) => name.to_owned(),
            (Some(_), None) => format!("no {name} any more"),
        }));
    }
    news.append(&mut rest);
    match news.split_first() {
        None => "Ledger".to_owned(),
        Some((first, [])) => format!("Ledger: {first}"),
        Some((first, more)) => format!("Ledger: {first} and {} more", more.len()),
    }
}

/// What is new in one entry: the fields that differ, or those that are there no more.
fn entry_news(name: &str, before: &Value, after: &Value) -> String {
    let (fields, gone): (Vec<_>, Vec<_>) =
        differing(before, after).partition(|field| after.get(field).is_some());
    if fields.is_empty() {
        return format!("no {} of {name} any more", gone.join(", "));
    }
    // What else changes with a wish follows from it.
    let fields = if fields.contains(&"wish") { vec!["wish"] } else { fields };
    format!("{} of {name}", fields.join(", "))
}

/// Keys of two mappings whose values differ or of which only one has them, in order.
fn differing<'v>(before: &'v Value, after: &'v Value) -> impl Iterator<Item = &'v str> {
    let keys = [before, after].into_iter().filter_map(Value::as_object).flat_map(serde_json::Map::keys);
    let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
    keys.into_iter().filter(|key| before.get(key) != after.get(key))
}

fn part_of<'v>(ledger: &'v Value, name: &str) -> &'v Value {
    ledger.get(name).unwrap_or(&Value::Null)
}

/// Whether the published ledger differs in accepted and seen revisions at most.
fn same_but_revisions(ledger: &Ledger, files: &Files) -> bool {
    let wanted = serde_json::to_value(published_ledger(ledger)).ok();
    let published = ledger_on_branch(files);
    match (wanted, published) {
        (Some(wanted), Some(published)) => without_revisions(wanted) == without_revisions(published),
        (Some(_) | None, Some(_) | None) => false,
    }
}

fn without_revisions(mut ledger: Value) -> Value {
    fn forget(map: Option<&mut Value>, names: &[&str]) {
        if let Some(map) = map.and_then(Value::as_object_mut) {
            map.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    forget(Some(&mut ledger), &["accepted", "seen"]);
    if let Some(objects) = ledger.get_mut("objects").and_then(Value::as_object_mut) {
        for object in objects.values_mut() {
            forget(Some(object), &["accepted"]);
        }
    }
    ledger
}

/// What is told at once beside another phase: a node that failed, the end of an attempt.
fn news(before: Option<&StatusFile>, after: &StatusFile) -> Vec<String> {
    let mut news = Vec::new();
    let Some(status) = after.cni() else { return news };
    let known = before.and_then(StatusFile::cni);
    let ended = |status: &CniUpgradeStatus| {
        status.attempt.as_ref().and_then(|attempt| Some((attempt.number, attempt.outcome?)))
    };
    let end = ended(status);
    if let Some((number, outcome)) = end
        && known.is_none_or(|known| ended(known) != end)
    {
        news.push(format!("attempt {number} {}", outcome.as_str()));
    }
    for failure in &status.nodes.failures {
        let told = known.is_some_and(|known| {
            known.nodes.failures.iter().any(|old| old.node_uid == failure.node_uid && old.at == failure.at)
        });
        if !told {
            news.push(format!("node {} failed ({})", failure.node, failure.reason));
        }
    }
    news
}

/// Whether at least ten percent of the nodes in scope came onto the target or left it.
fn leapt(before: Option<&StatusFile>, after: &StatusFile) -> bool {
    let Some((before, after)) = before.and_then(StatusFile::cni).zip(after.cni()) else { return false };
    let moved = i64::from(after.upgraded_nodes) - i64::from(before.upgraded_nodes);
    moved != 0 && moved.abs() * 10 >= i64::from(after.nodes.in_scope)
}

fn detail(file: &StatusFile) -> String {
    let mut parts = Vec::new();
    if let Some(status) = file.cni() {
        if let Some(attempt) = &status.attempt {
            parts.push(format!("attempt {}", attempt.number));
        }
        parts.extend(status.target_version.as_ref().map(|target| format!("target {target}")));
        parts.extend(status.progress.as_ref().map(|progress| format!("{progress} on target")));
        if status.failed_nodes > 0 {
            parts.push(format!("{} failed", status.failed_nodes));
        }
    }
    let commit = file.revision().map(|revision| revision.rsplit_once(':').map_or(revision, |(_, oid)| oid));
    parts.extend(commit.map(|oid| format!("by commit {oid}")));
    let why = file.why();
    let facts = parts.join(", ");
    match (facts.is_empty(), why.is_empty()) {
        (_, true) => facts,
        (true, false) => why,
        (false, false) => format!("{facts}. {why}"),
    }
}
