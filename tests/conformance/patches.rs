//! Patches in three formats, with their tests and preconditions.

use serde_json::json;

use super::plane::{
    CLAIMS, JSON_PATCH, MERGE_PATCH, NODES, Plane, STRATEGIC_PATCH, claim, config_map, refusal,
};

pub(crate) async fn a_json_patch_applies_when_its_tests_hold(plane: &Plane) {
    let path = plane.config_map("a");
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let patch = |version: &serde_json::Value| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": version },
            { "op": "test", "path": "/metadata/uid", "value": first["metadata"]["uid"] },
            { "op": "replace", "path": "/data/key", "value": "2" },
        ])
    };
    let second = plane.patch(&path, JSON_PATCH, &patch(&first["metadata"]["resourceVersion"])).await.unwrap();
    assert_eq!(second["data"]["key"], "2");
    let late =
        plane.patch(&path, JSON_PATCH, &patch(&first["metadata"]["resourceVersion"])).await.unwrap_err();
    assert_eq!((late.code, late.reason.as_str()), (422, "Invalid"));
    assert_eq!(late.message, "the server rejected our request due to an error in our request");
    assert!(late.details.unwrap().causes.is_empty());
    assert_eq!(plane.get(&path).await.unwrap(), second);
}

pub(crate) async fn a_merge_patch_with_an_old_version_is_a_conflict(plane: &Plane) {
    let path = plane.config_map("a");
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let version = &first["metadata"]["resourceVersion"];
    let patch = json!({ "metadata": { "resourceVersion": version }, "data": { "key": null, "other": "x" } });
    let second = plane.patch(&path, MERGE_PATCH, &patch).await.unwrap();
    assert_eq!(second["data"], json!({ "other": "x" }));
    assert_eq!(refusal(plane.patch(&path, MERGE_PATCH, &patch).await), (409, "Conflict".to_owned()));
    let moved = json!([{ "op": "replace", "path": "/metadata/resourceVersion", "value": version }]);
    assert_eq!(refusal(plane.patch(&path, JSON_PATCH, &moved).await), (409, "Conflict".to_owned()));
}

pub(crate) async fn a_strategic_patch_annotates_a_node_and_not_a_custom_resource(plane: &Plane) {
    plane.create(NODES, &json!({ "metadata": { "name": plane.name("n1") } })).await.unwrap();
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    let patch = json!({ "metadata": { "annotations": { "a": "b" } } });
    let node = plane.patch(&format!("{NODES}/{}", plane.name("n1")), STRATEGIC_PATCH, &patch).await.unwrap();
    assert_eq!(node["metadata"]["annotations"]["a"], "b");
    let refused = plane.patch(&plane.claim("calico"), STRATEGIC_PATCH, &patch).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (415, "UnsupportedMediaType"));
    let why = "the body of the request was in an unknown format - accepted media types include: \
               application/json-patch+json, application/merge-patch+json";
    assert!(refused.message.starts_with(why), "{}", refused.message);
    let none =
        plane.patch(&format!("{NODES}/{}", plane.name("n1")), "application/json", &patch).await.unwrap_err();
    assert_eq!((none.code, none.message.as_str()), (415, "415: Unsupported Media Type"));
}

pub(crate) async fn a_patch_that_cannot_be_read_or_has_no_object_is_refused(plane: &Plane) {
    let path = plane.config_map("a");
    let none = plane.patch(&path, MERGE_PATCH, &json!({})).await.unwrap_err();
    assert_eq!((none.code, none.message.as_str()), (404, "configmaps \"a\" not found"));
    plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    assert_eq!(refusal(plane.patch(&path, JSON_PATCH, &json!({})).await), (400, "BadRequest".to_owned()));
    let gone = json!([{ "op": "remove", "path": "/data/other" }]);
    assert_eq!(refusal(plane.patch(&path, JSON_PATCH, &gone).await), (422, "Invalid".to_owned()));
}
