//! Labels of nodes, and what of them decides whose turn it is.
//!
//! Guarantees: nodes of one topology share one value, so that thousands of nodes are grouped by a few pointers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::Arc,
};

/// Labels by which a control-plane node is known.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Where a node stands among the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topology {
    /// Part of the control plane.
    pub control_plane: bool,
    /// Label `kubernetes.io/arch`; empty without it.
    pub arch: Box<str>,
    /// Label `topology.kubernetes.io/zone`; empty without it.
    pub zone: Box<str>,
}

impl Topology {
    fn of(labels: &BTreeMap<String, String>) -> Self {
        let label = |name: &str| labels.get(name).map_or("", String::as_str).into();
        Self {
            control_plane: CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)),
            arch: label("kubernetes.io/arch"),
            zone: label("topology.kubernetes.io/zone"),
        }
    }
}

/// All labels of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    all: Arc<BTreeMap<String, String>>,
    topology: Arc<Topology>,
}

impl Labels {
    /// Reads the topology off these labels.
    pub fn new(all: Arc<BTreeMap<String, String>>) -> Self {
        let topology = Arc::new(Topology::of(&all));
        Self { all, topology }
    }

    /// The topology that they tell of.
    pub const fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Takes the value of `known` that stands for all equal topologies.
    pub(super) fn share(&mut self, known: &mut BTreeSet<Arc<Topology>>) {
        self.topology = shared(known, Arc::clone(&self.topology));
    }
}

impl Deref for Labels {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The value that stands for all equal ones; those that nobody holds any more are let go.
pub(super) fn shared<T: Ord>(known: &mut BTreeSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&new) {
        return Arc::clone(known);
    }
    known.retain(|known| Arc::strong_count(known) > 1);
    known.insert(Arc::clone(&new));
    new
}
