//! Our custom resources: schema, status, and who wrote what.

use http::Method;
use serde_json::json;

use super::plane::{CLAIMS, DEFINITIONS, MERGE_PATCH, Plane, claim, refusal, text};

pub(crate) async fn defaults_are_filled_in_and_unknown_fields_dropped(plane: &Plane) {
    let mut body = claim(&plane.name("calico"));
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

pub(crate) async fn a_spec_that_breaks_the_schema_is_invalid_with_the_field(plane: &Plane) {
    let mut body = claim(&plane.name("calico"));
    body["spec"] = json!({ "maxParallel": 0, "autoRollback": "yes" });
    let status = plane.create(CLAIMS, &body).await.unwrap_err();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let about = format!("CNIUpgrade.cni.example.com \"{}\" is invalid: [", plane.name("calico"));
    assert!(status.message.starts_with(&about), "{}", status.message);
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

pub(crate) async fn status_and_spec_are_written_apart_and_only_the_spec_moves_the_generation(plane: &Plane) {
    let (path, status) = (plane.claim("calico"), format!("{}/status", plane.claim("calico")));
    let first = plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();

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

pub(crate) async fn an_annotation_moves_no_generation_and_names_its_writer(plane: &Plane) {
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    plane.wait(std::time::Duration::from_secs(2)).await;
    let hold = json!({ "metadata": { "annotations": { "trunkline.dev/hold": "looking" } } });
    let path = format!("{}?fieldManager=kubectl-annotate", plane.claim("calico"));
    let held = plane.patch(&path, MERGE_PATCH, &hold).await.unwrap();
    assert_eq!(held["metadata"]["generation"], 1);
    let entries = held["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "kubectl-annotate").unwrap();
    assert!(text(entry, "/time") > text(&held, "/metadata/creationTimestamp"));
    assert!(entry["fieldsV1"]["f:metadata"]["f:annotations"].get("f:trunkline.dev/hold").is_some());
    assert!(entries.iter().any(|entry| entry["manager"] == "suite"));
}

pub(crate) async fn without_its_definition_a_custom_resource_is_not_served(plane: &Plane) {
    let path = format!("{DEFINITIONS}/cniupgrades.cni.example.com");
    let definition = plane.get(&path).await.unwrap();
    assert_eq!(definition["spec"]["names"]["kind"], "CNIUpgrade");
    assert!(
        definition["status"]["conditions"].as_array().unwrap().iter().any(|of| of["type"] == "Established")
    );
    plane.ask(Method::DELETE, &path, "", None).await.unwrap();
    plane.until("the kind is not served", async || plane.get(CLAIMS).await.is_err().then_some(())).await;
    assert_eq!(plane.get(CLAIMS).await.unwrap_err().code, 404);
    plane
        .until("the definition is gone", async || {
            let mut again = json!({ "apiVersion": definition["apiVersion"], "kind": definition["kind"] });
            again["metadata"] = json!({ "name": definition["metadata"]["name"] });
            again["spec"] = definition["spec"].clone();
            plane.create(DEFINITIONS, &again).await.ok()
        })
        .await;
    plane.until("the kind is served again", async || plane.get(CLAIMS).await.ok()).await;
}
