//! Watches: order, selectors, bookmarks, the end of time, compaction and cuts.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use serde_json::{Value, json};
use trunkline::sim::model::Model;

use super::plane::{CONFIG_MAPS, MERGE_PATCH, Plane, config_map, text};

type Lines = BoxStream<'static, std::io::Result<Value>>;

async fn next(lines: &mut Lines) -> (String, Value) {
    let line = lines.next().await.expect("the watch ended").expect("the watch broke");
    (text(&line, "/type").to_owned(), line["object"].clone())
}

async fn watch(plane: &Plane, since: &str, more: &str) -> Lines {
    plane.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={since}{more}")).await
}

async fn version(plane: &Plane) -> String {
    let list = plane.get(CONFIG_MAPS).await.unwrap();
    text(&list, "/metadata/resourceVersion").to_owned()
}

async fn label(plane: &Plane, name: &str, labels: Value) -> Value {
    let patch = json!({ "metadata": { "labels": labels } });
    plane.patch(&format!("{CONFIG_MAPS}/{name}"), MERGE_PATCH, &patch).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_change_after_its_version_once_and_in_order() {
    let plane = Plane::embedded();
    plane.create(CONFIG_MAPS, &config_map("old", "1")).await.unwrap();
    let mut lines = watch(&plane, &version(&plane).await, "").await;
    let made = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    let changed = label(&plane, "a", json!({ "x": "y" })).await;
    plane.delete(&format!("{CONFIG_MAPS}/a"), &json!({})).await.unwrap();
    assert_eq!(next(&mut lines).await, ("ADDED".to_owned(), made));
    assert_eq!(next(&mut lines).await, ("MODIFIED".to_owned(), changed.clone()));
    let (kind, last) = next(&mut lines).await;
    let of = |object: &Value| text(object, "/metadata/resourceVersion").parse::<u64>().unwrap();
    assert_eq!((kind.as_str(), &last["metadata"]["uid"]), ("DELETED", &changed["metadata"]["uid"]));
    assert!(of(&last) > of(&changed));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let plane = Plane::embedded();
    let made = plane.create(CONFIG_MAPS, &config_map("old", "1")).await.unwrap();
    let mut lines = watch(&plane, "0", "").await;
    assert_eq!(next(&mut lines).await, ("ADDED".to_owned(), made));
}

#[tokio::test(start_paused = true)]
async fn an_object_comes_and_goes_with_the_selector_of_a_watch() {
    let plane = Plane::embedded();
    plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    let mut lines = watch(&plane, &version(&plane).await, "&labelSelector=in%3Dyes").await;
    label(&plane, "a", json!({ "in": "no" })).await;
    label(&plane, "a", json!({ "in": "yes" })).await;
    label(&plane, "a", json!({ "in": null })).await;
    assert_eq!(next(&mut lines).await.0, "ADDED");
    assert_eq!(next(&mut lines).await.0, "DELETED");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_version_of_a_quiet_watch() {
    let plane = Plane::embedded();
    let mut lines = watch(&plane, &version(&plane).await, "&allowWatchBookmarks=true").await;
    plane.create("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await.unwrap();
    let (kind, bookmark) = next(&mut lines).await;
    assert_eq!((kind.as_str(), text(&bookmark, "/kind")), ("BOOKMARK", "ConfigMap"));
    let since = text(&bookmark, "/metadata/resourceVersion").to_owned();
    let mut later = watch(&plane, &since, "").await;
    let made = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    assert_eq!(next(&mut later).await.1, made);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_by_itself_after_its_time() {
    let plane = Plane::embedded();
    let mut lines = watch(&plane, &version(&plane).await, "&timeoutSeconds=30").await;
    let begin = plane.cluster.now();
    assert!(lines.next().await.is_none());
    assert_eq!(plane.cluster.now().duration_since(begin).as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_compacted_version_is_told_so() {
    let plane = Plane::embedded();
    let since = version(&plane).await;
    plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    plane.cluster.model(Model::compact);
    let mut lines = watch(&plane, &since, "").await;
    let (kind, status) = next(&mut lines).await;
    assert_eq!((kind.as_str(), &status["code"], text(&status, "/reason")), ("ERROR", &json!(410), "Expired"));
    assert!(lines.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_breaks_and_a_new_one_misses_nothing() {
    let plane = Plane::embedded();
    let mut lines = watch(&plane, &version(&plane).await, "").await;
    let first = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    assert_eq!(next(&mut lines).await.1, first);
    plane.cluster.cut_watches();
    let second = plane.create(CONFIG_MAPS, &config_map("b", "1")).await.unwrap();
    assert!(lines.next().await.unwrap().is_err());
    let mut lines = watch(&plane, text(&first, "/metadata/resourceVersion"), "").await;
    assert_eq!(next(&mut lines).await.1, second);
}

#[tokio::test(start_paused = true)]
async fn the_client_library_follows_across_cuts_and_compaction() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{WatchStreamExt, watcher};
    let plane = Plane::embedded();
    let api = kube::Api::<ConfigMap>::default_namespaced(plane.client.clone());
    let mut seen = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    for name in ["a", "b", "c"] {
        plane.create(CONFIG_MAPS, &config_map(name, "1")).await.unwrap();
        loop {
            let found = seen.next().await.unwrap();
            if found.is_ok_and(|map| map.metadata.name.as_deref() == Some(name)) {
                break;
            }
        }
        plane.cluster.cut_watches();
        plane.cluster.model(Model::compact);
        plane.wait(Duration::from_secs(1)).await;
    }
}
