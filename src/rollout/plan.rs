//! What a push of some declarations would do to a cluster: the mirror pass and the rollout machine over a world in
//! which it has happened.
//!
//! Guarantees: no rule stands here; what the daemon would refuse or wait for is what its own passes say.
//! Assumptions: objects that are declared in the cluster and not among the given ones stay as they are; the
//! configuration says nothing but what the ledger remembers of it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Case, Now,
    effect::Effect,
    gate::Gate,
    ledger_entry,
    waiting::{Refusal, Waiting},
};
use crate::{
    api::{
        ClaimKey,
        cni_upgrade::CniPhase,
        names::{NodeName, Oid, RETRY, RepoName, Rv, Uid},
        status::Outcome,
    },
    config::{Config, FirstContact, Repository},
    diff::Skip,
    manifest::{Declaration, yaml},
    mirror::{
        MirrorCase, ReadMemo,
        ledger::{Ledger, Scope, Standing},
        mirror,
    },
    profile::Profile,
    rollout::gate::GateVerdict,
    world::{
        AgentKey, Claim, ClaimStatus, Object, ObjectId, Observation, Shape, Target, World, digest,
        git::{Blob, CommitInfo, CommitStep, Descent, Files, GitSeen, Signature, Tracked},
    },
};

/// Passes after which the mirror is at rest: ledger, custom resources, and one to see that.
const PASSES: usize = 4;
/// Object id of the commit that is imagined.
const IMAGINED: &str = "0000000000000000000000000000000000000000";

/// What one declaration would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The object.
    pub object: ClaimKey,
    /// What would be done; absent when no target can be told or it is not in force.
    pub preview: Option<Preview>,
    /// Why nothing would be done until people change something.
    pub refusals: Vec<Refusal>,
    /// Why it would not start at once.
    pub waiting: Vec<Waiting>,
    /// The declaration that is in force in its place.
    pub superseded_by: Option<ClaimKey>,
}

/// What lies ahead of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// It is what runs.
    Runs,
    /// An attempt forward.
    Start,
    /// An attempt back to last good.
    Return,
    /// An attempt of this wish is in this phase.
    UnderWay(CniPhase),
    /// The attempt of this wish ended so.
    Ended(Outcome),
    /// Nothing is known to be done.
    Nothing,
}

/// One node in the order in which nodes are acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedNode {
    /// Its name.
    pub name: NodeName,
    /// Among the first.
    pub canary: bool,
    /// Goes alone and last.
    pub control_plane: bool,
}

/// What a `CNIUpgrade` would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// Profile name.
    pub provider: String,
    /// The DaemonSet.
    pub agent: AgentKey,
    /// Version of the live template; of last good while under way; of the nodes that go back on a return.
    pub from: String,
    /// Version wanted.
    pub to: String,
    /// What lies ahead.
    pub ahead: Ahead,
    /// Preflight gates, when an attempt would start; the brakes that would hold one under way.
    pub gates: Vec<Gate>,
    /// Nodes to act on, in order: canaries first.
    pub nodes: Vec<PlannedNode>,
    /// Nodes in scope that are left alone.
    pub skipped: Vec<(NodeName, Skip)>,
    /// Nodes in scope.
    pub in_scope: usize,
    /// Nodes outside of the scope that run the agent.
    pub outside: usize,
    /// Most nodes in flight.
    pub max_parallel: usize,
    /// Seconds for which canaries are observed; absent without a canary phase.
    pub observation: Option<i64>,
    /// Seconds for which an agent must be stable.
    pub stable: i64,
}

impl Preview {
    /// Nodes in rounds of `maxParallel`; control-plane nodes go alone. In truth a window slides: the next node starts
    /// when one has settled.
    pub fn rounds(&self) -> Vec<Vec<&PlannedNode>> {
        let mut rounds: Vec<Vec<&PlannedNode>> = Vec::new();
        for node in &self.nodes {
            let joins = |round: &Vec<&PlannedNode>| {
                round.len() < self.max_parallel
                    && !node.control_plane
                    && round.last().is_some_and(|last| last.canary == node.canary && !last.control_plane)
            };
            match rounds.last_mut().filter(|round| joins(round)) {
                Some(round) => round.push(node),
                None => rounds.push(vec![node]),
            }
        }
        rounds
    }

    /// Seconds from start to completion when every agent is ready after `node` seconds and nothing fails.
    pub fn estimate(&self, node: i64) -> i64 {
        let rounds = i64::try_from(self.rounds().len()).unwrap_or(i64::MAX);
        let observed = self.observation.unwrap_or_default();
        rounds.saturating_mul(node.saturating_add(self.stable)).saturating_add(observed)
    }
}

/// Plans a push of these declarations to the repository that declares them, or the only one there is.
pub fn plan(
    world: &World,
    profiles: &[Profile],
    declarations: &BTreeMap<ClaimKey, Declaration>,
    now: Timestamp,
) -> Vec<Planned> {
    let config = assumed(world, declarations);
    let mut world = world.clone();
    push(&mut world, profiles, &config, declarations, now);
    let now = Now { at: now, epoch: i64::MAX };
    declarations.keys().map(|key| planned(&world, profiles, &config, key, now)).collect()
}

fn planned(world: &World, profiles: &[Profile], config: &Config, key: &ClaimKey, now: Now) -> Planned {
    let target = world.target_of(key);
    let case = Case { target: &target, world, profiles, config };
    let standing = ledger_entry(world, key).map(|(_, entry)| &entry.standing);
    let said = super::decide_one(&case, key, now);
    let mut planned = Planned {
        object: key.clone(),
        preview: None,
        refusals: Vec::new(),
        waiting: Vec::new(),
        superseded_by: match standing {
            Some(Standing::Superseded { by }) => Some(by.clone()),
            Some(Standing::InForce | Standing::Ambiguous { .. } | Standing::FirstContact) | None => None,
        },
    };
    let in_force = standing == Some(&Standing::InForce) && !said.refusals.contains(&Refusal::NotOurs);
    let (Target::Agent(agent), true) = (&target, in_force) else {
        planned.refusals = said.refusals;
        planned.waiting = said.waiting;
        return planned;
    };
    match super::cni::preview(&case, agent, key, now) {
        Err(said) => {
            planned.refusals = said.refusals;
            planned.waiting = said.waiting;
        }
        Ok(preview) => {
            for gate in &preview.gates {
                match &gate.verdict {
                    GateVerdict::Refuse(refusal) => planned.refusals.push(refusal.clone()),
                    // Asked at the start, by the daemon.
                    GateVerdict::Wait(Waiting::DryRun) | GateVerdict::Pass(_) | GateVerdict::Warn(_) => {}
                    GateVerdict::Wait(waiting) => planned.waiting.push(waiting.clone()),
                }
            }
            planned.preview = Some(preview);
        }
    }
    planned
}

/// The configuration as far as the ledger of the repository remembers it.
fn assumed(world: &World, declarations: &BTreeMap<ClaimKey, Declaration>) -> Config {
    let ledgers = || world.ledgers.values().filter_map(|seen| seen.is.as_deref().ok());
    let declares = |ledger: &&Ledger| declarations.keys().any(|key| ledger.objects.contains_key(key));
    let ledger = ledgers().find(declares).or_else(|| ledgers().next());
    let whole = Scope { paths: vec![String::new()], namespaces: vec!["*".to_owned()] };
    let (name, branch, scope) = match ledger {
        Some(ledger) => (ledger.repository.clone(), ledger.branch.clone(), ledger.scope.clone()),
        None => (RepoName::new("planned"), "main".to_owned(), whole.clone()),
    };
    let scope = if scope.paths.is_empty() { whole } else { scope };
    let repository = Repository {
        name,
        url: String::new(),
        branch,
        paths: scope.paths,
        poll: Duration::ZERO,
        credentials: None,
        status_branch: true,
        rollback_commit: true,
        by: Signature { name: String::new(), email: String::new() },
        subject_prefix: String::new(),
        first_contact: FirstContact::Hold,
        allow_namespaces: scope.namespaces,
    };
    Config { repositories: vec![repository], ..Config::assumed() }
}

/// Lets the declarations be pushed, accepted and mirrored.
fn push(
    world: &mut World,
    profiles: &[Profile],
    config: &Config,
    declarations: &BTreeMap<ClaimKey, Declaration>,
    now: Timestamp,
) {
    let Some(repo) = config.repositories.first() else { return };
    let mut writes = Writes { count: u64::MAX / 2, now };
    if !world.ledgers.contains_key(&repo.name) {
        // As after an empty branch was accepted: what is pushed to it may act.
        let mut ledger = Ledger::new(repo.name.clone(), &repo.branch);
        ledger.started = true;
        ledger.scope = Scope { paths: repo.paths.clone(), namespaces: repo.allow_namespaces.clone() };
        writes.ledger(world, ledger);
    }
    let Some(Ok(ledger)) = world.ledgers.get(&repo.name).map(|seen| &seen.is) else { return };
    let files = files(world, ledger, repo, declarations);
    let tracked = imagined(ledger, files, now);
    world
        .git
        .insert(repo.name.clone(), GitSeen { tracked: Some(tracked), ..GitSeen::unread(repo.name.clone()) });
    let mut memo = ReadMemo::default();
    for _ in 0..PASSES {
        let case = MirrorCase { repo, world: &*world, profiles, config };
        let decision = mirror(&case, &mut memo, Now { at: now, epoch: i64::MAX });
        for effect in decision.effects.into_values() {
            writes.perform(world, effect);
        }
    }
}

/// One file per object: the given ones, and every other one as it stands.
fn files(
    world: &World,
    ledger: &Ledger,
    repo: &Repository,
    declarations: &BTreeMap<ClaimKey, Declaration>,
) -> Files {
    let folder = repo.paths.first().map_or("", String::as_str).trim_end_matches('/');
    let mut files = Files::new();
    let mut add = |path: String, key: &ClaimKey, spec: &Value, token: Option<&String>| {
        if let Some(text) = document(key, spec, token) {
            let oid = Oid::new(digest::hex(text.as_bytes()));
            files.insert(path, Blob { oid, bytes: text.into_bytes().into() });
        }
    };
    for (index, (key, declaration)) in declarations.iter().enumerate() {
        let path = if folder.is_empty() || folder == "." {
            format!("planned-{index}.yaml")
        } else {
            format!("{folder}/planned-{index}.yaml")
        };
        add(path, key, &declaration.stored, declaration.token.as_ref());
    }
    let others = ledger
        .objects
        .iter()
        .filter(|(key, entry)| entry.removed.is_none() && !declarations.contains_key(*key));
    for (index, (key, entry)) in others.enumerate() {
        if let Some(claim) = world.claims.get(key) {
            add(format!("{}.{index}.yaml", entry.path), key, &claim.is.spec, entry.token.as_ref());
        }
    }
    files
}

fn document(key: &ClaimKey, spec: &Value, token: Option<&String>) -> Option<String> {
    let mut metadata = serde_json::Map::from_iter([("name".to_owned(), json!(key.name))]);
    metadata.extend(key.namespace.iter().map(|namespace| ("namespace".to_owned(), json!(namespace))));
    metadata.extend(token.map(|token| ("annotations".to_owned(), json!({ RETRY: token }))));
    let object = json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.kind(),
        "metadata": metadata,
        "spec": spec,
    });
    yaml::write(&object).ok()
}

/// The branch with one more commit.
fn imagined(ledger: &Ledger, files: Files, now: Timestamp) -> Tracked {
    let head = Oid::new(IMAGINED);
    let commit = CommitInfo {
        oid: head.clone(),
        parents: ledger.accepted.iter().cloned().collect(),
        author: String::new(),
        at: now,
        message: String::new(),
    };
    let step = CommitStep { commit, files: files.clone(), skipped: Vec::new(), changed: Vec::new() };
    Tracked {
        branches: Vec::new(),
        head: Some(head),
        since: ledger.accepted.clone(),
        descent: if ledger.accepted.is_some() { Descent::Descends } else { Descent::First },
        steps: vec![step],
        at_head: files,
        skipped: Vec::new(),
        missing_paths: Vec::new(),
    }
}

/// Writes to the imagined world, newer than all that was seen.
struct Writes {
    count: u64,
    now: Timestamp,
}

impl Writes {
    fn perform(&mut self, world: &mut World, effect: Effect) {
        match effect {
            Effect::WriteLedger { ledger, .. } => self.ledger(world, (*ledger).clone()),
            Effect::CreateClaim { claim, spec, annotations } => {
                let new = Claim {
                    generation: 1,
                    annotations,
                    hold: None,
                    foreign: false,
                    finalizer: true,
                    deleting: false,
                    digest: digest::of(&spec),
                    spec,
                    status: ClaimStatus::None,
                };
                let uid = Uid::new(format!("planned-{claim}"));
                self.answer(world, ObjectId::Claim(claim), uid, Shape::Claim(new));
            }
            Effect::ReplaceClaim { claim, uid, spec, annotations, .. } => {
                let Some(seen) = world.claims.get(&claim) else { return };
                let mut new = seen.is.clone();
                new.generation += i64::from(new.digest != digest::of(&spec));
                new.digest = digest::of(&spec);
                new.spec = spec;
                new.annotations.extend(annotations);
                self.answer(world, ObjectId::Claim(claim), uid, Shape::Claim(new));
            }
            // What ends or goes is no part of what is planned.
            Effect::DeleteClaim { .. }
            | Effect::ReleaseClaim { .. }
            | Effect::ForgetAttempt { .. }
            | Effect::WriteStatus(_)
            | Effect::RecordAttempt { .. }
            | Effect::DryRunTemplate { .. }
            | Effect::PatchTemplate { .. }
            | Effect::RestoreTemplate { .. }
            | Effect::RestoreStrategy { .. }
            | Effect::DeletePod { .. }
            | Effect::PushStatus { .. }
            | Effect::PushRollback { .. }
            | Effect::RecordEvent { .. } => {}
        }
    }

    fn ledger(&mut self, world: &mut World, ledger: Ledger) {
        let name = world.ledger_names.iter().find(|(_, repo)| **repo == ledger.repository);
        let name = name.map_or_else(|| "planned".to_owned(), |(name, _)| name.clone());
        let uid = world.ledgers.get(&ledger.repository).map(|seen| seen.uid.clone());
        let uid = uid.unwrap_or_else(|| Uid::new("planned"));
        let shape = Shape::Ledger(ledger.repository.clone(), Ok(Box::new(ledger)));
        self.answer(world, ObjectId::Store(String::new(), name), uid, shape);
    }

    fn answer(&mut self, world: &mut World, id: ObjectId, uid: Uid, shape: Shape) {
        self.count += 1;
        let object = Object { id, uid, rv: Rv(self.count), shape };
        let _ = world.apply(Observation::Answered(Box::new(object)), self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(nodes: &[(&str, bool, bool)]) -> Preview {
        let node = |(name, canary, control_plane): &(&str, bool, bool)| PlannedNode {
            name: NodeName::new(name),
            canary: *canary,
            control_plane: *control_plane,
        };
        Preview {
            provider: "calico".to_owned(),
            agent: AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() },
            from: "3.27.2".to_owned(),
            to: "3.28.0".to_owned(),
            ahead: Ahead::Start,
            gates: Vec::new(),
            nodes: nodes.iter().map(node).collect(),
            skipped: Vec::new(),
            in_scope: nodes.len(),
            outside: 0,
            max_parallel: 2,
            observation: Some(600),
            stable: 10,
        }
    }

    #[test]
    fn canaries_have_rounds_of_their_own_and_control_plane_nodes_go_alone() {
        let preview = preview(&[
            ("a", true, false),
            ("b", false, false),
            ("c", false, false),
            ("d", false, false),
            ("e", false, true),
            ("f", false, true),
        ]);
        let rounds = preview.rounds();
        let names: Vec<Vec<&str>> =
            rounds.iter().map(|round| round.iter().map(|node| node.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["a"], vec!["b", "c"], vec!["d"], vec!["e"], vec!["f"]]);
        assert_eq!(preview.estimate(30), 5 * 40 + 600);
    }

    #[test]
    fn nothing_to_act_on_takes_no_round() {
        assert!(preview(&[]).rounds().is_empty());
    }
}
