//! Configuration and policies: read from disk, watched, and read again when they change.
//!
//! Guarantees: what is handed out has been checked whole; a faulty version is told once and changes nothing; a change
//! is seen at once where the file system tells of it, and within a minute where it does not. Assumptions: credentials
//! are not among it, since they are read at each use.

mod policies;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::{
    clock::{Clock, later},
    config::{Config, ConfigError, ElectionFlags},
    git::url::{RemoteUrl, UrlError},
    metrics::Metrics,
    profile::{self, Profile, ProfileError},
};

/// Files are read again after so long although nothing was heard of them.
const SLOW: Duration = Duration::from_secs(60);
/// A change counts once the files have been left alone for so long.
const QUIET: Duration = Duration::from_millis(300);
/// Longest wait for that.
const RESTLESS: Duration = Duration::from_secs(5);

/// Where things are read from, and what the cluster says of itself.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The configuration file.
    pub config: PathBuf,
    /// Namespace of ledger and attempt records.
    pub namespace: String,
    /// UID of the namespace `kube-system`.
    pub cluster_uid: String,
    /// Whether repositories may be local paths or plain http on loopback.
    pub allow_local: bool,
    /// What the command line says of leader election.
    pub election: ElectionFlags,
}

/// One checked version of everything that is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The profiles of the policies folder, or else the built-in ones.
    pub profiles: Vec<Profile>,
}

/// Why a version cannot be used; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("{path} cannot be read: {error}", path = .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The configuration is wrong.
    #[error("{path}: {error}", path = .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ConfigError,
    },
    /// The URL of a repository is not allowed.
    #[error("{path}: repository {repository}: {error}", path = .path.display())]
    Url {
        /// The file.
        path: PathBuf,
        /// Name of the repository.
        repository: String,
        /// Why not.
        error: UrlError,
    },
    /// A profile is wrong.
    #[error("{path}: {error}", path = .path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ProfileError,
    },
    /// Something in the policies folder that no rule reads.
    #[error("{path}: unknown; a policies folder holds providers/*.yaml and nothing else", path = .path.display())]
    UnknownPolicy {
        /// Which.
        path: PathBuf,
    },
    /// Two profiles of one name.
    #[error("{path}: another file has a profile `{name}` already", path = .path.display())]
    SameProfile {
        /// The later file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// No profile at all.
    #[error("{path}: no profile is in it; leave `policies` out to use the built-in ones", path = .path.display())]
    NoProfile {
        /// The folder.
        path: PathBuf,
    },
}

impl Sources {
    /// Reads and checks everything.
    pub fn read(&self) -> Result<Loaded, LoadError> {
        let path = &self.config;
        let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
        let config = Config::parse(&text, &self.namespace, &self.cluster_uid)
            .and_then(|config| config.under(self.election))
            .map_err(|error| LoadError::Config { path: path.clone(), error })?;
        for repository in &config.repositories {
            RemoteUrl::parse(&repository.url, self.allow_local).map_err(|error| LoadError::Url {
                path: path.clone(),
                repository: repository.name.to_string(),
                error,
            })?;
        }
        let profiles = match &config.policies {
            Some(folder) => policies::read(Path::new(folder))?,
            None => profile::built_in(),
        };
        Ok(Loaded { config, profiles })
    }

    /// Folders in which a change means that something has to be read again.
    fn folders(&self, loaded: &Loaded) -> Vec<PathBuf> {
        let own = match self.config.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let policies = loaded.config.policies.iter().map(PathBuf::from);
        let policies = policies.flat_map(|folder| [folder.join(policies::PROVIDERS), folder]);
        std::iter::once(own).chain(policies).collect()
    }
}

fn unreadable(path: &Path, error: io::Error) -> LoadError {
    LoadError::Unreadable { path: path.to_owned(), error }
}

/// Follows the files of one version until there is another.
pub struct Changes {
    sources: Sources,
    current: Loaded,
    heard: Arc<Notify>,
    clock: Clock,
    metrics: Metrics,
    /// Lives as long as it shall tell; absent where the system cannot.
    _watcher: Option<RecommendedWatcher>,
}

impl Changes {
    /// Follows from the version that is in use.
    pub fn of(sources: Sources, current: Loaded, clock: Clock, metrics: Metrics) -> Self {
        let heard = Arc::new(Notify::new());
        let watcher = watch(&sources.folders(&current), &heard)
            .inspect_err(
                |error| tracing::warn!(%error, "files cannot be watched; they are read every minute"),
            )
            .ok();
        Self { sources, current, heard, clock, metrics, _watcher: watcher }
    }

    /// Waits for a good version that differs; tells of each faulty one once.
    pub async fn next(&mut self) -> Loaded {
        let mut fault = None;
        loop {
            self.stir().await;
            match self.sources.read() {
                Ok(loaded) if loaded == self.current => {
                    if fault.take().is_some() {
                        tracing::info!("configuration and policies are again what is in use");
                        self.metrics.config_read(true, self.clock.now());
                    }
                }
                Ok(loaded) => {
                    tracing::info!("configuration or policies changed; they take effect now");
                    if loaded.config.metrics != self.current.config.metrics {
                        tracing::warn!("server.metrics takes effect when the process starts anew");
                    }
                    self.metrics.config_read(true, self.clock.now());
                    return loaded;
                }
                Err(error) => {
                    let text = error.to_string();
                    if fault.as_ref() != Some(&text) {
                        tracing::error!(
                            error = text,
                            "the new configuration is faulty; the one before stays in use"
                        );
                        self.metrics.config_read(false, self.clock.now());
                        fault = Some(text);
                    }
                }
            }
        }
    }

    /// Waits until the files have changed and are left alone, or for a minute.
    async fn stir(&self) {
        let (clock, heard) = (self.clock, || self.heard.notified());
        if clock.before(later(clock.now(), SLOW), heard()).await.is_none() {
            return;
        }
        let limit = later(clock.now(), RESTLESS);
        while clock.now() < limit && clock.before(later(clock.now(), QUIET), heard()).await.is_some() {}
    }
}

fn watch(folders: &[PathBuf], heard: &Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let heard = Arc::clone(heard);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the files is an event too, and no change; a lost event is one.
        if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
            heard.notify_one();
        }
    })?;
    for folder in folders {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}
