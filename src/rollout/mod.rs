//! The rollout machine: `decide(case, now)` gives statuses, effects, reasons for waiting, and when to look again.

pub mod effect;
pub mod guard;
pub mod waiting;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    config::Config,
    profile::Profile,
    world::{Target, World},
};
use effect::{Effect, EffectId, StatusWrite};
use waiting::{Refusal, Waiting};

/// What a decision looks at.
#[derive(Debug, Clone, Copy)]
pub struct Case<'w> {
    /// What it is about.
    pub target: &'w Target,
    /// Everything seen.
    pub world: &'w World,
    /// All known profiles.
    pub profiles: &'w [Profile],
    /// The configuration.
    pub config: &'w Config,
}

/// Time and right to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The present.
    pub at: Timestamp,
    /// Leader epoch; 1 until the lease exists.
    pub epoch: i64,
}

/// What a pass wants.
#[must_use]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Statuses to write before any effect starts.
    pub statuses: Vec<StatusWrite>,
    /// Effects, started after the statuses are written.
    pub effects: BTreeMap<EffectId, Effect>,
    /// Why nothing (more) is being done.
    pub waiting: Vec<Waiting>,
    /// Why nothing will be done until people change something.
    pub refusals: Vec<Refusal>,
    /// When to look again if nothing is observed before.
    pub recheck: Option<Duration>,
}

/// Decides about one target. Total: any status that decodes, any world, any time give a decision.
pub fn decide(case: &Case<'_>, now: Now) -> Decision {
    let _ = (case, now);
    Decision::default()
}
