//! The text of every refusal: what is refused, why, and the ways out.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    escape::line,
    problems::{name_taken, undecided},
    words::{NAME, QUOTE, names, quoted},
};
use crate::{api::reasons::Reason, rollout::waiting::Refusal, world::AgentKey};

/// Says why nothing will be done until people change something, and the ways out.
pub fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::ProviderNotFound { provider, looked_for, counted } => {
            not_found(provider.as_deref(), looked_for, counted.as_deref())
        }
        Refusal::ProviderAmbiguous { found } => ambiguous_provider(found),
        Refusal::ProviderUnknown { provider, nearest, known } => {
            unknown_provider(provider, nearest.as_deref(), known)
        }
        Refusal::Owned { reason, mark } => owned(*reason, mark),
        Refusal::VersionSkew { from, to, rule } => format!(
            "The step {} is not allowed by the provider's profile: {}. {SKEW}",
            step(from, to),
            line(rule, QUOTE)
        ),
        Refusal::Downgrade { from, to, rule } => format!(
            "The way down {} is not allowed by the provider's profile: {}. {DOWNGRADE}",
            step(from, to),
            line(rule, QUOTE)
        ),
        Refusal::VersionUnreadable { text, expected } => unreadable(text, expected),
        Refusal::ContainerNotCovered { containers, profile } => not_covered(containers, profile),
        Refusal::ContainerMissing { containers, profile } => container_missing(containers, profile),
        Refusal::DryRunRefused { message } => {
            format!("The API server refused the template in a dry run: {}. {DRY_RUN}", quoted(message))
        }
        Refusal::TemplateTooLarge { bytes, max } => too_large(*bytes, *max),
        Refusal::LedgerTooLarge { bytes, max } => ledger_too_large(*bytes, *max),
        Refusal::TimeoutTooShort { timeout, floor } => too_short(*timeout, *floor),
        Refusal::NotSupported { what } => format!("{} {NOT_SUPPORTED}", line(what, QUOTE)),
        Refusal::Ambiguous { others } => {
            let others = names(others.iter().map(ToString::to_string));
            format!("Other declarations are for the same target: {others}. {AMBIGUOUS}")
        }
        Refusal::FirstContact { commit } => first_contact(commit),
        Refusal::NotOurs => NOT_OURS.to_owned(),
        Refusal::Quarantined { version, attempt } => {
            let (version, attempt) = (line(version, NAME), line(attempt, NAME));
            format!("{version} failed on this cluster before (attempt {attempt}) {QUARANTINED}")
        }
        Refusal::ClusterNameTaken { cluster, uid } => name_taken(cluster, uid),
        Refusal::BrokenInvariant { what } => {
            format!("The status says what cannot be: {}. {BROKEN}", line(what, QUOTE))
        }
        Refusal::DecisionFailed { why } => {
            format!(
                "{} The target is halted and nothing is done to it; all others go on.",
                undecided("about this target", why)
            )
        }
    }
}

const SKEW: &str = "Change `targetVersion` to a version in between, and go on from there.";
const DOWNGRADE: &str = "Change `targetVersion` to the version that runs or a newer one.";
const DRY_RUN: &str = "Nothing was changed. Mend what it names, then change the wish or add a retry token.";
const NOT_SUPPORTED: &str = "is not supported by this version of trunkline; nothing is done rather than \
     ignoring it. Take it out of the manifest, or use a version that supports it.";
const AMBIGUOUS: &str =
    "What was in force stays. Remove all but one of them, or change the wish of the one that shall act.";
const QUARANTINED: &str = "and is not tried again by itself. To try it again, commit the wish together with \
     the annotation `trunkline.dev/retry: <token not used before>`.";
const BROKEN: &str =
    "The target is halted and nothing is done to it. Correct or clear the status, or commit a newer wish.";
const NOT_OURS: &str = "The custom resource was not made from a manifest that trunkline follows, or Flux, \
     Argo CD or Helm manages it too; it is shown and left alone. Declare it in a followed repository and \
     delete this one, or stop the other manager.";

fn step(from: &str, to: &str) -> String {
    format!("from {} to {}", line(from, NAME), line(to, NAME))
}

fn ambiguous_provider(found: &[(String, AgentKey)]) -> String {
    let found = names(found.iter().map(|(profile, agent)| format!("{profile} (DaemonSet {agent})")));
    format!("More than one network agent was found: {found}. Set `provider` to the one that is meant.")
}

fn unreadable(text: &str, expected: &str) -> String {
    format!(
        "{} is no version of this provider; {} would be one. Correct `targetVersion`, or the image of the \
         DaemonSet if that is where it stands.",
        quoted(text),
        line(expected, NAME)
    )
}

fn not_covered(containers: &BTreeMap<String, String>, profile: &str) -> String {
    let list = names(containers.iter().map(|(name, image)| format!("{name} ({image})")));
    format!(
        "The live template has containers that profile {} neither covers nor ignores: {list}. Add them to \
         the profile, or take them out of the DaemonSet.",
        line(profile, NAME)
    )
}

fn container_missing(containers: &[String], profile: &str) -> String {
    format!(
        "The live template lacks containers that profile {} needs: {}. Put them back, or set `provider` to \
         the profile that fits.",
        line(profile, NAME),
        names(containers.iter().cloned())
    )
}

fn too_large(bytes: usize, max: usize) -> String {
    format!(
        "The live pod template has {bytes} bytes, more than the {max} that can be kept for the way back. \
         Make it smaller: move inline text to ConfigMaps."
    )
}

fn ledger_too_large(bytes: usize, max: usize) -> String {
    format!(
        "The ledger of the repository would have {bytes} bytes, more than the {max} that fit into its ConfigMap, so \
         nothing new is taken in. Remove declarations that are history, or spread them over several repositories."
    )
}

fn too_short(timeout: i64, floor: i64) -> String {
    format!(
        "`timeoutSeconds` is {timeout} and must be more than {floor}: the pod's grace period plus the time \
         an agent must be stable. Raise it in the manifest."
    )
}

fn first_contact(commit: &str) -> String {
    format!(
        "The declaration was there before trunkline first read the repository (commit {}) and is not what \
         runs, so nothing is done. Three ways to let it act: change its wish in a commit; add the \
         annotation `trunkline.dev/retry: <token>`; set `firstContact: act` for the repository.",
        line(commit, NAME)
    )
}

fn not_found(provider: Option<&str>, looked_for: &[String], counted: Option<&str>) -> String {
    let looked_for = names(looked_for.iter().cloned());
    let mut text = match provider {
        Some(provider) => format!(
            "No DaemonSet of provider {} was found; looked for {looked_for}. Create it, or change `provider` if \
             another one is meant.",
            quoted(provider)
        ),
        None => format!(
            "No network agent that trunkline knows was found; looked for {looked_for}. Create its DaemonSet; for an \
             agent of another name, add a profile."
        ),
    };
    text.push_str(" Until then nothing is done; then it goes on without another commit.");
    if let Some(counted) = counted {
        let counted = line(counted, NAME);
        let _ = write!(text, " The counts in the status ({counted}) are of when it was last there.");
    }
    text
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
        "The DaemonSet belongs to {owner} ({}), which would undo every change. Change the version where that \
         manager reads it, or take the DaemonSet out of its care.",
        line(mark, NAME)
    )
}
