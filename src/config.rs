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
    /// UID of the `kube-system` namespace of this cluster (`cluster.yaml` on the status branch).
    pub cluster_uid: String,
    /// Where health, readiness and metrics are served.
    pub metrics: ServeAt,
    /// Folder of the policies; absent = the built-in profiles.
    pub policies: Option<String>,
}

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
