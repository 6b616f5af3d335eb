//! The figures that need a real API server: `cargo bench --bench cluster`, or `-- rollouts wire memory manifests idle
//! start` for some of them. Ratios are of two things measured in one run on one control plane.
//!
//! Nothing here fails on a slow machine; each line says what was measured and what is wanted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a bench reads the clock and stops at the first fault"
)]
#![allow(clippy::disallowed_macros, reason = "figures go to standard output as they come")]
#![allow(dead_code, reason = "shared with the tests")]

#[path = "../tests/cluster/assets.rs"]
mod assets;
#[path = "../tests/cluster/audit.rs"]
mod audit;
#[path = "../tests/git/bare.rs"]
mod bare;
#[path = "../tests/cluster/daemon.rs"]
mod daemon;
#[path = "../tests/cluster/kubelets.rs"]
mod kubelets;
#[path = "../tests/cluster/plane.rs"]
mod plane;
#[path = "../tests/cluster/proxy.rs"]
mod proxy;
#[path = "../tests/cluster/scene.rs"]
mod scene;
#[path = "../tests/git/server.rs"]
mod server;
#[path = "../tests/git/ssh.rs"]
mod ssh;
#[path = "../tests/cluster/story.rs"]
mod story;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use audit::Entry;
use futures::{AsyncBufReadExt as _, StreamExt as _, stream};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use plane::User;
use proxy::Proxy;
use scene::{AGENT, CLAIMS, PODS};
use serde_json::{Value, json};
use story::Story;

/// Nodes of the rollouts.
const NODES: usize = 1000;
/// Nodes of the large cluster.
const MANY: usize = 5000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|of| !of.starts_with("--")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [what, kubeconfig] = &arguments[..]
        && what == "reflect"
    {
        return runtime.block_on(reflect(kubeconfig));
    }
    let programs = assets::find().unwrap_or_else(|why| panic!("there is no control plane: {why}"));
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|of| of == name);
    runtime.block_on(async {
        if ["rollouts", "wire", "idle"].into_iter().any(wanted) {
            thousand(&programs, wanted).await;
        }
        if wanted("requests") {
            one_at_a_time(&programs).await;
        }
        if wanted("manifests") {
            manifests(&programs).await;
        }
        if ["memory", "start"].into_iter().any(wanted) {
            five_thousand(&programs).await;
        }
    });
}

/// Tells people something while it goes on.
fn say(text: &str) {
    let _closed = writeln!(std::io::stderr(), "{text}");
}

fn line(what: &str, figure: impl Display, goal: &str) {
    println!("{what:<68} {figure:>26}   {goal}");
}

fn manifest(version: &str, at_once: usize) -> String {
    format!(
        "apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata:\n  name: calico\nspec:\n  targetVersion: \
         {version}\n  maxParallel: {at_once}\n  autoRollback: true\n"
    )
}

/// A story of so many nodes whose daemon runs.
async fn story(programs: &Path, nodes: usize) -> Story {
    let mut story = Story::without_daemon(programs, nodes, &[]).await;
    story.repository().commit("main", &[("README.md", "# network\n")]);
    story.quick();
    story
}

async fn thousand(programs: &Path, wanted: impl Fn(&str) -> bool) {
    say("a thousand nodes come up");
    let mut story = story(programs, NODES).await;
    story.start();
    story.reads().await;
    story.scene.plane.controllers_at_default_limits();
    if wanted("rollouts") {
        for (at_once, minor) in [(100, 29), (10, 30)] {
            say(&format!("{at_once} at a time: kube-controller-manager, then trunkline"));
            let theirs = rolling_update(&story, &format!("v3.{minor}.1"), at_once).await;
            let ours = rollout(&story, &format!("v3.{minor}.2"), at_once).await;
            let ratio = ours.wall.as_secs_f64() / theirs.as_secs_f64();
            let what = format!("{NODES} nodes, {at_once} at a time: ours ÷ RollingUpdate");
            let figure =
                format!("{ratio:.2} ({:.0} s ÷ {:.0} s)", ours.wall.as_secs_f64(), theirs.as_secs_f64());
            line(&what, figure, "goal ≤ 0.60");
            ours.requests(NODES, at_once);
        }
    }
    if wanted("wire") {
        wire(&mut story).await;
    }
    if wanted("rollouts") {
        say("100 at a time with ten stable seconds");
        story.daemon.take();
        story.slow();
        story.start();
        let theirs = rolling_update(&story, "v3.32.1", 100).await;
        let ours = rollout(&story, "v3.32.2", 100).await;
        let ratio = ours.wall.as_secs_f64() / theirs.as_secs_f64();
        let figure = format!("{ratio:.2} ({:.0} s ÷ {:.0} s)", ours.wall.as_secs_f64(), theirs.as_secs_f64());
        line("the same, 100 at a time, with the default 10 stable seconds", figure, "beside it");
    }
    if wanted("idle") {
        idle(&story).await;
    }
}

/// How long kube-controller-manager takes by itself.
async fn rolling_update(story: &Story, version: &str, at_once: usize) -> Duration {
    let began = Instant::now();
    let images = json!({ "spec": {
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": at_once } },
        "template": { "spec": {
            "initContainers": [{ "name": "install-cni", "image": format!("docker.io/calico/cni:{version}") }],
            "containers": [{
                "name": "calico-node",
                "image": format!("docker.io/calico/node:{version}"),
                "env": [{ "name": "CALICO_NETWORKING_BACKEND", "value": "bird" }],
                "readinessProbe": { "exec": { "command": ["/bin/calico-node", "-felix-ready"] } },
            }],
        } },
    } });
    story.scene.ask(Method::PATCH, AGENT, &images).await;
    updated(story, NODES).await;
    began.elapsed()
}

/// Waits until the DaemonSet counts all its pods as updated and available.
async fn updated(story: &Story, nodes: usize) {
    let done = async || {
        let set = story.scene.get(AGENT).await?;
        let status = &set["status"];
        let all = |field: &str| status[field] == json!(nodes);
        let seen = status["observedGeneration"] == set["metadata"]["generation"];
        (seen && all("updatedNumberScheduled") && all("numberAvailable")).then_some(())
    };
    story.scene.until("all are updated and available", 3600, done).await;
}

/// One of our rollouts.
struct Rollout {
    wall: Duration,
    entries: Vec<Entry>,
}

async fn rollout(story: &Story, version: &str, at_once: usize) -> Rollout {
    let before = audit::entries(&story.scene.plane.audit_log()).len();
    let began = Instant::now();
    story.repository().commit("main", &[("calico.yaml", &manifest(version, at_once))]);
    let done = async || {
        let status = story.scene.status("calico").await?;
        (status["phase"] == "Completed" && status["currentVersion"] == version).then_some(())
    };
    story.scene.until("our rollout is completed", 3600, done).await;
    let wall = began.elapsed();
    let entries = audit::entries(&story.scene.plane.audit_log()).split_off(before);
    Rollout { wall, entries }
}

impl Rollout {
    /// Requests per node.
    fn requests(&self, nodes: usize, at_once: usize) {
        let count = |of: &dyn Fn(&Entry) -> bool| self.entries.iter().filter(|entry| of(entry)).count();
        let acting = count(&|entry| {
            entry.writes() && matches!(entry.object_ref.resource.as_str(), "pods" | "nodes" | "daemonsets")
        });
        let statuses = count(&|entry| entry.what() == "cniupgrades/status");
        let reads = count(&|entry| matches!(entry.verb.as_str(), "get" | "list"));
        let per_node = |count: usize| format!("{:.2}", count as f64 / nodes as f64);
        let with = format!("{nodes} nodes, {at_once} at a time");
        line(&format!("{with}: writes to pods, nodes, DaemonSets per node"), per_node(acting), "goal ≤ 1.1");
        let goal = if at_once == 1 { "goal ≤ 1" } else { "goal ≤ 0.2 at 100" };
        line(&format!("{with}: writes of statuses per node"), per_node(statuses), goal);
        line(&format!("{with}: GET and LIST requests"), reads, "none per node");
    }
}

async fn one_at_a_time(programs: &Path) {
    say("fifty nodes one at a time");
    let mut story = story(programs, 50).await;
    story.start();
    story.reads().await;
    rollout(&story, "v3.29.1", 1).await.requests(50, 1);
}

/// From a node that becomes Ready to the next request that changes something.
async fn wire(story: &mut Story) {
    say("ten at a time through a proxy that notes every request");
    let proxy = Proxy::start(&story.scene.plane).await;
    story.daemon.take();
    story.kubeconfig = proxy.kubeconfig();
    story.start();
    let ready = tokio::spawn(readiness(story.scene.plane.client.clone()));
    rollout(story, "v3.31.1", 10).await;
    ready.abort();
    let times = READY.lock().unwrap().clone();
    let writes: Vec<Instant> =
        proxy.seen().iter().filter(|asked| asked.writes()).map(|asked| asked.at).collect();
    let next = |at: &Instant| writes.iter().find(|write| *write > at).map(|write| *write - *at);
    let mut waits: Vec<Duration> = times.iter().filter_map(next).collect();
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    let figure = format!("{:.1} / {:.1} ms (n {})", at(50), at(99), waits.len());
    line("agent Ready → next write on the wire, p50 / p99", figure, "goal ≤ 10 / ≤ 100 ms");
    story.daemon.take();
    story.kubeconfig = story.scene.plane.kubeconfig(User::Trunkline, story.scene.plane.port());
    story.start();
}

/// When each agent pod was first seen Ready.
static READY: std::sync::Mutex<Vec<Instant>> = std::sync::Mutex::new(Vec::new());

async fn readiness(client: Client) {
    let list: Value = client.request(Request::get(PODS).body(Vec::new()).unwrap()).await.unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let lines = client.request_stream(Request::get(path).body(Vec::new()).unwrap()).await.unwrap().lines();
    let mut seen = BTreeSet::new();
    futures::pin_mut!(lines);
    while let Some(Ok(line)) = lines.next().await {
        let event: Value = serde_json::from_str(&line).unwrap();
        let pod = &event["object"];
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|of| of["type"] == "Ready" && of["status"] == "True");
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let stays = pod["metadata"].get("deletionTimestamp").is_none();
        if is_ready && stays && event["type"] == "MODIFIED" && seen.insert(uid) {
            READY.lock().unwrap().push(Instant::now());
        }
    }
}

async fn idle(story: &Story) {
    say("five idle minutes");
    tokio::time::sleep(Duration::from_secs(90)).await;
    let pid = story.daemon.as_ref().unwrap().pid();
    let before = (audit::entries(&story.scene.plane.audit_log()).len(), cpu(pid));
    tokio::time::sleep(Duration::from_secs(300)).await;
    let used = cpu(pid).saturating_sub(before.1);
    let entries = audit::entries(&story.scene.plane.audit_log()).split_off(before.0);
    let other: BTreeMap<String, usize> = entries
        .iter()
        .filter(|entry| entry.verb != "watch" && entry.object_ref.resource != "leases")
        .fold(BTreeMap::new(), |mut counts, entry| {
            *counts.entry(format!("{} {}", entry.verb, entry.what())).or_default() += 1;
            counts
        });
    let what = format!("{NODES} nodes, idle for 5 min: requests besides lease and watches");
    line(&what, other.values().sum::<usize>(), "goal 0");
    if !other.is_empty() {
        println!("  {other:?}");
    }
    line("the same: CPU of one core", format!("{:.2} %", used.as_secs_f64() / 3.0), "goal < 1 %");
}

/// Processor time of a process.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Resident memory of a process in MiB.
fn memory(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

async fn five_thousand(programs: &Path) {
    say("five thousand nodes come up; that takes minutes");
    let mut story = story(programs, MANY).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    story.serve_at(format!("127.0.0.1:{port}"));
    story.start();
    ready(port).await;
    story.reads().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let ours = memory(story.daemon.as_ref().unwrap().pid());
    story.daemon.take();
    let mut starts = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        story.start();
        ready(port).await;
        starts.push(began.elapsed().as_secs_f64());
        story.daemon.take();
    }
    starts.sort_by(f64::total_cmp);
    let kubeconfig = story.scene.plane.dir().join("reflect.yaml");
    fs::write(&kubeconfig, story.scene.plane.kubeconfig(User::Admin, story.scene.plane.port())).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("reflect")
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut told).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let theirs = memory(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    let what = format!("resident memory at {MANY} nodes and {MANY} agent pods");
    line(&what, format!("{ours:.0} MiB"), "goal ≤ 64 MiB");
    let figure = format!("{:.2} ({ours:.0} ÷ {theirs:.0} MiB)", ours / theirs);
    line("the same ÷ typed reflectors of kube", figure, "goal ≤ 0.10");
    line(&format!("start to ready, warm clone, {MANY} nodes"), format!("{:.2} s", starts[1]), "goal ≤ 2 s");
}

async fn ready(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        if is_ready(port).await == Some(true) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not ready in time");
}

async fn is_ready(port: u16) -> Option<bool> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let head = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer.starts_with("HTTP/1.1 200"))
}

/// Holds nodes and pods as the typed reflectors of kube do, says so, and waits to be killed.
async fn reflect(kubeconfig: &str) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let (nodes, writer) = reflector::store::<Node>();
    let watch = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    tokio::spawn(reflector(writer, watch).default_backoff().for_each(|_| std::future::ready(())));
    let (pods, writer) = reflector::store::<Pod>();
    let watch = watcher(Api::<Pod>::all(client), watcher::Config::default());
    tokio::spawn(reflector(writer, watch).default_backoff().for_each(|_| std::future::ready(())));
    nodes.wait_until_ready().await.unwrap();
    pods.wait_until_ready().await.unwrap();
    println!("{} {}", nodes.state().len(), pods.state().len());
    std::future::pending::<()>().await;
}

/// A thousand manifests in one commit, and the same writes by a bare client.
async fn manifests(programs: &Path) {
    const COUNT: usize = 1000;
    const AT_ONCE: usize = 64;
    say("a thousand manifests in one commit");
    let mut story = story(programs, 3).await;
    story.start();
    story.reads().await;
    let claim = |index: usize, by: &str| {
        json!({
            "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade",
            "metadata": { "name": format!("{by}-{index:04}") },
            "spec": { "targetVersion": "v3.28.0" },
        })
    };
    let began = Instant::now();
    stream::iter(0..COUNT)
        .for_each_concurrent(AT_ONCE, async |index| {
            story.scene.ask(Method::POST, CLAIMS, &claim(index, "bare")).await;
        })
        .await;
    let bare = began.elapsed();
    let before = audit::entries(&story.scene.plane.audit_log()).len();
    let files: Vec<(String, String)> =
        (0..COUNT).map(|index| (format!("c/{index:04}.yaml"), claim(index, "ours").to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    story.repository().commit("main", &files);
    let creates = || {
        let entries = audit::entries(&story.scene.plane.audit_log()).split_off(before);
        let creates =
            entries.into_iter().filter(|entry| entry.verb == "create" && entry.what() == "cniupgrades");
        creates.filter(Entry::is_done).collect::<Vec<_>>()
    };
    story.scene.until("all are there", 300, async || (creates().len() >= COUNT).then_some(())).await;
    let creates = creates();
    let first = creates.iter().map(|entry| entry.began).min().unwrap();
    let last = creates.iter().map(|entry| entry.ended).max().unwrap();
    let ours = last.duration_since(first).as_secs_f64();
    let ratio = ours / bare.as_secs_f64();
    let figure = format!("{ratio:.2} ({ours:.2} s ÷ {:.2} s)", bare.as_secs_f64());
    line(&format!("{COUNT} manifests → {COUNT} custom resources ÷ a bare client"), figure, "goal ≤ 1.3");
}
