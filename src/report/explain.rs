//! `trunkline explain NAME`: every gate with its verdict and evidence, then why nothing (more) is being done.

use serde::Serialize;

use jiff::Timestamp;

use super::{
    escape::{line, terminal},
    paint::Paint,
    problems::place,
    tree::{ObjectReport, condition_line, ended_line, short, span},
    waiting::{refusal, waiting, waiting_for},
};
use crate::{
    api::ClaimKey,
    manifest::{Diagnostic, Severity},
    mirror::ledger::{AttemptEntry, Ledger, RollbackEntry, RollbackState},
    rollout::{
        gate::{self, GateVerdict},
        waiting::{Refusal, Waiting},
    },
    world::World,
};

/// Longest evidence of one gate, in characters.
const EVIDENCE: usize = 1024;

/// How a gate stands. Unknown never passes silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// It is passed.
    Pass,
    /// It is not passed.
    Fail,
    /// It is known how far it is from being passed.
    Waits,
    /// Nobody can say yet.
    Unknown,
}

impl Verdict {
    /// The word in texts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
        }
    }
}

/// A check that must pass before going on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// Its name: `version skew`.
    pub name: String,
    /// How it stands.
    pub verdict: Verdict,
    /// What was seen.
    pub evidence: String,
}

impl From<&gate::Gate> for Gate {
    fn from(gate: &gate::Gate) -> Self {
        let (verdict, evidence) = match &gate.verdict {
            GateVerdict::Pass(evidence) => (Verdict::Pass, evidence.clone()),
            GateVerdict::Warn(evidence) => (Verdict::Pass, format!("warning: {evidence}")),
            GateVerdict::Wait(why) if why.is_unknown() => (Verdict::Unknown, waiting(why)),
            GateVerdict::Wait(why) => (Verdict::Waits, so_far(why) + &waiting(why)),
            GateVerdict::Refuse(why) => (Verdict::Fail, refusal(why)),
        };
        Self { name: gate.name.to_owned(), verdict, evidence }
    }
}

/// How far what changes with every look has come; statuses do not say it, so that they stay the same meanwhile.
fn so_far(why: &Waiting) -> String {
    let Waiting::Observing { left, of, .. } = why else { return String::new() };
    let done = match of.saturating_sub(*left) {
        ..=0 => "0s".to_owned(),
        done => span(done),
    };
    format!("{done} of {} observed. ", span(*of))
}

/// A refusal with its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// PascalCase reason.
    pub reason: &'static str,
    /// Full sentences with the way out.
    pub message: String,
}

/// Everything that stands between an object and its next step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is known of the object.
    #[serde(flatten)]
    pub known: ObjectReport,
    /// `main@sha1:<hex>`: the commit that brought its wish in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_by: Option<String>,
    /// The revision whose form of the manifest is acted on, when a newer one has errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// What is wrong with its manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Diagnostic>,
    /// Its last attempt, when the object itself is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<AttemptEntry>,
    /// What became of the rollback commit of that attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RollbackEntry>,
    /// Its gates in the order in which they are passed.
    pub gates: Vec<Gate>,
    /// Why nothing will be done until people change something.
    pub refused: Vec<Refused>,
}

impl Explanation {
    /// Explains an object by its gates and by what the rollout machine said of it.
    pub fn new(
        world: &World,
        object: &ClaimKey,
        gates: Vec<Gate>,
        waiting: &[Waiting],
        refusals: &[Refusal],
    ) -> Self {
        let mut known = ObjectReport::of(world, object);
        // The daemon has watched for longer than one look, so its word on what it waits for is the better one.
        if known.waiting_for.is_empty() && known.phase.is_none() {
            known.waiting_for = waiting.iter().map(waiting_for).collect();
        }
        let refused = |why: &Refusal| Refused { reason: why.reason().as_str(), message: refusal(why) };
        let mut explanation = Self {
            known,
            declared_by: None,
            accepted: None,
            problems: Vec::new(),
            ended: None,
            rolled_back: None,
            gates,
            refused: refusals.iter().map(refused).collect(),
        };
        for ledger in world.ledgers.values().filter_map(|seen| seen.is.as_ref().ok()) {
            explanation.take(ledger, object);
        }
        explanation
    }

    /// Adds what a ledger knows: where the object is declared, what is wrong there, or how it ended.
    fn take(&mut self, ledger: &Ledger, object: &ClaimKey) {
        let Some(entry) = ledger.objects.get(object) else {
            let Some(ended) = ledger.last_attempt(object) else { return };
            let mut rollbacks = ledger.targets.values().flat_map(|target| &target.rollbacks);
            self.rolled_back = rollbacks.find(|rollback| rollback.attempt == ended.id).cloned();
            self.ended = Some(ended.clone());
            return;
        };
        self.declared_by = Some(ledger.revision(&entry.introduced));
        let about = |found: &&Diagnostic| found.path == entry.path || entry.hidden_in.contains(&found.path);
        self.problems = ledger.diagnostics.iter().filter(about).cloned().collect();
        let broken = self.problems.iter().any(|found| found.severity == Severity::Error);
        self.accepted = broken.then(|| ledger.revision(&entry.accepted));
    }

    /// Lines for people: where it comes from, one line per gate, then the reasons.
    pub fn text(&self, now: Timestamp, paint: Paint) -> String {
        let mut lines = self.origin(now);
        let width = self.gates.iter().map(|gate| gate.name.chars().count()).max().unwrap_or_default();
        lines.extend(self.gates.iter().map(|gate| {
            let evidence = line(&gate.evidence, EVIDENCE);
            format!("{:<7}  {:<width$}  {evidence}", gate.verdict.as_str(), gate.name)
        }));
        let reasons = self.reasons();
        let passed = self.gates.iter().all(|gate| gate.verdict == Verdict::Pass);
        let calm = passed && reasons.is_empty() && self.ended.is_none() && self.known.holds.is_empty();
        lines.extend(reasons);
        lines.extend(self.known.rollback_line());
        lines.extend(self.known.hold_lines());
        if calm {
            lines.push("Nothing is waited for.".to_owned());
        }
        let mut text = paint.head(&terminal(&self.head())) + "\n";
        for line in lines {
            text.push_str(&paint.line(&terminal(&line)));
            text.push('\n');
        }
        text
    }

    /// What refuses, conditions, and what is waited for; what a gate says is not said twice.
    fn reasons(&self) -> Vec<String> {
        let mut said: Vec<&str> = self.gates.iter().map(|gate| gate.evidence.as_str()).collect();
        let known = &self.known;
        // A gate may say how far it has come before it says the same.
        let new = |message: &str| !said.iter().any(|said| said.ends_with(message));
        let waiting = known.waiting_for.iter().filter(|why| new(&why.message));
        let waiting: Vec<_> =
            waiting.map(|why| format!("waits    {}: {}", why.reason, why.message)).collect();
        let mut lines = Vec::new();
        for refused in &self.refused {
            if !said.contains(&refused.message.as_str()) {
                lines.push(format!("refused  {}: {}", refused.reason, refused.message));
                said.push(&refused.message);
            }
        }
        lines.extend(known.conditions_told(&said).into_iter().map(condition_line));
        lines.extend(waiting);
        lines.extend(known.unreadable.iter().map(|why| format!("status   cannot be read: {why}")));
        lines
    }

    fn head(&self) -> String {
        match (&self.ended, self.known.phase) {
            (Some(_), None) => format!("{}  is not declared any more", self.known.object),
            (Some(_) | None, _) => self.known.head(),
        }
    }

    /// The commits and the manifest behind it.
    fn origin(&self, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        let path = self.known.path.as_deref().unwrap_or("?");
        let by = self.known.attempt.as_ref().and_then(|attempt| attempt.revision.as_ref());
        if let Some(commit) = self.declared_by.as_ref().filter(|commit| by != Some(commit)) {
            lines.push(format!("declared by {}, {path}", short(commit)));
        }
        lines.extend(self.known.attempt_line(now));
        if let Some(accepted) = &self.accepted {
            lines.push(format!(
                "problem  the manifest has errors; its form at {} is acted on",
                short(accepted)
            ));
        }
        for found in &self.problems {
            let help = if found.help.is_empty() { String::new() } else { format!(" ({})", found.help) };
            lines.push(format!("problem  {}: {}{help}", place(found), found.message));
        }
        lines.extend(self.ended.iter().map(|attempt| format!("ended    {}", ended_line(attempt, now))));
        lines.extend(self.rolled_back.iter().flat_map(rollback_lines));
        lines
    }
}

/// What failed, which commit says so, and the way on.
fn rollback_lines(entry: &RollbackEntry) -> Vec<String> {
    let (from, to) = (&entry.from_version, &entry.to_version);
    let commit = match &entry.state {
        RollbackState::Recorded(commit) => format!("commit   {} says so in Git", commit.short()),
        RollbackState::Due => "commit   the rollback commit is not in Git yet".to_owned(),
        RollbackState::Moot => "commit   none was needed: the manifest no longer had the wish".to_owned(),
    };
    vec![
        format!("because  {}: {}", entry.reason, line(&entry.evidence, EVIDENCE)),
        commit,
        format!(
            "next     {to} is what was put back. To try {from} once more, commit it together with the annotation \
             `trunkline.dev/retry: <token not used before>`."
        ),
    ]
}
