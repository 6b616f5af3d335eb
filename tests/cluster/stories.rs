//! Whole stories: a commit, the cluster, and what Git says afterwards.

use std::{path::PathBuf, time::Duration};

use http::Method;
use serde_json::{Value, json};

use super::{
    Case, cases,
    kubelets::{Bad, Trouble},
    manifests::{EXAMPLE, EXAMPLE_NAME, and, calico, upgrade, with_token},
    scene::{CLAIMS, NODES},
    server::Behaviour,
    story::{STATUS, Story},
};

pub(crate) const CASES: &[Case] = cases![
    the_example_is_tried_on_two_of_ten_nodes_and_then_on_all,
    a_bad_canary_goes_back_and_git_says_why,
    what_failed_is_quarantined_until_a_token_and_a_revert_returns,
    a_bad_canary_is_kept_where_nothing_goes_back_by_itself,
    a_new_document_that_failed_is_removed_with_a_line_that_says_so,
    a_branch_that_moves_and_a_hook_that_refuses_get_one_rollback_commit,
    a_remote_that_is_away_holds_no_rollout,
    a_good_manifest_runs_beside_bad_ones,
    thirty_old_manifests_start_nothing,
    what_people_do_to_the_cluster_is_put_back_or_held,
    two_hundred_nodes_follow_fifty_at_a_time,
    a_repository_over_ssh_gets_the_rollout_and_its_statuses,
];

/// Without the half hour of the example.
fn quick(manifest: &str) -> String {
    manifest
        .replace("observationMinutes: 30", "observationMinutes: 0")
        .replace("observationMinutes: 1", "observationMinutes: 0")
}

fn condition<'v>(status: &'v Value, kind: &str) -> &'v Value {
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|of| of["type"] == kind).unwrap_or(&Value::Null)
}

fn crashes() -> Bad {
    Bad::everywhere(Trouble::Crashes, ":v3[.]28[.]0$")
}

async fn the_example_is_tried_on_two_of_ten_nodes_and_then_on_all(programs: PathBuf) {
    let mut story = Story::without_daemon(&programs, 10, &[]).await;
    story.repository().commit("main", &[("README.md", "# network\n")]);
    // As it is shipped: with the built-in profile.
    story.start();
    story.reads().await;
    story.push(&EXAMPLE.replace("observationMinutes: 30", "observationMinutes: 1"));
    let status = story.scene.until_phase(EXAMPLE_NAME, "Canary", 30).await;
    assert_eq!(status["nodes"]["canaries"], 2, "{status}");
    story
        .scene
        .until("both canaries are watched", 60, async || {
            let status = story.scene.status(EXAMPLE_NAME).await?;
            let waiting = status["waitingFor"].as_array()?.clone();
            waiting.iter().any(|of| of["reason"] == "Observing").then_some(())
        })
        .await;
    assert_eq!(story.scene.running("v3.28.0").await, 2);
    let status = story.scene.until_phase(EXAMPLE_NAME, "Completed", 240).await;
    assert_eq!((&status["upgradedNodes"], &status["remainingNodes"]), (&json!(10), &json!(0)), "{status}");
    assert_eq!(story.scene.running("v3.28.0").await, 10);
    story.until_strategy_is_back().await;
    let facts = story.audited(3);
    assert_eq!(facts.deleted.len(), 10);
    assert_eq!(
        facts.phases.values().collect::<Vec<_>>(),
        [&["Pending", "Canary", "RollingOut", "Completed"]]
    );
    story.end().await;
}

async fn a_bad_canary_goes_back_and_git_says_why(programs: PathBuf) {
    let manifest = quick(&calico("v3.27.2")).replace('\n', "\r\n") + "# a comment\r\n";
    let story = Story::begin(&programs, 10, &[crashes()], &[("calico.yaml", &manifest)]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&manifest.replace("v3.27.2", "v3.28.0"));
    let status = story.scene.until_phase("calico", "Failed", 180).await;
    assert_eq!(condition(&status, "RolledBack")["status"], "True", "{status}");
    assert_eq!(story.scene.running("v3.27.2").await, 10);
    story.until_commits(3).await;
    assert_eq!(story.text("calico.yaml"), manifest, "only the bytes of the wish change back");
    let message = story.newest_message();
    assert!(message.contains("CanaryUnhealthy") && message.contains("node-"), "{message}");
    story.until_strategy_is_back().await;
    let facts = story.audited(3);
    // Two canaries went and came back.
    assert_eq!(facts.deleted.len(), 4, "{facts:?}");
    story.end().await;
}

async fn what_failed_is_quarantined_until_a_token_and_a_revert_returns(programs: PathBuf) {
    let first = quick(&calico("v3.27.2"));
    let story = Story::begin(&programs, 3, &[crashes()], &[("calico.yaml", &first)]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&quick(&calico("v3.28.0")));
    story.until_commits(3).await;
    let again = story.push(&quick(&calico("v3.28.0")));
    let quarantined = async || {
        let status = story.scene.status("calico").await?;
        let stalled = condition(&status, "Stalled").clone();
        (stalled["reason"] == "Quarantined").then_some(stalled)
    };
    let stalled = story.scene.until("it is quarantined", 60, quarantined).await;
    assert!(stalled["message"].as_str().unwrap().contains("trunkline.dev/retry"), "{stalled}");
    assert_eq!(story.repository().tip("main"), Some(again));
    story.push(&quick(&with_token("v3.28.1", "one-more")));
    story
        .scene
        .until("the next version runs", 120, async || {
            (story.scene.running("v3.28.1").await == 3).then_some(())
        })
        .await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.until_strategy_is_back().await;
    story.push(&first);
    story
        .scene
        .until("all returned", 120, async || (story.scene.running("v3.27.2").await == 3).then_some(()))
        .await;
    let status = story.scene.until_phase("calico", "Completed", 60).await;
    assert_eq!(status["attempt"]["kind"], "Return", "{status}");
    story.audited(3);
    story.end().await;
}

async fn a_bad_canary_is_kept_where_nothing_goes_back_by_itself(programs: PathBuf) {
    let first = quick(&calico("v3.27.2")).replace("autoRollback: true", "autoRollback: false");
    let story = Story::begin(&programs, 10, &[crashes()], &[("calico.yaml", &first)]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&first.replace("v3.27.2", "v3.28.0"));
    story.scene.until_phase("calico", "Failed", 180).await;
    let restored = async || {
        let set = story.scene.get(super::scene::AGENT).await?;
        let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str()?.to_owned();
        image.ends_with(":v3.27.2").then_some(())
    };
    story.scene.until("the template is put back", 60, restored).await;
    assert_eq!(story.scene.running("v3.28.0").await, 2, "the canaries stay");
    assert_eq!(story.repository().log("main").len(), 2);
    story.audited(3);
    story.end().await;
}

async fn a_new_document_that_failed_is_removed_with_a_line_that_says_so(programs: PathBuf) {
    let story = Story::begin(&programs, 5, &[crashes()], &[("README.md", "# network\n")]).await;
    story.push(&format!("# The network of prod.\n{}", quick(EXAMPLE)));
    story.until_commits(3).await;
    let left = story.text("calico.yaml");
    assert!(left.lines().count() >= 1 && left.lines().all(|line| line.starts_with('#')), "{left}");
    let gone = async || {
        let list = story.scene.get(CLAIMS).await?;
        list["items"].as_array()?.is_empty().then_some(())
    };
    story.scene.until("the custom resource goes", 60, gone).await;
    assert_eq!(story.scene.running("v3.27.2").await, 5);
    story.audited(3);
    story.end().await;
}

async fn a_branch_that_moves_and_a_hook_that_refuses_get_one_rollback_commit(programs: PathBuf) {
    let first = quick(&calico("v3.27.2"));
    let story = Story::begin(&programs, 3, &[crashes()], &[("calico.yaml", &first)]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.git.refuse_pushes_to("main", "main is protected by policy 7");
    story.push(&quick(&calico("v3.28.0")));
    let refused = async || {
        let status = story.scene.status("calico").await?;
        let published = condition(&status, "GitPublished").clone();
        published["message"].as_str()?.contains("protected by policy 7").then_some(())
    };
    story.scene.until("the words of the hook are told", 120, refused).await;
    assert_eq!(story.scene.running("v3.27.2").await, 3, "the cluster is back already");
    let other = story.repository().commit("main", &[("other.md", "more\n")]);
    story.git.allow_pushes();
    story.until_commits(4).await;
    assert_eq!(story.text("other.md"), "more\n");
    assert_eq!(story.text("calico.yaml"), first);
    assert!(story.repository().log("main").contains(&other));
    story.audited(3);
    story.end().await;
}

async fn a_remote_that_is_away_holds_no_rollout(programs: PathBuf) {
    let story = Story::begin(&programs, 4, &[], &[("calico.yaml", &quick(&calico("v3.27.2")))]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&quick(&calico("v3.28.0")));
    story.scene.until_phase("calico", "Canary", 60).await;
    story.git.behave(Behaviour::Away);
    let done = async || (story.scene.running("v3.28.0").await == 4).then_some(());
    story.scene.until("the rollout went on", 120, done).await;
    story.git.behave(Behaviour::Serve);
    let told = async || {
        let repository = story.repository();
        let messages = repository.log(STATUS).into_iter().map(|commit| repository.message(&commit));
        let subjects: Vec<String> =
            messages.filter_map(|message| message.lines().next().map(str::to_owned)).collect();
        let upgrade = subjects.iter().rev().filter(|subject| subject.ends_with("v3.28.0"));
        let mut phases: Vec<&str> = upgrade.filter_map(|subject| subject.split([' ', ',']).nth(1)).collect();
        phases.dedup();
        (phases.last() == Some(&"Completed")).then(|| phases.join(" "))
    };
    let phases = story.scene.until("the end is told", 180, told).await;
    assert_eq!(phases, "Pending Canary RollingOut Completed");
    story.audited(3);
    story.end().await;
}

async fn a_good_manifest_runs_beside_bad_ones(programs: PathBuf) {
    let mut story = Story::without_daemon(&programs, 3, &[]).await;
    story.repository().commit("main", &[("README.md", "# network\n")]);
    story.start();
    story.reads().await;
    let unknown = and(&upgrade("unknown", "v3.28.1"), "maxParalel: 3");
    let doubled = and(&upgrade("doubled", "v3.28.1"), "maxParallel: 4");
    let files = [
        ("calico.yaml", quick(&calico("v3.28.0"))),
        ("a-tab.yaml", "kind: CNIUpgrade\napiVersion: cni.example.com/v1\n\tspec: {}\n".to_owned()),
        ("b-unknown.yaml", unknown),
        ("c-doubled.yaml", doubled),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    story.repository().commit("main", &files);
    story.scene.until_phase("calico", "Completed", 120).await;
    let told = async || {
        let page = story.told("README.md");
        ["a-tab.yaml", "b-unknown.yaml", "c-doubled.yaml"]
            .iter()
            .all(|file| page.contains(file))
            .then_some(())
    };
    story.scene.until("each bad one is told with its place", 60, told).await;
    story.end().await;
}

async fn thirty_old_manifests_start_nothing(programs: PathBuf) {
    let mut story = Story::without_daemon(&programs, 3, &[]).await;
    let files: Vec<(String, String)> = (10..40)
        .map(|minor| {
            (format!("c-{minor}.yaml"), quick(&upgrade(&format!("c-{minor}"), &format!("v3.{minor}.2"))))
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    story.repository().commit("main", &files);
    story.start();
    let status = story.scene.until_phase("c-27", "Completed", 60).await;
    assert_eq!(condition(&status, "Ready")["reason"], "AlreadyRuns", "{status}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let facts = story.audited(3);
    assert_eq!(facts.deleted.len(), 0);
    assert_eq!(story.scene.running("v3.27.2").await, 3);
    let set = story.scene.get(super::scene::AGENT).await.unwrap();
    assert_eq!(set["metadata"]["generation"], 1, "the DaemonSet was never written");
    story.end().await;
}

async fn what_people_do_to_the_cluster_is_put_back_or_held(programs: PathBuf) {
    let story = Story::begin(&programs, 6, &[], &[("calico.yaml", &quick(&calico("v3.27.2")))]).await;
    story.scene.until_phase("calico", "Completed", 60).await;
    let by_hand = json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade", "metadata": { "name": "by-hand" },
        "spec": { "targetVersion": "v3.28.0" },
    });
    story.scene.ask(Method::POST, CLAIMS, &by_hand).await;
    let foreign = async || {
        let status = story.scene.status("by-hand").await?;
        (condition(&status, "Stalled")["reason"] == "NotOurs").then_some(())
    };
    story.scene.until("it is not ours", 30, foreign).await;
    story.push(&quick(&calico("v3.28.0")).replace("maxParallel: 3", "maxParallel: 1"));
    story.scene.until_phase("calico", "Canary", 60).await;
    let path = format!("{CLAIMS}/calico");
    let hold = |reason: Value| json!({ "metadata": { "annotations": { "trunkline.dev/hold": reason } } });
    story.scene.ask(Method::PATCH, &path, &hold(json!("DNS is odd"))).await;
    let held = async || {
        let status = story.scene.status("calico").await?;
        let open = status["nodes"]["open"].as_array().map_or(0, Vec::len);
        (open == 0 && status.to_string().contains("DNS is odd")).then_some(())
    };
    story.scene.until("it is held", 60, held).await;
    let edit = json!({ "spec": { "maxParallel": 6 } });
    story.scene.ask(Method::PATCH, &path, &edit).await;
    let back = async || (story.scene.get(&path).await?["spec"]["maxParallel"] == 1).then_some(());
    story.scene.until("the edited spec is put back", 30, back).await;
    let attempt = story.scene.status("calico").await.unwrap()["attempt"]["id"].clone();
    let finalized = story.scene.get(&path).await.unwrap();
    story.scene.ask(Method::DELETE, &path, &json!({})).await;
    let anew = async || {
        let claim = story.scene.get(&path).await?;
        let same = claim["status"]["attempt"]["id"] == attempt;
        let other = claim["metadata"]["uid"] != finalized["metadata"]["uid"];
        (same && other && claim["metadata"].get("deletionTimestamp").is_none()).then_some(())
    };
    story.scene.until("it is made anew with its attempt", 60, anew).await;
    story.scene.ask(Method::DELETE, &format!("{NODES}/node-005"), &json!({})).await;
    story.scene.ask(Method::PATCH, &path, &hold(Value::Null)).await;
    let status = story.scene.until_phase("calico", "Completed", 180).await;
    assert_eq!(status["upgradedNodes"], 5, "{status}");
    story.audited(1);
    story.end().await;
}

async fn two_hundred_nodes_follow_fifty_at_a_time(programs: PathBuf) {
    let story = Story::begin(&programs, 200, &[], &[("README.md", "# network\n")]).await;
    let manifest = quick(&calico("v3.28.0")).replace("maxParallel: 3", "maxParallel: 50");
    story.push(&manifest);
    let status = story.scene.until_phase("calico", "Completed", 300).await;
    assert_eq!(status["upgradedNodes"], 200, "{status}");
    let facts = story.audited(50);
    assert_eq!(facts.deleted.len(), 200);
    assert!(facts.most_open > 10, "never more than {} at a time", facts.most_open);
    story.end().await;
}

async fn a_repository_over_ssh_gets_the_rollout_and_its_statuses(programs: PathBuf) {
    let mut story = Story::without_daemon(&programs, 3, &[crashes()]).await;
    story.repository().commit("main", &[("calico.yaml", &quick(&calico("v3.27.2")))]);
    story.over_ssh();
    story.quick();
    story.start();
    story.reads().await;
    story.scene.until_phase("calico", "Completed", 60).await;
    story.push(&quick(&calico("v3.28.0")));
    story.until_commits(3).await;
    assert!(story.newest_message().contains("CanaryUnhealthy"));
    assert_eq!(story.git.requests(), [""; 0], "nothing went over HTTP");
    story.audited(3);
    story.end().await;
}
