//! The configuration file, typed. Reading it from disk is the caller's business.
//!
//! Guarantees: an unknown key is an error with its place, and so is a known key whose rule is not built.

mod file;
#[cfg(test)]
mod tests;

use std::{str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use file::ConfigError;

use crate::{api::names::RepoName, world::git::Signature};

/// What a daemon is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name in branches, statuses and comments.
    pub cluster: String,
    /// Namespace of ledger and attempt records.
    pub namespace: String,
    /// Repositories, in order of precedence.
    pub repositories: Vec<Repository>,
    /// For how long after completion a return to last good needs no canary.
    pub revert_window: Duration,
    /// How replicas agree on the one that writes.
    pub leader_election: LeaderElection,
    /// UID of the `kube-system` namespace of this cluster (`cluster.yaml` on the status branch).
    pub cluster_uid: String,
    /// Where health, readiness and metrics are served.
    pub metrics: ServeAt,
    /// Folder of the policies; absent = the built-in profiles.
    pub policies: Option<String>,
}

/// How replicas agree on the one that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether they do; otherwise this is the only one and always writes.
    pub enabled: bool,
    /// How long the others wait for a holder of the lease that gives no sign.
    pub lease_duration: Duration,
    /// How long after its last renewal a holder still begins to write.
    pub renew_deadline: Duration,
    /// Time between two renewals, and between two looks of the others.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// What holds where nothing else is said, as for the controllers of Kubernetes.
    pub const ASSUMED: Self = Self {
        enabled: true,
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    /// The only replica.
    pub const OFF: Self = Self { enabled: false, ..Self::ASSUMED };

    /// Why these periods cannot work; `None` = they can.
    pub fn fault(&self) -> Option<String> {
        let Self { enabled: _, lease_duration, renew_deadline, retry_period } = self;
        if *retry_period < SHORTEST_RETRY {
            return Some(format!("retryPeriod: must be at least {} ms", SHORTEST_RETRY.as_millis()));
        }
        if *lease_duration < SHORTEST_LEASE {
            return Some(format!("leaseDuration: must be at least {} s", SHORTEST_LEASE.as_secs()));
        }
        (lease_duration <= renew_deadline || renew_deadline <= retry_period).then(|| {
            format!(
                "leaseDuration ({lease_duration:?}) must be longer than renewDeadline ({renew_deadline:?}), and that longer than retryPeriod ({retry_period:?})"
            )
        })
    }
}

/// What is said of leader election beside the file, and wins over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ElectionFlags {
    /// [`LeaderElection::enabled`].
    pub enabled: Option<bool>,
    /// [`LeaderElection::lease_duration`].
    pub lease_duration: Option<Duration>,
    /// [`LeaderElection::renew_deadline`].
    pub renew_deadline: Option<Duration>,
    /// [`LeaderElection::retry_period`].
    pub retry_period: Option<Duration>,
}

impl Config {
    /// The configuration as the flags make it; an error where both do not go together.
    pub fn under(mut self, flags: ElectionFlags) -> Result<Self, ConfigError> {
        let file = self.leader_election;
        self.leader_election = LeaderElection {
            enabled: flags.enabled.unwrap_or(file.enabled),
            lease_duration: flags.lease_duration.unwrap_or(file.lease_duration),
            renew_deadline: flags.renew_deadline.unwrap_or(file.renew_deadline),
            retry_period: flags.retry_period.unwrap_or(file.retry_period),
        };
        match self.leader_election.fault() {
            None => Ok(self),
            Some(fault) => {
                Err(ConfigError::Invalid { faults: vec![format!("leaderElection, with the flags: {fault}")] })
            }
        }
    }
}

/// The API server is not asked more often.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);
/// A Lease counts whole seconds.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// One repository.
#[derive(Debug, Clone, PartialEq)]
pub struct Repository {
    /// Name.
    pub name: RepoName,
    /// https, ssh, or with `--allow-local` a local path or loopback http.
    pub url: String,
    /// Tracked branch.
    pub branch: String,
    /// Folders or files to read; `""` or `.` = the whole repository.
    pub paths: Vec<String>,
    /// Interval between looks.
    pub poll: Duration,
    /// Folder with `username` and `password`, or `token`, or `ssh-privatekey` and `known_hosts`, or `ca.crt`.
    pub credentials: Option<String>,
    /// Whether a status branch is written.
    pub status_branch: bool,
    /// Whether rollback commits are made.
    pub rollback_commit: bool,
    /// Name and e-mail of every commit.
    pub by: Signature,
    /// Put before the subject of every commit.
    pub subject_prefix: String,
    /// What a declaration of the first accepted revision may do.
    pub first_contact: FirstContact,
    /// Namespaces that objects may be in; `*` = any.
    pub allow_namespaces: Vec<String>,
}

/// What a declaration of the first accepted revision may do when it is not what runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FirstContact {
    /// Wait for a later commit.
    #[default]
    Hold,
    /// Act at once.
    Act,
}

/// Where something is served over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeAt {
    /// Nowhere.
    Nowhere,
    /// `host:port`, or `:port` for every address of the machine.
    At(String),
}

/// A text that is no [`ServeAt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be `host:port`, `:port` for every address of the machine, or `0` for none")]
pub struct NotAnAddress;

impl FromStr for ServeAt {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if text == "0" {
            return Ok(Self::Nowhere);
        }
        let (host, port) = text.rsplit_once(':').ok_or(NotAnAddress)?;
        let sound = !host.contains(char::is_whitespace) && port.parse::<u16>().is_ok();
        if sound { Ok(Self::At(text.to_owned())) } else { Err(NotAnAddress) }
    }
}

impl Config {
    /// What holds where no file says otherwise, without a repository: for commands that do not know the file.
    pub const fn assumed() -> Self {
        Self {
            cluster: String::new(),
            namespace: String::new(),
            repositories: Vec::new(),
            revert_window: file::REVERT_WINDOW.unsigned_abs(),
            leader_election: LeaderElection::OFF,
            cluster_uid: String::new(),
            metrics: ServeAt::Nowhere,
            policies: None,
        }
    }
}

/// What the names of all status branches begin with.
pub const STATUS_BRANCHES: &str = "trunkline/status/";

impl Repository {
    /// `trunkline/status/<cluster>`.
    pub fn status_branch_name(cluster: &str) -> String {
        format!("{STATUS_BRANCHES}{cluster}")
    }
}
