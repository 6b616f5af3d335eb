//! `trunkline explain NAME`: every gate with its verdict and evidence, then why nothing (more) is being done.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    escape::line,
    waiting::{refusal, waiting, waiting_for},
};
use crate::{
    api::{ClaimKey, status::WaitingFor},
    rollout::{
        gate::{self, GateVerdict},
        waiting::{Refusal, Waiting},
    },
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
    /// Nobody can say yet.
    Unknown,
}

impl Verdict {
    /// The word in texts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
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
            GateVerdict::Wait(why) => (Verdict::Unknown, waiting(why)),
            GateVerdict::Refuse(why) => (Verdict::Fail, refusal(why)),
        };
        Self { name: gate.name.to_owned(), verdict, evidence }
    }
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object.
    pub object: ClaimKey,
    /// Its phase.
    pub phase: String,
    /// Its gates in the order in which they are passed.
    pub gates: Vec<Gate>,
    /// Why nothing will be done until people change something.
    pub refused: Vec<Refused>,
    /// Why nothing (more) is being done now.
    pub waiting_for: Vec<WaitingFor>,
}

impl Explanation {
    /// Explains an object by its gates and by what the rollout machine said of it.
    pub fn new(
        object: ClaimKey,
        phase: &str,
        gates: Vec<Gate>,
        waiting: &[Waiting],
        refusals: &[Refusal],
    ) -> Self {
        let refused = |why: &Refusal| Refused { reason: why.reason().as_str(), message: refusal(why) };
        Self {
            object,
            phase: phase.to_owned(),
            gates,
            refused: refusals.iter().map(refused).collect(),
            waiting_for: waiting.iter().map(waiting_for).collect(),
        }
    }

    /// Lines for a terminal: one per gate, then the reasons.
    pub fn text(&self) -> String {
        let mut text = format!("{}  {}\n", self.object, self.phase);
        let width = self.gates.iter().map(|gate| gate.name.chars().count()).max().unwrap_or_default();
        for gate in &self.gates {
            let evidence = line(&gate.evidence, EVIDENCE);
            let _ = writeln!(text, "  {:<7}  {:<width$}  {evidence}", gate.verdict.as_str(), gate.name);
        }
        // What a gate says is not said twice.
        let told = |message: &str| self.gates.iter().any(|gate| gate.evidence == message);
        for refused in self.refused.iter().filter(|refused| !told(&refused.message)) {
            let _ = writeln!(text, "refused  {}: {}", refused.reason, refused.message);
        }
        for waiting in self.waiting_for.iter().filter(|waiting| !told(&waiting.message)) {
            let _ = writeln!(text, "waits    {}: {}", waiting.reason, waiting.message);
        }
        if self.refused.is_empty() && self.waiting_for.is_empty() {
            text.push_str("Nothing is waited for.\n");
        }
        text
    }
}
