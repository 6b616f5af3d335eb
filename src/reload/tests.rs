use std::{future::poll_fn, os::unix::fs::symlink, pin::pin, task::Poll};

use tempfile::TempDir;

use super::*;

const CALICO: &str = include_str!("../../policies/providers/calico.yaml");
const FLANNEL: &str = include_str!("../../policies/providers/flannel.yaml");

fn config(branch: &str) -> String {
    format!(
        "cluster: prod\nrepositories:\n- name: platform\n  url: https://git.example.com/a.git\n  branch: {branch}\n"
    )
}

struct Files {
    dir: TempDir,
    sources: Sources,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources {
            config: dir.path().join("config.yaml"),
            namespace: "kube-system".to_owned(),
            cluster_uid: "u".to_owned(),
            allow_local: false,
            election: ElectionFlags::default(),
        };
        let files = Self { dir, sources };
        files.write("config.yaml", &config("main"));
        files
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The configuration with a policies folder beside it.
    fn with_policies(&self) {
        let folder = self.dir.path().join("policies");
        self.write("config.yaml", &format!("{}policies: {}\n", config("main"), folder.display()));
    }

    fn names(&self) -> Vec<String> {
        self.sources.read().unwrap().profiles.into_iter().map(|profile| profile.name).collect()
    }

    fn error(&self) -> String {
        self.sources.read().unwrap_err().to_string()
    }

    fn changes(&self, metrics: &Metrics) -> Changes {
        let current = self.sources.read().unwrap();
        Changes::of(self.sources.clone(), current, Clock::real(), metrics.clone())
    }
}

#[test]
fn a_version_that_does_not_go_with_the_flags_is_faulty() {
    let mut files = Files::new();
    files.sources.election.renew_deadline = Some(Duration::from_secs(14));
    assert_eq!(files.sources.read().unwrap().config.leader_election.renew_deadline, Duration::from_secs(14));
    files.write("config.yaml", &format!("{}leaderElection: {{ leaseDuration: 13s }}\n", config("main")));
    assert!(files.error().contains("config.yaml: leaderElection, with the flags: "), "{}", files.error());
}

#[test]
fn profiles_of_a_policies_folder_take_the_place_of_the_built_in_ones() {
    let files = Files::new();
    assert_eq!(files.names(), ["calico", "flannel"]);
    files.with_policies();
    files.write("policies/providers/own.yml", &FLANNEL.replace("name: flannel", "name: own"));
    // What a mounted ConfigMap has beside its files.
    files.write("policies/providers/..2026_11_30/own.yml", "no profile");
    assert_eq!(files.names(), ["own"]);
}

#[test]
fn whatever_is_wrong_with_a_policies_folder_names_the_file() {
    let files = Files::new();
    files.with_policies();
    assert!(files.error().contains("policies cannot be read: No such file"), "{}", files.error());
    files.write("policies/providers/a.yaml", CALICO);
    for (name, text, says) in [
        ("policies/guardrails/a.yaml", "a: 1", "policies/guardrails: unknown"),
        ("policies/providers/README.md", "", "providers/README.md: unknown"),
        ("policies/providers/b.yaml", CALICO, "providers/b.yaml: another file has a profile `calico`"),
        ("policies/providers/b.yaml", "kind: Provider\nx: 1\n", "providers/b.yaml: "),
    ] {
        files.write(name, text);
        assert!(files.error().contains(says), "{}", files.error());
        let path = files.dir.path().join(name);
        fs::remove_file(&path).unwrap();
        if name.contains("guardrails") {
            fs::remove_dir(path.parent().unwrap()).unwrap();
        }
    }
    fs::remove_file(files.dir.path().join("policies/providers/a.yaml")).unwrap();
    assert!(files.error().contains("no profile is in it"), "{}", files.error());
}

#[test]
fn a_url_that_is_not_allowed_is_found_before_an_engine_ends_for_it() {
    let files = Files::new();
    files.write("config.yaml", &config("main").replace("https://git.example.com", "ext::sh"));
    assert!(files.error().contains("config.yaml: repository platform: "), "{}", files.error());
}

#[tokio::test]
async fn a_changed_file_is_handed_out_and_a_faulty_one_changes_nothing() {
    let (files, metrics) = (Files::new(), Metrics::default());
    metrics.config_read(true, Clock::real().now());
    let mut changes = files.changes(&metrics);
    let mut next = pin!(changes.next());
    assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
    files.write("config.yaml", "cluster: prod\n");
    let faulty = async {
        while !metrics.text().contains("trunkline_config_reload_success 0") {
            Clock::real().sleep_until(later(Clock::real().now(), Duration::from_millis(20))).await;
        }
    };
    tokio::select! {
        loaded = next.as_mut() => panic!("{loaded:?}"),
        () = faulty => {}
    }
    // The same fault once more is no news.
    files.write("config.yaml", "cluster: prod\n");
    files.write("config.yaml", &config("next"));
    assert_eq!(next.await.config.repositories[0].branch, "next");
    let text = metrics.text();
    assert!(text.contains("trunkline_config_reload_success 1"), "{text}");
    assert!(text.contains("trunkline_config_reloads_total{outcome=\"faulty\"} 1"), "{text}");
}

#[tokio::test]
async fn a_mounted_config_map_is_read_again_when_its_link_is_swapped() {
    let (files, metrics) = (Files::new(), Metrics::default());
    let dir = files.dir.path();
    files.write("..1/config.yaml", &config("main"));
    files.write("..2/config.yaml", &config("next"));
    fs::remove_file(dir.join("config.yaml")).unwrap();
    symlink("..1", dir.join("..data")).unwrap();
    symlink("..data/config.yaml", dir.join("config.yaml")).unwrap();
    let mut changes = files.changes(&metrics);
    symlink("..2", dir.join("..data_tmp")).unwrap();
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    assert_eq!(changes.next().await.config.repositories[0].branch, "next");
}

#[tokio::test]
async fn a_changed_profile_is_handed_out() {
    let (files, metrics) = (Files::new(), Metrics::default());
    files.with_policies();
    files.write("policies/providers/a.yaml", CALICO);
    let mut changes = files.changes(&metrics);
    files.write("policies/providers/b.yaml", FLANNEL);
    assert_eq!(changes.next().await.profiles.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn files_of_which_nothing_is_heard_are_read_every_minute() {
    let (files, metrics) = (Files::new(), Metrics::default());
    let (current, clock) = (files.sources.read().unwrap(), Clock::embedded(jiff::Timestamp::UNIX_EPOCH));
    let heard = Arc::new(Notify::new());
    let mut changes =
        Changes { sources: files.sources.clone(), current, heard, clock, metrics, _watcher: None };
    files.write("config.yaml", &config("next"));
    assert_eq!(changes.next().await.config.repositories[0].branch, "next");
    assert_eq!(clock.now().as_second(), 60);
}
