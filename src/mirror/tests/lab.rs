//! A repository, a world and the loop around the pass, as small as the rules allow.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::{
    api::{
        ClaimKey, CniUpgradeStatus,
        names::{AttemptId, HOLD, Oid, REPOSITORY, RepoName, Rv, Uid, WishHash},
        status::{Attempt, AttemptKind, LastGood, Outcome, Rollback},
    },
    config::{Config, FirstContact, LeaderElection, Repository, ServeAt},
    manifest::wish::Wish,
    mirror::{
        MirrorCase, ReadMemo,
        ledger::{Ledger, ObjectEntry, RollbackEntry, Standing, TargetEntry},
        mirror,
    },
    profile::{Profile, built_in},
    rollout::{Case, Decision, Now, decide, effect::Effect},
    world::{
        Agent, AgentKey, Claim, ClaimStatus, Feed, Hold, Object, ObjectId, Observation, Shape, Strategy,
        Target, Template, World, digest,
        git::{
            Blob, CommitInfo, CommitStep, Descent, Files, GitSeen, GitTrouble, Refused, Signature, Tracked,
        },
    },
};

pub(super) struct Lab {
    pub(super) world: World,
    pub(super) repo: Repository,
    pub(super) config: Config,
    pub(super) profiles: Vec<Profile>,
    pub(super) now: Timestamp,
    pub(super) trouble: Option<GitTrouble>,
    refused: BTreeMap<String, Refused>,
    pub(super) branches: Vec<String>,
    pub(super) unread: bool,
    history: Vec<CommitStep>,
    memo: ReadMemo,
    writes: u64,
    commits: u64,
}

/// A `CNIUpgrade` manifest.
pub(super) fn cni(name: &str, version: &str) -> String {
    format!(
        "apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata:\n  name: {name}\n\
         spec:\n  targetVersion: {version}\n"
    )
}

/// A `ServiceUpgrade` manifest for a Service of a name.
pub(super) fn service(namespace: &str, name: &str, service: &str, selector: &str) -> String {
    format!(
        "apiVersion: service.example.com/v1\nkind: ServiceUpgrade\nmetadata:\n  name: {name}\n\
         \x20 namespace: {namespace}\nspec:\n\
         \x20 serviceName: {service}\n  targetService:\n    selector:\n      version: {selector}\n"
    )
}

/// The same manifest with a retry token.
pub(super) fn with_token(manifest: &str, token: &str) -> String {
    manifest.replace("\nspec:", &format!("\n  annotations:\n    trunkline.dev/retry: {token}\nspec:"))
}

pub(super) fn calico() -> ClaimKey {
    ClaimKey::cni("calico")
}

pub(super) fn agent() -> Target {
    Target::Agent(AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() })
}

pub(super) fn wish(version: &str) -> WishHash {
    let wish =
        Wish::Cni { provider: None, target_version: version.to_owned(), node_selector: BTreeMap::new() };
    wish.on(Some("calico")).hash()
}

impl Lab {
    /// A cluster whose agent runs v3.27.2, and an empty repository that was never looked at.
    pub(super) fn new() -> Self {
        let mut world = World::default();
        let now: Timestamp = "2026-01-05T10:00:00Z".parse().unwrap();
        for feed in Feed::ALL {
            let _ = world.apply(Observation::Relisting(feed), now);
            let _ = world.apply(Observation::Relisted(feed), now);
        }
        let by = Signature { name: "trunkline".to_owned(), email: "trunkline@example.com".to_owned() };
        let repo = Repository {
            name: RepoName::from("infra"),
            url: "https://git.example.com/infra.git".to_owned(),
            branch: "main".to_owned(),
            paths: vec![String::new()],
            poll: Duration::from_secs(30),
            credentials: None,
            status_branch: true,
            rollback_commit: true,
            by,
            subject_prefix: String::new(),
            first_contact: FirstContact::Hold,
            allow_namespaces: vec!["*".to_owned()],
        };
        let config = Config {
            cluster: "prod-1".to_owned(),
            namespace: "trunkline".to_owned(),
            repositories: vec![repo.clone()],
            revert_window: Duration::from_secs(72 * 3600),
            leader_election: LeaderElection::OFF,
            cluster_uid: "c-1".to_owned(),
            metrics: ServeAt::Nowhere,
            policies: None,
        };
        let mut lab = Self {
            world,
            repo,
            config,
            profiles: built_in(),
            now,
            trouble: None,
            refused: BTreeMap::new(),
            branches: Vec::new(),
            unread: false,
            history: Vec::new(),
            memo: ReadMemo::default(),
            writes: 100,
            commits: 0,
        };
        lab.agent_runs("v3.27.2");
        lab
    }

    /// A started lab: the first accepted revision has one file.
    pub(super) fn with(path: &str, manifest: &str) -> Self {
        let mut lab = Self::new();
        lab.push("c0", &[(path, Some(manifest))]);
        lab.settle();
        lab
    }

    /// A started lab with an empty branch.
    pub(super) fn empty() -> Self {
        let mut lab = Self::new();
        lab.settle();
        lab
    }

    pub(super) fn agent_runs(&mut self, version: &str) {
        let template = json!({"spec": {"containers": [
            {"name": "calico-node", "image": format!("docker.io/calico/node:{version}")}]}});
        let agent = Agent {
            labels: BTreeMap::new(),
            original_strategy: None,
            generation: 1,
            observed_generation: 1,
            strategy: Strategy::RollingUpdate,
            surge: false,
            template: Template { digest: digest::of_template(&template), raw: Arc::new(template) },
            desired: 20,
            current: 20,
            updated: 20,
            marks: Vec::new(),
            deleting: false,
        };
        let key = AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() };
        let uid = self
            .world
            .agents
            .get(&key)
            .map_or_else(|| format!("ds-{}", self.writes), |ds| ds.uid.to_string());
        self.see(ObjectId::Agent(key), &uid, Shape::Agent(agent));
    }

    /// The live template is set, but not every pod has it.
    pub(super) fn agent_rolls(&mut self, version: &str) {
        self.agent_runs(version);
        self.agent_is(|agent| agent.updated = 10);
    }

    pub(super) fn agent_is(&mut self, change: impl FnOnce(&mut Agent)) {
        let Target::Agent(key) = agent() else { return };
        let mut seen = self.world.agents[&key].clone();
        change(&mut seen.is);
        self.see(ObjectId::Agent(key), seen.uid.as_str(), Shape::Agent(seen.is));
    }

    pub(super) fn agent_gone(&mut self) {
        let Target::Agent(key) = agent() else { return };
        let seen = &self.world.agents[&key];
        let gone = Observation::Gone(Feed::Agents, ObjectId::Agent(key), seen.uid.clone(), seen.rv);
        let _ = self.world.apply(gone, self.now);
    }

    /// Another repository of the configuration, named before or after ours, has this in force for our target.
    pub(super) fn rival(&mut self, name: &str, first: bool, claim: Option<&ClaimKey>) {
        let mut repo = self.repo.clone();
        repo.name = RepoName::from(name);
        if self.config.repositories.iter().all(|known| known.name != repo.name) {
            let place = if first { 0 } else { self.config.repositories.len() };
            self.config.repositories.insert(place, repo.clone());
        }
        let mut ledger = Ledger::new(repo.name.clone(), "main");
        if let Some(claim) = claim {
            let entry = self.ledger().objects.values().next().unwrap().clone();
            ledger.objects.insert(claim.clone(), entry);
            ledger.targets.entry(agent()).or_default().in_force = Some(claim.clone());
        }
        let id = ObjectId::Store("trunkline".to_owned(), format!("trunkline-ledger-{name}"));
        self.see(id, &format!("ledger-of-{name}"), Shape::Ledger(repo.name, Ok(Box::new(ledger))));
    }

    /// The server refuses this push.
    pub(super) fn refuse(&mut self, what: &str) {
        let message = "only reviewed commits".to_owned();
        let refused = Refused { what: what.to_owned(), expect: None, message, at: self.now, count: 1 };
        self.refused.insert(what.to_owned(), refused);
    }

    fn see(&mut self, id: ObjectId, uid: &str, shape: Shape) {
        self.writes += 1;
        let object = Object { id, uid: Uid::from(uid), rv: Rv(self.writes), shape };
        let _ = self.world.apply(Observation::Answered(Box::new(object)), self.now);
    }

    /// Adds a commit: each path gets these bytes, or goes.
    pub(super) fn push(&mut self, message: &str, changes: &[(&str, Option<&str>)]) -> Oid {
        let mut files = self.history.last().map(|step| step.files.clone()).unwrap_or_default();
        for (path, content) in changes {
            match content {
                Some(text) => {
                    let oid = oid(text);
                    files.insert((*path).to_owned(), Blob { oid, bytes: Arc::from(text.as_bytes()) });
                }
                None => drop(files.remove(*path)),
            }
        }
        self.commit(message, files)
    }

    fn commit(&mut self, message: &str, files: Files) -> Oid {
        self.commits += 1;
        let parents = self.history.last().map(|step| step.commit.oid.clone()).into_iter().collect();
        let oid = oid(&format!("{} {message}", self.commits));
        let commit = CommitInfo {
            oid: oid.clone(),
            parents,
            author: "Ada".to_owned(),
            at: self.now,
            message: message.to_owned(),
        };
        self.history.push(CommitStep { commit, files, skipped: Vec::new(), changed: Vec::new() });
        oid
    }

    /// Forces the branch back by some commits; what was there is handed out, to push it again.
    pub(super) fn reset(&mut self, back: usize) -> Vec<CommitStep> {
        self.history.split_off(self.history.len() - back)
    }

    pub(super) fn push_again(&mut self, steps: Vec<CommitStep>) {
        self.history.extend(steps);
    }

    /// Skips a tree entry at the head.
    pub(super) fn skip(&mut self, path: &str, why: &str) {
        self.history.last_mut().unwrap().skipped.push((path.to_owned(), why.to_owned()));
    }

    /// Looks at the remote, as the Git shell does: from the ledger's accepted revision.
    pub(super) fn look(&mut self) {
        let since =
            self.world.ledgers.get(&self.repo.name).and_then(|seen| seen.is.clone().unwrap().accepted);
        let place = since.as_ref().map(|since| self.history.iter().position(|s| s.commit.oid == *since));
        let (descent, steps) = match place {
            None => (Descent::First, self.history.last().cloned().into_iter().collect()),
            Some(None) => (Descent::Rewritten, Vec::new()),
            Some(Some(place)) => (Descent::Descends, self.history[place + 1..].to_vec()),
        };
        let last = self.history.last();
        let tracked = Tracked {
            branches: self.branches.clone(),
            head: last.map(|step| step.commit.oid.clone()),
            since,
            descent,
            steps,
            at_head: last.map(|step| step.files.clone()).unwrap_or_default(),
            skipped: last.map(|step| step.skipped.clone()).unwrap_or_default(),
            missing_paths: self
                .repo
                .paths
                .iter()
                .filter(|path| !path.is_empty())
                .filter(|path| !last.is_some_and(|s| s.files.keys().any(|f| f.starts_with(path.as_str()))))
                .cloned()
                .collect(),
        };
        let mut seen = GitSeen::unread(self.repo.name.clone());
        seen.tracked = (!self.unread).then_some(tracked);
        seen.trouble = self.trouble.clone();
        seen.refused.clone_from(&self.refused);
        let _ = self.world.apply(Observation::Git(Box::new(seen)), self.now);
    }

    pub(super) fn pass(&mut self) -> Decision {
        let case = MirrorCase {
            repo: &self.repo,
            world: &self.world,
            profiles: &self.profiles,
            config: &self.config,
        };
        mirror(&case, &mut self.memo, Now { at: self.now, epoch: 1 })
    }

    /// What the rollout machine decides about the target.
    pub(super) fn roll_out(&self) -> Decision {
        let (target, world) = (&agent(), &self.world);
        let case = Case { target, world, profiles: &self.profiles, config: &self.config };
        decide(&case, Now { at: self.now, epoch: 1 })
    }

    /// Looks and passes until nothing more is wanted; hands out what was written, in order.
    pub(super) fn settle(&mut self) -> Vec<String> {
        let mut written = Vec::new();
        for _ in 0..30 {
            self.look();
            let decision = self.pass();
            if decision.effects.is_empty() {
                return written;
            }
            for (id, effect) in decision.effects {
                written.push(id.to_string());
                self.perform(effect);
            }
        }
        panic!("the pass does not come to rest: {written:?}");
    }

    /// The writes to custom resources while settling.
    pub(super) fn settle_claims(&mut self) -> Vec<String> {
        let mut written = self.settle();
        written.retain(|write| !write.starts_with("WriteLedger"));
        written
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::WriteLedger { seen, ledger } => {
                let uid = seen.map_or_else(|| format!("ledger-{}", self.writes), |(uid, _)| uid.to_string());
                // Through bytes and back, as the ConfigMap does it.
                let text = serde_json::to_string(&*ledger).unwrap();
                let ledger: Ledger = serde_json::from_str(&text).unwrap();
                let id = ObjectId::Store("trunkline".to_owned(), "trunkline-ledger-infra".to_owned());
                self.see(id, &uid, Shape::Ledger(ledger.repository.clone(), Ok(Box::new(ledger))));
            }
            Effect::CreateClaim { claim, spec, annotations } => self.put(&claim, None, |new| {
                new.hold = annotations.get(HOLD).map(|reason| hold(reason));
                new.digest = digest::of(&spec);
                new.spec = spec;
                new.annotations = annotations;
                new.finalizer = true;
            }),
            Effect::ReplaceClaim { claim, uid, spec, annotations, finalizer, .. } => {
                self.put(&claim, Some(&uid), |old| {
                    old.digest = digest::of(&spec);
                    old.spec = spec;
                    old.annotations.extend(annotations);
                    old.finalizer |= finalizer;
                });
            }
            Effect::DeleteClaim { claim, .. } => self.kubectl_delete(&claim),
            Effect::ReleaseClaim { claim, uid, .. } => {
                let gone = Observation::AnsweredGone(ObjectId::Claim(claim), uid);
                let _ = self.world.apply(gone, self.now);
            }
            other => panic!("not a write of this pass: {other:?}"),
        }
    }

    /// Changes a custom resource, or makes one (without `uid`).
    pub(super) fn put(&mut self, key: &ClaimKey, uid: Option<&Uid>, change: impl FnOnce(&mut Claim)) {
        let mut claim = match uid {
            Some(_) => self.claim(key).clone(),
            None => Claim {
                generation: 1,
                annotations: BTreeMap::new(),
                hold: None,
                foreign: false,
                finalizer: false,
                deleting: false,
                spec: Arc::new(Value::Null),
                digest: digest::of(&Value::Null),
                status: ClaimStatus::None,
            },
        };
        change(&mut claim);
        let uid = uid.map_or_else(|| format!("cr-{}", self.writes), Uid::to_string);
        self.see(ObjectId::Claim(key.clone()), &uid, Shape::Claim(claim));
    }

    pub(super) fn edit(&mut self, key: &ClaimKey, change: impl FnOnce(&mut Claim)) {
        let uid = self.world.claims[key].uid.clone();
        self.put(key, Some(&uid), change);
    }

    pub(super) fn kubectl_delete(&mut self, key: &ClaimKey) {
        let seen = self.world.claims[key].clone();
        if seen.is.finalizer {
            self.edit(key, |claim| claim.deleting = true);
        } else {
            let gone = Observation::AnsweredGone(ObjectId::Claim(key.clone()), seen.uid);
            let _ = self.world.apply(gone, self.now);
        }
    }

    /// Takes a custom resource away without its finalizer being asked.
    pub(super) fn vanish(&mut self, key: &ClaimKey) {
        self.edit(key, |claim| claim.finalizer = false);
        self.kubectl_delete(key);
    }

    pub(super) fn claim(&self, key: &ClaimKey) -> &Claim {
        &self.world.claims[key].is
    }

    pub(super) fn has(&self, key: &ClaimKey) -> bool {
        self.world.claims.contains_key(key)
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.world.ledgers[&self.repo.name].is.as_ref().unwrap()
    }

    /// The ledger as somebody left it.
    pub(super) fn change_ledger(&mut self, change: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger().clone();
        change(&mut ledger);
        let uid = self.world.ledgers[&self.repo.name].uid.to_string();
        let id = ObjectId::Store("trunkline".to_owned(), "trunkline-ledger-infra".to_owned());
        self.see(id, &uid, Shape::Ledger(self.repo.name.clone(), Ok(Box::new(ledger))));
    }

    pub(super) fn lose_ledger(&mut self) {
        let uid = self.world.ledgers[&self.repo.name].uid.clone();
        let id = ObjectId::Store("trunkline".to_owned(), "trunkline-ledger-infra".to_owned());
        let _ = self.world.apply(Observation::AnsweredGone(id, uid), self.now);
    }

    pub(super) fn entry(&self, key: &ClaimKey) -> &ObjectEntry {
        self.ledger().entry(key).unwrap_or_else(|| panic!("{key} is not in the ledger"))
    }

    pub(super) fn standing(&self, key: &ClaimKey) -> &Standing {
        &self.entry(key).standing
    }

    pub(super) fn target(&self) -> &TargetEntry {
        self.ledger().target(&agent()).unwrap()
    }

    pub(super) fn rollback(&self) -> &RollbackEntry {
        self.target().rollbacks.last().unwrap()
    }

    /// Whether the version in a custom resource's spec is this one.
    pub(super) fn mirrors(&self, key: &ClaimKey, version: &str) -> bool {
        self.claim(key).spec["targetVersion"] == *version
    }

    /// The rollout writes a status: attempt `number` on what is in force, ended or not.
    pub(super) fn attempt(&mut self, key: &ClaimKey, number: i64, outcome: Option<Outcome>) {
        let entry = self.entry(key).clone();
        let started = self.now;
        self.status(key, |status| {
            let open = status.attempt.take().filter(|attempt| attempt.number == number);
            status.target_version = Some(entry.wished.about().to_owned());
            status.attempt = Some(open.unwrap_or(Attempt {
                id: AttemptId::from(format!("a{number}")),
                number,
                kind: AttemptKind::Upgrade,
                wish: entry.wish.clone(),
                revision: Some(format!("main@sha1:{}", entry.introduced)),
                node_selector: BTreeMap::new(),
                retry_token: entry.token.clone(),
                started_at: started,
                finished_at: None,
                outcome: None,
                canary_cut: BTreeMap::new(),
                canaries_until: None,
                template: None,
            }));
            if let (Some(attempt), Some(outcome)) = (&mut status.attempt, outcome) {
                attempt.outcome = Some(outcome);
                attempt.finished_at = Some(started);
            }
        });
    }

    /// The attempt that was started failed and its nodes are back on v3.27.2.
    pub(super) fn rolls_back(&mut self, key: &ClaimKey, number: i64) {
        let at = self.now;
        self.status(key, |status| {
            status.last_good = Some(LastGood {
                version: "3.27.2".to_owned(),
                wish: wish("3.27.2"),
                revision: None,
                template: None,
                template_digest: None,
                node_selector: BTreeMap::new(),
                beneath: Vec::new(),
                strategy: None,
            });
            status.rollback = Some(Rollback {
                reason: "CanaryUnhealthy".to_owned(),
                evidence: "n1: AgentCrashLooping".to_owned(),
                at,
                commit: None,
            });
        });
        self.ends(key, number, Outcome::RolledBack);
    }

    /// The attempt ends so, whatever is declared by now.
    pub(super) fn ends(&mut self, key: &ClaimKey, number: i64, outcome: Outcome) {
        let at = self.now;
        self.status(key, |status| {
            let attempt = status.attempt.as_mut().filter(|attempt| attempt.number == number).unwrap();
            attempt.outcome = Some(outcome);
            attempt.finished_at = Some(at);
        });
    }

    pub(super) fn status(&mut self, key: &ClaimKey, change: impl FnOnce(&mut CniUpgradeStatus)) {
        self.edit(key, |claim| {
            let mut status = match &claim.status {
                ClaimStatus::Cni(status) => (**status).clone(),
                ClaimStatus::None | ClaimStatus::Service(_) | ClaimStatus::Unreadable(_) => {
                    CniUpgradeStatus::default()
                }
            };
            change(&mut status);
            claim.status = ClaimStatus::Cni(Box::new(status));
        });
    }

    pub(super) fn hours(&mut self, hours: i64) {
        self.now = self.now.checked_add(hours.hours()).unwrap();
    }

    /// A custom resource that people made by hand.
    pub(super) fn by_hand(&mut self, key: &ClaimKey) {
        self.put(key, None, |claim| {
            claim.annotations.remove(REPOSITORY);
            claim.spec = Arc::new(json!({"targetVersion": "v9.9.9"}));
        });
    }
}

fn oid(text: &str) -> Oid {
    Oid::from(digest::hex(text.as_bytes()).chars().take(40).collect::<String>())
}

/// The brake, with a text.
pub(super) fn hold(reason: &str) -> Hold {
    Hold { reason: reason.to_owned(), by: None, since: None }
}
