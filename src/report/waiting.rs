//! The text of every "no": what is waited for and what ends it, or what is refused and the way out.

use std::fmt::Write as _;

use jiff::Timestamp;

pub use super::refusal::refusal;
use super::{
    escape::line,
    words::{NAME, QUOTE, are, quoted, resource, time},
};
use crate::{
    api::{ClaimKey, names::NodeName, status::WaitingFor},
    rollout::waiting::Waiting,
    world::Hold,
};

/// Longest message of one `waitingFor` entry, in characters.
const MESSAGE: usize = 1024;
/// Gives the entry of `status.waitingFor` for a reason.
pub fn waiting_for(why: &Waiting) -> WaitingFor {
    WaitingFor { reason: why.reason().to_owned(), message: line(&waiting(why), MESSAGE), until: why.until() }
}

/// Says why nothing (more) is being done now, and what ends it.
pub fn waiting(why: &Waiting) -> String {
    match why {
        Waiting::Observing { until, .. } => observing(*until),
        Waiting::Settling { nodes, count, until } => settling(nodes, *count, *until),
        Waiting::Budget { in_flight, max } => budget(*in_flight, *max),
        Waiting::StatusBudget { max } => status_budget(*max),
        Waiting::Judging { nodes } => format!("{} {JUDGING}", are(nodes, nodes.len())),
        Waiting::AdoptedEarly { nodes } => format!("{} {ADOPTED_EARLY}", are(nodes, nodes.len())),
        Waiting::CorrelatedLoss { nodes, before_us } => correlated_loss(nodes, *before_us),
        Waiting::Feeds { what } => feeds(what),
        Waiting::Controller { generation, observed } => controller(*generation, *observed),
        Waiting::Revision => REVISION.to_owned(),
        Waiting::Record => RECORD.to_owned(),
        Waiting::DryRun => DRY_RUN.to_owned(),
        Waiting::Mirror => MIRROR.to_owned(),
        Waiting::MidRollout { updated, desired } => mid_rollout(*updated, *desired),
        Waiting::OtherAttempt { claim } => other_attempt(claim),
        Waiting::TooManyUnhealthy { nodes, count, max } => too_many_unhealthy(nodes, *count, *max),
        Waiting::NoNodes => NO_NODES.to_owned(),
        Waiting::NoCanary => NO_CANARY.to_owned(),
        Waiting::Paused => PAUSED.to_owned(),
        Waiting::Held { claim, reason, by, since, overdue } => {
            held(claim, reason, by.as_deref(), *since, *overdue)
        }
        Waiting::TemplateChanged { images_back: false } => TEMPLATE_CHANGED.to_owned(),
        Waiting::TemplateChanged { images_back: true } => IMAGES_BACK.to_owned(),
        Waiting::StrategyChanged => STRATEGY_CHANGED.to_owned(),
        Waiting::StrategyHeld { updated, desired } => strategy_held(*updated, *desired),
        Waiting::Rejected { effect, message, until } => rejected(effect, message, *until),
        Waiting::PutBack { nodes } => format!("{} {PUT_BACK}", are(nodes, nodes.len())),
        Waiting::LateNodes { nodes } => format!("{} {LATE_NODES}", are(nodes, nodes.len())),
    }
}

const JUDGING: &str = "neither healthy nor failed yet; nothing new starts until the verdict is known.";
const ADOPTED_EARLY: &str =
    "on the target without an action of ours and not healthy; nothing new starts until that is settled.";
const PUT_BACK: &str = "not put back yet; each is taken up when it can be reached again.";
const LATE_NODES: &str =
    "left out and will be brought onto the target when ready again; the others are done.";
const REVISION: &str = "The ControllerRevision of the template is not known yet; pods are deleted once the \
     DaemonSet controller has made it.";
const RECORD: &str =
    "The attempt's record is being stored beside the ledger; the first action on a node comes after it.";
const DRY_RUN: &str = "The API server is asked in a dry run whether it would take the template; nothing is \
     changed before it answers.";
const MIRROR: &str = "The custom resource differs from the manifest at the accepted revision; it is put \
     back first. To change it, commit to the manifest.";
const NO_NODES: &str = "No node in scope runs the agent and can be counted; the attempt starts when one \
     does. Check `nodeSelector` against the labels of the nodes.";
const NO_CANARY: &str = "No node in scope can be a canary; the canary starts when one can. Check \
     `canary.nodeLabels` against the labels of the nodes, and that the nodes are ready.";
const PAUSED: &str = "The manifest says `paused: true`: nodes in flight finish, nothing new starts. Commit \
     `paused: false` to go on.";
const TEMPLATE_CHANGED: &str = "Another manager changed the pod template during the attempt, or made the \
     DaemonSet anew; no new node starts. It goes on when the template is ours again; a revert of the wish, \
     a newer wish or a new retry token gets out of it too.";
const IMAGES_BACK: &str = "Another manager put the old images back into the pod template during the \
     attempt; no new node starts. Stop that manager's writes and let the template be ours again, or revert \
     the wish, or commit a newer one or a new retry token.";
const STRATEGY_CHANGED: &str = "Another manager set the update strategy of the DaemonSet back during the \
     attempt; it was set to `OnDelete` once more, and no new node starts until it stays. Stop that \
     manager's writes, or revert the wish, or commit a newer one or a new retry token.";

fn budget(in_flight: usize, max: usize) -> String {
    format!(
        "{in_flight} of at most {max} nodes are in flight (`maxParallel`); the next starts when one has \
         settled."
    )
}

fn status_budget(max: usize) -> String {
    format!("{max} actions are open, as many as a status may hold; the next starts when one has settled.")
}

fn feeds(what: &str) -> String {
    let what = line(what, QUOTE);
    format!(
        "What is known of the cluster may be stale: {what}. Nothing new starts until it is seen live again."
    )
}

fn controller(generation: i64, observed: i64) -> String {
    format!(
        "The DaemonSet controller has seen generation {observed} of the DaemonSet, not yet {generation}; \
         pods are deleted once it has."
    )
}

fn mid_rollout(updated: i32, desired: i32) -> String {
    format!(
        "Another rollout of the DaemonSet is under way ({updated} of {desired} pods are on the live \
         template); this one starts when it has ended."
    )
}

fn other_attempt(claim: &ClaimKey) -> String {
    format!("An attempt of {claim} is active on the same target; this one starts when it has ended.")
}

fn too_many_unhealthy(nodes: &[NodeName], count: usize, max: usize) -> String {
    format!(
        "{} unhealthy before anything was changed, and at most {max} may be; the attempt starts when they \
         recover.",
        are(nodes, count)
    )
}

fn strategy_held(updated: i32, desired: i32) -> String {
    format!(
        "The DaemonSet stays on `OnDelete`: {updated} of {desired} pods are on the live template, and the \
         old strategy would replace the others at once. It is given back when every pod runs the live \
         template."
    )
}

fn rejected(effect: &str, message: &str, until: Timestamp) -> String {
    format!(
        "A write was rejected ({}): {}. It is tried again at {}.",
        line(effect, NAME),
        quoted(message),
        time(until)
    )
}

fn observing(until: Timestamp) -> String {
    format!("The canary is observed until {} at the earliest, if it goes on holding.", time(until))
}

fn settling(nodes: &[NodeName], count: usize, until: Option<Timestamp>) -> String {
    let mut text = format!("{} in flight and must settle first", are(nodes, count));
    if let Some(until) = until {
        let _ = write!(text, "; the first times out at {}", time(until));
    }
    text.push('.');
    text
}

fn correlated_loss(nodes: &[NodeName], before_us: bool) -> String {
    let since = if before_us { "before" } else { "after" };
    format!(
        "{} unhealthy without having been touched, since {since} our first action; nothing new starts \
         meanwhile.",
        are(nodes, nodes.len())
    )
}

fn held(claim: &ClaimKey, reason: &str, by: Option<&str>, since: Option<Timestamp>, overdue: bool) -> String {
    let mut text = brake(claim, reason, by, since);
    text.push_str(if overdue { ", for more than 24 hours. " } else { ". " });
    let _ = write!(
        text,
        "Nodes in flight finish, nothing new starts; a failed verdict and a return go on. {}",
        release(claim)
    );
    text
}

/// Says of a brake that keeps back nothing yet what it will stop, and how to release it.
pub(super) fn hold_ahead(claim: &ClaimKey, hold: &Hold) -> WaitingFor {
    let brake = brake(claim, &hold.reason, hold.by.as_deref(), hold.since);
    let text = format!("{brake}; the next change stops at it. {}", release(claim));
    WaitingFor { reason: "Held".to_owned(), message: line(&text, MESSAGE), until: None }
}

/// Where the brake is on, why, and as far as it is known by whom and since when.
fn brake(claim: &ClaimKey, reason: &str, by: Option<&str>, since: Option<Timestamp>) -> String {
    let mut text = format!("The brake is on at {claim}: {}", quoted(reason));
    if let Some(by) = by {
        let _ = write!(text, ", put there by {}", line(by, NAME));
    }
    if let Some(since) = since {
        let _ = write!(text, ", since {}", time(since));
    }
    text
}

fn release(claim: &ClaimKey) -> String {
    format!("To release it: `kubectl annotate {} trunkline.dev/hold-`.", resource(claim))
}
