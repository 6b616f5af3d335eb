use std::time::Duration;

use super::{Config, ConfigError, FirstContact, LeaderElection, Repository, ServeAt};

const FULL: &str = "\
cluster: prod-1
repositories:
  - name: platform
    url: https://git.example.com/platform/clusters.git
    branch: release
    paths: [clusters/prod-1]
    poll: 1m30s
    credentials: /etc/trunkline/git/platform
    allow: { namespaces: [default, web] }
    writeBack:
      status: none
      rollback: none
      commit: { name: bot, email: bot@example.com, subjectPrefix: \"ops: \" }
    firstContact: act
leaderElection: { enabled: false, leaseDuration: 1m, renewDeadline: 40s, retryPeriod: 500ms }
revertWindow: 24h
policies: /etc/trunkline/policies
server: { metrics: \"127.0.0.1:9090\" }
";

const SHORT: &str = "\
cluster: prod-1
repositories:
  - name: platform
    url: https://git.example.com/clusters.git
";

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, "kube-system", "u-1")
}

/// Error of the short file with `line` added to its repository.
fn with(line: &str) -> ConfigError {
    read(&format!("{SHORT}    {line}\n")).unwrap_err()
}

#[test]
fn every_key_is_read() {
    let config = read(FULL).unwrap();
    assert_eq!((config.cluster.as_str(), config.namespace.as_str()), ("prod-1", "kube-system"));
    assert_eq!(config.cluster_uid, "u-1");
    assert_eq!(config.revert_window, Duration::from_secs(24 * 3600));
    assert_eq!(config.metrics, ServeAt::At("127.0.0.1:9090".to_owned()));
    assert_eq!(config.policies.as_deref(), Some("/etc/trunkline/policies"));
    let LeaderElection { enabled, lease_duration, renew_deadline, retry_period } = config.leader_election;
    assert!(!enabled);
    assert_eq!((lease_duration, renew_deadline), (Duration::from_secs(60), Duration::from_secs(40)));
    assert_eq!(retry_period, Duration::from_millis(500));
    let [repository] = config.repositories.as_slice() else { panic!("{config:?}") };
    let Repository { name, url, branch, paths, poll, credentials, .. } = repository;
    assert_eq!((name.as_str(), branch.as_str()), ("platform", "release"));
    assert_eq!(url, "https://git.example.com/platform/clusters.git");
    assert_eq!(
        (paths.as_slice(), *poll),
        (["clusters/prod-1".to_owned()].as_slice(), Duration::from_secs(90))
    );
    assert_eq!(credentials.as_deref(), Some("/etc/trunkline/git/platform"));
    assert!(!repository.status_branch && !repository.rollback_commit);
    assert_eq!((repository.by.name.as_str(), repository.by.email.as_str()), ("bot", "bot@example.com"));
    assert_eq!(repository.subject_prefix, "ops: ");
    assert_eq!(repository.first_contact, FirstContact::Act);
    assert_eq!(repository.allow_namespaces, ["default", "web"]);
}

#[test]
fn what_is_left_out_is_careful_and_writes_back() {
    let config = read(SHORT).unwrap();
    assert_eq!(config.revert_window, Duration::from_secs(72 * 3600));
    assert_eq!(config.metrics, ServeAt::At(":8080".to_owned()));
    assert_eq!(read(&format!("{SHORT}server: {{ metrics: \"0\" }}\n")).unwrap().metrics, ServeAt::Nowhere);
    assert_eq!(config.leader_election, LeaderElection::ASSUMED);
    let [repository] = config.repositories.as_slice() else { panic!("{config:?}") };
    assert_eq!((repository.branch.as_str(), repository.poll), ("main", Duration::from_secs(30)));
    assert_eq!((repository.paths.as_slice(), &repository.credentials), ([String::new()].as_slice(), &None));
    assert!(repository.status_branch && repository.rollback_commit);
    assert_eq!(repository.first_contact, FirstContact::Hold);
    assert_eq!(repository.allow_namespaces, ["*"]);
    assert_eq!(read(&format!("{SHORT}    allow: {{}}\n")).unwrap(), config);
    assert_eq!(read(&format!("{SHORT}    writeBack: {{}}\n")).unwrap(), config);
}

#[test]
fn an_unknown_key_is_shown_in_its_place_with_the_key_that_was_meant() {
    let text = with("brunch: main").to_string();
    assert!(text.contains("line 5, column 5: unknown field `brunch`"), "{text}");
    assert!(text.contains("did you mean `branch`?") && text.ends_with("    brunch: main\n    ^"), "{text}");
    let far = with("colour: red").to_string();
    assert!(far.contains("unknown field `colour`") && !far.contains("did you mean"), "{far}");
}

#[test]
fn a_wrong_value_and_a_missing_key_are_shown_in_their_place() {
    for (line, word) in
        [("poll: soon", "line 5, column 11"), ("firstContact: maybe", "unknown variant `maybe`")]
    {
        let error = with(line);
        assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(read("cluster: a\n").unwrap_err().to_string().contains("repositories"));
    assert!(read("").is_err());
}

#[test]
fn keys_without_a_rule_are_refused_by_name_and_never_ignored() {
    let lines = [
        ("shared: []", "shared"),
        ("preview: advisory", "preview"),
        ("forge: { kind: github }", "forge"),
        ("allow: { kinds: [CNIUpgrade] }", "allow.kinds"),
        ("writeBack: { rollback: pullRequest }", "writeBack.rollback: pullRequest"),
        ("writeBack: { commit: { signing: ssh } }", "writeBack.commit.signing"),
    ];
    for (line, key) in lines {
        let keys = vec![format!("{key} (repository platform)")];
        assert_eq!(with(line), ConfigError::NotSupported { keys });
    }
    let top = "server: { webhook: \":9292\" }\ntakeOver: u-2\ndrift: repair\n";
    let error = read(&format!("{SHORT}{top}")).unwrap_err().to_string();
    assert_eq!(error, "not supported yet: server.webhook, takeOver, drift; leave them out");
}

#[test]
fn values_that_cannot_work_are_all_named_at_once() {
    let text = SHORT.replace("prod-1", "a/b").replace("platform", "Platform") + "    poll: 10ms\n";
    let Err(ConfigError::Invalid { faults }) = read(&text) else { panic!("not found") };
    assert_eq!(faults.len(), 3, "{faults:?}");
    for (line, word) in [
        ("branch: trunkline/status/prod-1", "is the status branch"),
        ("branch: a..b", "no name of a branch"),
        ("branch: ''", "no name of a branch"),
        ("paths: []", "none is given"),
        ("paths: [../other]", "inside of the repository"),
        ("paths: [/etc]", "inside of the repository"),
        ("poll: -30s", "at least 1 s"),
        ("writeBack: { commit: { email: 'a <b>' } }", "on one line"),
        ("writeBack: { commit: { subjectPrefix: \"a\\nb\" } }", "one line"),
    ] {
        let error = with(line).to_string();
        assert!(error.contains(word), "{line}: {error}");
    }
    for address in ["", "8080", ":http", "a b:1", ":70000"] {
        let error = read(&format!("{SHORT}server: {{ metrics: \"{address}\" }}\n")).unwrap_err().to_string();
        assert!(error.contains("server.metrics: must be `host:port`"), "{address}: {error}");
    }
    assert!(read("cluster: a\nrepositories: []\n").unwrap_err().to_string().contains("at least one"));
    assert!(read(&format!("{SHORT}revertWindow: -1h\n")).unwrap_err().to_string().contains("negative"));
}

#[test]
fn a_lease_lasts_longer_than_its_holder_begins_to_write_and_that_longer_than_a_retry() {
    for (periods, word) in [
        ("leaseDuration: 10s", "leaseDuration (10s) must be longer than renewDeadline (10s)"),
        ("renewDeadline: 2s", "renewDeadline (2s), and that longer than retryPeriod (2s)"),
        ("retryPeriod: 0s", "leaderElection: retryPeriod: must be at least 100 ms"),
        ("retryPeriod: -2s", "at least 100 ms"),
        (
            "leaseDuration: 900ms, renewDeadline: 500ms, retryPeriod: 200ms",
            "leaseDuration: must be at least 1 s",
        ),
    ] {
        let error = read(&format!("{SHORT}leaderElection: {{ {periods} }}\n")).unwrap_err().to_string();
        assert!(error.contains(word), "{periods}: {error}");
    }
}

#[test]
fn two_repositories_neither_share_a_name_nor_a_remote() {
    let second = |name: &str, url: &str| {
        read(&format!("{SHORT}  - {{ name: {name}, url: \"{url}\" }}\n")).map_err(|error| error.to_string())
    };
    assert!(second("platform", "https://other.example.com/x.git").unwrap_err().contains("there twice"));
    let same = second("copy", "https://git.example.com/clusters.git").unwrap_err();
    assert!(same.contains("`platform` and `copy` have the same url"), "{same}");
    assert_eq!(second("other", "https://other.example.com/x.git").unwrap().repositories.len(), 2);
}
