//! Leader election: which of several replicas may write.

/// What a replica is to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It alone may write.
    Leader {
        /// Counts leaders; what was written under a higher one is not written over.
        epoch: i64,
    },
    /// It observes and writes nothing.
    Standby {
        /// Who holds the lease, as far as it is known.
        holder: Option<String>,
    },
}
