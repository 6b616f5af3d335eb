//! Behaviour of publishing against a status branch in memory.

mod condition;
mod rollback;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::{
    api::{
        ClaimKey, CniUpgradeStatus,
        cni_upgrade::CniPhase,
        names::{Oid, RepoName},
        status::{Attempt, AttemptKind, Condition, NodeFailure, Outcome, Transition, Truth},
    },
    config::{FirstContact, LeaderElection, ServeAt},
    manifest::{Code, Diagnostic, Severity, wish::Wish},
    mirror::ledger::{
        AttemptEntry, ObjectEntry, RollbackEntry, RollbackState, Standing, TargetEntry, WishEntry,
    },
    report::status_file::StatusFile,
    rollout::effect::Effect,
    world::{
        AgentKey, Claim, ClaimStatus, Seen, Target, digest,
        git::{Blob, Change, Files, GitTrouble, NewCommit, Signature, Tracked},
    },
};

const REPO: &str = "platform";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn calico() -> ClaimKey {
    ClaimKey::cni("calico")
}

fn wish(version: &str) -> Wish {
    Wish::Cni { provider: None, target_version: version.to_owned(), node_selector: BTreeMap::new() }
}

fn seen<T>(is: T) -> Seen<T> {
    Seen { uid: "uid".into(), rv: crate::api::Rv(1), since: at(0), is }
}

/// A repository, a ledger, custom resources and both branches; pushes are applied at once.
struct Lab {
    world: World,
    config: Config,
    now: Timestamp,
    log: Vec<NewCommit>,
}

impl Lab {
    fn new() -> Self {
        let repo = Repository {
            name: RepoName::from(REPO),
            url: "https://git.example.com/platform.git".to_owned(),
            branch: "main".to_owned(),
            paths: vec![String::new()],
            poll: Duration::from_secs(30),
            credentials: None,
            status_branch: true,
            rollback_commit: true,
            by: Signature { name: "trunkline".to_owned(), email: "trunkline@example.com".to_owned() },
            subject_prefix: String::new(),
            first_contact: FirstContact::Hold,
            allow_namespaces: vec!["*".to_owned()],
        };
        let config = Config {
            cluster: "prod-1".to_owned(),
            namespace: "trunkline-system".to_owned(),
            repositories: vec![repo],
            revert_window: Duration::from_hours(72),
            leader_election: LeaderElection::OFF,
            cluster_uid: "cluster-uid".to_owned(),
            metrics: ServeAt::Nowhere,
            policies: None,
        };
        let mut ledger = Ledger::new(RepoName::from(REPO), "main");
        ledger.started = true;
        let mut world = World::default();
        world.ledgers.insert(RepoName::from(REPO), seen(Ok(Box::new(ledger))));
        let mut git = GitSeen::unread(RepoName::from(REPO));
        git.status = Some(StatusBranch::default());
        world.git.insert(RepoName::from(REPO), git);
        Self { world, config, now: at(0), log: Vec::new() }
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.world.ledgers.get_mut(&RepoName::from(REPO)).unwrap().is.as_mut().unwrap()
    }

    fn git(&mut self) -> &mut GitSeen {
        self.world.git.get_mut(&RepoName::from(REPO)).unwrap()
    }

    fn branch(&self) -> &StatusBranch {
        self.world.git[&RepoName::from(REPO)].status.as_ref().unwrap()
    }

    fn file(&self, path: &str) -> String {
        String::from_utf8(self.branch().files[path].bytes.to_vec()).unwrap()
    }

    fn declare(&mut self, key: &ClaimKey, version: &str) {
        let entry = ObjectEntry {
            path: format!("{}.yaml", key.name),
            wish: wish(version).hash(),
            wished: wish(version),
            spec: digest::of(&json!({})),
            introduced: Oid::from("c1"),
            accepted: Oid::from("c1"),
            order: 1,
            before: None,
            first_contact: false,
            hidden_in: std::collections::BTreeSet::new(),
            token: None,
            asked: None,
            hold: None,
            standing: Standing::InForce,
            removed: None,
            target: agent(),
        };
        self.ledger().objects.insert(key.clone(), entry);
    }

    fn claim(&mut self, key: &ClaimKey, status: CniUpgradeStatus) {
        let claim = Claim {
            generation: 1,
            annotations: BTreeMap::new(),
            hold: None,
            foreign: false,
            finalizer: true,
            deleting: false,
            spec: Arc::new(json!({})),
            digest: digest::of(&json!({})),
            status: ClaimStatus::Cni(Box::new(status)),
        };
        self.world.claims.insert(key.clone(), seen(claim));
    }

    fn decide(&self) -> Decision {
        let case =
            PublishCase { repo: &self.config.repositories[0], world: &self.world, config: &self.config };
        publish(&case, Now { at: self.now, epoch: 1 })
    }

    fn wanted(&self) -> Option<NewCommit> {
        let decision = self.decide();
        let mut statuses = decision.effects.into_values().filter_map(|effect| match effect {
            Effect::PushStatus { commit, .. } => Some(*commit),
            _ => None,
        });
        let first = statuses.next();
        assert!(statuses.next().is_none(), "two status commits at once");
        first
    }

    fn rollback(&self) -> Option<NewCommit> {
        self.decide().effects.into_values().find_map(|effect| match effect {
            Effect::PushRollback { commit, .. } => Some(*commit),
            _ => None,
        })
    }

    /// Pushes the next status commit, if one is wanted now; gives its subject.
    fn step(&mut self) -> Option<String> {
        let commit = self.wanted()?;
        let tip = Oid::from(format!("s{}", self.log.len()));
        let branch = self.git().status.as_mut().unwrap();
        assert_eq!(commit.parent, branch.tip, "compare-and-swap on the tip");
        for (path, change) in &commit.changes {
            match change {
                Change::Write(bytes) => {
                    let blob = Blob { oid: Oid::from(path.as_str()), bytes: Arc::clone(bytes) };
                    branch.files.insert(path.clone(), blob);
                }
                Change::Remove => {
                    assert!(branch.files.remove(path).is_some(), "{path} was there");
                }
            }
        }
        assert!(branch.at.is_none_or(|parent| parent <= commit.at), "never earlier than its parent");
        branch.tip = Some(tip);
        branch.at = Some(commit.at);
        let subject = commit.message.lines().next().unwrap().to_owned();
        self.log.push(commit);
        Some(subject)
    }

    /// Pushes all that is wanted within ten seconds; gives the subjects.
    fn drain(&mut self) -> Vec<String> {
        let mut subjects = Vec::new();
        for _ in 0..100 {
            subjects.extend(self.step());
            let wait = self.decide().recheck.filter(|wait| *wait <= Duration::from_secs(10));
            match wait {
                Some(wait) => self.now += SignedDuration::try_from(wait).unwrap(),
                None if self.wanted().is_none() => return subjects,
                None => {}
            }
        }
        panic!("no end: {subjects:?}");
    }

    fn published(&self) -> (Truth, Reason, String) {
        git_published(&self.world, &self.config, &calico())
    }
}

fn agent() -> Target {
    Target::Agent(AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() })
}

/// A status that went through these phases, one a minute from minute 1 on.
fn went(phases: &[CniPhase]) -> CniUpgradeStatus {
    let transitions: Vec<Transition> = phases
        .iter()
        .zip(1..)
        .map(|(phase, minute)| Transition {
            phase: phase.as_str().to_owned(),
            attempt: 1,
            at: at(60 * minute),
        })
        .collect();
    let mut status = CniUpgradeStatus {
        phase: *phases.last().unwrap(),
        target_version: Some("3.28.0".to_owned()),
        phase_started_at: transitions.last().map(|transition| transition.at),
        progress: Some("0/10".to_owned()),
        attempt: Some(Attempt {
            id: "a1".into(),
            number: 1,
            kind: AttemptKind::Upgrade,
            wish: wish("3.28.0").hash(),
            revision: Some("main@sha1:c1".to_owned()),
            node_selector: std::collections::BTreeMap::new(),
            retry_token: None,
            started_at: at(60),
            finished_at: None,
            outcome: None,
            canary_cut: BTreeMap::new(),
            canaries_until: None,
            template: None,
        }),
        transitions,
        ..CniUpgradeStatus::default()
    };
    status.nodes.in_scope = 10;
    status
}

fn started() -> Lab {
    let mut lab = Lab::new();
    lab.drain();
    lab.declare(&calico(), "3.28.0");
    lab
}

use CniPhase::{Canary, Failed, Pending, Rollback as RollingBack, RollingOut};

#[test]
fn the_branch_exists_before_anything_is_declared() {
    let mut lab = Lab::new();
    assert_eq!(lab.drain(), ["Status of prod-1"]);
    assert_eq!(lab.log[0].parent, None);
    assert_eq!(lab.log[0].branch, "trunkline/status/prod-1");
    assert_eq!(lab.file("cluster.yaml"), "cluster: prod-1\nuid: cluster-uid\n");
    assert!(lab.file("README.md").contains("Nothing is declared."));
}

#[test]
fn each_phase_is_a_commit_with_the_time_of_the_phase() {
    let mut lab = started();
    for (minute, phases) in
        [(1, &[Pending][..]), (2, &[Pending, Canary]), (3, &[Pending, Canary, RollingOut])]
    {
        lab.claim(&calico(), went(phases));
        lab.now = at(60 * minute + 2);
        let phase = phases.last().unwrap().as_str();
        assert_eq!(lab.drain(), [format!("CNIUpgrade/calico: {phase} 0/10 on 3.28.0")]);
        assert_eq!(lab.log.last().unwrap().at, at(60 * minute));
        assert!(lab.file("CNIUpgrade/calico.yaml").contains(&format!("phase: {phase}\n")));
    }
    assert!(lab.log.iter().all(|commit| commit.message.ends_with("\n[skip ci]\n")));
    let body = &lab.log.last().unwrap().message;
    assert!(body.contains("by commit c1"), "the revision that the attempt is about: {body}");
}

#[test]
fn phases_missed_while_git_was_away_follow_in_order_one_commit_each() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending]));
    lab.now = at(62);
    lab.drain();
    lab.git().trouble = Some(GitTrouble { message: "down".to_owned(), since: at(70), count: 3 });
    let mut status = went(&[Pending, Canary, RollingBack, Failed]);
    status.failed_nodes = 2;
    lab.claim(&calico(), status.clone());
    lab.now = at(7200);
    assert!(lab.drain().is_empty(), "nothing is pushed while the remote is down");
    lab.git().trouble = None;
    assert_eq!(
        lab.drain(),
        [
            "CNIUpgrade/calico: Canary, target 3.28.0",
            "CNIUpgrade/calico: Rollback, target 3.28.0",
            "CNIUpgrade/calico: Failed 0/10 on 3.28.0"
        ]
    );
    let times: Vec<Timestamp> = lab.log.iter().rev().take(3).map(|commit| commit.at).collect();
    assert_eq!(times, [at(240), at(180), at(120)]);
    let canary = &lab.log[lab.log.len() - 3].changes["CNIUpgrade/calico.yaml"];
    let Change::Write(bytes) = canary else { panic!("written") };
    let then = StatusFile::read(&calico(), bytes).unwrap();
    assert_eq!((then.phase(), then.transitions().len()), ("Canary", 2));
    assert_eq!(then.cni().unwrap().failed_nodes, 0, "what came later is not told of that moment");
    let last = lab.file("CNIUpgrade/calico.yaml");
    assert_eq!(StatusFile::read(&calico(), last.as_bytes()).unwrap().cni().unwrap().failed_nodes, 2);
}

#[test]
fn two_phases_in_one_moment_are_two_commits_a_second_apart() {
    let mut lab = started();
    let mut status = went(&[Pending, Canary]);
    status.transitions[1].at = at(60);
    lab.claim(&calico(), status);
    lab.now = at(60);
    assert_eq!(lab.step().unwrap(), "CNIUpgrade/calico: Pending, target 3.28.0");
    assert_eq!(lab.step(), None);
    assert_eq!(lab.decide().recheck, Some(Duration::from_secs(1)));
    lab.now = at(61);
    assert_eq!(lab.step().unwrap(), "CNIUpgrade/calico: Canary 0/10 on 3.28.0");
}

#[test]
fn all_objects_of_a_moment_are_in_one_commit_and_order_is_by_time() {
    let mut lab = started();
    let flannel = ClaimKey::cni("flannel");
    lab.declare(&flannel, "0.26.0");
    lab.claim(&calico(), went(&[Pending, Canary]));
    lab.claim(&flannel, went(&[Pending]));
    lab.now = at(600);
    assert_eq!(
        lab.drain(),
        ["CNIUpgrade/flannel: Pending 0/10 on 3.28.0 and 1 more", "CNIUpgrade/calico: Canary 0/10 on 3.28.0"]
    );
}

#[test]
fn nothing_changed_means_no_commit_however_late_it_gets() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending, Canary]));
    lab.now = at(200);
    lab.drain();
    lab.now = at(90_000);
    assert_eq!(lab.wanted(), None);
    assert_eq!(lab.decide(), Decision::default());
}

#[test]
fn a_moved_revision_and_the_clocks_of_the_machine_alone_make_no_commit() {
    let mut lab = started();
    let mut status = went(&[Pending, Canary]);
    lab.claim(&calico(), status.clone());
    lab.now = at(200);
    lab.drain();
    lab.ledger().accepted = Some(Oid::from("c9"));
    lab.ledger().seen = Some(Oid::from("c9"));
    lab.ledger().objects.get_mut(&calico()).unwrap().accepted = Oid::from("c9");
    status.epoch = Some(7);
    status.conditions.push(Condition {
        r#type: "GitPublished".to_owned(),
        status: Truth::True,
        reason: "Published".to_owned(),
        message: "Published.".to_owned(),
        last_transition_time: at(201),
        observed_generation: None,
    });
    lab.claim(&calico(), status);
    lab.now = at(9_000);
    assert_eq!(lab.wanted(), None);
    lab.ledger().targets.entry(agent()).or_default().tokens.push("again".to_owned());
    assert_eq!(lab.drain(), ["Ledger: DaemonSet/kube-system/calico-node"]);
    assert!(lab.file("ledger.yaml").contains("accepted: c9"));
}

#[test]
fn small_progress_waits_a_minute_and_ten_percent_does_not() {
    let mut lab = started();
    let mut status = went(&[Pending, RollingOut]);
    status.nodes.in_scope = 100;
    lab.claim(&calico(), status.clone());
    lab.now = at(121);
    lab.drain();
    status.upgraded_nodes = 9;
    status.progress = Some("9/100".to_owned());
    lab.claim(&calico(), status.clone());
    lab.now = at(130);
    assert_eq!(lab.wanted(), None);
    assert_eq!(lab.decide().recheck, Some(Duration::from_secs(50)));
    status.upgraded_nodes = 10;
    status.progress = Some("10/100".to_owned());
    lab.claim(&calico(), status.clone());
    assert_eq!(lab.step().unwrap(), "CNIUpgrade/calico: RollingOut 10/100 on 3.28.0");
    status.upgraded_nodes = 11;
    lab.claim(&calico(), status);
    assert_eq!(lab.wanted(), None);
    lab.now = at(190);
    assert_eq!(lab.step().unwrap(), "CNIUpgrade/calico: RollingOut 10/100 on 3.28.0");
    assert_eq!(lab.log.last().unwrap().at, at(190));
}

#[test]
fn a_failed_node_the_end_of_an_attempt_and_a_problem_are_told_at_once() {
    let mut lab = started();
    let mut status = went(&[Pending, Canary]);
    lab.claim(&calico(), status.clone());
    lab.now = at(121);
    lab.drain();
    status.nodes.failures.push(NodeFailure {
        node: "n3".into(),
        node_uid: "n3-uid".into(),
        reason: "AgentCrashLooping".to_owned(),
        message: "calico-node restarts".to_owned(),
        at: at(122),
        tries: 1,
        in_rollback: false,
    });
    lab.claim(&calico(), status.clone());
    lab.now = at(123);
    assert_eq!(
        lab.step().unwrap(),
        "CNIUpgrade/calico: Canary 0/10 on 3.28.0, node n3 failed (AgentCrashLooping)"
    );
    let attempt = status.attempt.as_mut().unwrap();
    attempt.outcome = Some(Outcome::Held);
    attempt.finished_at = Some(at(124));
    lab.claim(&calico(), status);
    lab.now = at(124);
    assert_eq!(lab.step().unwrap(), "CNIUpgrade/calico: Canary 0/10 on 3.28.0, attempt 1 Held");
    lab.ledger().diagnostics.push(broken());
    lab.now = at(125);
    assert_eq!(lab.step().unwrap(), "1 problem: bad.yaml:3:5 Syntax");
    assert!(lab.file("README.md").starts_with("# prod-1\n\n## Problems\n\n- **bad.yaml:3:5** error: "));
    lab.ledger().diagnostics.clear();
    lab.now = at(126);
    assert_eq!(lab.step().unwrap(), "No problems any more");
    assert!(!lab.file("README.md").contains("Problems"));
}

fn broken() -> Diagnostic {
    Diagnostic {
        path: "bad.yaml".to_owned(),
        line: 3,
        column: 5,
        severity: Severity::Error,
        code: Code::Syntax,
        message: "a tab".to_owned(),
        snippet: "\tx\n^".to_owned(),
        help: "use blanks".to_owned(),
    }
}

#[test]
fn a_removed_object_keeps_its_file_until_the_ledger_forgets_it_and_its_end_stays_in_the_readme() {
    let mut lab = started();
    let mut status = went(&[Pending, Canary, RollingBack, Failed]);
    status.attempt.as_mut().unwrap().outcome = Some(Outcome::RolledBack);
    lab.claim(&calico(), status);
    lab.now = at(300);
    lab.drain();
    lab.ledger().targets.entry(agent()).or_default().attempts.push(ended(Outcome::RolledBack));
    lab.world.claims.clear();
    lab.now = at(400);
    lab.drain();
    assert!(lab.branch().files.contains_key("CNIUpgrade/calico.yaml"), "the ledger still has it");
    lab.ledger().objects.clear();
    lab.now = at(500);
    assert_eq!(lab.drain(), ["CNIUpgrade/calico: removed"]);
    assert!(!lab.branch().files.contains_key("CNIUpgrade/calico.yaml"));
    let last = lab.log.last().unwrap();
    assert!(last.changes.contains_key("README.md") && last.changes.contains_key("ledger.yaml"));
    assert!(
        lab.file("README.md").contains("| CNIUpgrade/calico | 1 | 3.28.0 | RolledBack | CanaryUnhealthy |")
    );
    assert!(lab.file("ledger.yaml").contains("RolledBack"));
}

fn ended(outcome: Outcome) -> AttemptEntry {
    AttemptEntry {
        id: "a1".into(),
        number: 1,
        kind: AttemptKind::Upgrade,
        claim: calico(),
        wish: wish("3.28.0").hash(),
        target_version: "3.28.0".to_owned(),
        revision: None,
        started_at: at(60),
        finished_at: Some(at(240)),
        outcome: Some(outcome),
        reason: Some("CanaryUnhealthy".to_owned()),
    }
}

#[test]
fn an_end_that_only_the_ledger_saw_is_told_before_the_file_goes() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending, Canary, RollingBack]));
    lab.now = at(190);
    lab.drain();
    lab.world.claims.clear();
    lab.ledger().objects.clear();
    lab.ledger().targets.entry(agent()).or_default().attempts.push(ended(Outcome::Returned));
    lab.now = at(250);
    assert_eq!(lab.drain(), ["CNIUpgrade/calico: Completed, target 3.28.0", "CNIUpgrade/calico: removed"]);
}

#[test]
fn files_of_others_on_the_branch_are_left_alone() {
    let mut lab = started();
    let blob = Blob { oid: Oid::from("x"), bytes: Arc::from(&b"mine"[..]) };
    for path in ["notes.txt", "CNIUpgrade/deep/er/x.yaml", "Other/calico.yaml"] {
        lab.git().status.as_mut().unwrap().files.insert(path.to_owned(), blob.clone());
    }
    lab.claim(&calico(), went(&[Pending]));
    lab.now = at(61);
    lab.drain();
    assert_eq!(&*lab.branch().files["Other/calico.yaml"].bytes, b"mine");
    assert!(lab.branch().files.contains_key("CNIUpgrade/deep/er/x.yaml"));
}

#[test]
fn under_a_name_that_another_cluster_has_nothing_is_published() {
    let mut lab = rollback::with_rollback();
    lab.drain();
    assert!(lab.rollback().is_some());
    lab.config.cluster_uid = "other-uid".to_owned();
    lab.claim(&calico(), went(&[Pending, Canary, RollingBack, Failed, Pending]));
    lab.now = at(600);
    let decision = lab.decide();
    assert!(decision.effects.is_empty());
    assert_eq!(
        decision.refusals,
        [Refusal::ClusterNameTaken { cluster: "prod-1".to_owned(), uid: "cluster-uid".to_owned() }]
    );
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::ClusterNameTaken));
    assert!(text.contains("cluster-uid"), "{text}");
}

#[test]
fn a_vanished_branch_starts_anew_with_the_phases_that_are_known() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending, Canary]));
    lab.now = at(200);
    lab.drain();
    lab.git().status = Some(StatusBranch::default());
    assert_eq!(
        lab.drain(),
        ["CNIUpgrade/calico: Pending, target 3.28.0 and 1 more", "CNIUpgrade/calico: Canary 0/10 on 3.28.0"]
    );
    assert!(lab.file("cluster.yaml").contains("cluster-uid"));
}

#[test]
fn a_refused_status_branch_is_tried_again_with_backoff_and_the_condition_names_the_rule() {
    let mut lab = started();
    lab.claim(&calico(), went(&[Pending]));
    lab.now = at(100);
    let expect = lab.branch().tip.clone();
    let refused = |count, expect| Refused {
        what: "status".to_owned(),
        expect,
        message: "pre-receive hook declined: GL-SB".to_owned(),
        at: at(100),
        count,
    };
    for (count, wait) in [(1, 10), (2, 20), (3, 40), (7, 600), (60, 600)] {
        lab.git().refused.insert("status".to_owned(), refused(count, expect.clone()));
        assert_eq!(lab.wanted(), None);
        assert_eq!(lab.decide().recheck, Some(Duration::from_secs(wait)), "refusal {count}");
    }
    let (truth, reason, text) = lab.published();
    assert_eq!((truth, reason), (Truth::False, Reason::PushRefused));
    assert!(text.contains("pre-receive hook declined: GL-SB"), "{text}");
    lab.git().refused.insert("status".to_owned(), refused(9, Some(Oid::from("another tip"))));
    assert!(lab.wanted().is_some(), "a refusal at another tip does not hold this one");
}
