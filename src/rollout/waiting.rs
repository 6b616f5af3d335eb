//! Every "no" of the machine: `Waiting` heals by itself, `Refusal` needs a change by people.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    api::{ClaimKey, names::NodeName, reasons::Reason},
    world::AgentKey,
};

/// A typed reason why nothing (more) is being done now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The canary must hold until then, if it goes on holding.
    Observing {
        /// Seconds of observed time left.
        left: i64,
        /// Seconds of observed time in all.
        of: i64,
        /// When that is over at the earliest.
        until: Timestamp,
    },
    /// Nodes in flight have to settle.
    Settling {
        /// The first ten of them.
        nodes: Vec<NodeName>,
        /// How many in all.
        count: usize,
        /// When the first of them times out.
        until: Option<Timestamp>,
    },
    /// As many nodes are in flight as allowed.
    Budget {
        /// In flight now.
        in_flight: usize,
        /// Most allowed.
        max: usize,
    },
    /// As many intents are open as a status may hold.
    StatusBudget {
        /// Most allowed.
        max: usize,
    },
    /// A touched node is being looked at; the verdict is open.
    Judging {
        /// The first ten nodes that are neither healthy nor failed.
        nodes: Vec<NodeName>,
    },
    /// A node that came onto the target by itself is not healthy; nobody new starts meanwhile.
    AdoptedEarly {
        /// The first ten of them.
        nodes: Vec<NodeName>,
    },
    /// Nodes that were not touched turned bad.
    CorrelatedLoss {
        /// The first ten of them.
        nodes: Vec<NodeName>,
        /// Whether it began before our first action.
        before_us: bool,
    },
    /// A feed is not live, so what is known may be stale.
    Feeds {
        /// Which, and why.
        what: String,
    },
    /// The DaemonSet controller has not seen the patch yet.
    Controller {
        /// Generation written.
        generation: i64,
        /// Generation seen by the controller.
        observed: i64,
    },
    /// The revision of the template is not known yet.
    Revision,
    /// The attempt record has to be stored first.
    Record,
    /// The dry run has not answered yet.
    DryRun,
    /// The custom resource differs from the manifest and is put back first.
    Mirror,
    /// Another manager is rolling the DaemonSet out.
    MidRollout {
        /// Pods on the live template.
        updated: i32,
        /// Pods wanted.
        desired: i32,
    },
    /// Another attempt is active on the target.
    OtherAttempt {
        /// Whose.
        claim: ClaimKey,
    },
    /// Too many nodes in scope are unhealthy before we begin.
    TooManyUnhealthy {
        /// The first ten of them.
        nodes: Vec<NodeName>,
        /// How many in all.
        count: usize,
        /// Most allowed.
        max: usize,
    },
    /// No node in scope runs the agent and can be counted.
    NoNodes,
    /// No node can be a canary.
    NoCanary,
    /// The manifest says `paused: true`.
    Paused,
    /// The brake is on.
    Held {
        /// Claim that carries the annotation.
        claim: ClaimKey,
        /// Text of the annotation.
        reason: String,
        /// Who put it there, as far as the API server says.
        by: Option<String>,
        /// Since when.
        since: Option<Timestamp>,
        /// On for more than 24 hours.
        overdue: bool,
    },
    /// Another manager changed the template during the attempt.
    TemplateChanged {
        /// Whether the images are the old ones again.
        images_back: bool,
    },
    /// Another manager set the update strategy back during the attempt.
    StrategyChanged,
    /// The update strategy cannot go back while pods outside the scope run another revision.
    StrategyHeld {
        /// Pods on the live template.
        updated: i32,
        /// Pods wanted.
        desired: i32,
    },
    /// The API server rejected a write; tried again then.
    Rejected {
        /// Which write.
        effect: String,
        /// The server's text.
        message: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// Nodes that could not be put back; taken up as they return.
    PutBack {
        /// The first ten of them.
        nodes: Vec<NodeName>,
    },
    /// Late nodes are waited for after completion.
    LateNodes {
        /// The first ten of them.
        nodes: Vec<NodeName>,
    },
}

impl Waiting {
    /// PascalCase name.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Observing { .. } => "Observing",
            Self::Settling { .. } => "Settling",
            Self::Budget { .. } => "Budget",
            Self::StatusBudget { .. } => "StatusBudget",
            Self::Judging { .. } => "Judging",
            Self::AdoptedEarly { .. } => "AdoptedEarly",
            Self::CorrelatedLoss { .. } => "CorrelatedLoss",
            Self::Feeds { .. } => "Feeds",
            Self::Controller { .. } => "Controller",
            Self::Revision => "Revision",
            Self::Record => "Record",
            Self::DryRun => "DryRun",
            Self::Mirror => "Mirror",
            Self::MidRollout { .. } => "MidRollout",
            Self::OtherAttempt { .. } => "OtherAttempt",
            Self::TooManyUnhealthy { .. } => "TooManyUnhealthy",
            Self::NoNodes => "NoNodes",
            Self::NoCanary => "NoCanary",
            Self::Paused => "Paused",
            Self::Held { overdue: false, .. } => "Held",
            Self::Held { overdue: true, .. } => "HoldOverdue",
            Self::TemplateChanged { images_back: false } => "TemplateChanged",
            Self::TemplateChanged { images_back: true } => "OwnershipConflict",
            Self::StrategyChanged => "StrategyChanged",
            Self::StrategyHeld { .. } => "StrategyHeld",
            Self::Rejected { .. } => "Rejected",
            Self::PutBack { .. } => "PutBack",
            Self::LateNodes { .. } => "LateNodes",
        }
    }

    /// Whether nobody can say yet how it stands; anything else is known, with its numbers, and waited for.
    pub const fn is_unknown(&self) -> bool {
        match self {
            Self::Judging { .. } | Self::Feeds { .. } | Self::Revision | Self::DryRun => true,
            Self::Observing { .. }
            | Self::Settling { .. }
            | Self::Budget { .. }
            | Self::StatusBudget { .. }
            | Self::AdoptedEarly { .. }
            | Self::CorrelatedLoss { .. }
            | Self::Controller { .. }
            | Self::Record
            | Self::Mirror
            | Self::MidRollout { .. }
            | Self::OtherAttempt { .. }
            | Self::TooManyUnhealthy { .. }
            | Self::NoNodes
            | Self::NoCanary
            | Self::Paused
            | Self::Held { .. }
            | Self::TemplateChanged { .. }
            | Self::StrategyChanged
            | Self::StrategyHeld { .. }
            | Self::Rejected { .. }
            | Self::PutBack { .. }
            | Self::LateNodes { .. } => false,
        }
    }

    /// Whether people keep it back: the pause or the brake.
    pub const fn is_brake(&self) -> bool {
        matches!(self, Self::Paused | Self::Held { .. })
    }

    /// When it ends by itself, where that is known.
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Observing { until, .. } | Self::Rejected { until, .. } => Some(*until),
            Self::Settling { until, .. } => *until,
            Self::Budget { .. }
            | Self::StatusBudget { .. }
            | Self::Judging { .. }
            | Self::AdoptedEarly { .. }
            | Self::CorrelatedLoss { .. }
            | Self::Feeds { .. }
            | Self::Controller { .. }
            | Self::Revision
            | Self::Record
            | Self::DryRun
            | Self::Mirror
            | Self::MidRollout { .. }
            | Self::OtherAttempt { .. }
            | Self::TooManyUnhealthy { .. }
            | Self::NoNodes
            | Self::NoCanary
            | Self::Paused
            | Self::Held { .. }
            | Self::TemplateChanged { .. }
            | Self::StrategyChanged
            | Self::StrategyHeld { .. }
            | Self::PutBack { .. }
            | Self::LateNodes { .. } => None,
        }
    }
}

/// A "no" that waiting cannot heal: condition `Stalled` with the way out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// No DaemonSet matches.
    ProviderNotFound {
        /// Provider asked for, if one was.
        provider: Option<String>,
        /// What was looked for: profile name and DaemonSet names.
        looked_for: Vec<String>,
        /// `4/10`, as counted when it was last there; absent = it never was.
        counted: Option<String>,
    },
    /// Several profiles or DaemonSets match.
    ProviderAmbiguous {
        /// Profile name and DaemonSet of each match.
        found: Vec<(String, AgentKey)>,
    },
    /// No profile has that name.
    ProviderUnknown {
        /// Name asked for.
        provider: String,
        /// The nearest known name.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// An owner forbids the driver.
    Owned {
        /// `OwnedByOperator`, `OwnedByFlux` or `OwnedByArgoCD`.
        reason: Reason,
        /// The mark that was seen.
        mark: String,
    },
    /// The jump is not allowed by the profile.
    VersionSkew {
        /// Version that runs.
        from: String,
        /// Version wanted.
        to: String,
        /// The profile's rule.
        rule: String,
    },
    /// The way down is not allowed by the profile.
    Downgrade {
        /// Version that runs.
        from: String,
        /// Version wanted.
        to: String,
        /// The profile's rule.
        rule: String,
    },
    /// The target, or what runs, is no version of the profile's scheme.
    VersionUnreadable {
        /// The text.
        text: String,
        /// What would be one.
        expected: String,
    },
    /// Containers of the live template that the profile neither covers nor ignores, with their images.
    ContainerNotCovered {
        /// Image by container.
        containers: BTreeMap<String, String>,
        /// Profile.
        profile: String,
    },
    /// The live template lacks containers that the profile needs.
    ContainerMissing {
        /// Names, init containers with prefix `init:`.
        containers: Vec<String>,
        /// Profile.
        profile: String,
    },
    /// The API server refused the patch.
    DryRunRefused {
        /// Its text.
        message: String,
    },
    /// The live template is larger than a status may hold.
    TemplateTooLarge {
        /// Bytes.
        bytes: usize,
        /// Most allowed.
        max: usize,
    },
    /// The ledger would not fit into a ConfigMap any more.
    LedgerTooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// Most bytes that are written.
        max: usize,
    },
    /// `timeoutSeconds` must exceed grace period and stable time.
    TimeoutTooShort {
        /// Seconds declared.
        timeout: i64,
        /// Seconds it must exceed.
        floor: i64,
    },
    /// A rule that is not built yet.
    NotSupported {
        /// Field or kind.
        what: String,
    },
    /// Several declarations for one target.
    Ambiguous {
        /// The others.
        others: Vec<ClaimKey>,
    },
    /// Stood in the first accepted revision and is not what runs.
    FirstContact {
        /// Commit that brought it in.
        commit: String,
    },
    /// Not made by trunkline, or carries foreign marks.
    NotOurs,
    /// The wish failed here before.
    Quarantined {
        /// Version.
        version: String,
        /// The failed attempt.
        attempt: String,
    },
    /// Another cluster publishes under this name.
    ClusterNameTaken {
        /// The name.
        cluster: String,
        /// UID of the other cluster's `kube-system` namespace.
        uid: String,
    },
    /// The status holds what cannot be.
    BrokenInvariant {
        /// What.
        what: String,
    },
    /// The decision about the target panicked.
    DecisionFailed {
        /// What it said.
        why: String,
    },
}

impl Refusal {
    /// Its reason name.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::ProviderNotFound { .. } => Reason::ProviderNotFound,
            Self::ProviderAmbiguous { .. } => Reason::ProviderAmbiguous,
            Self::ProviderUnknown { .. } => Reason::ProviderUnknown,
            Self::Owned { reason, .. } => *reason,
            Self::VersionSkew { .. } => Reason::VersionSkew,
            Self::Downgrade { .. } => Reason::Downgrade,
            Self::VersionUnreadable { .. } => Reason::VersionUnreadable,
            Self::ContainerNotCovered { .. } => Reason::ContainerNotCovered,
            Self::ContainerMissing { .. } => Reason::ContainerMissing,
            Self::DryRunRefused { .. } => Reason::DryRunRefused,
            Self::TemplateTooLarge { .. } => Reason::TemplateTooLarge,
            Self::LedgerTooLarge { .. } => Reason::LimitReached,
            Self::TimeoutTooShort { .. } => Reason::TimeoutTooShort,
            Self::NotSupported { .. } => Reason::NotSupported,
            Self::Ambiguous { .. } => Reason::Ambiguous,
            Self::FirstContact { .. } => Reason::FirstContact,
            Self::NotOurs => Reason::NotOurs,
            Self::Quarantined { .. } => Reason::Quarantined,
            Self::ClusterNameTaken { .. } => Reason::ClusterNameTaken,
            Self::BrokenInvariant { .. } => Reason::BrokenInvariant,
            Self::DecisionFailed { .. } => Reason::DecisionFailed,
        }
    }
}
