//! Who comes first: a pure function of node UID and attempt, alternating over architecture and zone.

use std::{collections::BTreeMap, fmt};

use super::NodeDiff;
use crate::api::names::{AttemptId, Uid};

/// Whether a node is part of the control plane.
pub fn control_plane(node: &NodeDiff<'_>) -> bool {
    node.node.is.labels.topology().control_plane
}

/// Nodes that take turns: those of one architecture and zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group<'n> {
    arch: &'n str,
    zone: &'n str,
}

impl<'n> Group<'n> {
    fn of(node: &NodeDiff<'n>) -> Self {
        let topology = node.node.is.labels.topology();
        Self { arch: &topology.arch, zone: &topology.zone }
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
    first(nodes, attempt, usize::MAX)
}

/// The first so many of that order; the others, which may be thousands, are not sorted.
pub fn first<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
    count: usize,
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    turns(nodes, attempt, count, |node| (!node.ours_to_repair, control_plane(node)))
}

/// Sorts nodes in turn over the groups by order value alone.
pub fn sort_by_value<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    turns(nodes, attempt, usize::MAX, |_| (false, false))
}

fn turns<'n, 'a>(
    nodes: impl Iterator<Item = &'n NodeDiff<'a>>,
    attempt: &AttemptId,
    count: usize,
    rank: impl Fn(&NodeDiff<'a>) -> (bool, bool),
) -> Vec<&'n NodeDiff<'a>>
where
    'a: 'n,
{
    // There are few groups, and neighbours are mostly of different ones.
    let mut groups: Vec<((bool, bool), Group<'a>, Vec<_>)> = Vec::new();
    for node in nodes {
        let (rank, group) = (rank(node), Group::of(node));
        let member = (value(node.uid(), attempt), node.name, node);
        match groups.iter_mut().find(|(r, g, _)| *r == rank && *g == group) {
            Some((.., members)) => members.push(member),
            None => groups.push((rank, group, vec![member])),
        }
    }
    let mut order = Vec::new();
    for (rank, _, mut members) in groups {
        if members.len() > count {
            members.select_nth_unstable_by_key(count, |(value, name, _)| (*value, *name));
            members.truncate(count);
        }
        members.sort_unstable_by_key(|(value, name, _)| (*value, *name));
        let placed = members.into_iter().enumerate();
        order.extend(placed.map(|(turn, (value, name, node))| (rank, turn, value, name, node)));
    }
    order.sort_unstable_by_key(|(rank, turn, value, name, _)| (*rank, *turn, *value, *name));
    order.into_iter().map(|(.., node)| node).take(count).collect()
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
