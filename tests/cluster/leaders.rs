//! Three replicas: one acts, another goes on when it is gone, and nothing is done twice.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::{
    Case, cases,
    daemon::{Daemon, Start},
    kubelets::{Bad, Trouble},
    manifests::calico,
    story::{LEASE_SECONDS, Story},
};

pub(crate) const CASES: &[Case] = cases![
    of_three_replicas_one_acts_and_another_goes_on_when_it_is_killed,
    a_leader_that_was_stopped_past_its_lease_starts_nothing_when_it_goes_on,
    a_leader_that_ends_well_hands_over_at_once,
];

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/trunkline";

/// Three replicas over one cluster and one repository.
struct Replicas {
    story: Story,
    daemons: BTreeMap<String, Daemon>,
}

impl Replicas {
    async fn begin(programs: PathBuf, nodes: usize, bad: &[Bad]) -> Self {
        let story = Story::without_daemon(&programs, nodes, bad).await;
        story.repository().commit("main", &[("calico.yaml", &manifest("v3.27.2"))]);
        let mut replicas = Self { story, daemons: BTreeMap::new() };
        for name in ["first", "second", "third"] {
            replicas.start(name);
        }
        replicas.story.reads().await;
        replicas.story.scene.until_phase("calico", "Completed", 60).await;
        replicas
    }

    fn start(&mut self, name: &str) {
        let start = Start {
            name: name.to_owned(),
            kubeconfig: self.story.kubeconfig.clone(),
            config: self.story.config(),
            more: Vec::new(),
        };
        let daemon = Daemon::start(self.story.scene.plane.dir(), &start);
        self.daemons.insert(name.to_owned(), daemon);
    }

    /// Who leads, and how many have led.
    async fn leader(&self) -> Option<(String, i64)> {
        let lease = self.story.scene.get(LEASE).await?;
        let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
        let name = self.daemons.keys().find(|name| holder.starts_with(name.as_str()))?.clone();
        Some((name, lease["spec"]["leaseTransitions"].as_i64()?))
    }

    /// Waits until another one leads.
    async fn until_other_than(&self, old: &str, seconds: u64) -> (String, i64) {
        let other = async || self.leader().await.filter(|(name, _)| name != old);
        self.story.scene.until(&format!("another one than {old} leads"), seconds, other).await
    }

    async fn under_way(&self) {
        let far = async || (self.story.scene.running("v3.29.0").await >= 2).then_some(());
        self.story.scene.until("two nodes are done", 60, far).await;
    }

    async fn done(&self, nodes: usize) {
        self.story.scene.until_phase("calico", "Completed", 180).await;
        assert_eq!(self.story.scene.running("v3.29.0").await, nodes);
        self.story.until_strategy_is_back().await;
        let facts = self.story.audited(1);
        assert_eq!(facts.deleted.len(), nodes, "each pod once");
        for daemon in self.daemons.values() {
            assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
        }
    }
}

fn manifest(version: &str) -> String {
    calico(version)
        .replace("observationMinutes: 1", "observationMinutes: 0")
        .replace("maxParallel: 3", "maxParallel: 1")
}

async fn of_three_replicas_one_acts_and_another_goes_on_when_it_is_killed(programs: PathBuf) {
    let mut replicas = Replicas::begin(programs, 6, &[]).await;
    replicas.story.push(&manifest("v3.29.0"));
    replicas.under_way().await;
    let (old, epoch) = replicas.leader().await.unwrap();
    replicas.daemons.remove(&old).unwrap().kill();
    // The lease, a retry, and some seconds for a busy machine.
    let (new, next) = replicas.until_other_than(&old, LEASE_SECONDS + 1 + 5).await;
    assert!(next > epoch, "{new} leads with {next} after {epoch}");
    replicas.start(&old);
    replicas.done(6).await;
}

async fn a_leader_that_was_stopped_past_its_lease_starts_nothing_when_it_goes_on(programs: PathBuf) {
    let crashes = Bad::everywhere(Trouble::Crashes, ":v3[.]28[.]");
    let replicas = Replicas::begin(programs, 6, &[crashes]).await;
    replicas.story.push(&manifest("v3.29.0"));
    replicas.under_way().await;
    let (old, epoch) = replicas.leader().await.unwrap();
    replicas.daemons[&old].signal("STOP");
    replicas.until_other_than(&old, LEASE_SECONDS + 1 + 5).await;
    replicas.daemons[&old].signal("CONT");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, now) = replicas.leader().await.unwrap();
    assert!(now > epoch);
    replicas.done(6).await;
    let commits = replicas.story.repository().log("main").len();
    replicas.story.push(&manifest("v3.28.0"));
    replicas.story.until_commits(commits + 2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(replicas.story.repository().log("main").len(), commits + 2, "one rollback commit");
}

async fn a_leader_that_ends_well_hands_over_at_once(programs: PathBuf) {
    let mut replicas = Replicas::begin(programs, 4, &[]).await;
    let (old, _) = replicas.leader().await.unwrap();
    replicas.story.push(&manifest("v3.29.0"));
    replicas.under_way().await;
    let daemon = replicas.daemons.remove(&old).unwrap();
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    let released = async || {
        let lease = replicas.story.scene.get(LEASE).await?;
        (lease["spec"]["holderIdentity"].as_str().is_none_or(|holder| !holder.starts_with(&old)))
            .then_some(())
    };
    // It was given back before the process ended: nobody has to wait for it to expire.
    replicas.story.scene.until("the lease is free or taken", 1, released).await;
    replicas.until_other_than(&old, 10).await;
    replicas.done(4).await;
}
