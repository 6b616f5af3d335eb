//! A whole small world on one machine: embedded cluster, bare remote, and the shipped engine between them.
//!
//! The demo and the tests of the commands use it. Assumptions: a current-thread runtime with a paused clock. Git runs on
//! its thread, so that equal seeds and pushes give equal times, orders and commits.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    api::EmbeddedCluster,
    model::{
        Model,
        store::{Kind, ObjRef},
    },
};
use crate::{
    api::names::RepoName,
    clock::Clock,
    config::{Config, FirstContact, LeaderElection, Repository, ServeAt},
    dice::Dice,
    engine::{Engine, Ports, Threads},
    git::{Git2Remote, GitError, GitOptions, Remote, bare},
    profile,
    world::git::Signature,
};

/// Cluster name of a lab.
pub const CLUSTER: &str = "demo";
/// Folder of the manifests in its repository.
pub const FOLDER: &str = "clusters/demo";
/// Tracked branch.
pub const BRANCH: &str = "main";
/// Namespace of the ledger.
pub const NAMESPACE: &str = "kube-system";

/// The world.
#[derive(Debug)]
pub struct Lab {
    /// The cluster.
    pub cluster: EmbeddedCluster,
    /// Its time.
    pub clock: Clock,
    /// What the engine is told.
    pub config: Config,
    dir: PathBuf,
}

impl Lab {
    /// Makes the bare remote `dir/remote.git` and serves the model.
    pub fn new(dir: &Path, model: Model, clock: Clock) -> Result<Self, GitError> {
        let remote = dir.join("remote.git");
        if !remote.exists() {
            bare::create(&remote, BRANCH)?;
        }
        let cluster = EmbeddedCluster::new(model, clock);
        let kube_system = ObjRef::cluster(Kind::Namespace, "kube-system");
        let uid = cluster.model(|model| model.get(&kube_system).map(|found| found.uid.to_string()));
        let config = Config {
            cluster: CLUSTER.to_owned(),
            namespace: NAMESPACE.to_owned(),
            repositories: vec![repository(&remote)],
            revert_window: Duration::from_secs(72 * 3600),
            leader_election: LeaderElection::OFF,
            cluster_uid: uid.unwrap_or_default(),
            metrics: ServeAt::Nowhere,
            policies: None,
        };
        Ok(Self { cluster, clock, config, dir: dir.to_owned() })
    }

    /// Path of the bare remote.
    pub fn remote(&self) -> PathBuf {
        self.dir.join("remote.git")
    }

    /// The shipped engine over this cluster, the clone `dir/clone` and this remote, as a new process would start it.
    pub fn engine(&self, seed: u64) -> Result<Engine, GitError> {
        let mut remotes: BTreeMap<RepoName, Box<dyn Remote>> = BTreeMap::new();
        for repository in &self.config.repositories {
            let clone = self.dir.join("clone").join(repository.name.as_str());
            remotes.insert(repository.name.clone(), Box::new(open(&repository.url, &clone)?));
        }
        let ports = Ports {
            kube: self.cluster.client(),
            remotes,
            threads: Threads::Caller,
            clock: self.clock,
            dice: Dice::new(seed),
            identity: CLUSTER.to_owned(),
        };
        Ok(Engine::new(self.config.clone(), profile::built_in(), ports))
    }

    /// Somebody who pushes to the tracked branch.
    pub fn author(&self) -> Result<bare::Author, GitError> {
        let remote = open(&self.remote().to_string_lossy(), &self.dir.join("author"))?;
        let by = Signature { name: "operator".to_owned(), email: "operator@example.com".to_owned() };
        Ok(bare::Author::new(remote, &self.remote(), BRANCH, by))
    }
}

fn repository(remote: &Path) -> Repository {
    Repository {
        name: RepoName::new("demo"),
        url: remote.to_string_lossy().into_owned(),
        branch: BRANCH.to_owned(),
        paths: vec![FOLDER.to_owned()],
        poll: Duration::from_secs(5),
        credentials: None,
        status_branch: true,
        rollback_commit: true,
        by: Signature { name: "trunkline".to_owned(), email: "trunkline@example.com".to_owned() },
        subject_prefix: String::new(),
        first_contact: FirstContact::Hold,
        allow_namespaces: vec!["*".to_owned()],
    }
}

fn open(url: &str, clone_dir: &Path) -> Result<Git2Remote, GitError> {
    Git2Remote::open(GitOptions {
        url: url.to_owned(),
        clone_dir: clone_dir.to_owned(),
        credentials: None,
        allow_local: true,
        connect_timeout: Duration::from_secs(15),
        read_timeout: Duration::from_secs(60),
    })
}
