//! Faults of the embedded API server: each does what it says and nothing else.

use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request};
use serde_json::{Value, json};
use trunkline::sim::api::{Asked, Fault, route::Verb};

use super::Embedded;
use crate::conformance::plane::{MERGE_PATCH, Plane, config_map, refusal};

/// Whether the connection broke.
async fn breaks(plane: &Plane, name: &str) -> bool {
    let body = config_map(name, "1").to_string().into_bytes();
    let request = Request::post(plane.config_maps()).body(body).unwrap();
    !matches!(plane.client.request::<Value>(request).await, Ok(_) | Err(kube::Error::Api(_)))
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_done_and_an_unreachable_server_does_nothing() {
    let (embedded, plane) = Embedded::with_plane().await;
    let faults = embedded.cluster.faults();
    faults.at(faults.next_index(), Fault::Unreachable);
    assert!(breaks(&plane, "a").await);
    assert_eq!(refusal(plane.get(&plane.config_map("a")).await).0, 404);
    faults.at(faults.next_index(), Fault::LostReply);
    assert!(breaks(&plane, "a").await);
    assert!(plane.get(&plane.config_map("a")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rule_refuses_the_writes_that_it_names() {
    let (embedded, plane) = Embedded::with_plane().await;
    for (fault, code) in [(Fault::Conflict, 409), (Fault::TooManyRequests(7), 429), (Fault::Internal, 500)] {
        embedded.cluster.faults().when(move |asked| asked.is(Verb::Create, "ConfigMap").then_some(fault));
        let status = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap_err();
        assert_eq!(status.code, code);
        assert!(code != 429 || status.details.unwrap().retry_after_seconds == 7);
        assert!(plane.get(&plane.config_maps()).await.is_ok());
        embedded.cluster.faults().clear();
    }
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_before_anything_is_done() {
    let (embedded, plane) = Embedded::with_plane().await;
    embedded.cluster.faults().once(Fault::Delay(Duration::from_secs(20)), Asked::writes);
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-03-01T10:00:20Z");
    let made = plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-03-01T10:00:20Z");
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_shows_the_state_some_versions_ago() {
    let (embedded, plane) = Embedded::with_plane().await;
    let path = plane.config_map("a");
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let change = json!({ "data": { "key": "2" } });
    let second = plane.patch(&path, MERGE_PATCH, &change).await.unwrap();
    plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    embedded.cluster.faults().when(|asked| asked.verb.is_some_and(Verb::reads).then_some(Fault::Stale(2)));
    assert_eq!(plane.get(&path).await.unwrap(), first);
    let list = plane.get(&plane.config_maps()).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    embedded.cluster.faults().clear();
    assert_eq!(plane.get(&path).await.unwrap(), second);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_cut_after_so_many_events() {
    let (embedded, plane) = Embedded::with_plane().await;
    embedded.cluster.faults().once(Fault::CutWatch(1), |asked| asked.verb == Some(Verb::Watch));
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    let mut lines = plane.watch(&format!("{}?watch=true", plane.config_maps())).await;
    assert!(lines.next().await.unwrap().is_ok());
    assert!(lines.next().await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_every_request_with_its_outcome() {
    let (embedded, plane) = Embedded::with_plane().await;
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    embedded.cluster.faults().once(Fault::Internal, |asked| asked.verb == Some(Verb::Get));
    let path = format!("{}?x=y", plane.config_map("a"));
    assert_eq!(refusal(plane.get(&path).await).0, 500);
    assert_eq!(refusal(plane.ask(Method::GET, "/what", "", None).await).0, 404);
    // The first one made the namespace.
    let log = embedded.cluster.faults().log().split_off(1);
    let shown: Vec<_> = log
        .iter()
        .map(|logged| (logged.asked.index, logged.asked.method.as_str(), logged.asked.verb, logged.code))
        .collect();
    assert_eq!(
        shown,
        [
            (1, "POST", Some(Verb::Create), Some(201)),
            (2, "GET", Some(Verb::Get), None),
            (3, "GET", None, Some(404)),
        ]
    );
    assert!(log[0].asked.body.is_some() && log[0].asked.agent == "suite/1");
    assert_eq!((log[1].fault, log[1].asked.uri.as_str()), (Some(Fault::Internal), path.as_str()));
}
