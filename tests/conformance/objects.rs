//! Create, get, replace: versions, conflicts, generation, what is refused.

use serde_json::json;

use super::plane::{CLAIMS, NODES, Plane, claim, config_map, refusal, text};

pub(crate) async fn a_created_object_has_uid_version_and_time(plane: &Plane) {
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(text(&made, "/metadata/namespace"), plane.scope);
    assert!(!text(&made, "/metadata/uid").is_empty());
    assert!(text(&made, "/metadata/resourceVersion").parse::<u64>().is_ok());
    assert!(text(&made, "/metadata/creationTimestamp").parse::<jiff::Timestamp>().is_ok());
    assert_eq!(made.pointer("/metadata/generation"), None);
    assert_eq!(plane.get(&plane.config_map("a")).await.unwrap(), made);
}

pub(crate) async fn a_name_can_be_taken_once_and_must_be_one(plane: &Plane) {
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let again = plane.create(&plane.config_maps(), &config_map("a", "2")).await.unwrap_err();
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(again.message, "configmaps \"a\" already exists");
    assert_eq!(
        refusal(plane.create(&plane.config_maps(), &config_map("A_b", "1")).await),
        (422, "Invalid".to_owned())
    );
    assert_eq!(
        refusal(plane.create(&plane.config_maps(), &config_map("", "1")).await),
        (422, "Invalid".to_owned())
    );
}

pub(crate) async fn a_generated_name_is_completed_differently_each_time(plane: &Plane) {
    let body = json!({ "metadata": { "generateName": "e-" } });
    let first = plane.create(&plane.config_maps(), &body).await.unwrap();
    let second = plane.create(&plane.config_maps(), &body).await.unwrap();
    assert!(text(&first, "/metadata/name").starts_with("e-"));
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

pub(crate) async fn what_is_not_there_is_named(plane: &Plane) {
    let missing = plane.get(&plane.config_map("a")).await.unwrap_err();
    assert_eq!((missing.code, missing.message.as_str()), (404, "configmaps \"a\" not found"));
    assert_eq!(missing.details.unwrap().kind, "configmaps");
    let nowhere =
        plane.create("/api/v1/namespaces/suite-no/configmaps", &config_map("a", "1")).await.unwrap_err();
    assert_eq!((nowhere.code, nowhere.message.as_str()), (404, "namespaces \"suite-no\" not found"));
    assert_eq!(refusal(plane.get("/api/v1/gadgets").await), (404, "NotFound".to_owned()));
}

pub(crate) async fn an_old_version_is_a_conflict_and_changes_nothing(plane: &Plane) {
    let path = plane.config_map("a");
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
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

pub(crate) async fn a_write_that_changes_nothing_keeps_the_version(plane: &Plane) {
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(plane.replace(&plane.config_map("a"), &first).await.unwrap(), first);
}

pub(crate) async fn an_update_without_a_version_is_taken_for_a_config_map_and_not_for_a_custom_resource(
    plane: &Plane,
) {
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    plane.replace(&plane.config_map("a"), &config_map("a", "2")).await.unwrap();
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    let refused = plane.replace(&plane.claim("calico"), &claim(&plane.name("calico"))).await;
    assert_eq!(refusal(refused), (422, "Invalid".to_owned()));
}

pub(crate) async fn a_dry_run_answers_as_the_write_would_and_stores_nothing(plane: &Plane) {
    plane.create(&format!("{}?dryRun=All", plane.config_maps()), &config_map("a", "1")).await.unwrap();
    assert_eq!(refusal(plane.get(&plane.config_map("a")).await), (404, "NotFound".to_owned()));
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let tried =
        plane.replace(&format!("{}?dryRun=All", plane.config_map("a")), &config_map("a", "2")).await.unwrap();
    assert_eq!(tried["data"]["key"], "2");
    assert_eq!(tried["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    plane.delete(&plane.config_map("a"), &json!({ "dryRun": ["All"] })).await.unwrap();
    assert_eq!(plane.get(&plane.config_map("a")).await.unwrap(), first);
    let unknown = plane.create(&format!("{}?dryRun=Some", plane.config_maps()), &config_map("b", "1")).await;
    assert_eq!(refusal(unknown), (422, "Invalid".to_owned()));
}

pub(crate) async fn a_body_that_is_no_object_of_the_kind_is_refused(plane: &Plane) {
    assert_eq!(refusal(plane.create(NODES, &claim("x")).await).0, 400);
    let other = json!({ "metadata": { "name": "a", "namespace": "kube-system" } });
    assert_eq!(refusal(plane.create(&plane.config_maps(), &other).await).0, 400);
    let yaml = plane.ask(http::Method::POST, &plane.config_maps(), "text/yaml", Some(&json!({}))).await;
    assert_eq!(refusal(yaml), (415, "UnsupportedMediaType".to_owned()));
    let method = plane.ask(http::Method::PUT, &plane.config_maps(), "", None).await;
    assert_eq!(refusal(method), (405, "MethodNotAllowed".to_owned()));
}

pub(crate) async fn a_daemon_set_that_cannot_run_is_invalid_with_every_cause(plane: &Plane) {
    let body = json!({ "metadata": { "name": "x" }, "spec": {
        "selector": { "matchLabels": { "app": "x" } },
        "template": { "metadata": { "labels": { "app": "y" } }, "spec": { "containers": [{ "name": "a" }] } },
        "updateStrategy": { "type": "Never" },
    } });
    let status = plane.create(&plane.collection("apis/apps/v1", "daemonsets"), &body).await.unwrap_err();
    let fields: Vec<String> = status.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    assert_eq!(status.code, 422);
    assert_eq!(
        fields,
        ["spec.template.metadata.labels", "spec.template.spec.containers[0].image", "spec.updateStrategy"]
    );
}

pub(crate) async fn a_config_map_beyond_a_mebibyte_is_invalid_and_larger_bodies_are_not_stored_or_read(
    plane: &Plane,
) {
    let path = plane.config_map("a");
    let of = |bytes: usize| config_map("a", &"x".repeat(bytes));
    plane.create(&plane.config_maps(), &of(1_048_576)).await.unwrap();
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
    let refused = plane.create(&plane.collection("apis/apps/v1", "daemonsets"), &stuffed).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (500, "etcdserver: request is too large"));
    let refused = plane.create(&plane.config_maps(), &of(3_200_000)).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (413, "RequestEntityTooLarge"));
    assert_eq!(refused.message, "Request entity too large: limit is 3145728");
    assert_eq!(plane.get(&path).await.unwrap()["data"]["key"].as_str().unwrap().len(), 1_048_576);
}
