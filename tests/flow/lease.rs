//! Several engines on one cluster and one repository: one acts, and another goes on where it ends.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use http::{HeaderValue, Method, Request, header::USER_AGENT};
use jiff::{SignedDuration, Timestamp};
use kube::client::{Body, Client};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tower::{BoxError, ServiceExt, service_fn};
use trunkline::{
    api::cni_upgrade::CniPhase,
    clock::Clock,
    git::{GitError, Pushed, Remote, TrackedQuery},
    lease::Role,
    sim::api::{ApiService, route::Verb},
    world::git::{NewCommit, StatusBranch, Tracked},
};

use super::{
    look::{STATUS, attempt},
    manifests::calico,
    stage::Stage,
};

/// The longest time without a leader: lease duration and retry period, and the requests themselves.
const FAILOVER: u64 = 15 + 2 + 1;

/// Writes in the order in which a replica sent them, those to its lease apart.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<(Timestamp, String)>>>);

impl Journal {
    fn note(&self, clock: Clock, what: String) {
        self.0.lock().unwrap().push((clock.now(), what));
    }

    fn all(&self) -> Vec<(Timestamp, String)> {
        self.0.lock().unwrap().clone()
    }
}

/// A way to the remote that notes what is pushed.
struct Noted {
    remote: Box<dyn Remote>,
    journal: Journal,
    clock: Clock,
}

impl Remote for Noted {
    fn tracked(&mut self, query: &TrackedQuery) -> Result<Tracked, GitError> {
        self.remote.tracked(query)
    }
    fn status(&mut self, branch: &str) -> Result<StatusBranch, GitError> {
        self.remote.status(branch)
    }
    fn push(&mut self, commit: &NewCommit) -> Result<Pushed, GitError> {
        self.journal.note(self.clock, format!("push {}", commit.branch));
        self.remote.push(commit)
    }
}

/// One engine among several.
struct Replica {
    name: &'static str,
    role: watch::Receiver<Role>,
    stop: Option<oneshot::Sender<()>>,
    run: JoinHandle<()>,
    journal: Journal,
    /// While it is true, requests are on their way and do not arrive.
    held: watch::Sender<bool>,
}

impl Replica {
    fn start(stage: &Stage, name: &'static str) -> Self {
        let (journal, (held, line)) = (Journal::default(), watch::channel(false));
        let kube = client(stage.cluster.service(), name, (journal.clone(), stage.clock), line);
        let (noted, clock) = (journal.clone(), stage.clock);
        let engine = stage.replica(name, kube, |remote| Box::new(Noted { remote, journal: noted, clock }));
        let (stop, stopped) = oneshot::channel();
        let role = engine.role();
        let run = tokio::spawn(async move {
            let stopped = async {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            engine.run(stopped).await.unwrap();
        });
        Self { name, role, stop: Some(stop), run, journal, held }
    }

    fn leads(&self) -> Option<i64> {
        if let Role::Leader { epoch } = *self.role.borrow() { Some(epoch) } else { None }
    }

    /// How many writes arrived.
    fn arrived(&self, stage: &Stage) -> usize {
        let log = stage.cluster.faults().log();
        let ours = log.iter().filter(|line| line.asked.agent == self.name && line.asked.writes());
        ours.filter(|line| !line.asked.uri.contains("/leases")).count()
    }
}

/// A client whose requests carry the replica's name; once sent, they arrive even if nobody waits for the answer.
fn client(
    service: ApiService,
    name: &'static str,
    (journal, clock): (Journal, Clock),
    line: watch::Receiver<bool>,
) -> Client {
    let service = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(name));
        let uri = request.uri().to_string();
        if *request.method() != Method::GET && !uri.contains("/leases") {
            journal.note(clock, format!("{} {uri}", request.method()));
        }
        let (service, mut line) = (service.clone(), line.clone());
        let sent = tokio::spawn(async move {
            line.wait_for(|held| !held).await?;
            Ok::<_, BoxError>(service.oneshot(request).await?)
        });
        async move { sent.await? }
    });
    Client::new(service, "default")
}

fn three(stage: &Stage) -> Vec<Replica> {
    ["a", "b", "c"].map(|name| Replica::start(stage, name)).into()
}

/// The leader's place, once there is one; never two.
async fn leader(stage: &Stage, replicas: &[Replica], seconds: u64) -> usize {
    for _ in 0..=seconds * 10 {
        let leaders: Vec<usize> =
            (0..replicas.len()).filter(|place| replicas[*place].leads().is_some()).collect();
        assert!(leaders.len() < 2, "{leaders:?}");
        if let Some(place) = leaders.first() {
            return *place;
        }
        stage.pass_tenths(1).await;
    }
    panic!("no leader within {seconds} s");
}

fn assert_each_pod_was_deleted_once(stage: &Stage, nodes: usize) {
    let log = stage.cluster.faults().log();
    let done = log.iter().filter(|line| line.asked.is(Verb::Delete, "Pod") && line.code == Some(200));
    let deleted: Vec<&String> = done.map(|line| &line.asked.uri).collect();
    let once: BTreeSet<&&String> = deleted.iter().collect();
    assert_eq!((deleted.len(), once.len()), (nodes, nodes), "{deleted:#?}");
}

#[tokio::test(start_paused = true)]
async fn one_of_three_acts_and_the_others_know_the_repository_and_write_nothing() {
    let stage = Stage::new(5);
    let replicas = three(&stage);
    let leads = leader(&stage, &replicas, 20).await;
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let status = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!(status.epoch, Some(1));
    assert_each_pod_was_deleted_once(&stage, 5);
    for (place, replica) in replicas.iter().enumerate() {
        if place == leads {
            assert_eq!(replica.leads(), Some(1));
        } else {
            let holder = Some(replicas[leads].name.to_owned());
            assert_eq!(*replica.role.borrow(), Role::Standby { holder });
            assert!(replica.journal.all().is_empty(), "{:#?}", replica.journal.all());
            assert!(stage.clone_dir().join(replica.name).join("refs").exists(), "it has no clone");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_a_leader_is_killed_another_goes_on_in_time_and_nothing_is_done_twice() {
    for after in [0, 3, 20, 70] {
        let stage = Stage::new(5);
        let mut replicas = three(&stage);
        leader(&stage, &replicas, 20).await;
        stage.pass(60).await;
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
        let begun = stage.until("calico", 5, |status| status.attempt.is_some()).await;
        stage.pass(after).await;
        let first = leader(&stage, &replicas, 0).await;
        stage.kill(replicas.remove(first).run).await;
        let next = leader(&stage, &replicas, FAILOVER).await;
        assert_eq!(replicas[next].leads(), Some(2));
        let status = stage.until_phase("calico", CniPhase::Completed, 60).await;
        assert_eq!((attempt(&status), status.epoch), (attempt(&begun), Some(2)));
        assert_each_pod_was_deleted_once(&stage, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_two_leaders_work_on_one_after_the_other_has_one_commit() {
    for after in [0, 5, 31] {
        let stage = Stage::new(5);
        stage.let_canaries_crash(1, "v3.28.0");
        let mut replicas = three(&stage);
        leader(&stage, &replicas, 20).await;
        stage.pass(60).await;
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.27.2"))]);
        stage.until_phase("calico", CniPhase::Completed, 5).await;
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
        stage.until("calico", 60, |status| status.rollback.is_some()).await;
        stage.pass(after).await;
        let first = leader(&stage, &replicas, 0).await;
        stage.kill(replicas.remove(first).run).await;
        stage.until_phase("calico", CniPhase::Failed, 60).await;
        stage.pass(300).await;
        assert_eq!(stage.running("v3.27.2"), 5);
        assert_eq!(stage.remote.log("main").len(), 3);
        assert_eq!(stage.remote.file("main", "calico.yaml").unwrap().1, calico("v3.27.2"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_sent_before_its_lease_ended_does_no_harm_when_it_arrives_late() {
    let mut late = 0;
    for after in [0, 1, 2, 4, 9, 140] {
        let stage = Stage::new(5);
        let replicas = three(&stage);
        leader(&stage, &replicas, 20).await;
        stage.pass(60).await;
        stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
        let begun = stage.until("calico", 5, |status| status.attempt.is_some()).await;
        stage.pass_tenths(after * 5).await;
        let old = &replicas[leader(&stage, &replicas, 0).await];
        old.held.send_replace(true);
        let (held_at, before) = (stage.clock.now(), old.arrived(&stage));
        // Another leads and goes on, while the old one's requests hang.
        stage.pass(FAILOVER + 10).await;
        assert!(old.leads().is_none() && leader(&stage, &replicas, 0).await < 3);
        old.held.send_replace(false);
        stage.pass(60).await;
        late += old.arrived(&stage) - before;
        let end = held_at + SignedDuration::from_secs(15);
        let begun_after = old.journal.all().into_iter().find(|(at, _)| *at > end);
        assert!(begun_after.is_none(), "held at {held_at}: {begun_after:?}");
        let status = stage.until_phase("calico", CniPhase::Completed, 60).await;
        assert_eq!((attempt(&status), status.epoch), (attempt(&begun), Some(2)));
        assert_each_pod_was_deleted_once(&stage, 5);
    }
    assert!(late > 0, "no write arrived late, so that nothing was tried");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_well_gives_the_lease_back_and_the_next_one_leads_at_once() {
    let stage = Stage::new(5);
    let mut replicas = three(&stage);
    leader(&stage, &replicas, 20).await;
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    stage.until("calico", 5, |status| status.upgraded_nodes == 1).await;
    for epoch in [2, 3] {
        let place = leader(&stage, &replicas, 0).await;
        let mut old = replicas.remove(place);
        old.stop.take().unwrap().send(()).unwrap();
        old.run.await.unwrap();
        let next = leader(&stage, &replicas, 3).await;
        assert_eq!(replicas[next].leads(), Some(epoch));
    }
    let status = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!(status.epoch, Some(3));
    assert_each_pod_was_deleted_once(&stage, 5);
    assert!(stage.remote.log(STATUS).len() > 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_people_delete_or_hold_costs_time_and_nothing_else() {
    let stage = Stage::new(3);
    let replicas = three(&stage);
    leader(&stage, &replicas, 20).await;
    stage.pass(60).await;
    stage.remote.commit("main", &[("calico.yaml", &calico("v3.28.0"))]);
    let leases = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        stage.cluster.client(),
        "trunkline-system",
    );
    let begun = stage.until("calico", 5, |status| status.attempt.is_some()).await;
    leases.delete("trunkline", &kube::api::DeleteParams::default()).await.unwrap();
    stage.pass(3).await;
    assert!(replicas.iter().all(|replica| replica.leads().is_none()), "somebody leads without a lease");
    leader(&stage, &replicas, FAILOVER + 2).await;
    let patch = serde_json::json!({ "spec": { "holderIdentity": "people", "leaseTransitions": 0 } });
    leases
        .patch("trunkline", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&patch))
        .await
        .unwrap();
    stage.pass(3).await;
    assert!(replicas.iter().all(|replica| replica.leads().is_none()), "somebody leads beside the holder");
    let next = leader(&stage, &replicas, FAILOVER).await;
    assert_eq!(replicas[next].leads(), Some(3), "an epoch was used again");
    let status = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((attempt(&status), status.epoch), (attempt(&begun), Some(3)));
    assert_each_pod_was_deleted_once(&stage, 3);
}
