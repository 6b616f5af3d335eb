//! `trunkline demo`: a whole story on an embedded cluster and a throw-away Git remote, with the shipped engine.

mod events;
mod eyes;
mod screen;
mod story;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::print;
use crate::{
    clock::{Clock, Pacer},
    config::Repository,
    git::bare,
    report::tree::span,
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
use screen::{Output, Screen};
use story::Story;

/// Virtual seconds per second on a terminal: half an hour in about a minute.
const WATCHABLE: u32 = 40;

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
    let dir = folder(args)?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => {
                print::line(format_args!("\nStopped. Remote, clone and kubeconfig are in {}.", dir.display()));
                Ok(ExitCode::from(130))
            }
            result = play(args, &dir) => result,
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

/// The folder of this run; one that holds a demo already is refused, so that nothing of it is lost.
fn folder(args: &Args) -> anyhow::Result<PathBuf> {
    let temporary = || std::env::temp_dir().join(format!("trunkline-demo-{}", std::process::id()));
    let dir = args.dir.clone().unwrap_or_else(temporary);
    if dir.join("remote.git").exists() {
        bail!("{} holds a demo already; name another folder with --dir, or remove it", dir.display());
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    dir.canonicalize().with_context(|| format!("{} cannot be read", dir.display()))
}

async fn play(args: &Args, dir: &Path) -> anyhow::Result<ExitCode> {
    let terminal = print::on_terminal();
    let speed = args.speed.unwrap_or(if terminal { Speed::Times(WATCHABLE) } else { Speed::Max });
    let begin = Clock::real().now();
    let clock = Clock::embedded(begin);
    let lab = Lab::new(dir, cluster(args, clock.now()), clock).context("the remote could not be made")?;
    let served = lab.cluster.serve(0).context("the embedded API could not be served")?;
    let kubeconfig = dir.join("kubeconfig");
    write_private(&kubeconfig, &served.kubeconfig())?;
    let mut screen = Screen::new(args.output, terminal, clock.now());
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
    let moving = lab.cluster.clone();
    tokio::spawn(async move { moving.run().await });
    if let Speed::Times(times) = speed {
        tokio::spawn(Pacer::new(times).run());
    }
    let engine = lab.engine(1).context("the engine could not be made")?;
    let running = tokio::spawn(engine.run(std::future::pending()));
    let mut story = Story::new(&lab, screen, args.scenario, args.nodes, args.max_parallel)?;
    let ended = story.play().await;
    let mut eyes = story.into_eyes();
    eyes.screen.close();
    let branches = branches(&lab)?;
    let measure = Measure::of(begin, &lab);
    match args.output {
        Output::Text => farewell(args, &lab, dir, &kubeconfig, &branches, &measure),
        Output::Json => {
            eyes.screen.say(clock.now(), "end", "", &end(&ended, dir, &kubeconfig, &branches, &measure));
        }
    }
    if args.stay && ended.is_ok() {
        if speed == Speed::Max {
            tokio::spawn(Pacer::new(WATCHABLE).run());
        }
        let lines = "Staying up; push to the remote and watch here. Ctrl-C ends it.";
        eyes.screen.say(clock.now(), "stay", lines, &json!({}));
        eyes.watch().await?;
    }
    running.abort();
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) => {
            eprintln!("error: the story did not end as it should: {why:#}");
            Ok(ExitCode::FAILURE)
        }
    }
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
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

/// Both branches with their commits, newest first.
fn branches(lab: &Lab) -> anyhow::Result<Vec<(String, Vec<CommitInfo>)>> {
    let status = Repository::status_branch_name(CLUSTER);
    let log = |branch: &str, max| bare::log(&lab.remote(), branch, max).context("the remote cannot be read");
    Ok(vec![(BRANCH.to_owned(), log(BRANCH, 20)?), (status.clone(), log(&status, 100)?)])
}

fn subject(commit: &CommitInfo) -> &str {
    commit.message.lines().next().unwrap_or_default()
}

/// What Git says, and the lines to copy next.
fn farewell(
    args: &Args,
    lab: &Lab,
    dir: &Path,
    kubeconfig: &Path,
    branches: &[(String, Vec<CommitInfo>)],
    measure: &Measure,
) {
    for (branch, commits) in branches {
        print::line(format_args!("\n{branch}:"));
        for commit in commits {
            print::line(format_args!("  {} {}", commit.oid.short(), subject(commit)));
        }
    }
    let status = Repository::status_branch_name(CLUSTER);
    let (remote, work) = (lab.remote(), dir.join("work"));
    let (remote, work, kubeconfig) = (remote.display(), work.display(), kubeconfig.display());
    let name = story::object(args.scenario);
    print::line("\nTo look further:");
    print::line(format_args!("  git -C {remote} log --stat {BRANCH}"));
    print::line(format_args!("  git -C {remote} show {status}:README.md"));
    print::line(if args.stay {
        "While it stays up, from another terminal:"
    } else {
        "The cluster ends here; with `--stay` it stays up, and from another terminal:"
    });
    print::line(format_args!("  trunkline status --kubeconfig {kubeconfig}"));
    print::line(format_args!("  trunkline explain --kubeconfig {kubeconfig} {name}"));
    print::line(format_args!("  git clone {remote} {work} && cd {work}"));
    print::line(format_args!(
        "  $EDITOR {FOLDER}/calico.yaml && git commit -am 'Change the version' && git push"
    ));
    let memory = measure.peak_mib.map(|mib| format!(", {mib} MiB of memory at most")).unwrap_or_default();
    print::line(format_args!(
        "\n{} of the cluster in {:.1} s{memory}.",
        span(measure.cluster_seconds),
        measure.wall_seconds
    ));
}

/// The same as a value.
fn end(
    ended: &anyhow::Result<()>,
    dir: &Path,
    kubeconfig: &Path,
    branches: &[(String, Vec<CommitInfo>)],
    measure: &Measure,
) -> Value {
    let log = |commits: &[CommitInfo]| -> Vec<Value> {
        commits.iter().map(|commit| json!({ "commit": commit.oid, "subject": subject(commit) })).collect()
    };
    let branches: BTreeMap<&str, Vec<Value>> =
        branches.iter().map(|(branch, commits)| (branch.as_str(), log(commits))).collect();
    json!({
        "ok": ended.is_ok(),
        "error": ended.as_ref().err().map(|error| format!("{error:#}")),
        "dir": dir,
        "kubeconfig": kubeconfig,
        "branches": branches,
        "clusterMinutes": measure.cluster_seconds / 60,
        "wallSeconds": measure.wall_seconds,
        "peakMiB": measure.peak_mib,
    })
}

/// What a run cost.
struct Measure {
    cluster_seconds: i64,
    wall_seconds: f64,
    peak_mib: Option<u64>,
}

impl Measure {
    fn of(begin: Timestamp, lab: &Lab) -> Self {
        Self {
            cluster_seconds: lab.clock.now().duration_since(begin).as_secs(),
            wall_seconds: Clock::real().now().duration_since(begin).as_secs_f64(),
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
