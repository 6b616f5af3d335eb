//! Watches: order, selectors, bookmarks, the end of time, compaction and cuts.

use futures::{StreamExt, stream::BoxStream};
use serde_json::{Value, json};

use super::plane::{MERGE_PATCH, NODES, Plane, config_map, text};

type Lines = BoxStream<'static, std::io::Result<Value>>;

async fn next(lines: &mut Lines) -> (String, Value) {
    let line = lines.next().await.expect("the watch ended").expect("the watch broke");
    (text(&line, "/type").to_owned(), line["object"].clone())
}

async fn watch(plane: &Plane, since: &str, more: &str) -> Lines {
    plane.watch(&format!("{}?watch=true&resourceVersion={since}{more}", plane.config_maps())).await
}

async fn version(plane: &Plane) -> String {
    let list = plane.get(&plane.config_maps()).await.unwrap();
    text(&list, "/metadata/resourceVersion").to_owned()
}

fn number(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap()
}

async fn label(plane: &Plane, name: &str, labels: Value) -> Value {
    let patch = json!({ "metadata": { "labels": labels } });
    plane.patch(&plane.config_map(name), MERGE_PATCH, &patch).await.unwrap()
}

pub(crate) async fn a_watch_tells_every_change_after_its_version_once_and_in_order(plane: &Plane) {
    plane.create(&plane.config_maps(), &config_map("old", "1")).await.unwrap();
    let mut lines = watch(plane, &version(plane).await, "").await;
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let changed = label(plane, "a", json!({ "x": "y" })).await;
    plane.delete(&plane.config_map("a"), &json!({})).await.unwrap();
    assert_eq!(next(&mut lines).await, ("ADDED".to_owned(), made));
    assert_eq!(next(&mut lines).await, ("MODIFIED".to_owned(), changed.clone()));
    let (kind, last) = next(&mut lines).await;
    assert_eq!((kind.as_str(), &last["metadata"]["uid"]), ("DELETED", &changed["metadata"]["uid"]));
    assert!(number(&last) > number(&changed));
}

pub(crate) async fn a_watch_without_a_version_starts_with_what_is_there(plane: &Plane) {
    let made = plane.create(&plane.config_maps(), &config_map("old", "1")).await.unwrap();
    let mut lines = watch(plane, "0", "").await;
    assert_eq!(next(&mut lines).await, ("ADDED".to_owned(), made));
}

pub(crate) async fn an_object_comes_and_goes_with_the_selector_of_a_watch(plane: &Plane) {
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let mut lines = watch(plane, &version(plane).await, "&labelSelector=in%3Dyes").await;
    label(plane, "a", json!({ "in": "no" })).await;
    label(plane, "a", json!({ "in": "yes" })).await;
    label(plane, "a", json!({ "in": null })).await;
    assert_eq!(next(&mut lines).await.0, "ADDED");
    assert_eq!(next(&mut lines).await.0, "DELETED");
}

pub(crate) async fn bookmarks_move_the_version_of_a_quiet_watch(plane: &Plane) {
    // One comes each minute, and one two seconds before the end.
    let mut lines = watch(plane, &version(plane).await, "&allowWatchBookmarks=true&timeoutSeconds=6").await;
    let node = json!({ "metadata": { "name": plane.name("n1") } });
    let other = plane.create(NODES, &node).await.unwrap();
    let (kind, bookmark) = next(&mut lines).await;
    assert_eq!((kind.as_str(), text(&bookmark, "/kind")), ("BOOKMARK", "ConfigMap"));
    assert!(number(&bookmark) >= number(&other));
    let since = text(&bookmark, "/metadata/resourceVersion").to_owned();
    let mut later = watch(plane, &since, "").await;
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(next(&mut later).await.1, made);
}

pub(crate) async fn a_watch_ends_by_itself_after_its_time(plane: &Plane) {
    let mut lines = watch(plane, &version(plane).await, "&timeoutSeconds=2").await;
    assert!(lines.next().await.is_none());
}

pub(crate) async fn a_watch_from_a_compacted_version_is_told_so(plane: &Plane) {
    let since = version(plane).await;
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    plane.forget().await;
    let mut lines = watch(plane, &since, "").await;
    let (kind, status) = next(&mut lines).await;
    assert_eq!((kind.as_str(), &status["code"], text(&status, "/reason")), ("ERROR", &json!(410), "Expired"));
    assert!(text(&status, "/message").starts_with(&format!("too old resource version: {since} (")));
    assert!(lines.next().await.is_none());
}

pub(crate) async fn a_new_watch_goes_on_where_the_last_one_was_left(plane: &Plane) {
    let mut lines = watch(plane, &version(plane).await, "").await;
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(next(&mut lines).await.1, first);
    drop(lines);
    let second = plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    let mut lines = watch(plane, text(&first, "/metadata/resourceVersion"), "").await;
    assert_eq!(next(&mut lines).await.1, second);
}

pub(crate) async fn the_client_library_follows_across_cuts_and_compaction(plane: &Plane) {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{WatchStreamExt, watcher};
    let api = kube::Api::<ConfigMap>::namespaced(plane.client.clone(), &plane.scope);
    let mut seen = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    for name in ["a", "b"] {
        plane.create(&plane.config_maps(), &config_map(name, "1")).await.unwrap();
        loop {
            let found = seen.next().await.unwrap();
            if found.is_ok_and(|map| map.metadata.name.as_deref() == Some(name)) {
                break;
            }
        }
        plane.forget().await;
    }
}
