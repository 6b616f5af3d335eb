//! What shows in the embedded cluster only: paused time to the second, and connections that break on demand.

use std::time::Duration;

use futures::StreamExt;
use http::Request;
use serde_json::{Value, json};

use super::Embedded;
use crate::conformance::plane::{CLAIMS, MERGE_PATCH, claim, config_map, text};

#[tokio::test(start_paused = true)]
async fn writers_are_known_with_the_second() {
    let (_, plane) = Embedded::with_plane().await;
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    plane.wait(Duration::from_secs(90)).await;
    let hold = json!({ "metadata": { "annotations": { "trunkline.dev/hold": "looking" } } });
    let held = plane.patch(&plane.claim("calico"), MERGE_PATCH, &hold).await.unwrap();
    assert_eq!(held["metadata"]["creationTimestamp"], "2026-03-01T10:00:00Z");
    assert_eq!(held["metadata"]["managedFields"][0]["time"], "2026-03-01T10:01:30Z");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_the_second() {
    let (embedded, plane) = Embedded::with_plane().await;
    let mut lines = plane.watch(&format!("{}?watch=true&timeoutSeconds=30", plane.config_maps())).await;
    let begin = embedded.cluster.now();
    assert!(lines.next().await.is_none());
    assert_eq!(embedded.cluster.now().duration_since(begin).as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_breaks_and_a_new_one_misses_nothing() {
    let (embedded, plane) = Embedded::with_plane().await;
    let watch = async |since: &str| {
        plane.watch(&format!("{}?watch=true&resourceVersion={since}", plane.config_maps())).await
    };
    let mut lines = watch("0").await;
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap()["object"], first);
    embedded.cluster.cut_watches();
    let second = plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    assert!(lines.next().await.unwrap().is_err());
    let mut lines = watch(text(&first, "/metadata/resourceVersion")).await;
    assert_eq!(lines.next().await.unwrap().unwrap()["object"], second);
}

#[tokio::test(start_paused = true)]
async fn an_age_counts_on_the_clock_of_the_cluster() {
    let (_, plane) = Embedded::with_plane().await;
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    plane.wait(Duration::from_secs(300)).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::get(CLAIMS).header(http::header::ACCEPT, accept).body(Vec::new()).unwrap();
    let table: Value = plane.client.request(request).await.unwrap();
    assert!(table["rows"][0]["cells"].as_array().unwrap().contains(&json!("5m")));
}
