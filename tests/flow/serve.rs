//! What the daemon tells over HTTP from its start to its end.

use std::{net::TcpListener, time::Duration};

use trunkline::sim::api::Fault;

use super::{
    daemon::{Daemon, config, get, trunkline},
    stage::Stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_says_what_it_is_not_ready_for_and_that_it_is_healthy_meanwhile() {
    let stage = Stage::in_real_time(2);
    stage.cluster.faults().when(|asked| {
        let listed = asked.uri.contains("/cniupgrades") && asked.method == "GET";
        listed.then_some(Fault::Delay(Duration::from_secs(3)))
    });
    let daemon = Daemon::start(&stage, &config(&stage));
    let address = daemon.address().await;
    let told = daemon
        .until("CniUpgrades alone are not ready", |_| {
            let (code, body) = get(&address, "/readyz")?;
            (code == 503 && body.starts_with("CniUpgrades") && body.lines().count() == 1).then_some(body)
        })
        .await;
    assert_eq!(told, "CniUpgrades are being listed\n");
    assert_eq!(get(&address, "/healthz"), Some((200, "ok\n".to_owned())));
    daemon.until("ready", |_| get(&address, "/readyz").filter(|(code, _)| *code == 200)).await;
    let (code, metrics) = get(&address, "/metrics").unwrap();
    assert!(code == 200 && metrics.contains("trunkline_feed_live{feed=\"CniUpgrades\"} 1"), "{metrics}");
    daemon.terminate();
    assert!(daemon.ended().0.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_to_stop_is_not_ready_ends_its_writes_and_starts_nothing_new() {
    let stage = Stage::in_real_time(2);
    stage.cluster.faults().when(|asked| asked.writes().then_some(Fault::Delay(Duration::from_secs(2))));
    let daemon = Daemon::start(&stage, &config(&stage));
    let address = daemon.address().await;
    daemon
        .until("a write", |_| stage.cluster.faults().log().iter().find(|line| line.asked.writes()).cloned())
        .await;
    daemon.terminate();
    daemon
        .until("stopping", |_| {
            let stopping = Some((503, "the process is stopping\n".to_owned()));
            (get(&address, "/readyz") == stopping).then_some(())
        })
        .await;
    assert_eq!(get(&address, "/healthz"), Some((200, "ok\n".to_owned())));
    let (status, log) = daemon.ended();
    assert!(status.success() && log.contains("stopped"), "{status}: {log}");
    let writes: Vec<_> =
        stage.cluster.faults().log().into_iter().filter(|line| line.asked.writes()).collect();
    assert_eq!(writes.len(), 1, "{writes:#?}");
    assert_eq!(writes[0].code, Some(201), "the write was given up: {log}");
}

#[test]
fn an_address_that_is_taken_is_named_with_the_flag_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.yaml");
    let text =
        "cluster: prod\nrepositories:\n- name: platform\n  url: https://git.example.com/platform.git\n";
    for (more, args) in [
        (String::new(), vec!["--metrics-bind-address", &address]),
        (format!("server: {{ metrics: \"{address}\" }}\n"), Vec::new()),
    ] {
        std::fs::write(&file, format!("{text}{more}")).unwrap();
        let output = trunkline(home.path()).args(["run", "--config"]).arg(&file).args(args).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(told.contains(&address) && told.contains("--metrics-bind-address"), "{told}");
    }
    let wrong = trunkline(home.path()).args(["run", "--metrics-bind-address", "8080"]).output().unwrap();
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && told.contains("must be `host:port`"), "{told}");
}
