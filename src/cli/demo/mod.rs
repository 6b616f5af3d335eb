//! `trunkline demo`: a whole story on an embedded cluster and a throw-away Git remote, with the shipped engine.

mod events;
mod eyes;
mod fit;
mod screen;
mod story;

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::Write as _,
    fs::{File, TryLockError},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use anyhow::Context as _;
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{Form, Usage, print};
use crate::{
    api::names::HOLD,
    clock::{Clock, Pacer},
    config::Repository,
    git::{GitError, bare},
    report::{escape, tree::span},
    sim::{
        lab::{BRANCH, CLUSTER, FOLDER, Lab},
        model::{
            Model,
            cluster::ClusterSpec,
            fault::{Fault, FaultKind},
        },
    },
    world::git::CommitInfo,
};
use eyes::Eyes;
use screen::{Output, Screen};
use story::Story;

/// Virtual seconds per second on a terminal: half an hour in about a minute.
const WATCHABLE: u32 = 40;

/// Exit code of a demo that was stopped, as shells count an end by SIGINT.
const STOPPED: u8 = 128 + 2;

/// Age of the cluster when the story begins.
const BEFORE: SignedDuration = SignedDuration::from_mins(30);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What happens.
    #[arg(long, value_enum, default_value_t = Scenario::Upgrade)]
    scenario: Scenario,
    /// Nodes of the embedded cluster.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=5000))]
    nodes: u16,
    /// Most nodes in flight.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_parallel: u16,
    /// How many times faster than yours the clock of the cluster runs, or `max`; default: 40 on a terminal,
    /// else `max`.
    #[arg(long)]
    speed: Option<Speed>,
    /// Folder for remote, clone and kubeconfig; default: a new temporary one, which is kept.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Stay up after the story: push to the remote and watch.
    #[arg(long)]
    stay: bool,
    /// How progress is shown.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Args {
    /// Form of errors.
    pub(super) const fn form(&self) -> Form {
        match self.output {
            Output::Text => Form::Text,
            Output::Json => Form::Json,
        }
    }
}

/// The stories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The example manifest is the first push to an empty repository.
    Upgrade,
    /// The new agent crash-loops on one canary; both go back, and Git says so.
    BadCanary,
    /// The same with `autoRollback: false`: stopped and kept.
    BadCanaryKept,
    /// After completion a `git revert` is pushed.
    Revert,
}

/// How fast virtual time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speed {
    Times(u32),
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            _ => match text.trim_end_matches('x').parse() {
                Ok(times @ 1..=100_000) => Ok(Self::Times(times)),
                Ok(_) | Err(_) => Err("write `max` or a number from 1 to 100000".to_owned()),
            },
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .context("no runtime could be started")?;
    let Claimed { dir, lock: _lock } = folder(args)?;
    let begin = Clock::real().now();
    let screen = Screen::new(args.output, print::columns, begin, Box::new(print::text));
    let stopped = Cell::new(ExitCode::from(STOPPED));
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => {
                let text = format!("Stopped. Remote, clone and kubeconfig are in {}.", dir.display());
                match args.output {
                    Output::Text => print::line(format_args!("\n{text}")),
                    Output::Json => print::line(json!({ "event": "stopped", "text": text, "data": { "dir": &dir } })),
                }
                Ok(stopped.get())
            }
            result = play(args, &dir, screen, &stopped) => result,
        }
    });
    runtime.shutdown_background();
    result
}

/// Ends at SIGINT or SIGTERM; never where they cannot be caught.
async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// The folder of a run, which no other demo uses for as long as the lock is held.
struct Claimed {
    dir: PathBuf,
    lock: File,
}

/// The folder of this run; one that holds a demo already is refused, so that nothing of it is lost.
fn folder(args: &Args) -> anyhow::Result<Claimed> {
    let temporary = || std::env::temp_dir().join(format!("trunkline-demo-{}", std::process::id()));
    let dir = args.dir.clone().unwrap_or_else(temporary);
    std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("{} cannot be read", dir.display()))?;
    let lock = locked(&dir)?;
    if dir.join("remote.git").exists() {
        let text =
            format!("{} holds a demo already; name another folder with --dir, or remove it", dir.display());
        return Err(Usage(text).into());
    }
    Ok(Claimed { dir, lock })
}

/// Keeps other demos out of a folder until the process ends, however it ends.
fn locked(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join("demo.lock");
    let cannot = || format!("{} cannot be locked", path.display());
    let mut lock = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(cannot)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Between lock and note the holder is not told yet.
            let _ = lock.read_to_string(&mut holder);
            let text = format!(
                "{} is in use by another demo ({}); end that one, or name another folder with --dir",
                dir.display(),
                if holder.is_empty() { "it only just started" } else { holder.trim_end() }
            );
            return Err(Usage(text).into());
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    lock.set_len(0).with_context(cannot)?;
    writeln!(lock, "process {}", std::process::id()).with_context(cannot)?;
    Ok(lock)
}

/// Plays the story; `stopped` is the exit code of an interruption from then on.
async fn play(
    args: &Args,
    dir: &Path,
    mut screen: Screen,
    stopped: &Cell<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let default = if print::on_terminal() { Speed::Times(WATCHABLE) } else { Speed::Max };
    let speed = args.speed.unwrap_or(default);
    let start = Clock::real().now();
    let clock = Clock::embedded(screen.begin);
    let lab = Lab::new(dir, cluster(args, clock.now()), clock).context("the remote could not be made")?;
    let served = lab.cluster.serve(0).context("the embedded API could not be served")?;
    let kubeconfig = dir.join("kubeconfig");
    write_private(&kubeconfig, &served.kubeconfig())?;
    open(args, &mut screen, speed, &lab, &kubeconfig);
    let moving = lab.cluster.clone();
    tokio::spawn(async move { moving.run().await });
    if let Speed::Times(times) = speed {
        tokio::spawn(Pacer::new(times).run());
    }
    let engine = lab.engine(1).context("the engine could not be made")?;
    let running = tokio::spawn(engine.run(std::future::pending()));
    let mut story = Story::new(&lab, screen, args.scenario, args.nodes, args.max_parallel)?;
    let ended = story.play().await.context("the story did not end as it should");
    let mut eyes = story.into_eyes();
    eyes.screen.close();
    let measure = Measure::of(start, &lab, eyes.screen.begin);
    let end =
        End { args, lab: &lab, kubeconfig: &kubeconfig, ended: &ended, branches: branches(&lab), measure };
    match args.output {
        Output::Text => eyes.screen.print(end.text()),
        Output::Json => eyes.screen.say(clock.now(), "end", "", &end.value()),
    }
    if args.stay {
        stay(&mut eyes, speed, &ended, stopped).await?;
    }
    running.abort();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Says what the story runs on.
fn open(args: &Args, screen: &mut Screen, speed: Speed, lab: &Lab, kubeconfig: &Path) {
    let pace = match speed {
        Speed::Times(times) => format!("a clock {times} times as fast as yours"),
        Speed::Max => "a clock that skips what nobody waits for".to_owned(),
    };
    screen.open(&format!(
        "{} nodes, Calico v3.27.2, {pace}, remote {}, kubeconfig {}",
        args.nodes,
        lab.remote().display(),
        kubeconfig.display()
    ));
}

/// Goes on showing what happens, also after a story that went another way than it should.
async fn stay(
    eyes: &mut Eyes<'_>,
    speed: Speed,
    ended: &anyhow::Result<()>,
    stopped: &Cell<ExitCode>,
) -> anyhow::Result<()> {
    if speed == Speed::Max {
        tokio::spawn(Pacer::new(WATCHABLE).run());
    }
    if let Err(why) = ended {
        stopped.set(ExitCode::FAILURE);
        let text = format!("The story went another way: {:#}.", why.root_cause());
        eyes.say("story", &text, &json!({ "error": format!("{why:#}") }));
    }
    eyes.say("stay", "Staying up; push to the remote and watch here. Ctrl-C ends it.", &json!({}));
    eyes.watch().await
}

/// A cluster that is there already: its agents started before the story begins.
fn cluster(args: &Args, now: Timestamp) -> Model {
    let before = now.saturating_sub(BEFORE).unwrap_or(now);
    let mut model = ClusterSpec::new(1, usize::from(args.nodes), before).build();
    model.advance_to(now);
    match args.scenario {
        Scenario::Upgrade | Scenario::Revert => {}
        Scenario::BadCanary | Scenario::BadCanaryKept => {
            model.add_fault(Fault::new(FaultKind::CrashLoops).with_image("v3.28.0").on_first(1));
        }
    }
    model
}

/// The kubeconfig holds a token, so only its owner may read it.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

/// Branches with their commits, newest first.
type Branches = Vec<(String, Vec<CommitInfo>)>;

/// Both branches.
fn branches(lab: &Lab) -> Result<Branches, GitError> {
    let status = Repository::status_branch_name(CLUSTER);
    let log = |branch: &str, max| bare::log(&lab.remote(), branch, max);
    Ok(vec![(BRANCH.to_owned(), log(BRANCH, 20)?), (status.clone(), log(&status, 100)?)])
}

fn subject(commit: &CommitInfo) -> &str {
    commit.message.lines().next().unwrap_or_default()
}

/// How a story ended.
struct End<'e> {
    args: &'e Args,
    lab: &'e Lab,
    kubeconfig: &'e Path,
    ended: &'e anyhow::Result<()>,
    branches: Result<Branches, GitError>,
    measure: Measure,
}

impl End<'_> {
    /// What Git says, and the lines to copy next.
    fn text(&self) -> String {
        let mut out = match &self.branches {
            Ok(branches) => log(branches),
            Err(error) => format!("\nThe remote cannot be read: {error}\n"),
        };
        let remote = self.lab.remote();
        let (work, remote) = (shell(&remote.with_file_name("work")), shell(&remote));
        let kubeconfig = shell(self.kubeconfig);
        let (status, name) = (Repository::status_branch_name(CLUSTER), story::object(self.args.scenario));
        let while_it_runs = if self.args.stay {
            "While it stays up, from another terminal:"
        } else {
            "The cluster ends here; with `--stay` it stays up, and from another terminal:"
        };
        let _ = write!(
            out,
            "\nTo look further:\n  \
             git -C {remote} log --stat {BRANCH}\n  \
             git -C {remote} show {status}:README.md\n\
             {while_it_runs}\n  \
             trunkline status --kubeconfig {kubeconfig}\n  \
             trunkline explain --kubeconfig {kubeconfig} {name}\n  \
             kubectl --kubeconfig {kubeconfig} annotate cniupgrade {name} {HOLD}=looking\n  \
             git clone {remote} {work} && cd {work}\n  \
             $EDITOR {FOLDER}/calico.yaml && git commit -am 'Change the version' && git push\n"
        );
        let Measure { cluster_seconds, wall_seconds, peak_mib } = self.measure;
        let memory = peak_mib.map(|mib| format!(", {mib} MiB of memory at most")).unwrap_or_default();
        let _ = writeln!(out, "\n{} of the cluster in {wall_seconds:.1} s{memory}.", span(cluster_seconds));
        out
    }

    /// The same as a value.
    fn value(&self) -> Value {
        let log = |commits: &[CommitInfo]| -> Vec<Value> {
            commits.iter().map(|commit| json!({ "commit": commit.oid, "subject": subject(commit) })).collect()
        };
        let branches: BTreeMap<&str, Vec<Value>> =
            self.branches.iter().flatten().map(|(branch, commits)| (branch.as_str(), log(commits))).collect();
        json!({
            "ok": self.ended.is_ok(),
            "error": self.ended.as_ref().err().map(|error| format!("{error:#}")),
            "dir": self.kubeconfig.parent(),
            "kubeconfig": self.kubeconfig,
            "branches": branches,
            "clusterMinutes": self.measure.cluster_seconds / 60,
            "wallSeconds": self.measure.wall_seconds,
            "peakMiB": self.measure.peak_mib,
        })
    }
}

fn log(branches: &Branches) -> String {
    let mut out = String::new();
    for (branch, commits) in branches {
        let _ = writeln!(out, "\n{branch}:");
        for commit in commits {
            let _ = writeln!(out, "  {} {}", commit.oid.short(), subject(commit));
        }
    }
    out
}

/// A path as a word of a command line.
fn shell(path: &Path) -> String {
    escape::shell(&path.to_string_lossy())
}

/// What a run cost.
struct Measure {
    cluster_seconds: i64,
    wall_seconds: f64,
    peak_mib: Option<u64>,
}

impl Measure {
    fn of(start: Timestamp, lab: &Lab, begin: Timestamp) -> Self {
        Self {
            cluster_seconds: lab.clock.now().duration_since(begin).as_secs(),
            wall_seconds: Clock::real().now().duration_since(start).as_secs_f64(),
            peak_mib: peak_memory(),
        }
    }
}

/// Highest resident memory of this process in MiB, where the system tells it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests;
