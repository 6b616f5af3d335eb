//! `trunkline plan`: what each declaration would do, and how long it would take under which assumptions.

use serde::Serialize;

use super::{
    explain::Refused,
    paint::Paint,
    tree::{branch, span},
    waiting::{refusal, waiting_for},
    words::names,
};
use crate::{
    api::{
        ClaimKey,
        names::NodeName,
        status::{Outcome, WaitingFor},
    },
    diff::Skip,
    mirror::ledger::Ledger,
    rollout::{
        cni_status,
        gate::GateVerdict,
        plan::{Ahead, Planned, Preview},
        waiting::{Refusal, Waiting},
    },
    world::World,
};

/// Rounds and skipped nodes shown on a terminal; JSON has all.
const SHOWN: usize = 10;

/// Whether something would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PlanVerdict {
    /// An attempt would start at once.
    WouldRun,
    /// An attempt would start once what it waits for has passed.
    WouldWait,
    /// An attempt of this wish is under way.
    UnderWay,
    /// Nothing has to be done.
    NothingToDo,
    /// Nothing would be done until people change something.
    Refused,
}

/// What one declaration would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// The object.
    pub object: ClaimKey,
    /// Where it is declared: `calico.yaml:1`.
    pub manifest: String,
    /// Whether something would be done.
    pub verdict: PlanVerdict,
    /// The verdict in words.
    pub summary: String,
    /// What it is about; absent when no target can be told or another declaration is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<PlanTarget>,
    /// Canaries, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<NodeName>,
    /// All nodes to act on, canaries first, in rounds of `maxParallel`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Vec<NodeName>>,
    /// Nodes in scope that are left alone, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<PlanSkip>,
    /// What people should know before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why nothing would be done until people change something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Why it would not start at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// How long it would take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}

/// The agent that a declaration is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanTarget {
    /// Profile name.
    pub provider: String,
    /// `namespace/name` of the DaemonSet.
    pub daemon_set: String,
    /// Version that runs; on a return, that of the nodes that go back.
    pub from: String,
    /// Version wanted.
    pub to: String,
    /// How many nodes; absent when the declaration is refused, since it reaches none.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<PlanNodes>,
}

/// How many nodes a declaration reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanNodes {
    /// In scope.
    pub in_scope: usize,
    /// To act on.
    pub to_act_on: usize,
    /// In flight at most.
    pub max_parallel: usize,
}

/// A node that is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanSkip {
    /// Its name.
    pub node: NodeName,
    /// Why.
    pub reason: &'static str,
}

/// How long an attempt would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Seconds from start to completion.
    pub seconds: i64,
    /// What that rests on.
    pub assumptions: Vec<String>,
}

impl PlanReport {
    /// Reports on one declaration at `manifest`; an agent is assumed to be ready `node_seconds` after its pod was
    /// deleted.
    pub fn of(planned: &Planned, manifest: String, node_seconds: i64) -> Self {
        let (verdict, summary) = judge(planned);
        let mut report = Self {
            object: planned.object.clone(),
            manifest,
            verdict,
            summary,
            target: None,
            canaries: Vec::new(),
            rounds: Vec::new(),
            skipped: Vec::new(),
            warnings: Vec::new(),
            refused: planned.refusals.iter().map(refused).collect(),
            waiting_for: match planned.refusals.as_slice() {
                [] => planned.waiting.iter().map(waiting_for).collect(),
                _ => Vec::new(),
            },
            estimate: None,
        };
        if let Some(preview) = &planned.preview {
            report.take(preview, node_seconds);
        }
        report
    }

    fn take(&mut self, preview: &Preview, node_seconds: i64) {
        self.target = Some(PlanTarget {
            provider: preview.provider.clone(),
            daemon_set: preview.agent.to_string(),
            from: preview.from.clone(),
            to: preview.to.clone(),
            nodes: self.refused.is_empty().then_some(PlanNodes {
                in_scope: preview.in_scope,
                to_act_on: preview.nodes.len(),
                max_parallel: preview.max_parallel,
            }),
        });
        if !self.refused.is_empty() {
            return;
        }
        let skip = |(node, why): &(NodeName, Skip)| PlanSkip { node: node.clone(), reason: why.as_str() };
        self.skipped = preview.skipped.iter().map(skip).collect();
        let canaries = preview.nodes.iter().filter(|node| node.canary);
        self.canaries = canaries.map(|node| node.name.clone()).collect();
        self.warn(preview);
        let acts = matches!(preview.ahead, Ahead::Start | Ahead::Return | Ahead::UnderWay(_));
        if !acts {
            return;
        }
        let rounds = preview.rounds();
        self.rounds =
            rounds.iter().map(|round| round.iter().map(|node| node.name.clone()).collect()).collect();
        let starts = matches!(preview.ahead, Ahead::Start | Ahead::Return);
        if starts && !preview.nodes.is_empty() {
            self.estimate = Some(estimate(preview, node_seconds));
        }
    }

    fn warn(&mut self, preview: &Preview) {
        for gate in &preview.gates {
            if let GateVerdict::Warn(warning) = &gate.verdict {
                self.warnings.push(format!("{}: {warning}", gate.name));
            }
        }
        if preview.ahead == Ahead::Start && preview.outside > 0 && !preview.nodes.is_empty() {
            self.warnings.push(format!(
                "StrategyHeld: {} nodes outside of `nodeSelector` run the agent too. They keep their version, and the \
                 DaemonSet stays on `OnDelete` until every pod runs the live template",
                preview.outside
            ));
        }
    }

    fn nodes(&self, nodes: PlanNodes) -> String {
        let PlanNodes { in_scope: scope, to_act_on: nodes, max_parallel: max } = nodes;
        match (nodes, self.canaries.len()) {
            (0, _) => format!("{scope} in scope, none to act on"),
            (_, 0) => format!("{scope} in scope, {nodes} to act on, at most {max} in flight"),
            (_, canaries) => {
                let first = format!("{canaries} of them first as canaries");
                format!("{scope} in scope, {nodes} to act on, {first}, at most {max} in flight")
            }
        }
    }

    /// A tree for people.
    pub fn text(&self, paint: Paint) -> String {
        let mut lines = vec![format!("manifest {}", self.manifest)];
        let mut add = |name: &str, value: &str| lines.push(format!("{name:<8} {value}"));
        if let Some(target) = &self.target {
            add("provider", &format!("{}, DaemonSet {}", target.provider, target.daemon_set));
            target.nodes.iter().for_each(|nodes| add("nodes", &self.nodes(*nodes)));
        }
        for (index, round) in self.rounds.iter().take(SHOWN).enumerate() {
            let canaries = round.iter().any(|node| self.canaries.contains(node));
            let note = if canaries { " (canaries)" } else { "" };
            add(&format!("round {}", index + 1), &format!("{}{note}", join(round)));
        }
        if self.rounds.len() > SHOWN {
            add("", &format!("and {} more rounds", self.rounds.len() - SHOWN));
        }
        for skip in self.skipped.iter().take(SHOWN) {
            add("skipped", &format!("{} {}", skip.node, skip.reason));
        }
        if self.skipped.len() > SHOWN {
            add("", &format!("and {} more", self.skipped.len() - SHOWN));
        }
        self.warnings.iter().for_each(|text| add("warning", text));
        self.refused.iter().for_each(|no| add("refused", &format!("{}: {}", no.reason, no.message)));
        self.waiting_for.iter().for_each(|why| add("waits", &format!("{}: {}", why.reason, why.message)));
        if let Some(estimate) = &self.estimate {
            let start = if self.waiting_for.is_empty() { "the start" } else { "when nothing is waited for" };
            add("time", &format!("about {} from {start}", span(estimate.seconds)));
            estimate.assumptions.iter().for_each(|text| add("assumes", text));
        }
        let mut text = String::new();
        branch(&mut text, &format!("{}  {}", self.object, self.summary), &lines, paint);
        text
    }
}

/// What becomes of what each repository declares, once it declares nothing any more.
pub fn removed(world: &World) -> Vec<String> {
    world.last_read().filter_map(|ledger| of_repository(world, ledger)).collect()
}

fn of_repository(world: &World, ledger: &Ledger) -> Option<String> {
    let declared = ledger.objects.iter().filter(|(_, entry)| entry.removed.is_none());
    let (open, rest): (Vec<&ClaimKey>, Vec<&ClaimKey>) =
        declared.map(|(key, _)| key).partition(|key| is_open(world, key));
    if open.is_empty() && rest.is_empty() {
        return None;
    }
    let listed = |keys: &[&ClaimKey]| names(keys.iter().map(ToString::to_string));
    let mut text = Vec::new();
    if !rest.is_empty() {
        text.push(format!(
            "{} of repository {} would be removed: the agents stay as they are and are not managed any more.",
            listed(&rest),
            ledger.repository
        ));
    }
    if !open.is_empty() {
        text.push(format!(
            "{} of repository {} would be removed once the nodes that the attempt touched are back on last good.",
            listed(&open),
            ledger.repository
        ));
    }
    Some(text.join(" "))
}

/// Whether an attempt is under way, or was held with its nodes where they were.
fn is_open(world: &World, key: &ClaimKey) -> bool {
    let attempt = world.claims.get(key).and_then(cni_status).and_then(|status| status.attempt.as_ref());
    attempt.is_some_and(|attempt| matches!(attempt.outcome, None | Some(Outcome::Held)))
}

fn refused(why: &Refusal) -> Refused {
    Refused { reason: why.reason().as_str(), message: refusal(why) }
}

fn join(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

fn judge(planned: &Planned) -> (PlanVerdict, String) {
    if !planned.refusals.is_empty() {
        let step = planned.preview.as_ref().map(step);
        return (
            PlanVerdict::Refused,
            format!("refused{}", step.map(|step| format!(": {step}")).unwrap_or_default()),
        );
    }
    if let Some(by) = &planned.superseded_by {
        return (PlanVerdict::NothingToDo, format!("nothing to do: {by} is in force"));
    }
    let Some(preview) = &planned.preview else {
        return (PlanVerdict::WouldWait, "would wait".to_owned());
    };
    let step = step(preview);
    match preview.ahead {
        Ahead::Runs => (PlanVerdict::NothingToDo, format!("nothing to do: {} is what runs", preview.to)),
        Ahead::Nothing => (PlanVerdict::NothingToDo, "nothing to do".to_owned()),
        Ahead::Ended(outcome) => {
            let text = format!("nothing to do: the attempt of this wish has ended, {}", outcome.as_str());
            (PlanVerdict::NothingToDo, text)
        }
        Ahead::UnderWay(phase) => {
            let held = if planned.waiting.is_empty() { "" } else { ", would be held" };
            (PlanVerdict::UnderWay, format!("under way, {}{held}: {step}", phase.as_str()))
        }
        Ahead::Start if !planned.waiting.is_empty() => {
            (PlanVerdict::WouldWait, format!("would wait: {step}"))
        }
        Ahead::Start => (PlanVerdict::WouldRun, format!("would run: {step}")),
        Ahead::Return => {
            (PlanVerdict::WouldRun, format!("would return to last good without a canary: {step}"))
        }
    }
}

fn step(preview: &Preview) -> String {
    let (nodes, all) = (preview.nodes.len(), preview.in_scope);
    let on = match preview.ahead {
        Ahead::Return if 0 < nodes && nodes < all => format!(" (on {nodes} of {all} nodes)"),
        Ahead::Return
        | Ahead::Runs
        | Ahead::Start
        | Ahead::UnderWay(_)
        | Ahead::Ended(_)
        | Ahead::Nothing => String::new(),
    };
    format!("{}{on} → {}", preview.from, preview.to)
}

fn estimate(preview: &Preview, node_seconds: i64) -> Estimate {
    let rounds = preview.rounds().len();
    let mut assumptions = vec![format!(
        "{} per node: {} until its new agent is ready (--node-seconds), then stable for {} (profile {})",
        span(node_seconds.saturating_add(preview.stable)),
        span(node_seconds),
        span(preview.stable),
        preview.provider
    )];
    let at_once = preview.max_parallel;
    assumptions.push(match rounds {
        1 => format!("1 round of at most {at_once} at once"),
        rounds => format!("{rounds} rounds of at most {at_once} at once, control-plane nodes alone"),
    });
    if let Some(observation) = preview.observation {
        assumptions.push(match observation {
            0 => "canaries go on without an observation".to_owned(),
            seconds => format!("canaries observed for {}", span(seconds)),
        });
    }
    assumptions.push("no node fails, nothing is paused, and the daemon is up all the time".to_owned());
    if preview.gates.iter().any(|gate| gate.verdict == GateVerdict::Wait(Waiting::DryRun)) {
        assumptions
            .push("the API server accepts the template; it is asked in a dry run at the start".to_owned());
    }
    Estimate { seconds: preview.estimate(node_seconds), assumptions }
}
