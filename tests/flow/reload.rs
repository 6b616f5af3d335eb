//! A daemon whose configuration, policies and credentials change while it runs.

use super::{
    daemon::{Daemon, config, get},
    stage::Stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_takes_effect_and_a_faulty_one_leaves_the_one_before() {
    let stage = Stage::in_real_time(2);
    let path = config(&stage);
    let good = std::fs::read_to_string(&path).unwrap();
    let daemon = Daemon::start(&stage, &path);
    let address = daemon.address().await;
    let ready = |engine: u32| {
        let starts = format!("trunkline_engine_starts_total {engine}\n");
        let started = get(&address, "/metrics").is_some_and(|(_, text)| text.contains(&starts));
        (started && get(&address, "/readyz").is_some_and(|(code, _)| code == 200)).then_some(())
    };
    daemon.until("ready", |_| ready(1)).await;
    std::fs::write(&path, good.replace("cluster: prod", "cluster: a/b")).unwrap();
    let told = daemon.says("the new configuration is faulty").await;
    assert!(told["error"].as_str().unwrap().contains("config.yaml: cluster: `a/b` cannot be part"), "{told}");
    let (_, metrics) = get(&address, "/metrics").unwrap();
    assert!(metrics.contains("trunkline_config_reload_success 0"), "{metrics}");
    assert_eq!(get(&address, "/readyz"), Some((200, "ok\n".to_owned())));
    std::fs::write(&path, good.replace("cluster: prod", "cluster: next")).unwrap();
    daemon.until("ready again", |_| ready(2)).await;
    daemon.until("published", |_| stage.remote.tip("trunkline/status/next")).await;
    assert!(get(&address, "/metrics").unwrap().1.contains("trunkline_config_reload_success 1"));
    daemon.terminate();
    let (status, log) = daemon.ended();
    assert!(status.success(), "{status}: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_rotated_counts_at_the_next_look() {
    let stage = Stage::in_real_time_over_http(2);
    let server = stage.server.as_ref().unwrap();
    let folder = server.credentials();
    let right = std::fs::read_to_string(folder.join("token")).unwrap();
    std::fs::write(folder.join("token"), "an old one").unwrap();
    let path = stage.dir.path().join("config.yaml");
    let text = format!(
        "cluster: prod\nrepositories:\n- name: platform\n  url: {}\n  poll: 1s\n  credentials: {}\n",
        server.url(),
        folder.display()
    );
    std::fs::write(&path, text).unwrap();
    let daemon = Daemon::start(&stage, &path);
    let address = daemon.address().await;
    daemon
        .until("refused", |_| {
            let (code, text) = get(&address, "/readyz")?;
            (code == 503 && text.starts_with("repository platform cannot be read")).then_some(())
        })
        .await;
    std::fs::write(folder.join("token"), right).unwrap();
    daemon.until("ready", |_| get(&address, "/readyz").filter(|(code, _)| *code == 200)).await;
    let (_, metrics) = get(&address, "/metrics").unwrap();
    assert!(metrics.contains("trunkline_engine_starts_total 1"), "{metrics}");
    assert!(!daemon.log().contains("an old one"), "{}", daemon.log());
}
