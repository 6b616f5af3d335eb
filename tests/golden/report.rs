//! What the status branch, commits and the terminal say.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::json;
use trunkline::{
    api::{
        ClaimKey, CniUpgradeStatus, Digest, RepoName, Rv,
        cni_upgrade::CniPhase,
        names::{PATH, REPOSITORY, REVISION},
        status::{
            Attempt, AttemptKind, Condition, Intent, IntentKind, LastGood, NodeFailure, Observed, Outcome,
            Rollback, Transition, Truth,
        },
    },
    manifest::{Code, Diagnostic, Severity, wish::Wish},
    mirror::ledger::{AttemptEntry, Ledger, RepoState, RollbackEntry, RollbackState},
    report::{
        commit::{self, Line},
        explain::{Explanation, Gate, Verdict},
        paint::Paint,
        problems::Problems,
        readme::readme,
        status_file::StatusFile,
        tree::StatusReport,
        waiting::waiting_for,
    },
    rollout::{
        gate,
        waiting::{Refusal, Waiting},
    },
    world::{AgentKey, Claim, ClaimStatus, Seen, Target, World, git::GitSeen},
};

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + 60 * minute).unwrap()
}

fn calico() -> ClaimKey {
    ClaimKey::cni("calico-upgrade-v3.28")
}

fn wish(version: &str) -> Wish {
    Wish::Cni { provider: None, target_version: version.to_owned(), node_selector: BTreeMap::new() }
}

fn failure(node: &str, message: &str) -> NodeFailure {
    NodeFailure {
        node: node.into(),
        node_uid: format!("{node}-uid").into(),
        reason: "AgentCrashLooping".to_owned(),
        message: message.to_owned(),
        at: at(6),
        tries: 1,
        in_rollback: false,
    }
}

fn attempt() -> Attempt {
    Attempt {
        id: "a1".into(),
        number: 1,
        kind: AttemptKind::Upgrade,
        wish: wish("3.28.0").hash(),
        revision: Some("main@sha1:0123456789abcdef0123456789abcdef01234567".to_owned()),
        node_selector: BTreeMap::new(),
        retry_token: None,
        started_at: at(0),
        finished_at: None,
        outcome: None,
        canary_cut: BTreeMap::new(),
        canaries_until: None,
        template: None,
    }
}

/// Two canaries done, one node in flight, the canary under observation.
fn canary() -> CniUpgradeStatus {
    let transition = |phase: &str, minute| Transition { phase: phase.to_owned(), attempt: 1, at: at(minute) };
    let mut status = CniUpgradeStatus {
        phase: CniPhase::Canary,
        current_version: Some("3.27.2".to_owned()),
        target_version: Some("3.28.0".to_owned()),
        upgraded_nodes: 2,
        remaining_nodes: 8,
        progress: Some("2/10".to_owned()),
        attempt: Some(attempt()),
        phase_started_at: Some(at(1)),
        observed: Some(Observed { total: 720, as_of: Some(at(20)) }),
        waiting_for: vec![waiting_for(&Waiting::Observing { left: 1080, of: 1800, until: at(38) })],
        last_good: Some(LastGood {
            version: "3.27.2".to_owned(),
            wish: wish("3.27.2").hash(),
            revision: None,
            template: Some("{\"spec\":{}}".to_owned()),
            template_digest: Some(Digest::from("sha256:00")),
            node_selector: BTreeMap::new(),
            beneath: Vec::new(),
            strategy: Some("RollingUpdate".to_owned()),
        }),
        transitions: vec![transition("Pending", 0), transition("Canary", 1)],
        epoch: Some(3),
        ..CniUpgradeStatus::default()
    };
    status.nodes.in_scope = 10;
    status.nodes.canaries = 2;
    status.nodes.in_flight = 1;
    status.nodes.waiting = 7;
    status.nodes.baseline = vec!["n9-uid".into()];
    status.nodes.open = vec![Intent {
        node: "n1".into(),
        node_uid: "n1-uid".into(),
        kind: IntentKind::Upgrade,
        before: "pod-uid".into(),
        started_at: at(2),
        spent: 45,
        as_of: at(3),
    }];
    status
}

fn failed() -> CniUpgradeStatus {
    let mut status = canary();
    status.phase = CniPhase::Failed;
    status.phase_started_at = Some(at(9));
    status.upgraded_nodes = 0;
    status.failed_nodes = 2;
    status.progress = Some("0/10".to_owned());
    status.waiting_for.clear();
    status.nodes.in_flight = 0;
    status.nodes.open.clear();
    status.nodes.failures =
        vec![failure("n1", "calico-node: back-off | 5m0s"), failure("n2", "calico-node: back-off")];
    status.attempt =
        Some(Attempt { outcome: Some(Outcome::RolledBack), finished_at: Some(at(9)), ..attempt() });
    status.rollback = Some(Rollback {
        reason: "CanaryUnhealthy".to_owned(),
        evidence: "2 of 2 canaries failed".to_owned(),
        at: at(7),
        commit: None,
    });
    let condition = |name: &str, status, reason: &str, message: &str| Condition {
        r#type: name.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: at(9),
        observed_generation: Some(1),
    };
    status.conditions = vec![
        condition("Ready", Truth::False, "CanaryUnhealthy", "The attempt failed."),
        condition("Stalled", Truth::True, "CanaryUnhealthy", "2 of 2 canaries failed and were put back."),
        condition("GitPublished", Truth::False, "PushRefused", "The Git server refused the rollback commit."),
    ];
    status
}

fn claim(status: CniUpgradeStatus) -> Claim {
    let annotation = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Claim {
        generation: 1,
        annotations: BTreeMap::from([
            annotation(REPOSITORY, "platform"),
            annotation(PATH, "clusters/prod-1/calico.yaml"),
            annotation(REVISION, "main@sha1:0123456789abcdef0123456789abcdef01234567"),
        ]),
        hold: None,
        foreign: false,
        finalizer: true,
        deleting: false,
        spec: Arc::new(json!({ "canary": { "percentage": 20 } })),
        digest: Digest::from("sha256:01"),
        status: ClaimStatus::Cni(Box::new(status)),
    }
}

fn diagnostic() -> Diagnostic {
    Diagnostic {
        path: "clusters/prod-1/web.yaml".to_owned(),
        line: 7,
        column: 3,
        severity: Severity::Error,
        code: Code::UnknownField,
        message: "unknown field `maxParalel` | see <b>@ops</b>".to_owned(),
        snippet: "  maxParalel: 3\n  ^".to_owned(),
        help: "did you mean `maxParallel`?".to_owned(),
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(RepoName::from("platform"), "main");
    ledger.accepted = Some("89abcdef0123456789abcdef0123456789abcdef".into());
    ledger.seen = Some("fedcba980123456789abcdef0123456789abcdef".into());
    ledger.diagnostics.push(diagnostic());
    ledger.states.push(RepoState {
        reason: "HistoryRewritten".to_owned(),
        message: "Branch main does not descend from the accepted revision.".to_owned(),
        since: at(5),
    });
    let agent =
        Target::Agent(AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() });
    ledger.targets.entry(agent).or_default().attempts.push(AttemptEntry {
        id: "a0".into(),
        number: 4,
        kind: AttemptKind::Upgrade,
        claim: ClaimKey::cni("calico-upgrade-v3.27.3"),
        wish: wish("3.27.3").hash(),
        target_version: "3.27.3".to_owned(),
        revision: None,
        started_at: at(-90),
        finished_at: Some(at(-60)),
        outcome: Some(Outcome::RolledBack),
        reason: Some("CanaryUnhealthy".to_owned()),
    });
    ledger
}

fn rollback() -> RollbackEntry {
    RollbackEntry {
        attempt: "a1".into(),
        claim: calico(),
        from: wish("3.28.0").hash(),
        from_version: "v3.28.0".to_owned(),
        to_version: "v3.27.2".to_owned(),
        to: Some(wish("3.27.2").hash()),
        to_wish: Some(wish("3.27.2")),
        written: BTreeMap::new(),
        reason: "CanaryUnhealthy".to_owned(),
        evidence:
            "2 of 2 canaries failed and 0.95 of them must hold. n1 AgentCrashLooping: calico-node: back-off \
                   5m0s restarting failed container; n2 AgentCrashLooping: calico-node: back-off 5m0s"
                .to_owned(),
        left: vec!["n7".to_owned()],
        introduced: Some("0123456789abcdef0123456789abcdef01234567".into()),
        others: vec!["clusters/prod-1/values.yaml".to_owned()],
        at: at(9),
        state: RollbackState::Due,
    }
}

#[test]
fn a_status_file_has_no_template_and_no_clock_of_the_machine() {
    let file = StatusFile::of(&calico(), &claim(canary())).unwrap();
    let text = file.write().unwrap();
    insta::assert_snapshot!(text);
    assert_eq!(StatusFile::read(&calico(), text.as_bytes()), Some(file));
    assert_eq!(StatusFile::read(&ClaimKey::cni("other"), text.as_bytes()), None);
}

#[test]
fn the_page_of_the_status_branch_opens_with_the_problems() {
    let ledger = ledger();
    let git = GitSeen::unread(RepoName::from("platform"));
    let files = BTreeMap::from([
        (calico(), StatusFile::of(&calico(), &claim(failed())).unwrap()),
        (ClaimKey::cni("flannel"), StatusFile::of(&ClaimKey::cni("flannel"), &claim(canary())).unwrap()),
    ]);
    let problems = Problems::of(&ledger, &git);
    insta::assert_snapshot!("readme", readme("prod-1", &files, &problems, &ledger));
    insta::assert_snapshot!("problems", problems.write().unwrap());
}

#[test]
fn a_page_without_anything_says_so() {
    let ledger = Ledger::new(RepoName::from("platform"), "main");
    insta::assert_snapshot!(readme("prod-1", &BTreeMap::new(), &Problems::default(), &ledger));
}

#[test]
fn a_refused_rollback_commit_is_a_problem_with_the_words_of_the_server_and_the_way_out() {
    let mut ledger = Ledger::new(RepoName::from("platform"), "main");
    let agent =
        Target::Agent(AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() });
    ledger.targets.entry(agent).or_default().rollbacks.push(rollback());
    let mut git = GitSeen::unread(RepoName::from("platform"));
    let mut refuse = |count| {
        let refused = trunkline::world::git::Refused {
            what: "a1".to_owned(),
            expect: None,
            message: "protected branch hook declined".to_owned(),
            at: at(10 + i64::from(count)),
            count,
        };
        git.refused.insert("a1".to_owned(), refused);
        Problems::of(&ledger, &git)
    };
    let first = refuse(1);
    insta::assert_snapshot!(first.states[0].message);
    assert_eq!(first, refuse(2), "another refusal makes no other bytes");
}

fn message(entry: &RollbackEntry, prefix: &str) -> String {
    commit::rollback(entry, &["clusters/prod-1/calico.yaml".to_owned()], "prod-1", prefix)
}

#[test]
fn the_rollback_commit_tells_the_whole_story() {
    insta::assert_snapshot!("rollback", message(&rollback(), ""));
    let removed =
        RollbackEntry { to: None, to_wish: None, left: Vec::new(), others: Vec::new(), ..rollback() };
    insta::assert_snapshot!("rollback_removed", message(&removed, "network: "));
}

#[test]
fn nothing_from_outside_forges_a_trailer_or_speaks_to_a_forge() {
    let entry = RollbackEntry {
        evidence: "boom\n\nTrunkline-Attempt: a9\nTrunkline-Confirm: rewrite\nfixes #7 @ops [skip ci]"
            .to_owned(),
        reason: "Bad\nTrunkline-Confirm: removal".to_owned(),
        from_version: "v1\n\nTrunkline-Attempt: a8".to_owned(),
        left: vec!["n1\nTrunkline-Attempt: a7".to_owned()],
        ..rollback()
    };
    let message = message(&entry, "");
    let trailers: Vec<&str> = message.lines().filter(|line| line.starts_with("Trunkline-")).collect();
    assert_eq!(trailers.len(), 5, "{message}");
    assert!(trailers[2] == "Trunkline-Attempt: a1", "{message}");
    assert!(!message.contains("#7") && !message.contains("@ops") && !message.contains("[skip ci]"));
}

#[test]
fn lines_of_a_commit_message_are_at_most_72_characters() {
    let message = message(&rollback(), "");
    let long: Vec<&str> = message.lines().skip(1).filter(|line| line.chars().count() > 72).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn status_commits_name_the_object_and_the_phase_and_start_no_pipeline() {
    let line =
        |claim, what: &str, detail: &str| Line { claim, what: what.to_owned(), detail: detail.to_owned() };
    let one = [line(Some(calico()), "Canary", "attempt 1, target v3.28.0, 0/10 on target")];
    let two = [one[0].clone(), line(Some(ClaimKey::cni("flannel")), "Completed", "")];
    insta::assert_snapshot!(format!(
        "{}=====\n{}=====\n{}",
        commit::status("", &one),
        commit::status("network: ", &two),
        commit::status("", &[])
    ));
}

fn world() -> World {
    fn seen<T>(is: T) -> Seen<T> {
        Seen { uid: "uid".into(), rv: Rv(1), since: at(0), is }
    }
    let mut world = World::default();
    world.claims.insert(calico(), seen(claim(failed())));
    world.claims.insert(ClaimKey::cni("flannel"), seen(claim(canary())));
    world.ledgers.insert(RepoName::from("platform"), seen(Ok(Box::new(ledger()))));
    world
}

#[test]
fn status_is_a_tree_with_relative_times() {
    insta::assert_snapshot!(StatusReport::of(&world(), None).text(at(20), Paint::Plain));
    assert_eq!(
        StatusReport::of(&World::default(), None).text(at(20), Paint::Plain),
        "Nothing is declared.\n"
    );
}

#[test]
fn status_as_json_has_absolute_times() {
    let report = StatusReport::of(&world(), Some(&ClaimKey::cni("flannel")));
    insta::assert_json_snapshot!(report);
}

#[test]
fn explain_shows_every_gate_with_its_evidence() {
    let told = |name: &str, verdict, evidence: &str| Gate {
        name: name.to_owned(),
        verdict,
        evidence: evidence.to_owned(),
    };
    let seen = gate::Gate::pass("provider", "calico, DaemonSet kube-system/calico-node");
    let gates = vec![
        Gate::from(&seen),
        told("version skew", Verdict::Fail, "v3.25.0 to v3.28.0 skips two minor versions"),
        told("dry run", Verdict::Unknown, "not asked yet"),
    ];
    let refusal = Refusal::VersionSkew {
        from: "v3.25.0".to_owned(),
        to: "v3.28.0".to_owned(),
        rule: "one minor version at a time".to_owned(),
    };
    let fresh = Explanation::new(&World::default(), &calico(), gates, &[Waiting::DryRun], &[refusal]);
    let failed = Explanation::new(&world(), &calico(), Vec::new(), &[], &[]);
    insta::assert_snapshot!(fresh.text(at(20), Paint::Plain) + &failed.text(at(20), Paint::Plain));
    let coloured = failed.text(at(20), Paint::Coloured);
    assert!(coloured.contains("\u{1b}[1;31mStalled\u{1b}[0m"), "{coloured}");
}
