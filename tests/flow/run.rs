//! `trunkline run` as a process, over a kubeconfig.

use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};

use trunkline::clock::later;

use super::{daemon::trunkline, stage::Stage};

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_follows_a_repository_over_a_kubeconfig_and_ends_well_at_sigterm() {
    let stage = Stage::in_real_time(2);
    let served = stage.cluster.serve(0).unwrap();
    let file = |name: &str, text: &str| {
        let path = stage.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let kubeconfig = file("kubeconfig", &served.kubeconfig());
    let url = stage.remote.path().display();
    let config = file(
        "config.yaml",
        &format!("cluster: prod\nrepositories:\n- name: platform\n  url: {url}\n  poll: 1s\n"),
    );
    let daemon = trunkline(stage.dir.path())
        .args(["run", "--allow-local", "--log-format", "json"])
        .args(["--lease-duration", "2s", "--renew-deadline", "1500ms", "--retry-period", "100ms"])
        .args(["--metrics-bind-address", "0", "--config"])
        .arg(config)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .spawn()
        .unwrap();
    let deadline = later(stage.clock.now(), Duration::from_secs(60));
    while stage.remote.tip("trunkline/status/prod").is_none() && stage.clock.now() < deadline {
        stage.clock.sleep_until(later(stage.clock.now(), Duration::from_millis(20))).await;
    }
    let published = stage.remote.tip("trunkline/status/prod");
    assert!(Command::new("kill").arg("-TERM").arg(daemon.id().to_string()).status().unwrap().success());
    let output = daemon.wait_with_output().unwrap();
    let log = errors(&output);
    assert!(published.is_some(), "nothing was published: {log}");
    assert!(output.status.success(), "{:?}: {log}", output.status);
    assert!(log.contains("gave the lease back") && log.contains("stopped"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('{')), "not all lines are JSON: {log}");
}

#[test]
fn a_configuration_that_is_not_there_or_wrong_is_named() {
    let home = tempfile::tempdir().unwrap();
    let absent = home.path().join("absent.yaml");
    let output = trunkline(home.path()).args(["run", "--config"]).arg(&absent).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("absent.yaml"), "{}", errors(&output));
    let wrong = home.path().join("wrong.yaml");
    std::fs::write(&wrong, "cluster: prod\nrepositories: []\nunheardOf: 1\n").unwrap();
    let output = trunkline(home.path()).args(["run", "--config"]).arg(&wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("unheardOf"), "{}", errors(&output));
    let output = trunkline(home.path()).args(["run", "--nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Where nothing can be written: the disk is full.
fn full() -> Stdio {
    std::fs::File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let config = file(
        "config.yaml",
        "cluster: prod\nrepositories:\n- name: platform\n  url: https://git.example.com/platform.git\n",
    );
    let nobody_listens = file(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\n\
         clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         contexts: [{name: a, context: {cluster: a, user: a}}]\n",
    );
    let mut run = trunkline(home.path());
    run.args(["run", "--metrics-bind-address", "0", "--config"])
        .arg(config)
        .arg("--kubeconfig")
        .arg(nobody_listens);
    let told = run.output().unwrap();
    assert!(errors(&told).contains("ERROR") && errors(&told).contains("error: "), "{}", errors(&told));
    let untold = run.stderr(full()).output().unwrap();
    assert_eq!((told.status.code(), untold.status.code()), (Some(1), Some(1)));
}

#[test]
fn a_password_in_a_url_is_not_shown_with_the_line_of_a_fault() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.yaml");
    for line in [
        "ulr: https://me:pass@word@git.example.com/a.git",
        "url: \"https://me:pass@word@git.example.com/a.git",
    ] {
        std::fs::write(&path, format!("cluster: prod\nrepositories:\n- name: platform\n  {line}\n")).unwrap();
        let output = trunkline(home.path()).args(["run", "--config"]).arg(&path).output().unwrap();
        let told = errors(&output);
        assert!(told.contains("line 4") && told.contains("://************@git.example.com/a.git"), "{told}");
        assert!(!told.contains("pass") && !told.contains("word"), "{told}");
    }
}
