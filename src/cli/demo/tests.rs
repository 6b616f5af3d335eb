use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

use super::*;
use crate::{
    clock::later,
    git::{Git2Remote, GitOptions},
    world::git::Signature,
};

const BEGIN: &str = "2026-03-01T10:00:00Z";

/// A demo without a terminal: four nodes, everything shown as JSON lines.
struct Played {
    dir: tempfile::TempDir,
    args: Args,
    clock: Clock,
    shown: Rc<RefCell<Vec<Value>>>,
    stopped: Cell<ExitCode>,
}

impl Played {
    fn new(scenario: Scenario) -> Self {
        let args = Args {
            scenario,
            nodes: 4,
            max_parallel: 3,
            speed: Some(Speed::Max),
            dir: None,
            stay: false,
            output: Output::Json,
        };
        Self {
            dir: tempfile::tempdir().unwrap(),
            args,
            clock: Clock::embedded(BEGIN.parse().unwrap()),
            shown: Rc::default(),
            stopped: Cell::new(ExitCode::from(STOPPED)),
        }
    }

    /// Plays it to its end.
    async fn end(&self) -> anyhow::Result<ExitCode> {
        let shown = Rc::clone(&self.shown);
        let out = move |text: String| {
            shown.borrow_mut().push(serde_json::from_str(&text).unwrap_or(Value::String(text)));
        };
        let screen = Screen::new(self.args.output, || None, BEGIN.parse().unwrap(), Box::new(out));
        play(&self.args, self.dir.path(), screen, &self.stopped).await
    }

    /// Plays it while the remote is away from a moment on, and for how long.
    async fn end_without_remote(&self, from: Timestamp, away: Option<Duration>) -> anyhow::Result<ExitCode> {
        let (here, elsewhere) = (self.dir.path().join("remote.git"), self.dir.path().join("elsewhere"));
        let meddle = async {
            self.clock.sleep_until(from).await;
            std::fs::rename(&here, &elsewhere).unwrap();
            let Some(away) = away else { return };
            self.clock.sleep_until(later(from, away)).await;
            std::fs::rename(&elsewhere, &here).unwrap();
        };
        tokio::join!(self.end(), meddle).0
    }

    /// Texts of all events of a kind, in order.
    fn texts(&self, kind: &str) -> Vec<String> {
        let shown = self.shown.borrow();
        let of_kind = shown.iter().filter(|event| event["event"] == kind);
        of_kind.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// When something of a kind happened.
    fn times(&self, kind: &str) -> Vec<Timestamp> {
        let shown = self.shown.borrow();
        let of_kind = shown.iter().filter(|event| event["event"] == kind);
        of_kind.map(|event| event["at"].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Phases that the status branch tells, each once, in order.
    fn phases_told(&self) -> Vec<String> {
        let remote = self.dir.path().join("remote.git");
        let log = bare::log(&remote, &Repository::status_branch_name(CLUSTER), 100).unwrap();
        let phase = |commit: &CommitInfo| {
            let (_, told) = subject(commit).split_once(": ")?;
            let word = told.split([' ', ',']).next()?;
            word.starts_with(char::is_uppercase).then(|| word.to_owned())
        };
        let mut phases: Vec<String> = log.iter().rev().filter_map(phase).collect();
        phases.dedup();
        phases
    }
}

#[tokio::test(start_paused = true)]
async fn every_node_that_is_put_back_is_told_to_be_healthy_again_on_the_old_version() {
    let mut played = Played::new(Scenario::BadCanary);
    played.args.nodes = 10;
    assert_eq!(played.end().await.unwrap(), ExitCode::SUCCESS);
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in played.texts("node") {
        let (node, what) = text.split_once(' ').unwrap();
        told.entry(node.to_owned()).or_default().push(what.split(" (").next().unwrap().to_owned());
    }
    let replaced = "its agent pod is replaced";
    let (failed, back) = ("failed: AgentCrashLooping", "its agent pod is replaced, back to v3.27.2");
    let again = "healthy again on v3.27.2";
    let mut told: Vec<_> = told.into_values().collect();
    told.sort();
    assert_eq!(told, [vec![replaced, failed, back, again], vec![replaced, "healthy", back, again]]);
}

/// Which of a story's lines break the order of what happened: more in flight than may be, an end before its cause.
fn out_of_order(shown: &[Value], max_parallel: usize) -> Vec<String> {
    let (mut in_flight, mut ended, mut on_main, mut faults) = (BTreeSet::new(), None, Vec::new(), Vec::new());
    for event in shown {
        let (data, text) = (&event["data"], event["text"].as_str().unwrap());
        let lets_go = ["settled", "failed"].contains(&data["state"].as_str().unwrap_or_default());
        let fault = match event["event"].as_str().unwrap() {
            "node" if lets_go => {
                in_flight.remove(&data["node"].to_string());
                ended.as_ref() == Some(&event["at"])
            }
            "node" => {
                in_flight.insert(data["node"].to_string());
                in_flight.len() > max_parallel
            }
            "phase" => {
                let is_end = ["Rollback", "Failed", "Completed"].contains(&data["phase"].as_str().unwrap());
                ended = is_end.then(|| event["at"].clone());
                false
            }
            "push" | "commit" if data["branch"] != "trunkline/status/demo" => {
                let again = on_main.contains(&data["commit"]);
                on_main.push(data["commit"].clone());
                again
            }
            "condition" => text.contains("Git and cluster agree") && on_main.len() < 3,
            _ => false,
        };
        faults.extend(fault.then(|| text.to_owned()));
    }
    faults
}

#[tokio::test(start_paused = true)]
async fn lines_of_one_moment_come_in_the_order_of_cause_and_consequence() {
    for scenario in [Scenario::Upgrade, Scenario::BadCanary, Scenario::BadCanaryKept, Scenario::Revert] {
        let mut played = Played::new(scenario);
        played.args.nodes = 10;
        played.end().await.unwrap();
        assert_eq!(out_of_order(&played.shown.borrow(), 3), Vec::<String>::new(), "{scenario:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_story_ends_once_the_status_branch_says_what_the_custom_resource_says() {
    let played = Played::new(Scenario::BadCanary);
    played.end().await.unwrap();
    let (remote, branch) = (played.dir.path().join("remote.git"), Repository::status_branch_name(CLUSTER));
    for file in ["README.md", "CNIUpgrade/calico.yaml"] {
        let text = String::from_utf8(bare::file(&remote, &branch, file).unwrap().unwrap()).unwrap();
        assert!(!text.contains("Git has to say so too"), "{text}");
        assert!(text.contains("Git and cluster agree on v3.27.2 again"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lines_to_copy_include_the_one_that_holds_the_object_of_the_story() {
    let mut played = Played::new(Scenario::BadCanaryKept);
    played.args.output = Output::Text;
    played.end().await.unwrap();
    let kubeconfig = played.dir.path().join("kubeconfig");
    let line = format!(
        "\n  kubectl --kubeconfig {} annotate cniupgrade calico trunkline.dev/hold=looking\n",
        kubeconfig.display()
    );
    let shown = played.shown.borrow();
    assert!(shown.last().unwrap().as_str().unwrap().contains(&line), "{shown:?}");
}

/// What a terminal of 24 columns is given: each text that a screen prints.
fn printed(show: impl FnOnce(&mut Screen)) -> Vec<String> {
    let texts: Rc<RefCell<Vec<String>>> = Rc::default();
    let kept = Rc::clone(&texts);
    let out = Box::new(move |text| kept.borrow_mut().push(text));
    show(&mut Screen::new(Output::Text, || Some(24), BEGIN.parse().unwrap(), out));
    texts.take()
}

#[test]
fn the_tree_below_the_lines_says_where_it_is_cut_and_is_left_whole_at_the_end() {
    let tree = "calico  Failed\n└─ way on  commit the annotation\n";
    let shown = printed(|screen| {
        screen.tree(tree.to_owned());
        screen.close();
    });
    let cut = "\x1b[?7l\ncalico  Failed\n└─ way on  commit the a…\n\x1b[?7h";
    let whole = "\ncalico  Failed\n└─ way on  commit the\n   annotation\n";
    assert_eq!(shown, [cut, "\x1b[3A\x1b[J", whole]);
}

#[test]
fn a_line_has_the_time_of_the_cluster_in_the_zone_of_the_times_in_its_text() {
    let at = "2026-03-01T10:01:05.7Z".parse().unwrap();
    let shown = printed(|screen| screen.say(at, "waiting", "waits until 10:31:05Z", &json!({})));
    assert_eq!(shown, ["10:01:05Z waits until 10:31:05Z\n"]);
}

/// Plays a story again and again, each time without the remote from another push or phase on, the first ones left out.
async fn without_remote_for_a_while(scenario: Scenario, left_out: usize) {
    let undisturbed = Played::new(scenario);
    assert_eq!(undisturbed.end().await.unwrap(), ExitCode::SUCCESS);
    let mut points = undisturbed.times("phase");
    points.extend(undisturbed.times("push"));
    points.sort();
    points.dedup();
    for point in points.into_iter().skip(left_out) {
        let played = Played::new(scenario);
        let ended = played.end_without_remote(point, Some(Duration::from_secs(300))).await;
        assert!(ended.is_ok(), "{scenario:?} without remote from {point}: {ended:?}");
        assert_eq!(played.phases_told(), undisturbed.phases_told(), "{scenario:?} {point}");
        assert_eq!(played.texts("phase"), undisturbed.texts("phase"), "{scenario:?} {point}");
        assert_eq!(played.texts("remote").len(), 2, "{scenario:?} {point}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_ends_well_and_tells_every_phase_whenever_the_remote_was_away() {
    without_remote_for_a_while(Scenario::Upgrade, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_ends_well_and_tells_every_phase_whenever_the_remote_was_away() {
    without_remote_for_a_while(Scenario::BadCanary, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_kept_tells_every_phase_whenever_the_remote_was_away() {
    without_remote_for_a_while(Scenario::BadCanaryKept, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_revert_ends_well_and_tells_every_phase_whenever_the_remote_was_away() {
    // Up to the completion it is the story of the upgrade.
    without_remote_for_a_while(Scenario::Revert, 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_goes_on_while_the_remote_is_away() {
    let undisturbed = Played::new(Scenario::Upgrade);
    undisturbed.end().await.unwrap();
    let canary = undisturbed.times("phase")[1];
    let played = Played::new(Scenario::Upgrade);
    let away = Duration::from_secs(3000);
    played.end_without_remote(canary, Some(away)).await.unwrap();
    let told = played.times("phase");
    assert_eq!(told.len(), undisturbed.times("phase").len());
    assert!(*told.last().unwrap() < later(canary, away), "{told:?}");
    assert_eq!(played.phases_told(), undisturbed.phases_told());
}

#[tokio::test(start_paused = true)]
async fn a_remote_that_stays_away_fails_the_demo_in_bounded_time_and_says_so() {
    let undisturbed = Played::new(Scenario::Revert);
    undisturbed.end().await.unwrap();
    let last = *undisturbed.times("push").last().unwrap();
    for point in [BEGIN.parse().unwrap(), undisturbed.times("phase")[3], last] {
        let played = Played::new(Scenario::Revert);
        let why = format!("{:#}", played.end_without_remote(point, None).await.unwrap_err());
        assert!(why.contains("remote.git has been away since"), "{why}");
        assert_eq!(played.shown.borrow().last().unwrap()["data"]["ok"], false);
        assert!(played.clock.now() < later(point, Duration::from_secs(2 * 3600)), "{}", played.clock.now());
    }
}

/// Pushes a commit that the story does not know of.
fn push_between(dir: &Path, at: Timestamp) {
    let remote = dir.join("remote.git");
    let clone = Git2Remote::open(GitOptions {
        url: remote.to_str().unwrap().to_owned(),
        clone_dir: dir.join("other"),
        credentials: None,
        allow_local: true,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(20),
    });
    let by = Signature { name: "other".to_owned(), email: "other@example.com".to_owned() };
    let files = BTreeMap::from([("README.md".to_owned(), Some("Read me.\n".to_owned()))]);
    bare::Author::new(clone.unwrap(), &remote, BRANCH, by).commit(&files, "Say more\n", at).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_story_that_somebody_disturbs_stays_up_where_it_is_asked_to_and_ends_with_1() {
    for stay in [false, true] {
        let mut played = Played::new(Scenario::Upgrade);
        played.args.stay = stay;
        let begin: Timestamp = BEGIN.parse().unwrap();
        let meddle = async {
            played.clock.sleep_until(later(begin, Duration::from_secs(1200))).await;
            push_between(played.dir.path(), played.clock.now());
            while played.texts("stay").is_empty() {
                played.clock.sleep_until(later(played.clock.now(), Duration::from_secs(1))).await;
            }
        };
        tokio::select! {
            ended = played.end() => {
                assert!(!stay, "{ended:?}");
                let why = format!("{:#}", ended.unwrap_err());
                assert!(why.ends_with("2 commits on main instead of 1"), "{why}");
            }
            () = meddle => assert!(stay),
        }
        let another_way = "The story went another way: 2 commits on main instead of 1.";
        assert_eq!(played.texts("story"), Vec::from_iter(stay.then_some(another_way)));
        assert_eq!(played.texts("stay").len(), usize::from(stay));
        let code = if stay { ExitCode::FAILURE } else { ExitCode::from(STOPPED) };
        assert_eq!(played.stopped.get(), code);
    }
}
