//! The rules of our definitions that a schema cannot say (`x-kubernetes-validations`).

use serde_json::{Value, json};

use super::plane::{CLAIMS, MERGE_PATCH, Plane, cause, claim};

fn services(plane: &Plane) -> String {
    plane.collection("apis/service.example.com/v1", "serviceupgrades")
}

fn service(name: &str, spec: &Value) -> Value {
    let mut body = json!({ "apiVersion": "service.example.com/v1", "kind": "ServiceUpgrade" });
    body["metadata"] = json!({ "name": name });
    body["spec"] = json!({ "serviceName": "web", "targetService": { "selector": { "app": "web" } } });
    for (key, value) in spec.as_object().unwrap() {
        body["spec"][key] = value.clone();
    }
    body
}

/// The one cause of a refusal: field, reason and message.
async fn refused(plane: &Plane, path: &str, body: &Value) -> (String, String, String) {
    let status = plane.create(path, body).await.unwrap_err();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{}", status.message);
    let causes = status.details.unwrap().causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
    (causes[0].field.clone(), causes[0].reason.clone(), causes[0].message.clone())
}

pub(crate) async fn a_version_has_no_letters_that_an_image_cannot_have(plane: &Plane) {
    for version in ["v3 28", "v3:28", "   ", "v3.28.0@sha256"] {
        let mut body = claim(&plane.name("calico"));
        body["spec"]["targetVersion"] = json!(version);
        let (field, reason, message) = refused(plane, CLAIMS, &body).await;
        assert_eq!(
            (field.as_str(), reason.as_str()),
            ("spec.targetVersion", "FieldValueInvalid"),
            "{version}"
        );
        let why = "must be a version: letters, digits, `.`, `_`, `-` and `+`, such as `v3.28.0`";
        assert_eq!(message, format!("Invalid value: {version:?}: {why}"));
    }
    let mut body = claim(&plane.name("calico"));
    body["spec"]["targetVersion"] = json!(" v3.28.0-rc.1+eks_1 ");
    plane.create(CLAIMS, &body).await.unwrap();
}

pub(crate) async fn a_service_that_cannot_be_tried_is_refused_with_the_field(plane: &Plane) {
    let canary = |more: Value| {
        let mut canary = json!({ "observationPeriod": "10m", "weight": 10 });
        for (key, value) in more.as_object().unwrap() {
            canary[key] = value.clone();
        }
        json!({ "canary": canary })
    };
    let gate = |bounds: Value| {
        let mut gate = json!({ "name": "errors", "query": "up" });
        for (key, value) in bounds.as_object().unwrap() {
            gate[key] = value.clone();
        }
        canary(json!({ "metrics": [gate] }))
    };
    let name = "Invalid value: the canary Service `<serviceName>-<serviceSuffix>` needs a name of at most \
                63 small letters, digits and `-`";
    let rising = "Invalid value: every weight must be above the one before";
    let below = "Invalid value: every weight must be below the final `weight`";
    let invalid = "FieldValueInvalid";
    let told = [
        (canary(json!({ "serviceSuffix": "c".repeat(60) })), "spec.serviceName", invalid, name),
        (canary(json!({ "serviceSuffix": "Canary" })), "spec.serviceName", invalid, name),
        (canary(json!({ "steps": [5, 1] })), "spec.canary.steps", invalid, rising),
        (canary(json!({ "steps": [5, 5] })), "spec.canary.steps", invalid, rising),
        (canary(json!({ "steps": [5, 10] })), "spec.canary.steps", invalid, below),
        (
            gate(json!({})),
            "spec.canary.metrics[0]",
            "FieldValueRequired",
            "Required value: `min` or `max` is needed",
        ),
        (
            gate(json!({ "min": 2, "max": 1 })),
            "spec.canary.metrics[0]",
            invalid,
            "Invalid value: `min` must not be above `max`",
        ),
        (
            json!({ "targetService": { "selector": { "app": "web" }, "ports": [{ "port": 1, "name": "a" }, { "port": 2 }] } }),
            "spec.targetService.ports",
            "FieldValueRequired",
            "Required value: each of several ports needs a name",
        ),
    ];
    for (spec, field, reason, message) in told {
        let found = refused(plane, &services(plane), &service("web", &spec)).await;
        assert_eq!(found, (field.to_owned(), reason.to_owned(), message.to_owned()), "{spec}");
    }
    let good = [
        json!({}),
        canary(json!({ "steps": [1, 5, 9] })),
        gate(json!({ "max": 0.5 })),
        json!({ "targetService": { "selector": { "app": "web" }, "ports": [{ "port": 1 }] } }),
    ];
    for (at, spec) in good.iter().enumerate() {
        plane.create(&services(plane), &service(&format!("web-{at}"), spec)).await.unwrap();
    }
}

pub(crate) async fn rules_are_not_checked_on_what_breaks_the_schema(plane: &Plane) {
    let mut body = claim(&plane.name("calico"));
    body["spec"] = json!({ "targetVersion": "v3 28", "driver": "none" });
    let status = plane.create(CLAIMS, &body).await.unwrap_err();
    assert_eq!(cause(&status, "spec.driver").0, "FieldValueNotSupported");
    let unchecked = "Invalid value: null: some validation rules were not checked because the object was invalid; \
                     correct the existing errors to complete validation";
    assert_eq!(cause(&status, "<nil>"), ("FieldValueInvalid".to_owned(), unchecked.to_owned()));
    assert_eq!(status.details.unwrap().causes.len(), 2);
    body["spec"] = json!({ "targetVersion": "v3 28", "maxParallel": 0 });
    let status = plane.create(CLAIMS, &body).await.unwrap_err();
    let mut fields: Vec<String> = status.details.unwrap().causes.into_iter().map(|of| of.field).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["spec.maxParallel", "spec.targetVersion"]);
}

pub(crate) async fn an_older_leader_cannot_write_a_status(plane: &Plane) {
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    let status = format!("{}/status", plane.claim("calico"));
    let write = async |epoch: i64| {
        plane.patch(&status, MERGE_PATCH, &json!({ "status": { "phase": "Pending", "epoch": epoch } })).await
    };
    write(2).await.unwrap();
    let late = write(1).await.unwrap_err();
    let why = "Forbidden: a newer leader has written the status".to_owned();
    assert_eq!(cause(&late, "status.epoch"), ("FieldValueForbidden".to_owned(), why));
    assert_eq!(late.code, 422);
    write(2).await.unwrap();
    write(3).await.unwrap();
}
