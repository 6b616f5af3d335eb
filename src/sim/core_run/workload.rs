//! What one seeded world goes through: a cluster, declarations, faults, and what others do meanwhile.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        CniUpgradeSpec,
        cni_upgrade::{CniCanary, DeletionPolicy},
    },
    sim::model::{
        Span, Timings,
        cluster::{AgentKind, ClusterSpec, ZONE},
        fault::{Fault, FaultKind},
        seed::Seed,
    },
    world::Feed,
};

/// One seeded world.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// Versions in use; the first one runs at the start.
    pub versions: [&'static str; 3],
    /// Whether the first commit declares what runs; otherwise the repository is empty before.
    pub adopted: bool,
    /// The declaration that starts the first attempt.
    pub spec: CniUpgradeSpec,
    /// What others do, by seconds after the first declaration.
    pub deeds: Vec<(i64, Deed)>,
    /// What goes wrong in the cluster.
    pub faults: Vec<Fault>,
    /// What goes wrong between trunkline and the API server.
    pub trouble: Trouble,
    /// Seconds until faults, deeds and trouble are over.
    pub calm_after: i64,
}

/// What others do.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// A commit declares this.
    Declare(Box<CniUpgradeSpec>),
    /// A commit declares the present wish with a retry token.
    Retry(String),
    /// A commit pauses or goes on.
    Pause(bool),
    /// A commit removes the declaration.
    Remove,
    /// The brake is put on or taken off.
    Hold(bool),
    /// `kubectl edit` of the custom resource: another version, any number at once.
    EditClaim(&'static str),
    /// A node joins.
    AddNode(usize),
    /// A node's object is deleted.
    RemoveNode(usize),
    /// An admin cordons a node or takes that back.
    Cordon(usize, bool),
    /// A node moves to another zone by its label.
    Relabel(usize, &'static str),
    /// Another manager puts the first images back.
    PutImagesBack,
    /// `kubectl rollout restart`.
    Restart,
    /// Another manager sets `RollingUpdate`.
    SetRollingUpdate,
    /// The process dies and starts again.
    Crash,
    /// The engine's clock jumps by so many seconds.
    ClockJump(i64),
    /// A feed breaks and is listed anew a little later.
    Cut(Feed),
}

/// What goes wrong between trunkline and the API server, in percent of requests or events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Writes answered 409 or 5xx without being done.
    pub reject: u64,
    /// Writes done whose answer is lost.
    pub lose_reply: u64,
    /// Watch events that come twice.
    pub repeat: u64,
    /// Watch events that never come; the feed is listed anew within a minute.
    pub drop: u64,
    /// Longest delay of a watch event, in milliseconds.
    pub delay: u64,
}

const CALICO: [&str; 3] = ["v3.27.2", "v3.28.0", "v3.28.1"];
const FLANNEL: [&str; 3] = ["v0.24.2", "v0.25.0", "v0.25.1"];

impl Workload {
    /// The workload of a seed; `nodes` fixes the number of nodes.
    pub fn of(seed: u64, nodes: Option<usize>) -> Self {
        let mut dice = Seed::new(seed);
        let now = Timestamp::from_second(1_772_352_000).unwrap_or(Timestamp::UNIX_EPOCH);
        let drawn = usize::try_from(dice.between(3, 12)).unwrap_or(3);
        let drawn = if dice.chance(10) { drawn * 5 / 2 } else { drawn };
        // Now and then one node is sick before anything starts; of ten nodes one may be.
        let sick = dice.chance(12);
        let nodes = nodes.unwrap_or(if sick { drawn + 9 } else { drawn });
        let agent = if dice.chance(75) { AgentKind::Calico } else { AgentKind::Flannel };
        let versions = match agent {
            AgentKind::Calico => CALICO,
            AgentKind::Flannel => FLANNEL,
        };
        let cluster = ClusterSpec {
            zones: usize::try_from(dice.between(1, 3)).unwrap_or(1),
            control_planes: usize::from(dice.chance(30)),
            agent,
            version: versions[0].to_owned(),
            timings: timings(&mut dice),
            ..ClusterSpec::new(dice.draw(), nodes, now)
        };
        let spec = spec(&mut dice, versions[1]);
        let trouble = trouble(&mut dice);
        let calm_after = i64::try_from(dice.between(300, 1500)).unwrap_or(600);
        let mut workload = Self {
            cluster,
            versions,
            adopted: dice.chance(50),
            spec,
            deeds: Vec::new(),
            faults: Vec::new(),
            trouble,
            calm_after,
        };
        workload.faults = faults(&mut dice, &workload);
        if sick {
            let kind =
                if dice.chance(50) { FaultKind::NotReady } else { FaultKind::TurnsUnready { after: 0 } };
            let until = at(&workload, dice.between(100, 900));
            let name = workload.cluster.node_name(nodes - 1);
            workload.faults.push(Fault::new(kind).on([name]).between(workload.cluster.now, until));
        }
        workload.deeds = deeds(&mut dice, &workload);
        workload
    }

    /// The same declaration for another version.
    pub fn with_version(&self, version: &str) -> CniUpgradeSpec {
        CniUpgradeSpec { target_version: version.to_owned(), ..self.spec.clone() }
    }
}

impl Workload {
    /// Every workload that lacks one part of this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        if self.trouble != Trouble::default() {
            smaller.push(Self { trouble: Trouble::default(), ..self.clone() });
        }
        for index in 0..self.deeds.len() {
            let mut less = self.clone();
            less.deeds.remove(index);
            smaller.push(less);
        }
        for index in 0..self.faults.len() {
            let mut less = self.clone();
            less.faults.remove(index);
            smaller.push(less);
        }
        if self.cluster.nodes > 2 {
            let mut less = self.clone();
            less.cluster.nodes -= 1;
            smaller.push(less);
        }
        smaller
    }
}

fn timings(dice: &mut Seed) -> Timings {
    let slow_controller = dice.chance(20);
    let usual = Timings::default();
    Timings {
        controller: if slow_controller { Span::millis(200, 4_000) } else { usual.controller },
        view: if slow_controller { Span::millis(0, 8_000) } else { usual.view },
        bind: if dice.chance(30) { Span::millis(0, 2_000) } else { usual.bind },
        ready: if dice.chance(20) { Span::millis(5_000, 25_000) } else { usual.ready },
        ..usual
    }
}

fn spec(dice: &mut Seed, version: &str) -> CniUpgradeSpec {
    const THRESHOLDS: [f64; 5] = [1.0, 1.0, 0.95, 0.8, 0.5];
    let canary = dice.chance(80).then(|| CniCanary {
        percentage: i32::try_from(dice.between(5, 60)).unwrap_or(10),
        node_labels: BTreeMap::new(),
        observation_minutes: i32::try_from(dice.between(0, 4)).unwrap_or(1),
        health_threshold: dice.pick(&THRESHOLDS).copied().unwrap_or(1.0),
    });
    let scoped = dice.chance(25);
    let zone = [(ZONE.to_owned(), "zone-a".to_owned())];
    CniUpgradeSpec {
        target_version: version.to_owned(),
        canary,
        node_selector: if scoped { BTreeMap::from(zone) } else { BTreeMap::new() },
        max_parallel: i32::try_from(dice.between(1, 4)).unwrap_or(1),
        timeout_seconds: i32::try_from(dice.between(60, 240)).unwrap_or(60),
        auto_rollback: dice.chance(70),
        provider: None,
        paused: false,
        driver: None,
        deletion_policy: DeletionPolicy::Keep,
    }
}

fn trouble(dice: &mut Seed) -> Trouble {
    if dice.chance(40) {
        return Trouble::default();
    }
    Trouble {
        reject: if dice.chance(50) { dice.between(1, 20) } else { 0 },
        lose_reply: if dice.chance(50) { dice.between(1, 15) } else { 0 },
        repeat: if dice.chance(50) { dice.between(1, 30) } else { 0 },
        drop: if dice.chance(30) { dice.between(1, 8) } else { 0 },
        delay: if dice.chance(50) { dice.between(10, 3_000) } else { 0 },
    }
}

fn faults(dice: &mut Seed, workload: &Workload) -> Vec<Fault> {
    const OF_IMAGE: [FaultKind; 8] = [
        FaultKind::CrashLoops,
        FaultKind::ImagePull,
        FaultKind::InitFails,
        FaultKind::ConfigError,
        FaultKind::NeverReady,
        FaultKind::TurnsUnready { after: 25 },
        FaultKind::NetworkUnavailable,
        FaultKind::Slow { by: 40 },
    ];
    const OF_TIME: [FaultKind; 6] = [
        FaultKind::Lost,
        FaultKind::NotReady,
        FaultKind::NetworkNotReady,
        FaultKind::StuckTerminating,
        FaultKind::ControllerStalled,
        FaultKind::TurnsUnready { after: 0 },
    ];
    let count = if dice.chance(35) { 0 } else { dice.between(1, 3) };
    let mut faults = Vec::new();
    for _ in 0..count {
        let by_image = dice.chance(60);
        let kinds: &[FaultKind] = if by_image { &OF_IMAGE } else { &OF_TIME };
        let Some(kind) = dice.pick(kinds).copied() else { continue };
        let mut fault = Fault::new(kind);
        if by_image {
            fault = fault.with_image(format!(":{}", workload.versions[1]));
            if dice.chance(70) {
                fault = fault.on_first(usize::try_from(dice.between(1, 3)).unwrap_or(1));
            }
        } else {
            let from = dice.between(0, 400);
            let until = from + dice.between(5, 400);
            fault = fault.between(at(workload, from), at(workload, until));
            if dice.chance(85) {
                let nodes = u64::try_from(workload.cluster.nodes).unwrap_or(1);
                let names = (0..dice.between(1, 4)).map(|_| dice.between(0, nodes.saturating_sub(1)));
                let names: Vec<String> = names
                    .map(|index| workload.cluster.node_name(usize::try_from(index).unwrap_or(0)))
                    .collect();
                fault = fault.on(names);
            }
        }
        faults.push(fault);
    }
    faults
}

/// A time so many seconds after the start; the cluster needs about a minute to be made.
fn at(workload: &Workload, seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(0) + 30;
    workload.cluster.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(workload.cluster.now)
}

fn deeds(dice: &mut Seed, workload: &Workload) -> Vec<(i64, Deed)> {
    let count = if dice.chance(30) { 0 } else { dice.between(1, 6) };
    let mut deeds = Vec::new();
    for _ in 0..count {
        let last = u64::try_from(workload.calm_after.saturating_sub(1)).unwrap_or(1);
        let when = i64::try_from(dice.between(1, last)).unwrap_or(1);
        deeds.push((when, deed(dice, workload)));
    }
    deeds.sort_by_key(|(when, _)| *when);
    deeds
}

fn deed(dice: &mut Seed, workload: &Workload) -> Deed {
    let node = usize::try_from(dice.draw() % u64::try_from(workload.cluster.nodes.max(1)).unwrap_or(1));
    let node = node.unwrap_or(0);
    let version = dice.pick(&workload.versions).copied().unwrap_or(workload.versions[1]);
    match dice.between(0, 21) {
        0 | 1 => Deed::Declare(Box::new(workload.with_version(workload.versions[2]))),
        2 | 3 => Deed::Declare(Box::new(workload.with_version(workload.versions[0]))),
        4 => Deed::Declare(Box::new(CniUpgradeSpec {
            max_parallel: i32::try_from(dice.between(1, 5)).unwrap_or(1),
            ..workload.spec.clone()
        })),
        5 => Deed::Retry(format!("again-{}", dice.between(1, 2))),
        6 => Deed::Pause(dice.chance(60)),
        7 => Deed::Remove,
        8 => Deed::Hold(dice.chance(60)),
        9 => Deed::EditClaim(version),
        10 | 11 => Deed::AddNode(workload.cluster.nodes + node),
        12 => Deed::RemoveNode(node),
        13 => Deed::Cordon(node, dice.chance(70)),
        14 => Deed::Relabel(node, if dice.chance(50) { "zone-a" } else { "zone-b" }),
        15 => Deed::PutImagesBack,
        16 => Deed::Restart,
        17 => Deed::SetRollingUpdate,
        18 => Deed::ClockJump(i64::try_from(dice.between(1, 7_200)).unwrap_or(1) - 3_600),
        19 => Deed::Cut(dice.pick(&Feed::ALL).copied().unwrap_or(Feed::Pods)),
        _ => Deed::Crash,
    }
}
