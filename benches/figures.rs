//! The figures that the design sets goals for, side by side: `cargo bench --bench figures`, or
//! `cargo bench --bench figures -- worlds decision` for some of them.
//!
//! Nothing here fails on a slow machine; each line says what was measured and what is wanted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a bench reads the clock and stops at the first fault"
)]
#![allow(clippy::disallowed_macros, reason = "figures go to standard output as they come")]

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tempfile::TempDir;
use trunkline::{
    api::{CniUpgradeStatus, cni_upgrade::CniPhase},
    clock::{Clock, later},
    git::{Git2Remote, GitOptions, Pushed, Remote, TrackedQuery, bare},
    observe, profile,
    rollout::{Case, Now, decide},
    sim::{
        core_run::{
            core_run,
            workload::{Trouble, Workload},
        },
        lab::{FOLDER, Lab, NAMESPACE},
        model::{
            body::Body,
            cluster::{AgentKind, ClusterSpec},
            store::{Kind, ObjRef},
        },
    },
    world::{
        Target, World,
        git::{Change, NewCommit, Signature},
    },
};

/// Nodes of the large cluster.
const NODES: usize = 5000;
/// Files of the small and the large repository.
const FILES: [usize; 2] = [100, 10_000];
/// Times that something short is measured.
const TIMES: usize = 101;

const MANIFEST: &str = "\
apiVersion: cni.example.com/v1
kind: CNIUpgrade
metadata:
  name: calico
spec:
  targetVersion: v3.28.0
  canary:
    percentage: 1
    observationMinutes: 1
    healthThreshold: 0.95
  maxParallel: 50
  autoRollback: true
";

fn main() {
    const ALL: [(&str, fn()); 5] = [
        ("binary", binary),
        ("first-action", first_action),
        ("status-commits", status_commits),
        ("worlds", worlds),
        ("decision", decision),
    ];
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for (_, figure) in ALL.iter().filter(|(name, _)| named.is_empty() || named.iter().any(|n| n == name)) {
        figure();
    }
}

fn line(what: &str, found: impl Display, goal: &str) {
    println!("{what:<70} {found:>12}   goal {goal}");
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

/// Median of `TIMES` measurements.
fn median(mut measure: impl FnMut(usize) -> Duration) -> Duration {
    let mut all: Vec<Duration> = (0..TIMES).map(&mut measure).collect();
    all.sort_unstable();
    all.get(TIMES / 2).copied().unwrap()
}

fn binary() {
    let bytes = std::fs::metadata(env!("CARGO_BIN_EXE_trunkline")).unwrap().len();
    line(
        "size of the release binary",
        format!("{:.1} MiB", f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1_048_576.0),
        "none",
    );
}

fn first_action() {
    let dir = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["demo", "--speed", "max", "--output", "json", "--dir"])
        .arg(dir.path().join("demo"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let acting = lines.map_while(Result::ok).find(|line| line.contains("\"event\":\"node\""));
    let took = begin.elapsed();
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert!(acting.is_some(), "the demo acted on no node");
    line("demo, from start to the first node action", milliseconds(took), "<= 1000 ms");
}

fn status_commits() {
    for files in FILES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("remote.git");
        bare::create(&path, "main").unwrap();
        let mut remote = open(&dir, &path);
        let contents = (0..files).map(|n| (format!("{}/{n}.yaml", n / 100), text(&format!("a: {n}\n"))));
        let mut tip = commit(&mut remote, "main", None, contents.collect());
        let query = TrackedQuery { branch: "main".into(), paths: vec![FOLDER.into()], since: None };
        remote.tracked(&query).unwrap();
        tip = commit(&mut remote, "trunkline/status/demo", None, BTreeMap::from([readme(tip.as_str())]));
        let took = median(|n| {
            let status = ("CNIUpgrade/calico.yaml".to_owned(), text(&format!("phase: {n}\n")));
            let changes = BTreeMap::from([readme(&n.to_string()), status]);
            let begin = Instant::now();
            tip = commit(&mut remote, "trunkline/status/demo", Some(tip.clone()), changes);
            remote.status("trunkline/status/demo").unwrap();
            begin.elapsed()
        });
        line(
            &format!("status commit into a repository of {files} files"),
            milliseconds(took),
            "<= 10 ms, flat",
        );
    }
}

fn open(dir: &TempDir, path: &Path) -> Git2Remote {
    Git2Remote::open(GitOptions {
        url: path.to_str().unwrap().to_owned(),
        clone_dir: dir.path().join("clone"),
        credentials: None,
        allow_local: true,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(20),
    })
    .unwrap()
}

fn text(text: &str) -> Change {
    Change::Write(Arc::from(text.as_bytes()))
}

fn readme(line: &str) -> (String, Change) {
    ("README.md".to_owned(), text(&format!("# Status\n\n{line}\n")))
}

fn commit(
    remote: &mut Git2Remote,
    branch: &str,
    parent: Option<trunkline::api::names::Oid>,
    changes: BTreeMap<String, Change>,
) -> trunkline::api::names::Oid {
    let by = Signature { name: "trunkline".to_owned(), email: "trunkline@example.com".to_owned() };
    let at: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
    let commit = NewCommit {
        branch: branch.into(),
        parent,
        again: false,
        changes,
        message: "Status\n".into(),
        by,
        at,
    };
    match remote.push(&commit).unwrap() {
        Pushed::Done(oid) => oid,
        other => panic!("{other:?}"),
    }
}

fn worlds() {
    let seeded = |seed| Workload::of(seed, None);
    // One attempt on ten nodes in which nothing goes wrong and nobody interferes.
    let plain = |seed| Workload {
        deeds: Vec::new(),
        faults: Vec::new(),
        trouble: Trouble::default(),
        ..Workload::of(seed, Some(10))
    };
    per_second("tier 1 worlds per second on one core, seeded faults", ">= 200", seeded);
    per_second("the same with ten nodes and nothing that goes wrong", "none", plain);
}

fn per_second(what: &str, goal: &str, workload: impl Fn(u64) -> Workload) {
    let begin = Instant::now();
    let (mut count, mut passes) = (0_u32, 0);
    while begin.elapsed() < Duration::from_secs(5) {
        count += 1;
        let seed = u64::from(count);
        passes += core_run(seed, &workload(seed)).unwrap().decisions;
    }
    let speed = f64::from(count) / begin.elapsed().as_secs_f64();
    line(&format!("{what} ({} passes each)", passes / u64::from(count)), format!("{speed:.0}"), goal);
}

fn decision() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (world, lab) = runtime.block_on(in_the_middle(dir.path()));
    let key = AgentKind::Calico.key();
    let target = Target::Agent(key);
    let profiles = profile::built_in();
    let case = Case { target: &target, world: &world, profiles: &profiles, config: &lab.config };
    // The pods of a world that was listed just now are stable after a while.
    let at = later(lab.clock.now(), Duration::from_secs(60));
    let took = median(|_| {
        let begin = Instant::now();
        let _ = std::hint::black_box(decide(&case, Now { at, epoch: 1 }));
        begin.elapsed()
    });
    line(
        &format!("one decision over {NODES} nodes in the middle of a rollout"),
        milliseconds(took),
        "<= 2 ms",
    );
}

/// A large cluster of which a hundred nodes have been upgraded, as a client lists it.
async fn in_the_middle(dir: &Path) -> (World, Lab) {
    let model = ClusterSpec::new(1, NODES, "2026-03-01T10:00:00Z".parse().unwrap()).build();
    let clock = Clock::embedded(model.now());
    let lab = Lab::new(dir, model, clock).unwrap();
    let moving = lab.cluster.clone();
    tokio::spawn(async move { moving.run().await });
    let engine = tokio::spawn(lab.engine(1).unwrap().run(std::future::pending()));
    let pass = async |seconds| clock.sleep_until(later(clock.now(), Duration::from_secs(seconds))).await;
    pass(30).await;
    let files = BTreeMap::from([(format!("{FOLDER}/calico.yaml"), Some(MANIFEST.to_owned()))]);
    lab.author().unwrap().commit(&files, "Upgrade Calico\n", clock.now()).unwrap();
    for _ in 0..3600 {
        pass(1).await;
        let status = status(&lab);
        if status.is_some_and(|status| status.phase == CniPhase::RollingOut && status.upgraded_nodes >= 100) {
            break;
        }
    }
    engine.abort();
    let world = observe::snapshot(&lab.cluster.client(), NAMESPACE, clock.now()).await.unwrap();
    assert!(world.nodes.len() == NODES && world.pods.len() >= NODES - 50);
    (world, lab)
}

fn status(lab: &Lab) -> Option<CniUpgradeStatus> {
    let at = ObjRef::cluster(Kind::CniUpgrade, "calico");
    let stored = lab.cluster.model(|model| model.get(&at).cloned())?;
    let Body::Plain(plain) = &stored.body else { panic!("{at} is typed") };
    serde_json::from_value(plain.status.as_deref()?.clone()).ok()
}
