//! Words that the texts share: times, quotes, lists of names.

use jiff::{Timestamp, Unit};

use super::escape::line;
use crate::api::{ClaimKey, ClaimKind, names::NodeName};

/// Longest quote of one outside text, in characters.
pub(super) const QUOTE: usize = 300;
/// Longest name of others, in characters.
pub(super) const NAME: usize = 253;
/// Names shown of a longer list.
const SHOWN: usize = 10;

/// RFC 3339 in UTC, whole seconds.
pub(super) fn time(at: Timestamp) -> String {
    at.round(Unit::Second).unwrap_or(at).to_string()
}

/// `CNIUpgrade/calico` as arguments of `kubectl`.
pub(super) fn resource(claim: &ClaimKey) -> String {
    let kind = match claim.kind {
        ClaimKind::CniUpgrade => "cniupgrade",
        ClaimKind::ServiceUpgrade => "serviceupgrade",
    };
    match &claim.namespace {
        Some(namespace) => format!("{kind} {} -n {namespace}", claim.name),
        None => format!("{kind} {}", claim.name),
    }
}

/// An outside text in quotes, bounded.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", line(text, QUOTE))
}

/// The first ten names, and how many there are beyond them.
pub(super) fn names(of: impl ExactSizeIterator<Item = String>) -> String {
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

/// `Node n1 is` or `12 nodes (n1, n2 and 10 more) are`.
pub(super) fn are(nodes: &[NodeName], count: usize) -> String {
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
