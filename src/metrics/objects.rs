//! Series about single custom resources, made from their statuses at each scrape, so that they go with the object.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter},
};

use crate::{
    api::{
        ClaimKey, ClaimKind,
        cni_upgrade::CniPhase,
        names::AttemptId,
        status::{Outcome, WaitingFor},
    },
    world::{Claim, ClaimStatus, Seen},
};

/// Objects with series of their own; of others only their number is told.
pub(super) const MOST: usize = 1000;

/// What is told of every custom resource.
#[derive(Debug, Default)]
pub(super) struct Objects(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    lines: BTreeMap<ClaimKey, Line>,
    /// Attempts that were seen to end, by outcome.
    ended: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
struct Line {
    phase: String,
    nodes: Vec<(&'static str, i32)>,
    waiting: BTreeSet<String>,
    attempt: Option<(AttemptId, Option<Outcome>)>,
}

impl Line {
    fn of(claim: &Claim) -> Self {
        let reasons = |waiting: &[WaitingFor]| waiting.iter().map(|why| why.reason.clone()).collect();
        match &claim.status {
            ClaimStatus::Cni(status) => Self {
                phase: status.phase.as_str().to_owned(),
                nodes: vec![
                    ("upgraded", status.upgraded_nodes),
                    ("failed", status.failed_nodes),
                    ("in_flight", status.nodes.in_flight),
                    ("waiting", status.nodes.waiting),
                    ("skipped", status.nodes.skipped),
                ],
                waiting: reasons(&status.waiting_for),
                attempt: status.attempt.as_ref().map(|attempt| (attempt.id.clone(), attempt.outcome)),
            },
            ClaimStatus::Service(status) => Self {
                phase: format!("{:?}", status.phase),
                nodes: Vec::new(),
                waiting: reasons(&status.waiting_for),
                attempt: None,
            },
            ClaimStatus::None => Self::first(CniPhase::Pending.as_str()),
            ClaimStatus::Unreadable(_) => Self::first("Unknown"),
        }
    }

    fn first(phase: &str) -> Self {
        Self { phase: phase.to_owned(), nodes: Vec::new(), waiting: BTreeSet::new(), attempt: None }
    }

    /// Outcome of the attempt, if it ended since `before`.
    fn ended_since(&self, before: &Self) -> Option<Outcome> {
        let (id, outcome) = self.attempt.as_ref()?;
        let open = before.attempt.as_ref().is_some_and(|(known, ended)| known == id && ended.is_none());
        outcome.filter(|_| open)
    }
}

impl State {
    fn see(&mut self, key: &ClaimKey, claim: &Claim) {
        let line = Line::of(claim);
        let ended = self.lines.get(key).and_then(|before| line.ended_since(before));
        if let Some(outcome) = ended {
            *self.ended.entry(outcome.as_str()).or_default() += 1;
        }
        self.lines.insert(key.clone(), line);
    }
}

impl Objects {
    pub(super) fn see(&self, key: &ClaimKey, claim: Option<&Seen<Claim>>) {
        let mut state = self.state();
        match claim {
            Some(claim) => state.see(key, &claim.is),
            None => drop(state.lines.remove(key)),
        }
    }

    pub(super) fn see_all(&self, claims: &BTreeMap<ClaimKey, Seen<Claim>>) {
        let mut state = self.state();
        state.lines.retain(|key, _| claims.contains_key(key));
        for (key, claim) in claims {
            state.see(key, &claim.is);
        }
    }

    pub(super) fn clear(&self) {
        self.state().lines.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Labels and value of one series.
type Series<'s> = (Vec<(&'static str, &'s str)>, i64);

fn named<'s>(key: &'s ClaimKey, more: Option<(&'static str, &'s str)>) -> Vec<(&'static str, &'s str)> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let own = [("kind", key.kind.kind()), ("namespace", namespace), ("name", key.name.as_str())];
    own.into_iter().chain(more).collect()
}

/// Writes one gauge with all its series; without any it is left out, as everywhere.
fn gauge<'s>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = Series<'s>>,
) -> fmt::Result {
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    series.try_for_each(|(labels, value)| metric.encode_family(&labels)?.encode_gauge(&value))
}

impl Collector for Objects {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.state();
        let told = || state.lines.iter().take(MOST);
        let mut counts: BTreeMap<(ClaimKind, &str), i64> = BTreeMap::new();
        for (key, line) in &state.lines {
            *counts.entry((key.kind, &line.phase)).or_default() += 1;
        }
        let counted = counts
            .iter()
            .map(|((kind, phase), count)| (vec![("kind", kind.kind()), ("phase", *phase)], *count));
        gauge(&mut to, "trunkline_objects", "Custom resources, by phase", counted)?;
        let phases = told().map(|(key, line)| (named(key, Some(("phase", &line.phase))), 1));
        gauge(&mut to, "trunkline_object_phase", "1 for the phase that a custom resource is in", phases)?;
        let nodes = told().flat_map(|(key, line)| {
            let state = |(state, count): &(&'static str, i32)| {
                (named(key, Some(("state", state))), i64::from(*count))
            };
            line.nodes.iter().map(state)
        });
        gauge(&mut to, "trunkline_object_nodes", "Nodes in scope of a CNIUpgrade, by state", nodes)?;
        let waiting = told().flat_map(|(key, line)| {
            line.waiting.iter().map(|reason| (named(key, Some(("reason", reason))), 1))
        });
        let help = "1 for each reason for which nothing more is being done about a custom resource";
        gauge(&mut to, "trunkline_object_waiting", help, waiting)?;
        let left_out = state.lines.len().saturating_sub(MOST);
        let left_out = [(Vec::new(), i64::try_from(left_out).unwrap_or(i64::MAX))];
        let help = "Custom resources without series of their own, since there are too many";
        gauge(&mut to, "trunkline_objects_left_out", help, left_out.into_iter())?;
        attempts(&mut to, &state)?;
        published(&mut to, &state)
    }
}

fn attempts(to: &mut DescriptorEncoder<'_>, state: &State) -> fmt::Result {
    if state.ended.is_empty() {
        return Ok(());
    }
    let help = "Attempts that this process saw end, by outcome";
    let mut metric = to.encode_descriptor("trunkline_attempts", help, None, MetricType::Counter)?;
    state.ended.iter().try_for_each(|(outcome, count)| {
        ConstCounter::new(*count).encode(metric.encode_family(&[("outcome", *outcome)])?)
    })
}

/// The two metrics that alerts about ServiceUpgrades are written for.
fn published(to: &mut DescriptorEncoder<'_>, state: &State) -> fmt::Result {
    let services = || {
        let told = state.lines.iter().take(MOST);
        told.filter(|(key, _)| key.kind == ClaimKind::ServiceUpgrade).map(|(key, line)| {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            (vec![("namespace", namespace.to_owned()), ("name", key.name.clone())], line)
        })
    };
    if services().next().is_none() {
        return Ok(());
    }
    let (name, help) = ("service_operator_upgrade_phase", "1 for the phase that a ServiceUpgrade is in");
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (mut labels, line) in services() {
        labels.push(("phase", line.phase.to_lowercase()));
        metric.encode_family(&labels)?.encode_gauge(&1_i64)?;
    }
    let (name, help) = ("service_operator_canary_errors", "Failed checks of the canary of a ServiceUpgrade");
    let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    // No ServiceUpgrade is acted on, so no canary was checked.
    services().try_for_each(|(labels, _)| ConstCounter::new(0_u64).encode(metric.encode_family(&labels)?))
}
