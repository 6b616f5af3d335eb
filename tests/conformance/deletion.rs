//! Deletion: preconditions, finalizers, grace of pods, dependents.

use serde_json::{Value, json};

use super::plane::{CLAIMS, JSON_PATCH, MERGE_PATCH, Plane, claim, config_map, refusal, text};

pub(crate) async fn a_deletion_with_another_uid_or_version_is_a_conflict_and_deletes_nothing(plane: &Plane) {
    let path = plane.config_map("a");
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    for precondition in [json!({ "uid": "another" }), json!({ "resourceVersion": "1" })] {
        let refused = plane.delete(&path, &json!({ "preconditions": precondition })).await;
        assert_eq!(refusal(refused), (409, "Conflict".to_owned()));
    }
    assert_eq!(plane.get(&path).await.unwrap(), made);
    let uid = &made["metadata"]["uid"];
    let status = plane.delete(&path, &json!({ "preconditions": { "uid": uid } })).await.unwrap();
    assert_eq!((text(&status, "/status"), &status["details"]["uid"]), ("Success", uid));
    assert_eq!(refusal(plane.delete(&path, &json!({})).await), (404, "NotFound".to_owned()));
}

pub(crate) async fn an_object_with_a_finalizer_stays_until_it_is_taken_off(plane: &Plane) {
    let path = plane.claim("calico");
    let mut body = claim(&plane.name("calico"));
    body["metadata"]["finalizers"] = json!(["trunkline.dev/rollout"]);
    let made = plane.create(CLAIMS, &body).await.unwrap();
    let marked = plane.delete(&path, &json!({})).await.unwrap();
    assert_eq!(marked["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(!text(&marked, "/metadata/deletionTimestamp").is_empty());
    assert_eq!(plane.delete(&path, &json!({})).await.unwrap(), marked);

    let more = json!({ "metadata": { "finalizers": ["trunkline.dev/rollout", "late.dev/one"] } });
    assert_eq!(refusal(plane.patch(&path, MERGE_PATCH, &more).await), (422, "Invalid".to_owned()));
    let off = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": marked["metadata"]["resourceVersion"] },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]);
    plane.patch(&path, JSON_PATCH, &off).await.unwrap();
    assert_eq!(refusal(plane.get(&path).await), (404, "NotFound".to_owned()));
}

pub(crate) async fn dependents_go_after_their_owner_or_are_orphaned(plane: &Plane) {
    for (owner, options, stays) in
        [("a", json!({}), false), ("b", json!({ "propagationPolicy": "Orphan" }), true)]
    {
        let made = plane.create(&plane.config_maps(), &config_map(owner, "1")).await.unwrap();
        let child = format!("{owner}-child");
        let mut body = config_map(&child, "1");
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": made["metadata"]["uid"],
        }]);
        plane.create(&plane.config_maps(), &body).await.unwrap();
        plane.delete(&plane.config_map(owner), &options).await.unwrap();
        let path = plane.config_map(&child);
        if stays {
            plane.quiet().await;
            let child: Value = plane.get(&path).await.unwrap();
            assert_eq!(child.pointer("/metadata/ownerReferences"), None);
        } else {
            plane.until("the child goes", async || plane.get(&path).await.is_err().then_some(())).await;
        }
    }
}
