//! Whole stories: a commit, the cluster, and what Git says afterwards.

use std::path::PathBuf;

use super::{
    Case,
    daemon::{Daemon, Start},
    kubelets::{Bad, Trouble},
    manifests::{EXAMPLE, calico},
    plane::User,
    running,
    scene::Scene,
    server::GitServer,
};

pub(crate) const CASES: &[Case] = &[
    ("stories::two_of_ten_nodes_are_tried_and_then_all_follow", |programs| running(upgrade(programs))),
    ("stories::a_bad_canary_goes_back_and_git_says_why", |programs| running(bad_canary(programs))),
];

/// What a story works with: ten nodes, a repository over HTTP, one daemon between them.
struct Story {
    scene: Scene,
    git: GitServer,
    daemon: Daemon,
}

impl Story {
    async fn new(programs: PathBuf, nodes: usize, bad: &[Bad]) -> Self {
        let scene = Scene::new(&programs, nodes, bad).await;
        let git = GitServer::start();
        git.repository().commit("main", &[("README.md", "# network\n")]);
        let plane = &scene.plane;
        let start = Start {
            name: "daemon".to_owned(),
            kubeconfig: plane.kubeconfig(User::Trunkline, plane.port()),
            config: config(&git),
            more: Vec::new(),
        };
        let daemon = Daemon::start(plane.dir(), &start);
        let story = Self { scene, git, daemon };
        story
            .scene
            .until("the status branch is there", 30, async || story.git.repository().tip(STATUS))
            .await;
        story
    }
}

const STATUS: &str = "trunkline/status/prod";

pub(crate) fn config(git: &GitServer) -> String {
    format!(
        "cluster: prod\nrepositories:\n- name: platform\n  url: {}\n  poll: 1s\n  credentials: {}\n",
        git.url(),
        git.credentials().display()
    )
}

async fn upgrade(programs: PathBuf) {
    let story = Story::new(programs, 10, &[]).await;
    story.git.repository().commit(
        "main",
        &[("calico.yaml", &EXAMPLE.replace("observationMinutes: 30", "observationMinutes: 0"))],
    );
    let status = story.scene.until_phase("calico-upgrade-v3.28", "Completed", 180).await;
    assert_eq!(status["upgradedNodes"], 10, "{status}");
    assert_eq!(story.scene.running("v3.28.0").await, 10);
    assert!(!story.daemon.log().contains("panicked"));
}

async fn bad_canary(programs: PathBuf) {
    let bad = Bad { trouble: Trouble::Crashes, image: ":v3[.]28[.]0$", nodes: "." };
    let story = Story::new(programs, 10, &[bad]).await;
    story.git.repository().commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
    story.scene.until_phase("calico", "Completed", 60).await;
    story.git.repository().commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let status = story.scene.until_phase("calico", "Failed", 180).await;
    assert_eq!(story.scene.running("v3.27.2").await, 10, "{status}");
    let repository = story.git.repository();
    let commits = async || Some(repository.log("main")).filter(|commits| commits.len() == 4);
    story.scene.until("the rollback is committed", 30, commits).await;
    let message = repository.message(&repository.tip("main").unwrap());
    assert!(message.contains("CanaryUnhealthy"), "{message}");
}
