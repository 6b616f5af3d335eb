//! Our custom resources: schema, status, and who wrote what.

use http::Method;
use serde_json::{Value, json};

use super::plane::{CLAIMS, DEFINITIONS, MERGE_PATCH, Plane, cause, claim, refusal, text};

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
    body["metadata"]["name"] = json!(plane.name("other"));
    body["spec"]["canary"] = json!({ "surprise": 1 });
    let strict = plane.create(&format!("{CLAIMS}?fieldValidation=Strict"), &body).await.unwrap_err();
    assert_eq!((strict.code, strict.reason.as_str()), (400, "BadRequest"));
    assert_eq!(
        strict.message,
        "CNIUpgrade in version \"v1\" cannot be handled as a CNIUpgrade: strict decoding error: unknown field \
         \"spec.canary.surprise\", unknown field \"spec.surprise\""
    );
    let made = plane.create(CLAIMS, &body).await.unwrap();
    assert_eq!(
        made["spec"]["canary"],
        json!({ "percentage": 10, "observationMinutes": 5, "healthThreshold": 1 })
    );
}

/// Field, reason and message of every breach, in order.
const BREACHES: [(&str, &str, &str); 9] = [
    (
        "<nil>",
        "FieldValueInvalid",
        "Invalid value: null: some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation",
    ),
    (
        "spec.autoRollback",
        "FieldValueTypeInvalid",
        "Invalid value: \"string\": spec.autoRollback in body must be of type boolean: \"string\"",
    ),
    (
        "spec.canary.healthThreshold",
        "FieldValueInvalid",
        "Invalid value: 1.5: spec.canary.healthThreshold in body should be less than or equal to 1",
    ),
    (
        "spec.canary.percentage",
        "FieldValueInvalid",
        "Invalid value: 101: spec.canary.percentage in body should be less than or equal to 100",
    ),
    (
        "spec.driver",
        "FieldValueNotSupported",
        "Unsupported value: \"none\": supported values: \"daemonSet\", \"ownedTemplate\", \"nodeJob\"",
    ),
    (
        "spec.maxParallel",
        "FieldValueInvalid",
        "Invalid value: 0: spec.maxParallel in body should be greater than or equal to 1",
    ),
    (
        "spec.provider",
        "FieldValueInvalid",
        "Invalid value: \"\": spec.provider in body should be at least 1 chars long",
    ),
    ("spec.targetVersion", "FieldValueRequired", "Required value"),
    (
        "spec.timeoutSeconds",
        "FieldValueInvalid",
        "Invalid value: 1: spec.timeoutSeconds in body should be greater than or equal to 30",
    ),
];

pub(crate) async fn a_spec_that_breaks_the_schema_is_invalid_with_every_field(plane: &Plane) {
    let mut body = claim(&plane.name("calico"));
    body["spec"] = json!({
        "maxParallel": 0,
        "autoRollback": "yes",
        "driver": "none",
        "canary": { "percentage": 101, "healthThreshold": 1.5 },
        "provider": "",
        "timeoutSeconds": 1,
    });
    let status = plane.create(CLAIMS, &body).await.unwrap_err();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let about = format!("CNIUpgrade.cni.example.com \"{}\" is invalid: [", plane.name("calico"));
    assert!(status.message.starts_with(&about), "{}", status.message);
    let details = status.details.unwrap();
    assert_eq!((details.group.as_str(), details.kind.as_str()), ("cni.example.com", "CNIUpgrade"));
    let mut causes: Vec<_> = details
        .causes
        .iter()
        .map(|cause| (cause.field.as_str(), cause.reason.as_str(), cause.message.as_str()))
        .collect();
    causes.sort_unstable();
    assert_eq!(causes, BREACHES);
}

/// Field, reason and message of values that do not fit.
const BROKEN: [(&str, &str, &str); 6] = [
    ("spec.serviceName", "FieldValueTooLong", "Too long: may not be more than 63 bytes"),
    (
        "spec.targetService.selector",
        "FieldValueInvalid",
        "Invalid value: 0: spec.targetService.selector in body should have at least 1 properties",
    ),
    (
        "spec.targetService.ports[0].targetPort",
        "FieldValueTypeInvalid",
        "Invalid value: \"boolean\": spec.targetService.ports[0].targetPort in body must be of type \
             integer,string: \"boolean\"",
    ),
    (
        "spec.canary.observationPeriod",
        "FieldValueInvalid",
        "Invalid value: \"10\": spec.canary.observationPeriod in body should match \
             '^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$'",
    ),
    (
        "spec.canary.steps[1]",
        "FieldValueInvalid",
        "Invalid value: 200: spec.canary.steps[1] in body should be less than or equal to 100",
    ),
    (
        "spec.rollback",
        "FieldValueTypeInvalid",
        "Invalid value: \"array\": spec.rollback in body must be of type object: \"array\"",
    ),
];

/// Of lists and mappings with too many entries.
const CROWDED: [(&str, &str, &str); 2] = [
    ("spec.targetService.ports", "FieldValueTooMany", "Too many: 101: must have at most 100 items"),
    ("spec.targetService.selector", "FieldValueTooMany", "Too many: 65: must have at most 64 items"),
];

pub(crate) async fn lengths_counts_and_patterns_are_invalid_by_name(plane: &Plane) {
    let path = plane.collection("apis/service.example.com/v1", "serviceupgrades");
    let of = |spec: Value| {
        let mut body = json!({ "apiVersion": "service.example.com/v1", "kind": "ServiceUpgrade" });
        body["metadata"] = json!({ "name": "web" });
        body["spec"] = spec;
        body
    };
    let labels: serde_json::Map<String, Value> = (0..65).map(|at| (at.to_string(), json!("x"))).collect();
    let broken = of(json!({
        "serviceName": "a".repeat(64),
        "targetService": { "selector": {}, "ports": [{ "port": 1, "targetPort": true, "name": "" }] },
        "canary": { "observationPeriod": "10", "steps": [0, 200] },
        "rollback": [],
    }));
    let crowded = of(json!({
        "serviceName": "a",
        "targetService": { "selector": labels, "ports": vec![json!({ "port": 1, "name": "a" }); 101] },
    }));
    for (body, told) in [(&broken, &BROKEN[..]), (&crowded, &CROWDED[..])] {
        let status = plane.create(&path, body).await.unwrap_err();
        for (field, reason, message) in told {
            assert_eq!(cause(&status, field), ((*reason).to_owned(), (*message).to_owned()), "{field}");
        }
    }
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

    let entries = second["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["subresource"] == "status").unwrap();
    assert_eq!((&entry["manager"], &entry["fieldsV1"]["f:status"]["f:phase"]), (&json!("suite"), &json!({})));

    let bad = plane.patch(&status, MERGE_PATCH, &json!({ "status": { "phase": "Dancing" } })).await;
    let bad = bad.unwrap_err();
    let why = "Unsupported value: \"Dancing\": supported values: \"Pending\", \"Canary\", \"RollingOut\", \
               \"Completed\", \"Rollback\", \"Failed\"";
    assert_eq!(cause(&bad, "status.phase"), ("FieldValueNotSupported".to_owned(), why.to_owned()));
    assert_eq!(bad.code, 422);
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
