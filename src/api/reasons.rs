//! Every PascalCase reason that a condition, a problem or a metric can carry.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A reason name with its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name),+ }
        impl Reason {
            /// All reasons, for the generated list and the coverage test.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }
            /// Reads the word on the wire.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
        impl std::fmt::Display for Reason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

reasons! {
    /// A rule that is not built yet.
    NotSupported,
    // Attempts.
    /// The canary nodes did not hold.
    CanaryUnhealthy,
    /// The touched nodes did not hold after the canary.
    RolloutUnhealthy,
    /// Nodes that were not touched turned bad after our first action.
    CorrelatedLoss,
    /// The 51st node failed.
    TooManyFailures,
    // Nodes.
    /// Not healthy within `timeoutSeconds` of observed time.
    NodeTimedOut,
    /// The agent restarts again and again.
    AgentCrashLooping,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// An init container fails.
    InitFailed,
    /// The agent was healthy and is not ready any more.
    AgentNotReady,
    // Rollbacks.
    /// Some nodes could not be put back.
    RollbackIncomplete,
    // Objects.
    /// The wish failed here before.
    Quarantined,
    /// A newer wish is in force.
    Superseded,
    /// More than one declaration for one target.
    Ambiguous,
    /// One key in two places.
    Duplicate,
    /// Stood in the first accepted revision and is not what runs.
    FirstContact,
    /// Not made by trunkline.
    NotOurs,
    /// Another manager put the old image back.
    OwnershipConflict,
    /// Another manager changed the template.
    TemplateChanged,
    /// What runs differs from what completed.
    Drifted,
    /// Completed with failures within the threshold.
    CompletedWithFailures,
    // Preflight.
    /// No DaemonSet matches a profile.
    ProviderNotFound,
    /// Several DaemonSets match.
    ProviderAmbiguous,
    /// No profile of that name.
    ProviderUnknown,
    /// An operator owns the DaemonSet.
    OwnedByOperator,
    /// Flux owns the DaemonSet.
    OwnedByFlux,
    /// Argo CD owns the DaemonSet.
    OwnedByArgoCD,
    /// The jump between versions is not allowed by the profile.
    VersionSkew,
    /// The way down is not allowed by the profile.
    Downgrade,
    /// The target is no version.
    VersionUnreadable,
    /// A container of the live template is neither covered nor ignored by the profile.
    ContainerNotCovered,
    /// The live template lacks a container that the profile needs.
    ContainerMissing,
    /// The API server refused the patch in a dry run.
    DryRunRefused,
    /// The saved template is larger than a status may hold.
    TemplateTooLarge,
    /// `timeoutSeconds` is not longer than the grace period and the stable time.
    TimeoutTooShort,
    /// Someone else is rolling the DaemonSet out.
    MidRollout,
    /// Another attempt is active on this target.
    OtherAttempt,
    /// Too many nodes in scope are unhealthy.
    TooManyUnhealthy,
    /// No node in scope can be counted.
    NoNodes,
    // Progress and ends.
    /// Work goes on.
    Progressing,
    /// Nothing starts: the manifest says so.
    Paused,
    /// Nothing starts: the brake is on.
    Held,
    /// The brake has been on for more than a day.
    HoldOverdue,
    /// Everything is as declared.
    Completed,
    /// What was declared ran already.
    AlreadyRuns,
    /// Back on last good after a revert.
    Returned,
    /// Put back after a failure.
    RolledBack,
    /// Failed and held as it is.
    FailedAndHeld,
    /// In force.
    InForce,
    /// The status holds what cannot be.
    BrokenInvariant,
    /// trunkline itself failed while it decided about the target.
    DecisionFailed,
    // Repositories.
    /// The tracked branch does not descend from the last accepted revision.
    HistoryRewritten,
    /// The repository is not in the configuration any more.
    NotConfigured,
    /// The tracked branch does not exist, and others do.
    BranchMissing,
    /// The repository cannot be reached.
    Unreachable,
    /// The server refused a push.
    PushRefused,
    /// Another cluster publishes under this name.
    ClusterNameTaken,
    /// A configured path never had a document of ours.
    PathMissing,
    /// A limit on files, sizes or depth was met.
    LimitReached,
    /// A document cannot be read.
    InvalidManifest,
    /// All is written to Git.
    Published,
    /// What is written waits to be pushed.
    Publishing,
}
