//! The text of every "no": what is waited for and what ends it, or what is refused and the way out.

use std::fmt::Write as _;

use jiff::{Timestamp, Unit};

use super::escape::line;
use crate::{
    api::{ClaimKey, ClaimKind, names::NodeName, reasons::Reason, status::WaitingFor},
    rollout::waiting::{Refusal, Waiting},
};

/// Longest message of one `waitingFor` entry, in characters.
const MESSAGE: usize = 1024;
/// Longest quote of one outside text, in characters.
const QUOTE: usize = 300;
/// Longest name of others, in characters.
const NAME: usize = 253;

/// Gives the entry of `status.waitingFor` for a reason.
pub fn waiting_for(why: &Waiting) -> WaitingFor {
    WaitingFor { reason: why.reason().to_owned(), message: line(&waiting(why), MESSAGE), until: why.until() }
}

/// Says why nothing (more) is being done now, and what ends it.
pub fn waiting(why: &Waiting) -> String {
    match why {
        Waiting::Observing { left, until } => observing(*left, *until),
        Waiting::Settling { nodes, count, until } => settling(nodes, *count, *until),
        Waiting::Budget { in_flight, max } => format!(
            "{in_flight} of at most {max} nodes are in flight (`maxParallel`); the next starts when one has settled."
        ),
        Waiting::StatusBudget { max } => format!(
            "{max} actions are open, as many as a status may hold; the next starts when one has settled."
        ),
        Waiting::Judging { nodes } => format!(
            "The verdict is open: {} neither healthy nor failed yet; nothing new starts until that is known.",
            are(nodes, nodes.len())
        ),
        Waiting::AdoptedEarly { nodes } => format!(
            "{} on the target without an action of ours and not healthy; no other node starts until that is settled.",
            are(nodes, nodes.len())
        ),
        Waiting::CorrelatedLoss { nodes, before_us } => correlated_loss(nodes, *before_us),
        Waiting::Feeds { what } => format!(
            "What is known of the cluster may be stale: {}. Nothing new starts until it is seen live again.",
            line(what, QUOTE)
        ),
        Waiting::Controller { generation, observed } => format!(
            "The DaemonSet controller has seen generation {observed} of the DaemonSet, not yet {generation}; \
             pods are deleted once it has."
        ),
        Waiting::Revision => REVISION.to_owned(),
        Waiting::Record => RECORD.to_owned(),
        Waiting::DryRun => DRY_RUN.to_owned(),
        Waiting::Mirror => MIRROR.to_owned(),
        Waiting::MidRollout { updated, desired } => format!(
            "Another rollout of the DaemonSet is under way ({updated} of {desired} pods are on the live template); \
             this one starts when it has ended."
        ),
        Waiting::OtherAttempt { claim } => {
            format!("An attempt of {claim} is active on the same target; this one starts when it has ended.")
        }
        Waiting::TooManyUnhealthy { nodes, count, max } => format!(
            "{} unhealthy before anything was changed, and at most {max} may be; the attempt starts when they recover.",
            are(nodes, *count)
        ),
        Waiting::NoNodes => NO_NODES.to_owned(),
        Waiting::NoCanary => NO_CANARY.to_owned(),
        Waiting::Paused => PAUSED.to_owned(),
        Waiting::Held { claim, reason, by, since, overdue } => {
            held(claim, reason, by.as_deref(), *since, *overdue)
        }
        Waiting::TemplateChanged { images_back: false } => TEMPLATE_CHANGED.to_owned(),
        Waiting::TemplateChanged { images_back: true } => IMAGES_BACK.to_owned(),
        Waiting::StrategyChanged => STRATEGY_CHANGED.to_owned(),
        Waiting::StrategyHeld { updated, desired } => format!(
            "The DaemonSet stays on `OnDelete`: {updated} of {desired} pods are on the live template, and the old \
             strategy would replace the others at once. It is given back when every pod runs the live template."
        ),
        Waiting::Rejected { effect, message, until } => format!(
            "The API server rejected a write ({}): {}. It is tried again at {}.",
            line(effect, NAME),
            quoted(message),
            time(*until)
        ),
        Waiting::PutBack { nodes } => format!(
            "{} not put back yet; each is taken up when it can be reached again.",
            are(nodes, nodes.len())
        ),
        Waiting::LateNodes { nodes } => format!(
            "{} left out and will be brought onto the target when ready again; the others are done.",
            are(nodes, nodes.len())
        ),
    }
}

const REVISION: &str = "The ControllerRevision of the template is not known yet; pods are deleted once the DaemonSet \
     controller has made it.";
const RECORD: &str =
    "The attempt's record is being stored beside the ledger; the first action on a node comes after it.";
const DRY_RUN: &str = "The API server is asked in a dry run whether it would take the template; nothing is changed \
     before it answers.";
const MIRROR: &str = "The custom resource differs from the manifest at the accepted revision; it is put back first. \
     To change it, commit to the manifest.";
const NO_NODES: &str = "No node in scope runs the agent and can be counted; the attempt starts when one does. Check \
     `nodeSelector` against the labels of the nodes.";
const NO_CANARY: &str = "No node in scope can be a canary; the canary starts when one can. Check `canary.nodeLabels` \
     against the labels of the nodes, and that the nodes are ready.";
const PAUSED: &str = "The manifest says `paused: true`: nodes in flight finish, nothing new starts. Commit \
     `paused: false` to go on.";
const TEMPLATE_CHANGED: &str = "Another manager changed the pod template during the attempt; no new node starts. It \
     goes on when the template is ours again; a revert of the wish or a newer wish gets out of it too.";
const IMAGES_BACK: &str = "Another manager put the old images back into the pod template during the attempt; no new \
     node starts. Stop that manager's writes and let the template be ours again, or revert the wish or commit a newer one.";
const STRATEGY_CHANGED: &str = "Another manager set the update strategy of the DaemonSet back during the attempt; it \
     was set to `OnDelete` once more, and no new node starts until it stays. Stop that manager's writes, or revert the wish.";

fn observing(left: i64, until: Timestamp) -> String {
    format!(
        "The canary is observed: {left} s of observed time are left, until {} at the earliest if it goes on holding.",
        time(until)
    )
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
        "{} unhealthy without having been touched, since {since} our first action; nothing new starts meanwhile.",
        are(nodes, nodes.len())
    )
}

fn held(claim: &ClaimKey, reason: &str, by: Option<&str>, since: Option<Timestamp>, overdue: bool) -> String {
    let mut text = format!("The brake is on at {claim}: {}", quoted(reason));
    if let Some(by) = by {
        let _ = write!(text, ", put there by {}", line(by, NAME));
    }
    if let Some(since) = since {
        let _ = write!(text, ", since {}", time(since));
    }
    text.push_str(if overdue { ", for more than 24 hours. " } else { ". " });
    let _ = write!(
        text,
        "Nodes in flight finish, nothing new starts; a failed verdict and a return go on. To release it: \
         `kubectl annotate {} trunkline.dev/hold-`.",
        resource(claim)
    );
    text
}

/// Says why nothing will be done until people change something, and the ways out.
pub fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::ProviderNotFound { provider, looked_for } => not_found(provider.as_deref(), looked_for),
        Refusal::ProviderAmbiguous { found } => {
            let found = names(found.iter().map(|(profile, agent)| format!("{profile} (DaemonSet {agent})")));
            format!(
                "More than one network agent was found: {found}. Set `provider` to the one that is meant."
            )
        }
        Refusal::ProviderUnknown { provider, nearest, known } => {
            unknown_provider(provider, nearest.as_deref(), known)
        }
        Refusal::Owned { reason, mark } => owned(*reason, mark),
        Refusal::VersionSkew { from, to, rule } => format!(
            "The step from {} to {} is not allowed by the provider's profile: {}. Change `targetVersion` to a version \
             in between, and go on from there.",
            line(from, NAME),
            line(to, NAME),
            line(rule, QUOTE)
        ),
        Refusal::Downgrade { from, to, rule } => format!(
            "The way down from {} to {} is not allowed by the provider's profile: {}. Change `targetVersion` to {} or newer.",
            line(from, NAME),
            line(to, NAME),
            line(rule, QUOTE),
            line(from, NAME)
        ),
        Refusal::VersionUnreadable { text, expected } => format!(
            "{} is no version of this provider; {} would be one. Correct `targetVersion`, or the image of the DaemonSet \
             if that is where it stands.",
            quoted(text),
            line(expected, NAME)
        ),
        Refusal::ContainerNotCovered { containers, profile } => {
            let list = names(containers.iter().map(|(name, image)| format!("{name} ({image})")));
            format!(
                "The live template has containers that profile {} neither covers nor ignores: {list}. Add them to the \
                 profile, or take them out of the DaemonSet.",
                line(profile, NAME)
            )
        }
        Refusal::DryRunRefused { message } => format!(
            "The API server refused the template in a dry run: {}. Nothing was changed. Mend what it names, then \
             change the wish or add a retry token.",
            quoted(message)
        ),
        Refusal::TemplateTooLarge { bytes, max } => format!(
            "The live pod template has {bytes} bytes, more than the {max} that can be kept for the way back. Make the \
             template smaller (ConfigMaps instead of inline text)."
        ),
        Refusal::TimeoutTooShort { timeout, floor } => format!(
            "`timeoutSeconds` is {timeout} and must be more than {floor}: the pod's grace period plus the time an agent \
             must be stable. Raise it in the manifest."
        ),
        Refusal::NotSupported { what } => format!(
            "{} is not supported by this version of trunkline; nothing is done rather than ignoring it. Take it out of \
             the manifest, or use a version that supports it.",
            line(what, QUOTE)
        ),
        Refusal::Ambiguous { others } => format!(
            "Other declarations are for the same target: {}. What was in force stays. Remove all but one of them, or \
             change the wish of the one that shall act.",
            names(others.iter().map(ToString::to_string))
        ),
        Refusal::FirstContact { commit } => format!(
            "The declaration was there before trunkline first read the repository (commit {}), and it is not what runs, \
             so nothing is done. Three ways to let it act: change its wish in a commit; add the annotation \
             `trunkline.dev/retry: <token>`; set `firstContact: act` for the repository.",
            line(commit, NAME)
        ),
        Refusal::NotOurs => NOT_OURS.to_owned(),
        Refusal::Quarantined { version, attempt } => format!(
            "{} failed on this cluster before (attempt {}) and is not tried again by itself. To try it again, commit the \
             wish together with the annotation `trunkline.dev/retry: <token not used before>`, or revert the rollback commit.",
            line(version, NAME),
            line(attempt, NAME)
        ),
        Refusal::BrokenInvariant { what } => format!(
            "The status says what cannot be: {}. The target is halted and nothing is done to it. Correct or clear the \
             status, or commit a newer wish.",
            line(what, QUOTE)
        ),
    }
}

const NOT_OURS: &str = "The custom resource was not made from a manifest that trunkline follows, or Flux, Argo CD or \
     Helm manages it too; it is shown and left alone. Declare it in a followed repository and delete this one, or stop \
     the other manager.";

fn not_found(provider: Option<&str>, looked_for: &[String]) -> String {
    let looked_for = names(looked_for.iter().cloned());
    match provider {
        Some(provider) => format!(
            "No DaemonSet of provider {} was found; looked for {looked_for}. It goes on by itself when the DaemonSet \
             appears; if another provider is meant, change `provider`.",
            quoted(provider)
        ),
        None => format!(
            "No network agent that trunkline knows was found; looked for {looked_for}. It goes on by itself when its \
             DaemonSet appears; for an agent of another name, add a profile."
        ),
    }
}

fn unknown_provider(provider: &str, nearest: Option<&str>, known: &[String]) -> String {
    let mut text = format!("No profile is named {}", quoted(provider));
    if let Some(nearest) = nearest {
        let _ = write!(text, "; {} is the nearest name", quoted(nearest));
    }
    let _ = write!(text, ". Known are {}. Correct `provider`.", names(known.iter().cloned()));
    text
}

fn owned(reason: Reason, mark: &str) -> String {
    let owner = reason.as_str().strip_prefix("OwnedBy").unwrap_or("another manager");
    let owner = match owner {
        "Operator" => "an operator",
        "ArgoCD" => "Argo CD",
        other => other,
    };
    format!(
        "The DaemonSet belongs to {owner} ({}), which would undo every change. Change the version where {owner} reads \
         it, or take the DaemonSet out of its care.",
        line(mark, NAME)
    )
}

/// RFC 3339 in UTC, whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.round(Unit::Second).unwrap_or(at).to_string()
}

/// `CNIUpgrade/calico` as arguments of `kubectl`.
pub(crate) fn resource(claim: &ClaimKey) -> String {
    let kind = match claim.kind {
        ClaimKind::CniUpgrade => "cniupgrade",
        ClaimKind::ServiceUpgrade => "serviceupgrade",
    };
    match &claim.namespace {
        Some(namespace) => format!("{kind} {} -n {namespace}", claim.name),
        None => format!("{kind} {}", claim.name),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", line(text, QUOTE))
}

/// The first ten names, and how many there are beyond them.
fn names(of: impl ExactSizeIterator<Item = String>) -> String {
    let more = of.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = of.take(SHOWN).map(|name| line(&name, NAME)).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Names shown of a longer list.
const SHOWN: usize = 10;

/// `Node n1 is` or `12 nodes (n1, n2 and 10 more) are`.
fn are(nodes: &[NodeName], count: usize) -> String {
    match nodes {
        [] => format!("{count} nodes are"),
        [one] if count <= 1 => format!("Node {one} is"),
        some => {
            let shown: Vec<&str> = some.iter().take(SHOWN).map(NodeName::as_str).collect();
            let more = count.saturating_sub(shown.len());
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} nodes ({}{rest}) are", count.max(shown.len()), shown.join(", "))
        }
    }
}
