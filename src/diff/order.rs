//! Who comes first: a pure function of node UID and attempt, alternating over architecture and zone.

use std::{collections::BTreeMap, fmt};

use super::NodeDiff;
use crate::api::names::{AttemptId, Uid};

/// Labels by which a control-plane node is known.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Whether a node is part of the control plane.
pub fn control_plane(node: &NodeDiff<'_>) -> bool {
    CONTROL_PLANE.iter().any(|label| node.node.is.labels.contains_key(*label))
}

/// Nodes that take turns: those of one architecture and zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group<'n> {
    arch: &'n str,
    zone: &'n str,
}

impl<'n> Group<'n> {
    fn of(node: &NodeDiff<'n>) -> Self {
        let label = |name: &str| node.node.is.labels.get(name).map_or("", String::as_str);
        Self { arch: label("kubernetes.io/arch"), zone: label("topology.kubernetes.io/zone") }
    }

    /// From its text in a status; a label value has no slash.
    fn parse(text: &'n str) -> Self {
        let (arch, zone) = text.split_once('/').unwrap_or((text, ""));
        Self { arch, zone }
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.arch, self.zone)
    }
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
    let mut order: Vec<_> =
        nodes.map(|node| (rank(node), Group::of(node), value(node.uid(), attempt), node)).collect();
    order.sort_unstable_by_key(|(rank, group, value, node)| (*rank, *group, *value, node.name));
    let mut last = None;
    let mut turn = 0_usize;
    let placed = order.into_iter().map(|(rank, group, value, node)| {
        turn = if last == Some((rank, group)) { turn + 1 } else { 0 };
        last = Some((rank, group));
        (rank, turn, value, node)
    });
    let mut order: Vec<_> = placed.collect();
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

/// The cut that makes the first `count` of `eligible` (in order) canaries: the highest order value per group, as 16
/// hexadecimal digits by `<architecture>/<zone>`.
pub fn cut(eligible: &[&NodeDiff<'_>], count: usize, attempt: &AttemptId) -> BTreeMap<String, String> {
    let mut cut: BTreeMap<Group<'_>, u64> = BTreeMap::new();
    for node in eligible.iter().take(count) {
        let value = value(node.uid(), attempt);
        cut.entry(Group::of(node)).and_modify(|known| *known = (*known).max(value)).or_insert(value);
    }
    cut.into_iter().map(|(group, value)| (group.to_string(), format!("{value:016x}"))).collect()
}

/// A stored cut, read.
#[derive(Debug, Clone)]
pub struct Cut {
    attempt: AttemptId,
    /// Highest order value by group.
    highest: Vec<(String, u64)>,
}

impl Cut {
    /// Reads a cut; what is no order value lets no node in.
    pub fn of(stored: &BTreeMap<String, String>, attempt: &AttemptId) -> Self {
        let read =
            |(group, value): (&String, &String)| Some((group.clone(), u64::from_str_radix(value, 16).ok()?));
        Self { attempt: attempt.clone(), highest: stored.iter().filter_map(read).collect() }
    }

    /// Whether the cut makes a node a canary.
    pub fn has(&self, node: &NodeDiff<'_>) -> bool {
        let group = Group::of(node);
        let highest = self.highest.iter().find(|(known, _)| Group::parse(known) == group);
        highest.is_some_and(|(_, highest)| value(node.uid(), &self.attempt) <= *highest)
    }
}
