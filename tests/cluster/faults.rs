//! The daemon dies, the API server dies, etcd forgets, and the way between them is bad.
//!
//! Whatever happens: the same end, one rollback commit per attempt that failed, nothing done twice, and the laws of
//! `audit.rs`.

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    Case, cases,
    kubelets::{Bad, Trouble},
    manifests::calico,
    plane::Part,
    proxy::{Asked, Fate, Proxy},
    scene::{CLAIMS, Scene},
    story::Story,
};

pub(crate) const CASES: &[Case] = cases![
    a_daemon_killed_around_its_writes_ends_the_same,
    a_daemon_killed_around_the_writes_of_a_failure_makes_one_rollback_commit,
    a_daemon_killed_around_its_pushes_makes_one_rollback_commit,
    an_api_server_and_an_etcd_that_are_killed_cost_time_only,
    a_bad_way_to_the_api_server_costs_time_only,
    a_history_that_etcd_has_forgotten_is_listed_anew,
];

/// Versions that crash.
const CRASHES: Bad = Bad::everywhere(Trouble::Crashes, ":v3[.]28[.]");

/// Points of a story that are tried without `TRUNKLINE_ALL`: so many, evenly spread.
const BUDGET: usize = 8;

/// A story whose daemon asks through a proxy.
struct Way {
    story: Story,
    proxy: Proxy,
    /// How many versions were pushed.
    pushed: usize,
    /// The version that runs.
    runs: String,
}

/// Around which of the writes since the push the daemon is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// Before the API server gets it.
    Before(usize),
    /// When it is done, before the daemon gets the answer.
    After(usize),
}

impl Way {
    async fn begin(programs: PathBuf, nodes: usize) -> Self {
        let mut story = Story::without_daemon(&programs, nodes, &[CRASHES]).await;
        let proxy = Proxy::start(&story.scene.plane).await;
        story.kubeconfig = proxy.kubeconfig();
        story.quick();
        story.repository().commit("main", &[("calico.yaml", &manifest("v3.27.2"))]);
        story.start();
        story.reads().await;
        story.scene.until_phase("calico", "Completed", 60).await;
        Self { story, proxy, pushed: 0, runs: "v3.27.2".to_owned() }
    }

    /// Counts the writes of one rollout, kills the daemon around one of them, and starts another one. Says whether
    /// there were so many writes.
    async fn killed(&mut self, kill: Kill, bad: bool) -> bool {
        let fired = Arc::new(AtomicUsize::new(0));
        let pid = self.story.daemon.as_ref().unwrap().pid();
        let told = Arc::clone(&fired);
        let mut writes = 0;
        self.proxy.rule(move |asked| {
            if !asked.writes() || told.load(Ordering::SeqCst) > 0 {
                return Fate::Pass;
            }
            let number = writes;
            writes += 1;
            let die = {
                let told = Arc::clone(&told);
                move || {
                    told.fetch_add(1, Ordering::SeqCst);
                    end(pid);
                }
            };
            match kill {
                Kill::Before(at) if at == number => {
                    die();
                    Fate::Cut
                }
                Kill::After(at) if at == number => Fate::Then(Box::new(die)),
                Kill::Before(_) | Kill::After(_) => Fate::Pass,
            }
        });
        let ended = self.push(bad);
        let over = async || {
            let died = fired.load(Ordering::SeqCst) > 0;
            (died || self.is_at_rest(&ended).await).then_some(())
        };
        self.story.scene.until("it died or ended", 120, over).await;
        self.proxy.pass();
        let died = fired.load(Ordering::SeqCst) > 0;
        if died {
            self.story.daemon.take().unwrap().wait();
            self.story.start();
        }
        self.rests(&ended, &format!("{kill:?}")).await;
        died
    }

    /// Pushes the next version; what must hold in the end.
    fn push(&mut self, bad: bool) -> Ended {
        self.pushed += 1;
        let version = if bad { format!("v3.28.{}", self.pushed) } else { format!("v3.29.{}", self.pushed) };
        self.story.push(&manifest(&version));
        let commits = self.story.repository().log("main").len() + usize::from(bad);
        if !bad {
            self.runs.clone_from(&version);
        }
        Ended { version, phase: if bad { "Failed" } else { "Completed" }, commits }
    }

    async fn is_at_rest(&self, ended: &Ended) -> bool {
        let scene = &self.story.scene;
        let Some(status) = scene.status("calico").await else { return false };
        let nodes = scene.versions().await;
        status["phase"] == ended.phase
            && status["targetVersion"] == *ended.version
            && status["attempt"].get("outcome").is_some()
            && nodes.values().all(|version| *version == self.runs)
            && self.story.repository().log("main").len() == ended.commits
            && scene.strategy_is_back().await
    }

    async fn rests(&self, ended: &Ended, what: &str) {
        let rests = async || self.is_at_rest(ended).await.then_some(());
        self.story.scene.until(&format!("{what}: all is at rest"), 180, rests).await;
    }

    /// Tries points until one is past the last write; says how many there were.
    async fn around_every_write(&mut self, bad: bool) -> usize {
        let step = if std::env::var_os("TRUNKLINE_ALL").is_some() { 1 } else { self.step(bad).await };
        let mut tried = 0;
        for write in (0..).step_by(step) {
            let kill =
                if (write / step) % 2 == 0 || step == 1 { Kill::After(write) } else { Kill::Before(write) };
            if !self.killed(kill, bad).await || (step == 1 && !self.killed(Kill::Before(write), bad).await) {
                break;
            }
            tried += 1;
        }
        tried
    }

    /// So many writes from point to point that the budget is kept, by one rollout that nothing happens to.
    async fn step(&mut self, bad: bool) -> usize {
        let before = self.proxy.seen().len();
        let ended = self.push(bad);
        self.rests(&ended, "undisturbed").await;
        let writes = self.proxy.seen()[before..].iter().filter(|asked| asked.writes()).count();
        assert!(writes >= BUDGET, "only {writes} writes");
        writes.div_ceil(BUDGET)
    }
}

/// How a rollout must end.
struct Ended {
    version: String,
    phase: &'static str,
    commits: usize,
}

/// Kills a process.
fn end(pid: u32) {
    let killed = Command::new("kill").arg("-KILL").arg(pid.to_string()).status();
    assert!(killed.unwrap().success());
}

fn manifest(version: &str) -> String {
    calico(version).replace("observationMinutes: 1", "observationMinutes: 0")
}

async fn a_daemon_killed_around_its_writes_ends_the_same(programs: PathBuf) {
    let mut way = Way::begin(programs, 3).await;
    let tried = way.around_every_write(false).await;
    assert!(tried >= BUDGET - 1, "{tried} points");
    let facts = way.story.audited(3);
    // Every rollout deletes each of three pods once.
    assert_eq!(facts.deleted.len(), 3 * way.pushed);
    way.story.end().await;
}

async fn a_daemon_killed_around_the_writes_of_a_failure_makes_one_rollback_commit(programs: PathBuf) {
    let mut way = Way::begin(programs, 3).await;
    let tried = way.around_every_write(true).await;
    assert!(tried >= BUDGET - 1, "{tried} points");
    way.story.audited(3);
    way.story.end().await;
}

async fn a_daemon_killed_around_its_pushes_makes_one_rollback_commit(programs: PathBuf) {
    let mut way = Way::begin(programs, 3).await;
    for hook in ["pre-receive", "post-receive"] {
        let pid = way.story.daemon.as_ref().unwrap().pid();
        way.story.git.at_next_push_to("main", hook, &format!("kill -KILL {pid}"));
        let ended = way.push(true);
        way.story.daemon.take().unwrap().wait();
        way.story.start();
        way.rests(&ended, hook).await;
    }
    way.story.audited(3);
    way.story.end().await;
}

async fn an_api_server_and_an_etcd_that_are_killed_cost_time_only(programs: PathBuf) {
    let mut story = Story::begin(&programs, 6, &[], &[("calico.yaml", &manifest("v3.27.2"))]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&manifest("v3.29.0").replace("maxParallel: 3", "maxParallel: 1"));
    for (part, done) in [(Part::ApiServer, 1), (Part::Etcd, 3)] {
        let far = async || (story.scene.running("v3.29.0").await >= done).then_some(());
        story.scene.until("some nodes are done", 120, far).await;
        story.scene.plane.kill(part);
        tokio::time::sleep(Duration::from_secs(3)).await;
        story.scene.plane.begin(part);
        assert!(story.scene.plane.is_ready().await);
    }
    let status = story.scene.until_phase("calico", "Completed", 240).await;
    assert_eq!((status["upgradedNodes"].as_i64(), story.scene.running("v3.29.0").await), (Some(6), 6));
    assert_eq!(story.audited(1).deleted.len(), 6);
    story.end().await;
}

/// Numbers that look random and are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn fate(&mut self, asked: &Asked) -> Fate {
        if asked.watches() {
            return Fate::CutAfter(Duration::from_millis(500 + 500 * self.below(6)));
        }
        let writes = asked.method != "GET";
        match self.below(20) {
            0 => Fate::Cut,
            1 => Fate::LoseReply,
            2 => Fate::Delay(Duration::from_millis(300)),
            3 => Fate::Refuse([429, 500, 504][usize::try_from(self.below(3)).unwrap()]),
            4 => Fate::Refuse(if writes { 409 } else { 410 }),
            _ => Fate::Pass,
        }
    }
}

async fn a_bad_way_to_the_api_server_costs_time_only(programs: PathBuf) {
    let mut way = Way::begin(programs, 6).await;
    for (seed, bad) in [(1, false), (2, true)] {
        let mut chance = Seeded(seed);
        way.proxy.rule(move |asked| chance.fate(asked));
        let ended = way.push(bad);
        way.rests(&ended, &format!("seed {seed}")).await;
        way.proxy.pass();
    }
    way.story.audited(3);
    way.story.end().await;
}

async fn a_history_that_etcd_has_forgotten_is_listed_anew(programs: PathBuf) {
    let mut way = Way::begin(programs, 4).await;
    let ended = way.push(false);
    way.story.scene.until_phase("calico", "Canary", 60).await;
    // Watches end, and what happened meanwhile cannot be had any more.
    way.proxy.rule(|asked| if asked.watches() { Fate::Cut } else { Fate::Pass });
    way.story.scene.plane.kill(Part::ApiServer);
    way.story.scene.plane.begin(Part::ApiServer);
    assert!(way.story.scene.plane.is_ready().await);
    let version = newest(&way.story.scene).await;
    way.story.scene.plane.compact(&version);
    let before = way.proxy.seen().len();
    way.proxy.pass();
    way.rests(&ended, "after the compaction").await;
    let lists = way.proxy.seen()[before..].iter().filter(|asked| asked.path.contains("limit=")).count();
    assert!(lists > 0, "nothing was listed anew");
    way.story.audited(3);
    way.story.end().await;
}

async fn newest(scene: &Scene) -> String {
    let list = scene.until("our kinds are served again", 30, async || scene.get(CLAIMS).await).await;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}
