//! Gates: checks that must pass before going on, each with its evidence. `decide` and `explain` read the same list.

use super::waiting::{Refusal, Waiting};

/// Verdict of one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// It passes; the text is the evidence.
    Pass(String),
    /// It passes with a warning.
    Warn(String),
    /// It will pass by itself.
    Wait(Waiting),
    /// It will not pass until people change something.
    Refuse(Refusal),
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Name for people: `owner`, `version skew`.
    pub name: &'static str,
    /// Its verdict.
    pub verdict: GateVerdict,
}

impl Gate {
    /// A gate that passes with evidence.
    pub fn pass(name: &'static str, evidence: impl Into<String>) -> Self {
        Self { name, verdict: GateVerdict::Pass(evidence.into()) }
    }
    /// A gate that passes, waits or warns.
    pub const fn of(name: &'static str, verdict: GateVerdict) -> Self {
        Self { name, verdict }
    }
    /// A gate that refuses.
    pub const fn refuse(name: &'static str, refusal: Refusal) -> Self {
        Self { name, verdict: GateVerdict::Refuse(refusal) }
    }
    /// A gate that waits.
    pub const fn wait(name: &'static str, waiting: Waiting) -> Self {
        Self { name, verdict: GateVerdict::Wait(waiting) }
    }
}
