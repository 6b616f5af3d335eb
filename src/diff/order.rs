//! Who comes first: a pure function of node UID and attempt, alternating over architecture and zone.

use std::collections::BTreeMap;

use super::NodeDiff;
use crate::api::names::{AttemptId, Uid};

/// Labels by which a control-plane node is known.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Whether a node is part of the control plane.
pub fn control_plane(node: &NodeDiff<'_>) -> bool {
    CONTROL_PLANE.iter().any(|label| node.node.is.labels.contains_key(*label))
}

/// `<architecture>/<zone>` of a node.
pub fn group(node: &NodeDiff<'_>) -> String {
    let label = |name: &str| node.node.is.labels.get(name).map_or("", String::as_str);
    format!("{}/{}", label("kubernetes.io/arch"), label("topology.kubernetes.io/zone"))
}

/// Order value of a node in an attempt, spread evenly (FNV-1a with a final mix).
pub fn value(node: &Uid, attempt: &AttemptId) -> u64 {
    let bytes = node.as_str().bytes().chain([b'/']).chain(attempt.as_str().bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// Text form of an order value, as the stored canary cut has it: 16 hexadecimal digits.
pub fn text(value: u64) -> String {
    format!("{value:016x}")
}

/// Sorts nodes into the order in which they are acted on: nodes that are ours to repair first, control-plane nodes
/// last, and otherwise in turn over the groups.
pub fn sort<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    turns(nodes, attempt, |node| (!node.ours_to_repair, control_plane(node)))
}

fn turns<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
    rank: impl Fn(&NodeDiff<'a>) -> (bool, bool),
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    let mut groups: BTreeMap<_, Vec<(u64, &NodeDiff<'a>)>> = BTreeMap::new();
    for node in nodes {
        groups.entry((rank(node), group(node))).or_default().push((value(node.uid(), attempt), node));
    }
    let mut order = Vec::new();
    for ((rank, _), mut members) in groups {
        members.sort_unstable_by_key(|(value, node)| (*value, node.name));
        let placed = members.into_iter().enumerate();
        order.extend(placed.map(|(turn, (value, node))| (rank, turn, value, node)));
    }
    order.sort_unstable_by_key(|(rank, turn, value, node)| (*rank, *turn, *value, node.name));
    order.into_iter().map(|(.., node)| node).collect()
}

/// Sorts nodes in turn over the groups by order value alone.
pub fn sort_by_value<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    turns(nodes, attempt, |_| (false, false))
}

/// The cut that makes the first `count` of `eligible` (in order) canaries: the highest order value per group.
pub fn cut(eligible: &[&NodeDiff<'_>], count: usize, attempt: &AttemptId) -> BTreeMap<String, String> {
    let mut cut: BTreeMap<String, u64> = BTreeMap::new();
    for node in eligible.iter().take(count) {
        let value = value(node.uid(), attempt);
        cut.entry(group(node)).and_modify(|known| *known = (*known).max(value)).or_insert(value);
    }
    cut.into_iter().map(|(group, value)| (group, text(value))).collect()
}

/// Whether the cut makes a node a canary.
pub fn within(cut: &BTreeMap<String, String>, node: &NodeDiff<'_>, attempt: &AttemptId) -> bool {
    !cut.is_empty() && cut.get(&group(node)).is_some_and(|limit| text(value(node.uid(), attempt)) <= *limit)
}
