//! A cluster, a repository and one daemon between them, and what both ends say.

use std::path::{Path, PathBuf};

use super::{
    audit::{self, Facts},
    bare::Bare,
    daemon::{Daemon, Start},
    kubelets::Bad,
    plane::User,
    scene::Scene,
    server::GitServer,
    ssh::SshServer,
};

/// The status branch.
pub(crate) const STATUS: &str = "trunkline/status/prod";

/// Seconds after which another replica takes the lease.
pub(crate) const LEASE_SECONDS: u64 = 4;

/// A configuration with one repository, looked at every second, and a short lease.
pub(crate) fn config(url: &str, credentials: &Path) -> String {
    let credentials = credentials.display();
    format!(
        "cluster: prod\nserver: {{ metrics: '127.0.0.1:0' }}\nleaderElection: {{ leaseDuration: {LEASE_SECONDS}s, \
         renewDeadline: 3s, retryPeriod: 1s }}\nrepositories:\n- name: platform\n  url: {url}\n  poll: 1s\n  \
         credentials: {credentials}\n"
    )
}

/// What a story works with.
pub(crate) struct Story {
    pub(crate) scene: Scene,
    pub(crate) git: GitServer,
    /// In front of the same repository, where the daemon reaches it by ssh.
    ssh: Option<SshServer>,
    /// Whether agents need no stable time.
    quick: bool,
    /// Where the daemon serves metrics.
    serve_at: String,
    /// The daemon, unless it is dead.
    pub(crate) daemon: Option<Daemon>,
    /// Text of the kubeconfig of the next daemon.
    pub(crate) kubeconfig: String,
}

impl Story {
    /// So many nodes on Calico v3.27.2, `files` as the first commit, and a daemon that has read it over HTTP
    /// and whose profile has the shortest times.
    pub(crate) async fn begin(programs: &Path, nodes: usize, bad: &[Bad], files: &[(&str, &str)]) -> Self {
        let mut story = Self::without_daemon(programs, nodes, bad).await;
        story.git.repository().commit("main", files);
        story.quick();
        story.start();
        story.reads().await;
        story
    }

    /// The same with nothing in the repository, and no daemon yet.
    pub(crate) async fn without_daemon(programs: &Path, nodes: usize, bad: &[Bad]) -> Self {
        let scene = Scene::new(programs, nodes, bad).await;
        let kubeconfig = scene.plane.kubeconfig(User::Trunkline, scene.plane.port());
        Self {
            scene,
            git: GitServer::start(),
            ssh: None,
            quick: false,
            serve_at: "127.0.0.1:0".to_owned(),
            daemon: None,
            kubeconfig,
        }
    }

    /// From the next start on an agent that is Ready counts at once, and one that crashes as well.
    pub(crate) fn quick(&mut self) {
        self.quick = true;
    }

    /// From the next start on the daemon reaches the repository by ssh.
    pub(crate) fn over_ssh(&mut self) {
        self.ssh = Some(SshServer::start());
    }

    /// From the next start on the built-in profiles count.
    #[allow(dead_code, reason = "the bench of figures needs it")]
    pub(crate) fn slow(&mut self) {
        self.quick = false;
    }

    /// Serves metrics and readiness there from the next start on.
    #[allow(dead_code, reason = "the bench of figures needs it")]
    pub(crate) fn serve_at(&mut self, address: String) {
        self.serve_at = address;
    }

    /// Starts the daemon, with the clone that the one before left.
    pub(crate) fn start(&mut self) {
        let start = Start {
            name: "daemon".to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            config: self.config(),
            more: Vec::new(),
        };
        self.daemon = Some(Daemon::start(self.scene.plane.dir(), &start));
    }

    /// Configuration of a daemon.
    pub(crate) fn config(&self) -> String {
        let (url, credentials): (String, PathBuf) = match &self.ssh {
            Some(ssh) => (ssh.url(self.git.repository().path()), ssh.credentials()),
            None => (self.git.url(), self.git.credentials()),
        };
        let quick = if self.quick {
            format!("policies: {}\n", quick_policies(self.scene.plane.dir()).display())
        } else {
            String::new()
        };
        config(&url, &credentials).replace("127.0.0.1:0", &self.serve_at) + &quick
    }

    /// Waits until the daemon has published that it read the repository.
    pub(crate) async fn reads(&self) {
        let read = async || self.git.repository().tip(STATUS);
        self.scene.until("the status branch is there", 60, read).await;
    }

    /// The repository.
    pub(crate) fn repository(&self) -> Bare {
        self.git.repository()
    }

    /// Pushes the manifest.
    pub(crate) fn push(&self, text: &str) -> String {
        self.repository().commit("main", &[("calico.yaml", text)])
    }

    /// A file of the tracked branch.
    pub(crate) fn text(&self, path: &str) -> String {
        self.repository().file("main", path).unwrap_or_default().1
    }

    /// A file of the status branch.
    pub(crate) fn told(&self, path: &str) -> String {
        self.repository().file(STATUS, path).unwrap_or_default().1
    }

    /// Waits until the tracked branch has so many commits.
    pub(crate) async fn until_commits(&self, count: usize) {
        let enough = async || (self.repository().log("main").len() == count).then_some(());
        self.scene.until(&format!("{count} commits on main"), 60, enough).await;
    }

    /// The message of the newest commit of the tracked branch.
    pub(crate) fn newest_message(&self) -> String {
        let repository = self.repository();
        repository.message(&repository.tip("main").unwrap())
    }

    /// Waits until the strategy is the owner's again.
    pub(crate) async fn until_strategy_is_back(&self) {
        let back = async || self.scene.strategy_is_back().await.then_some(());
        self.scene.until("the strategy is back", 60, back).await;
    }

    /// What the audit log shows, all laws checked.
    pub(crate) fn audited(&self, most_in_flight: usize) -> Facts {
        let entries = audit::entries(&self.scene.plane.audit_log());
        audit::check(&entries, most_in_flight).unwrap_or_else(|broken| panic!("{broken}"))
    }

    /// The daemon said nothing that it should not have.
    pub(crate) async fn end(mut self) {
        let daemon = self.daemon.take().expect("the daemon lives");
        // Before it runs, SIGTERM ends it as it ends any process.
        let runs = async || daemon.log().contains("\"repositories\":1").then_some(());
        self.scene.until("the daemon runs", 30, runs).await;
        daemon.signal("TERM");
        let log = daemon.log();
        let status = daemon.wait();
        assert!(status.success(), "{status}: {log}");
        assert!(!log.contains("panicked"), "{log}");
        assert!(!log.contains(super::server::TOKEN), "the log shows the token");
    }
}

/// A folder of policies whose only profile is that of Calico with the shortest times.
fn quick_policies(dir: &Path) -> PathBuf {
    let policies = dir.join("policies");
    std::fs::create_dir_all(policies.join("providers")).unwrap();
    let profile = CALICO
        .replace("stableSeconds: 10", "stableSeconds: 0")
        .replace("fastFailSeconds: 60", "fastFailSeconds: 1");
    assert_ne!(profile, CALICO);
    std::fs::write(policies.join("providers/calico.yaml"), profile).unwrap();
    policies
}

const CALICO: &str = include_str!("../../policies/providers/calico.yaml");
