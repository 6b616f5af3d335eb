//! A served embedded cluster with a repository and an engine, and the binary that reads it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use jiff::Timestamp;
use kube::{Api, api::ListParams};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use trunkline::{
    api::{CNIUpgrade, CniUpgradeStatus, status::Outcome},
    clock::{Clock, later},
    config::Repository,
    git::bare::{self, Author},
    sim::{
        api::ServedCluster,
        lab::{CLUSTER, FOLDER, Lab},
        model::{cluster::ClusterSpec, fault::Fault},
    },
    world::git::CommitInfo,
};

/// The manifest of the example repository.
pub(super) const EXAMPLE: &str = include_str!("../../examples/first-rollout/clusters/demo/calico.yaml");

/// Everything that a command line meets.
pub(super) struct Scene {
    pub(super) lab: Lab,
    author: Author,
    dir: TempDir,
    _served: ServedCluster,
    tasks: Vec<JoinHandle<()>>,
}

impl Scene {
    /// Ten nodes with Calico v3.27.2 on virtual time, an empty repository, and no engine yet.
    pub(super) fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let start: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
        let mut model = ClusterSpec::new(1, 10, start).build();
        for fault in faults {
            model.add_fault(fault);
        }
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::embedded(model.now());
        let lab = Lab::new(dir.path(), model, clock).unwrap();
        let served = lab.cluster.serve(0).unwrap();
        std::fs::write(dir.path().join("kubeconfig"), served.kubeconfig()).unwrap();
        let author = lab.author().unwrap();
        let moving = lab.cluster.clone();
        let tasks = vec![tokio::spawn(async move { moving.run().await })];
        Self { lab, author, dir, _served: served, tasks }
    }

    /// Starts the engine.
    pub(super) async fn start(&mut self) {
        let engine = self.lab.engine(1).unwrap();
        self.tasks.push(tokio::spawn(async move {
            engine.run(std::future::pending()).await.unwrap();
        }));
        self.wait(10).await;
    }

    /// Ends the engine, and starts one that is told of no repository.
    pub(super) async fn without_repositories(&mut self) {
        if let Some(engine) = self.tasks.pop() {
            engine.abort();
        }
        self.lab.config.repositories.clear();
        self.start().await;
        self.wait(60).await;
    }

    /// Pushes the manifest of the example, or what became of it.
    pub(super) fn push(&mut self, manifest: &str, message: &str) {
        let files = BTreeMap::from([(format!("{FOLDER}/calico.yaml"), Some(manifest.to_owned()))]);
        self.author.commit(&files, &format!("{message}\n"), self.lab.clock.now()).unwrap();
    }

    /// Lets virtual seconds pass.
    pub(super) async fn wait(&self, seconds: u64) {
        self.lab.clock.sleep_until(later(self.lab.clock.now(), Duration::from_secs(seconds))).await;
    }

    /// Waits until the status of the only object says so.
    pub(super) async fn until(&self, done: impl Fn(&CniUpgradeStatus) -> bool) {
        let api: Api<CNIUpgrade> = Api::all(self.lab.cluster.client());
        for _ in 0..4 * 3600 {
            let objects = api.list(&ListParams::default()).await.unwrap();
            if objects.items.iter().filter_map(|object| object.status.as_ref()).any(&done) {
                return;
            }
            self.wait(1).await;
        }
        panic!("not within four hours");
    }

    pub(super) async fn until_ended(&self, outcome: Outcome) {
        self.until(|status| status.attempt.as_ref().is_some_and(|attempt| attempt.outcome == Some(outcome)))
            .await;
        // Ledger and status branch follow.
        self.wait(60).await;
    }

    /// Writes a manifest to plan with.
    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs the binary in the folder of the scene, with its kubeconfig.
    pub(super) fn run(&self, args: &[&str]) -> Output {
        self.run_in(self.dir.path(), args)
    }

    /// Runs the binary in another folder.
    pub(super) fn run_in(&self, folder: &Path, args: &[&str]) -> Output {
        trunkline()
            .args(args)
            .current_dir(folder)
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .output()
            .unwrap()
    }

    /// A file of the status branch.
    pub(super) fn page(&self, name: &str) -> String {
        let branch = Repository::status_branch_name(CLUSTER);
        let bytes = bare::file(&self.lab.remote(), &branch, name).unwrap().unwrap();
        format!("$ git show {branch}:{name}\n{}", String::from_utf8(bytes).unwrap())
    }

    /// Subjects of the status branch, newest first.
    pub(super) fn subjects(&self) -> String {
        let branch = Repository::status_branch_name(CLUSTER);
        let log = bare::log(&self.lab.remote(), &branch, 100).unwrap();
        let subject = |commit: &CommitInfo| format!("{}\n", commit.message.lines().next().unwrap());
        format!("$ git log --format=%s {branch}\n{}", log.iter().map(subject).collect::<String>())
    }

    /// What the binary prints, and its exit code, as a person sees it.
    pub(super) fn shown(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        format!("$ trunkline {}\n{out}{err}exit {}\n", args.join(" "), output.status.code().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The binary without anything of this machine's user.
pub(super) fn trunkline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.env_clear().env("HOME", "/nonexistent");
    command
}

/// A manifest that declares this version under another name, as repositories do.
pub(super) fn declares(version: &str) -> String {
    EXAMPLE.replace("calico-upgrade-v3.28", "calico").replace("v3.28.0", version)
}
