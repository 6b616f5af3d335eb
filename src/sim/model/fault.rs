//! What can go wrong on nodes, with their agents and in the controller, as data.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;

use super::body::Container;

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Nodes it strikes.
    pub nodes: Where,
    /// Strikes only where an agent with an image that contains this text runs or starts; absent = always.
    pub image: Option<String>,
    /// What happens.
    pub kind: FaultKind,
    /// Begins then; absent = from the start.
    pub from: Option<Timestamp>,
    /// Is over then; absent = never.
    pub until: Option<Timestamp>,
}

/// Nodes that a fault strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// Every node.
    All,
    /// Nodes by name.
    Named(BTreeSet<String>),
    /// The first so many nodes on which it can strike: canaries, when it waits for a new image.
    First {
        /// How many.
        count: usize,
        /// Nodes struck so far.
        hit: BTreeSet<Arc<str>>,
    },
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Images cannot be pulled: `ErrImagePull`, `ImagePullBackOff`.
    ImagePull,
    /// `CreateContainerConfigError`.
    ConfigError,
    /// The last init container fails and is tried again.
    InitFails,
    /// The last container exits soon after each start.
    CrashLoops,
    /// It runs and never becomes Ready.
    NeverReady,
    /// It becomes Ready and is not Ready any more some seconds later.
    TurnsUnready {
        /// Seconds after it became Ready.
        after: i64,
    },
    /// It becomes Ready later.
    Slow {
        /// Additional seconds.
        by: i64,
    },
    /// A deleted pod does not go away.
    StuckTerminating,
    /// The kubelet reports `Ready=False`.
    NotReady,
    /// The kubelet reports `Ready=False` because the network plugin is not ready.
    NetworkNotReady,
    /// Condition `NetworkUnavailable` is `True`.
    NetworkUnavailable,
    /// The machine is gone and its Node stays: `Ready=Unknown` after the grace period, nothing on it moves.
    Lost,
    /// The DaemonSet controller does nothing.
    ControllerStalled,
}

impl FaultKind {
    /// Whether it shows in the conditions of the Node.
    pub const fn of_node(self) -> bool {
        match self {
            Self::NotReady | Self::NetworkNotReady | Self::NetworkUnavailable | Self::Lost => true,
            Self::ImagePull
            | Self::ConfigError
            | Self::InitFails
            | Self::CrashLoops
            | Self::NeverReady
            | Self::TurnsUnready { .. }
            | Self::Slow { .. }
            | Self::StuckTerminating
            | Self::ControllerStalled => false,
        }
    }
}

impl Fault {
    /// A fault on all nodes, for ever, whatever the image.
    pub const fn new(kind: FaultKind) -> Self {
        Self { nodes: Where::All, image: None, kind, from: None, until: None }
    }
    /// Only on these nodes.
    #[must_use]
    pub fn on<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.nodes = Where::Named(names.into_iter().map(Into::into).collect());
        self
    }
    /// Only on the first nodes that it can strike.
    #[must_use]
    pub fn on_first(mut self, count: usize) -> Self {
        self.nodes = Where::First { count, hit: BTreeSet::new() };
        self
    }
    /// Only where an agent with such an image runs or starts.
    #[must_use]
    pub fn with_image(mut self, text: impl Into<String>) -> Self {
        self.image = Some(text.into());
        self
    }
    /// Only within these times.
    #[must_use]
    pub const fn between(mut self, from: Timestamp, until: Timestamp) -> Self {
        self.from = Some(from);
        self.until = Some(until);
        self
    }

    /// Whether it is on at that time.
    pub fn active(&self, now: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= now) && self.until.is_none_or(|until| now < until)
    }

    /// Whether it strikes there; `First` remembers whom it struck.
    pub(super) fn strikes(&mut self, node: &Arc<str>, agent: Option<&[Container]>, now: Timestamp) -> bool {
        if !self.active(now) {
            return false;
        }
        if let Some(text) = &self.image
            && !agent.is_some_and(|parts| parts.iter().any(|part| part.image.contains(text.as_str())))
        {
            return false;
        }
        match &mut self.nodes {
            Where::All => true,
            Where::Named(names) => names.contains(&**node),
            Where::First { count, hit } => {
                if hit.len() < *count {
                    hit.insert(Arc::clone(node));
                }
                hit.contains(node)
            }
        }
    }
}
