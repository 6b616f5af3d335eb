use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::{Metrics, PushedTo, objects::MOST};
use crate::{
    api::{
        ClaimKey,
        names::{Digest, Oid, RepoName, Rv, Uid},
    },
    git::{GitError, Pushed},
    rollout::effect::{EffectOutcome, StepName},
    world::{Claim, ClaimStatus, Feed, FeedHealth, Key, Seen},
};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn claim(status: ClaimStatus) -> Seen<Claim> {
    let is = Claim {
        generation: 1,
        annotations: BTreeMap::new(),
        hold: None,
        foreign: false,
        finalizer: true,
        deleting: false,
        spec: Arc::new(json!({})),
        digest: Digest::new("d"),
        status,
    };
    Seen { uid: Uid::new("u"), rv: Rv(1), since: NOW, is }
}

fn cni(status: &serde_json::Value) -> Seen<Claim> {
    claim(ClaimStatus::Cni(Box::new(serde_json::from_value(status.clone()).unwrap())))
}

fn attempt(number: i64, outcome: Option<&str>) -> Seen<Claim> {
    let mut attempt =
        json!({ "id": format!("a{number}"), "number": number, "wish": "w1:0", "startedAt": NOW });
    if let Some(outcome) = outcome {
        attempt["outcome"] = json!(outcome);
        attempt["finishedAt"] = json!(NOW);
    }
    cni(&json!({
        "phase": "RollingOut", "upgradedNodes": 2, "failedNodes": 1, "attempt": attempt,
        "nodes": { "inFlight": 3 },
        "waitingFor": [{ "reason": "Budget", "message": "" }, { "reason": "Settling", "message": "" }],
    }))
}

/// Metrics with at least one series each.
fn full() -> Metrics {
    let (metrics, repo) = (Metrics::default(), RepoName::new("platform"));
    metrics.engine_starts();
    metrics.passed(&Key::Mirror(repo.clone()), SECOND);
    metrics.due(2);
    metrics.effect_ended(StepName::DeletePod, &EffectOutcome::Done, SECOND);
    metrics.heard(Feed::Nodes, Some(&FeedHealth::Live(NOW)), NOW);
    metrics.fetched(&repo, Ok(()), SECOND, NOW);
    metrics.pushed(&repo, PushedTo::Status, Ok(&Pushed::Done(Oid::new("b"))), SECOND);
    metrics.repository(&repo, Some(&Oid::new("a")), Some(&Oid::new("b")), NOW);
    metrics.role(true, Some(3));
    metrics.config_read(true, NOW);
    metrics.object(&ClaimKey::cni("calico"), Some(&attempt(1, None)));
    metrics.object(&ClaimKey::cni("calico"), Some(&attempt(1, Some("Completed"))));
    let failed =
        ClaimStatus::Service(Box::new(serde_json::from_value(json!({ "phase": "Failed" })).unwrap()));
    metrics.object(&ClaimKey::service("web", "shop"), Some(&claim(failed)));
    metrics
}

#[track_caller]
fn has(metrics: &Metrics, line: &str) {
    let text = metrics.text();
    assert!(text.lines().any(|one| one == line), "`{line}` is not in\n{text}");
}

#[test]
fn an_object_has_its_phase_nodes_and_reasons_and_they_go_with_it() {
    let metrics = full();
    let own = "kind=\"CNIUpgrade\",namespace=\"\",name=\"calico\"";
    has(&metrics, &format!("trunkline_object_phase{{{own},phase=\"RollingOut\"}} 1"));
    has(&metrics, &format!("trunkline_object_nodes{{{own},state=\"in_flight\"}} 3"));
    has(&metrics, &format!("trunkline_object_waiting{{{own},reason=\"Settling\"}} 1"));
    has(&metrics, "trunkline_objects{kind=\"CNIUpgrade\",phase=\"RollingOut\"} 1");
    metrics.object(&ClaimKey::cni("calico"), None);
    assert!(!metrics.text().contains("calico"), "{}", metrics.text());
    has(&metrics, "trunkline_attempts_total{outcome=\"Completed\"} 1");
}

#[test]
fn objects_that_a_list_does_not_name_any_more_are_gone() {
    let metrics = full();
    metrics.all_objects(&BTreeMap::from([(ClaimKey::cni("other"), attempt(1, None))]));
    assert!(!metrics.text().contains("calico") && metrics.text().contains("other"));
}

#[test]
fn an_attempt_counts_once_when_it_ends_and_not_when_it_is_found_ended() {
    let (metrics, key) = (Metrics::default(), ClaimKey::cni("calico"));
    metrics.object(&key, Some(&attempt(1, Some("RolledBack"))));
    assert!(!metrics.text().contains("trunkline_attempts"));
    for outcome in [None, Some("Held"), Some("Held")] {
        metrics.object(&key, Some(&attempt(2, outcome)));
    }
    has(&metrics, "trunkline_attempts_total{outcome=\"Held\"} 1");
    assert!(!metrics.text().contains("RolledBack"));
}

#[test]
fn the_published_metrics_of_a_service_upgrade_are_there_under_their_names() {
    let metrics = full();
    has(&metrics, "service_operator_upgrade_phase{namespace=\"web\",name=\"shop\",phase=\"failed\"} 1");
    has(&metrics, "service_operator_canary_errors_total{namespace=\"web\",name=\"shop\"} 0");
}

#[test]
fn ten_thousand_objects_have_a_bounded_number_of_series() {
    let metrics = Metrics::default();
    for number in 0..10_000 {
        metrics.object(&ClaimKey::cni(&format!("object-{number}")), Some(&attempt(1, None)));
    }
    let text = metrics.text();
    let phases = text.lines().filter(|line| line.starts_with("trunkline_object_phase{")).count();
    assert_eq!(phases, MOST);
    has(&metrics, "trunkline_objects_left_out 9000");
    has(&metrics, "trunkline_objects{kind=\"CNIUpgrade\",phase=\"RollingOut\"} 10000");
    assert!(text.lines().count() < 12 * MOST, "{}", text.lines().count());
}

#[test]
fn a_text_from_outside_stays_one_label() {
    let metrics = Metrics::default();
    let status = json!({ "waitingFor": [{ "reason": "a\"} 1\nevil 2", "message": "" }] });
    metrics.object(&ClaimKey::cni("calico"), Some(&cni(&status)));
    assert!(!metrics.text().lines().any(|line| line.starts_with("evil")), "{}", metrics.text());
}

#[test]
fn the_time_of_acceptance_is_that_of_the_first_sight() {
    let (metrics, repo, oid) = (Metrics::default(), RepoName::new("platform"), Oid::new("a"));
    for (second, head) in [(7, "a"), (9, "b")] {
        let now = Timestamp::from_second(second).unwrap();
        metrics.repository(&repo, Some(&oid), Some(&Oid::new(head)), now);
    }
    has(&metrics, "trunkline_repository_accepted_timestamp_seconds{repository=\"platform\"} 7.0");
    has(&metrics, "trunkline_repository_accepted_is_head{repository=\"platform\"} 0");
}

#[test]
fn what_fails_is_counted_by_its_kind() {
    let (metrics, repo) = (Metrics::default(), RepoName::new("platform"));
    metrics.fetched(&repo, Err(&GitError::Unauthorised(String::new())), SECOND, NOW);
    metrics.pushed(&repo, PushedTo::Tracked, Ok(&Pushed::Refused(String::new())), SECOND);
    metrics.config_read(true, NOW);
    metrics.config_read(false, NOW);
    has(&metrics, "trunkline_git_fetches_total{repository=\"platform\",outcome=\"unauthorised\"} 1");
    has(
        &metrics,
        "trunkline_git_pushes_total{repository=\"platform\",branch=\"tracked\",outcome=\"refused\"} 1",
    );
    has(&metrics, "trunkline_config_reload_success 0");
    assert!(!metrics.text().contains("trunkline_git_last_fetch"));
}

#[test]
fn a_new_engine_starts_with_the_repositories_and_objects_that_it_sees() {
    let metrics = full();
    metrics.engine_starts();
    let text = metrics.text();
    assert!(!text.contains("platform") && !text.contains("calico"), "{text}");
    has(&metrics, "trunkline_engine_starts_total 2");
}

/// Name, type, labels and help of every metric.
fn table(text: &str) -> String {
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            rows.push((name, help.trim_end_matches('.'), "", Vec::new()));
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            rows.last_mut().unwrap().2 = kind;
        } else if let (Some(row), Some((_, rest))) = (rows.last_mut(), line.split_once('{')) {
            let labels = rest.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            row.3 = labels.filter(|label| *label != "le").map(|label| format!("`{label}`")).collect();
        }
    }
    rows.sort_unstable();
    for (name, help, kind, labels) in rows {
        let _ = writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    table
}

#[test]
fn the_page_about_metrics_lists_all_of_them() {
    const MARKS: (&str, &str) = ("<!-- metrics -->\n", "<!-- /metrics -->\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/monitoring/METRICS.md");
    let table = table(&full().text());
    for source in [include_str!("../metrics.rs"), include_str!("objects.rs")] {
        let names = source
            .split('"')
            .filter(|text| text.starts_with("trunkline_") || text.starts_with("service_operator_"));
        for name in names {
            assert!(table.contains(&format!("`{name}")), "`full` makes no series of {name}");
        }
    }
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(MARKS.0).expect("METRICS.md has the mark <!-- metrics -->");
    let (shown, after) = rest.split_once(MARKS.1).expect("METRICS.md has the mark <!-- /metrics -->");
    if shown != table && std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1)).unwrap();
        return;
    }
    assert_eq!(shown, table, "METRICS.md is out of date; run the tests with UPDATE_GENERATED=1");
}
