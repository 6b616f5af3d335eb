//! Create, get, replace: versions, conflicts, generation, what is refused.

use serde_json::json;

use super::plane::{CLAIMS, CONFIG_MAPS, DAEMON_SETS, NODES, Plane, claim, config_map, refusal, text};

#[tokio::test(start_paused = true)]
async fn a_created_object_has_uid_version_and_time() {
    let plane = Plane::embedded();
    let made = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    assert_eq!(text(&made, "/metadata/namespace"), "default");
    assert!(!text(&made, "/metadata/uid").is_empty());
    assert!(text(&made, "/metadata/resourceVersion").parse::<u64>().is_ok());
    assert!(text(&made, "/metadata/creationTimestamp").ends_with("00Z"));
    assert_eq!(made.pointer("/metadata/generation"), None);
    assert_eq!(plane.get(&format!("{CONFIG_MAPS}/a")).await.unwrap(), made);
}

#[tokio::test(start_paused = true)]
async fn a_name_can_be_taken_once_and_must_be_one() {
    let plane = Plane::embedded();
    plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    let again = plane.create(CONFIG_MAPS, &config_map("a", "2")).await.unwrap_err();
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(again.message, "configmaps \"a\" already exists");
    assert_eq!(
        refusal(plane.create(CONFIG_MAPS, &config_map("A_b", "1")).await),
        (422, "Invalid".to_owned())
    );
    assert_eq!(refusal(plane.create(CONFIG_MAPS, &config_map("", "1")).await), (422, "Invalid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_is_completed_differently_each_time() {
    let plane = Plane::embedded();
    let body = json!({ "metadata": { "generateName": "e-" } });
    let first = plane.create(CONFIG_MAPS, &body).await.unwrap();
    let second = plane.create(CONFIG_MAPS, &body).await.unwrap();
    assert!(text(&first, "/metadata/name").starts_with("e-"));
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_named() {
    let plane = Plane::embedded();
    let missing = plane.get(&format!("{CONFIG_MAPS}/a")).await.unwrap_err();
    assert_eq!((missing.code, missing.message.as_str()), (404, "configmaps \"a\" not found"));
    assert_eq!(missing.details.unwrap().kind, "configmaps");
    let nowhere = plane.create("/api/v1/namespaces/no/configmaps", &config_map("a", "1")).await.unwrap_err();
    assert_eq!((nowhere.code, nowhere.message.as_str()), (404, "namespaces \"no\" not found"));
    assert_eq!(refusal(plane.get("/api/v1/gadgets").await), (404, "NotFound".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_old_version_is_a_conflict_and_changes_nothing() {
    let plane = Plane::embedded();
    let path = format!("{CONFIG_MAPS}/a");
    let first = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    let mut second = first.clone();
    second["data"]["key"] = json!("2");
    let stored = plane.replace(&path, &second).await.unwrap();
    assert_ne!(stored["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    second["data"]["key"] = json!("3");
    assert_eq!(refusal(plane.replace(&path, &second).await), (409, "Conflict".to_owned()));
    let mut other = stored.clone();
    other["metadata"]["uid"] = json!("another");
    assert_eq!(refusal(plane.replace(&path, &other).await), (409, "Conflict".to_owned()));
    assert_eq!(plane.get(&path).await.unwrap(), stored);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_the_version() {
    let plane = Plane::embedded();
    let first = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    assert_eq!(plane.replace(&format!("{CONFIG_MAPS}/a"), &first).await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn an_update_without_a_version_is_taken_for_a_config_map_and_not_for_a_custom_resource() {
    let plane = Plane::embedded();
    plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    plane.replace(&format!("{CONFIG_MAPS}/a"), &config_map("a", "2")).await.unwrap();
    plane.create(CLAIMS, &claim("calico")).await.unwrap();
    let refused = plane.replace(&format!("{CLAIMS}/calico"), &claim("calico")).await;
    assert_eq!(refusal(refused), (422, "Invalid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_as_the_write_would_and_stores_nothing() {
    let plane = Plane::embedded();
    plane.create(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a", "1")).await.unwrap();
    assert_eq!(refusal(plane.get(&format!("{CONFIG_MAPS}/a")).await), (404, "NotFound".to_owned()));
    let first = plane.create(CONFIG_MAPS, &config_map("a", "1")).await.unwrap();
    let tried = plane.replace(&format!("{CONFIG_MAPS}/a?dryRun=All"), &config_map("a", "2")).await.unwrap();
    assert_eq!(tried["data"]["key"], "2");
    assert_eq!(tried["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    plane.delete(&format!("{CONFIG_MAPS}/a"), &json!({ "dryRun": ["All"] })).await.unwrap();
    assert_eq!(plane.get(&format!("{CONFIG_MAPS}/a")).await.unwrap(), first);
    let unknown = plane.create(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("b", "1")).await;
    assert_eq!(refusal(unknown), (400, "BadRequest".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_object_of_the_kind_is_refused() {
    let plane = Plane::embedded();
    assert_eq!(refusal(plane.create(NODES, &claim("x")).await).0, 400);
    let other = json!({ "metadata": { "name": "a", "namespace": "kube-system" } });
    assert_eq!(refusal(plane.create(CONFIG_MAPS, &other).await).0, 400);
    let yaml = plane.ask(http::Method::POST, CONFIG_MAPS, "application/yaml", Some(&json!({}))).await;
    assert_eq!(refusal(yaml), (415, "UnsupportedMediaType".to_owned()));
    let method = plane.ask(http::Method::DELETE, CONFIG_MAPS, "", None).await;
    assert_eq!(refusal(method), (405, "MethodNotAllowed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_that_cannot_run_is_invalid_with_every_cause() {
    let plane = Plane::embedded();
    let body = json!({ "metadata": { "name": "x" }, "spec": {
        "selector": { "matchLabels": { "app": "x" } },
        "template": { "metadata": { "labels": { "app": "y" } }, "spec": { "containers": [{ "name": "a" }] } },
        "updateStrategy": { "type": "Never" },
    } });
    let status = plane.create(DAEMON_SETS, &body).await.unwrap_err();
    let fields: Vec<String> = status.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    assert_eq!(status.code, 422);
    assert_eq!(
        fields,
        [
            "spec.template.metadata.labels",
            "spec.template.spec.containers[0].image",
            "spec.updateStrategy.type"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_config_map_beyond_a_mebibyte_is_invalid_and_larger_bodies_are_not_stored_or_read() {
    let plane = Plane::embedded();
    let path = format!("{CONFIG_MAPS}/a");
    let of = |bytes: usize| config_map("a", &"x".repeat(bytes));
    plane.create(CONFIG_MAPS, &of(1_048_576)).await.unwrap();
    let refused = plane.replace(&path, &of(1_048_577)).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        refused.message,
        "ConfigMap \"a\" is invalid: []: Too long: may not be more than 1048576 bytes"
    );
    let stuffed = json!({ "metadata": { "name": "x" }, "spec": {
        "selector": { "matchLabels": { "app": "x" } },
        "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [
            { "name": "a", "image": "example.com/a:1", "args": ["x".repeat(1_600_000)] },
        ] } },
    } });
    let refused = plane.create(DAEMON_SETS, &stuffed).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (500, "etcdserver: request is too large"));
    let refused = plane.create(CONFIG_MAPS, &of(3_200_000)).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (413, "RequestEntityTooLarge"));
    assert_eq!(refused.message, "Request entity too large: limit is 3145728");
    assert_eq!(plane.get(&path).await.unwrap()["data"]["key"].as_str().unwrap().len(), 1_048_576);
}
