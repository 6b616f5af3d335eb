//! Create, get, replace: versions, conflicts, generation, what is refused.

use http::Method;
use serde_json::{Value, json};

use super::plane::{CLAIMS, MERGE_PATCH, NODES, Plane, cause, claim, config_map, refusal, text};

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
    let details = again.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.group.as_str(), details.kind.as_str()),
        ("a", "", "configmaps")
    );
    let bad = plane.create(&plane.config_maps(), &config_map("A_b", "1")).await.unwrap_err();
    let (reason, message) = cause(&bad, "metadata.name");
    assert_eq!((bad.code, reason.as_str()), (422, "FieldValueInvalid"));
    assert!(message.starts_with("Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of"));
    assert_eq!(bad.message, format!("ConfigMap \"A_b\" is invalid: metadata.name: {message}"));
    let none = plane.create(&plane.config_maps(), &config_map("", "1")).await.unwrap_err();
    let required = "Required value: name or generateName is required".to_owned();
    assert_eq!(cause(&none, "metadata.name"), ("FieldValueRequired".to_owned(), required));
    assert_eq!(none.details.unwrap().name, "");
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
    let old = plane.replace(&path, &first).await.unwrap_err();
    let why = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
               changes to the latest version and try again";
    assert_eq!(old.message, why);
    assert_eq!(old.details.unwrap().kind, "configmaps");
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
    let refused = plane.replace(&plane.claim("calico"), &claim(&plane.name("calico"))).await.unwrap_err();
    let invalid = "Invalid value: 0: must be specified for an update".to_owned();
    assert_eq!(cause(&refused, "metadata.resourceVersion"), ("FieldValueInvalid".to_owned(), invalid));
    assert_eq!((refused.code, refused.details.unwrap().kind.as_str()), (422, "cniupgrades"));
}

pub(crate) async fn a_dry_run_answers_as_the_write_would_and_stores_nothing(plane: &Plane) {
    let tried =
        plane.create(&format!("{}?dryRun=All", plane.config_maps()), &config_map("a", "1")).await.unwrap();
    assert_eq!(tried["metadata"].get("resourceVersion"), None);
    assert!(!text(&tried, "/metadata/uid").is_empty());
    assert_eq!(refusal(plane.get(&plane.config_map("a")).await), (404, "NotFound".to_owned()));
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let tried =
        plane.replace(&format!("{}?dryRun=All", plane.config_map("a")), &config_map("a", "2")).await.unwrap();
    assert_eq!(tried["data"]["key"], "2");
    assert_eq!(tried["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    plane.delete(&plane.config_map("a"), &json!({ "dryRun": ["All"] })).await.unwrap();
    assert_eq!(plane.get(&plane.config_map("a")).await.unwrap(), first);
    let unknown = plane.create(&format!("{}?dryRun=Some", plane.config_maps()), &config_map("b", "1")).await;
    let unknown = unknown.unwrap_err();
    let told = "Unsupported value: [\"Some\"]: supported values: \"All\"".to_owned();
    assert_eq!(cause(&unknown, "dryRun"), ("FieldValueNotSupported".to_owned(), told.clone()));
    assert_eq!(unknown.message, format!("CreateOptions.meta.k8s.io \"\" is invalid: dryRun: {told}"));
}

pub(crate) async fn a_body_that_is_no_object_of_the_kind_is_refused(plane: &Plane) {
    assert_eq!(refusal(plane.create(NODES, &claim("x")).await).0, 400);
    let other = json!({ "metadata": { "name": "a", "namespace": "kube-system" } });
    let other = plane.create(&plane.config_maps(), &other).await.unwrap_err();
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((other.code, other.reason.as_str(), other.message.as_str()), (400, "BadRequest", why));
    for bytes in ["{", "[]"] {
        let broken = plane.send(Method::POST, &plane.config_maps(), "application/json", bytes.into()).await;
        assert_eq!(refusal(broken), (400, "BadRequest".to_owned()));
    }
    let media =
        plane.ask(Method::POST, &plane.config_maps(), "text/plain", Some(&json!({}))).await.unwrap_err();
    let why =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    assert_eq!((media.code, media.reason.as_str()), (415, "UnsupportedMediaType"));
    assert!(media.message.starts_with(why), "{}", media.message);
    let method = plane.ask(Method::PUT, &plane.config_maps(), "", None).await.unwrap_err();
    let why = "the server does not allow this method on the requested resource";
    assert_eq!(
        (method.code, method.reason.as_str(), method.message.as_str()),
        (405, "MethodNotAllowed", why)
    );
}

pub(crate) async fn a_name_is_taken_until_the_object_is_gone(plane: &Plane) {
    let mut body = claim(&plane.name("calico"));
    body["metadata"]["finalizers"] = json!(["trunkline.dev/rollout"]);
    plane.create(CLAIMS, &body).await.unwrap();
    plane.delete(&plane.claim("calico"), &json!({})).await.unwrap();
    let taken = plane.create(CLAIMS, &body).await.unwrap_err();
    let name = plane.name("calico");
    assert_eq!((taken.code, taken.reason.as_str()), (409, "AlreadyExists"));
    let why = format!("object is being deleted: cniupgrades.cni.example.com \"{name}\" already exists");
    assert_eq!(taken.message, why);
    plane
        .patch(&plane.claim("calico"), MERGE_PATCH, &json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    plane.create(CLAIMS, &claim(&name)).await.unwrap();
}

pub(crate) async fn a_lease_changes_hands_only_at_the_version_that_was_seen(plane: &Plane) {
    let leases = plane.collection("apis/coordination.k8s.io/v1", "leases");
    let lease = |holder: &str| {
        json!({ "metadata": { "name": "leader" }, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-03-01T10:00:00.000001Z",
        } })
    };
    let first = plane.create(&leases, &lease("a")).await.unwrap();
    assert_eq!(refusal(plane.create(&leases, &lease("b")).await), (409, "AlreadyExists".to_owned()));
    let path = format!("{leases}/leader");
    assert_eq!(text(&first, "/spec/renewTime"), "2026-03-01T10:00:00.000001Z");
    let taken = |from: &Value, holder: &str| {
        let mut taken = lease(holder);
        taken["metadata"]["resourceVersion"] = from["metadata"]["resourceVersion"].clone();
        taken
    };
    let second = plane.replace(&path, &taken(&first, "b")).await.unwrap();
    assert_eq!(refusal(plane.replace(&path, &taken(&first, "c")).await), (409, "Conflict".to_owned()));
    assert_eq!(plane.get(&path).await.unwrap(), second);
    assert_eq!(refusal(plane.replace(&path, &lease("c")).await), (422, "Invalid".to_owned()));
}

pub(crate) async fn events_are_found_by_what_they_are_about(plane: &Plane) {
    let events = plane.collection("api/v1", "events");
    let event = |name: &str, about: &str| {
        json!({ "metadata": { "name": name }, "reason": "Started", "type": "Normal", "message": "it began",
            "involvedObject": { "kind": "ConfigMap", "name": about, "namespace": plane.scope } })
    };
    plane.create(&events, &event("one", "a")).await.unwrap();
    plane.create(&events, &event("two", "b")).await.unwrap();
    let found =
        plane.get(&format!("{events}?fieldSelector=involvedObject.name%3Db,reason%3DStarted")).await.unwrap();
    let names: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name")).collect();
    assert_eq!(names, ["two"]);
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
