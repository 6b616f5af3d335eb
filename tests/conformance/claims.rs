//! Our custom resources: schema, status, and who wrote what.

use http::Method;
use serde_json::json;

use super::plane::{CLAIMS, MERGE_PATCH, Plane, claim, refusal, text};

#[tokio::test(start_paused = true)]
async fn defaults_are_filled_in_and_unknown_fields_dropped() {
    let plane = Plane::embedded();
    let mut body = claim("calico");
    body["spec"]["surprise"] = json!(1);
    body["status"] = json!({ "phase": "Completed" });
    let made = plane.create(CLAIMS, &body).await.unwrap();
    assert_eq!(made["spec"]["maxParallel"], 1);
    assert_eq!(made["spec"]["timeoutSeconds"], 600);
    assert_eq!(made["spec"]["deletionPolicy"], "Keep");
    assert_eq!(made["spec"].get("surprise"), None);
    assert_eq!(made.get("status"), None);
    assert_eq!(made["metadata"]["generation"], 1);
    let strict = plane.create(&format!("{CLAIMS}?fieldValidation=Strict"), &body).await.unwrap_err();
    assert_eq!((strict.code, strict.message.contains("spec.surprise")), (400, true));
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_breaks_the_schema_is_invalid_with_the_field() {
    let plane = Plane::embedded();
    let mut body = claim("calico");
    body["spec"] = json!({ "maxParallel": 0, "autoRollback": "yes" });
    let status = plane.create(CLAIMS, &body).await.unwrap_err();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.starts_with("CNIUpgrade.cni.example.com \"calico\" is invalid"));
    let details = status.details.unwrap();
    let mut causes: Vec<_> =
        details.causes.iter().map(|cause| (cause.field.as_str(), cause.reason.as_str())).collect();
    causes.sort_unstable();
    assert_eq!(
        causes,
        [
            ("spec.autoRollback", "FieldValueTypeInvalid"),
            ("spec.maxParallel", "FieldValueInvalid"),
            ("spec.targetVersion", "FieldValueRequired"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart_and_only_the_spec_moves_the_generation() {
    let plane = Plane::embedded();
    let (path, status) = (format!("{CLAIMS}/calico"), format!("{CLAIMS}/calico/status"));
    let first = plane.create(CLAIMS, &claim("calico")).await.unwrap();

    let mut both = first.clone();
    both["spec"]["paused"] = json!(true);
    both["metadata"]["annotations"] = json!({ "a": "b" });
    both["status"] = json!({ "phase": "Canary", "surprise": 1 });
    let second = plane.replace(&status, &both).await.unwrap();
    assert_eq!(text(&second, "/status/phase"), "Canary");
    assert_eq!(second["status"].get("surprise"), None);
    assert_eq!((&second["spec"], &second["metadata"]["generation"]), (&first["spec"], &json!(1)));
    assert_eq!(second.pointer("/metadata/annotations"), None);
    assert_eq!(refusal(plane.replace(&status, &both).await), (409, "Conflict".to_owned()));

    let main = json!({ "spec": { "paused": true }, "status": { "phase": "Failed" } });
    let third = plane.patch(&path, MERGE_PATCH, &main).await.unwrap();
    assert_eq!((&third["spec"]["paused"], &third["metadata"]["generation"]), (&json!(true), &json!(2)));
    assert_eq!(third["status"], second["status"]);

    let bad = plane.patch(&status, MERGE_PATCH, &json!({ "status": { "phase": "Dancing" } })).await;
    assert_eq!(refusal(bad), (422, "Invalid".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_moves_no_generation_and_names_its_writer() {
    let plane = Plane::embedded();
    plane.create(CLAIMS, &claim("calico")).await.unwrap();
    plane.wait(std::time::Duration::from_secs(90)).await;
    let hold = json!({ "metadata": { "annotations": { "trunkline.dev/hold": "looking" } } });
    let path = format!("{CLAIMS}/calico?fieldManager=kubectl-annotate");
    let held = plane.patch(&path, MERGE_PATCH, &hold).await.unwrap();
    assert_eq!(held["metadata"]["generation"], 1);
    let entries = held["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "kubectl-annotate").unwrap();
    assert_eq!(entry["time"], "2026-03-01T10:01:30Z");
    assert!(entry["fieldsV1"]["f:metadata"]["f:annotations"].get("f:trunkline.dev/hold").is_some());
    assert!(entries.iter().any(|entry| entry["manager"] == "suite"));
}

#[tokio::test(start_paused = true)]
async fn without_its_definition_a_custom_resource_is_not_served() {
    let plane = Plane::embedded();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = format!("{definitions}/cniupgrades.cni.example.com");
    let definition = plane.get(&path).await.unwrap();
    assert_eq!(definition["spec"]["names"]["kind"], "CNIUpgrade");
    assert_eq!(definition["status"]["conditions"][1]["type"], "Established");
    plane.ask(Method::DELETE, &path, "", None).await.unwrap();
    assert_eq!(refusal(plane.get(CLAIMS).await), (404, "NotFound".to_owned()));
    assert_eq!(refusal(plane.get("/apis/cni.example.com/v1").await), (404, "NotFound".to_owned()));
}
