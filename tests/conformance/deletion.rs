//! Deletion: preconditions, finalizers, grace of pods, dependents.

use serde_json::{Value, json};

use super::plane::{CLAIMS, JSON_PATCH, MERGE_PATCH, NODES, Plane, cause, claim, config_map, refusal, text};

pub(crate) async fn a_deletion_with_another_uid_or_version_is_a_conflict_and_deletes_nothing(plane: &Plane) {
    let path = plane.config_map("a");
    let made = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    for precondition in [json!({ "uid": "another" }), json!({ "resourceVersion": "1" })] {
        let refused = plane.delete(&path, &json!({ "preconditions": precondition })).await.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
        let why = "Operation cannot be fulfilled on ConfigMap \"a\": the ";
        assert!(refused.message.starts_with(why), "{}", refused.message);
        assert!(refused.message.contains(" in the precondition ("), "{}", refused.message);
        assert_eq!(refused.details.unwrap().kind, "ConfigMap");
    }
    assert_eq!(plane.get(&path).await.unwrap(), made);
    let uid = &made["metadata"]["uid"];
    let status = plane.delete(&path, &json!({ "preconditions": { "uid": uid } })).await.unwrap();
    assert_eq!(text(&status, "/status"), "Success");
    assert_eq!(status["details"], json!({ "name": "a", "kind": "configmaps", "uid": uid }));
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
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(plane.delete(&path, &json!({})).await.unwrap(), marked);

    let more = json!({ "metadata": { "finalizers": ["trunkline.dev/rollout", "late.dev/one"] } });
    let refused = plane.patch(&path, MERGE_PATCH, &more).await.unwrap_err();
    let why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
               []string{\"late.dev/one\"}";
    assert_eq!(cause(&refused, "metadata.finalizers"), ("FieldValueForbidden".to_owned(), why.to_owned()));
    assert_eq!(refused.code, 422);
    let off = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": marked["metadata"]["resourceVersion"] },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]);
    plane.patch(&path, JSON_PATCH, &off).await.unwrap();
    assert_eq!(refusal(plane.get(&path).await), (404, "NotFound".to_owned()));
}

/// A ConfigMap of these owners.
async fn owned(plane: &Plane, name: &str, owners: &[&Value]) -> String {
    let reference = |owner: &&Value| {
        json!({
            "apiVersion": "v1",
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        })
    };
    let mut body = config_map(name, "1");
    body["metadata"]["ownerReferences"] = owners.iter().map(reference).collect();
    plane.create(&plane.config_maps(), &body).await.unwrap();
    plane.config_map(name)
}

async fn until_gone(plane: &Plane, path: &str) {
    plane.until(&format!("{path} goes"), async || plane.get(path).await.is_err().then_some(())).await;
}

pub(crate) async fn dependents_go_after_their_owner_or_are_orphaned(plane: &Plane) {
    for (owner, options, stays) in
        [("a", json!({}), false), ("b", json!({ "propagationPolicy": "Orphan" }), true)]
    {
        let made = plane.create(&plane.config_maps(), &config_map(owner, "1")).await.unwrap();
        let child = owned(plane, &format!("{owner}-child"), &[&made]).await;
        plane.delete(&plane.config_map(owner), &options).await.unwrap();
        until_gone(plane, &plane.config_map(owner)).await;
        if stays {
            plane.quiet().await;
            let child: Value = plane.get(&child).await.unwrap();
            assert_eq!(child.pointer("/metadata/ownerReferences"), None);
        } else {
            until_gone(plane, &child).await;
        }
    }
}

pub(crate) async fn a_dependent_of_two_owners_stays_with_the_last_one(plane: &Plane) {
    let first = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    let second = plane.create(&plane.config_maps(), &config_map("b", "1")).await.unwrap();
    let child = owned(plane, "child", &[&first, &second]).await;
    plane.delete(&plane.config_map("a"), &json!({})).await.unwrap();
    let left = plane
        .until("one owner is left", async || {
            let child = plane.get(&child).await.unwrap();
            let owners = child["metadata"]["ownerReferences"].as_array().unwrap().clone();
            (owners.len() == 1).then_some(owners)
        })
        .await;
    assert_eq!(left[0]["uid"], second["metadata"]["uid"]);
    plane.delete(&plane.config_map("b"), &json!({})).await.unwrap();
    until_gone(plane, &child).await;
}

pub(crate) async fn a_dependent_of_nobody_is_collected(plane: &Plane) {
    let mut gone = plane.create(&plane.config_maps(), &config_map("a", "1")).await.unwrap();
    gone["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let child = owned(plane, "child", &[&gone]).await;
    until_gone(plane, &child).await;
}

pub(crate) async fn a_pod_goes_with_its_grace_and_what_it_owns_after_it(plane: &Plane) {
    let node = json!({ "metadata": { "name": plane.name("n1") } });
    plane.create(NODES, &node).await.unwrap();
    // Until then nobody plays its kubelet.
    plane
        .until("its kubelet has reported", async || {
            let node = plane.get(&format!("{NODES}/{}", plane.name("n1"))).await.unwrap();
            let conditions = node["status"]["conditions"].as_array()?.clone();
            conditions.iter().any(|of| of["type"] == "Ready" && of["status"] != "Unknown").then_some(())
        })
        .await;
    let pods = plane.collection("api/v1", "pods");
    let body = json!({ "metadata": { "name": "p" }, "spec": {
        "nodeName": plane.name("n1"),
        "terminationGracePeriodSeconds": 5,
        "containers": [{ "name": "a", "image": "example/a:v1" }],
    } });
    let pod = plane.create(&pods, &body).await.unwrap();
    let path = format!("{pods}/p");
    plane
        .until("it runs", async || {
            let pod = plane.get(&path).await.unwrap();
            (pod["status"]["phase"] == "Running").then_some(())
        })
        .await;
    let slice = owned(plane, "slice", &[&pod]).await;
    let other = plane.delete(&path, &json!({ "preconditions": { "uid": "another" } })).await.unwrap_err();
    assert!(
        other.message.starts_with("Operation cannot be fulfilled on Pod \"p\": the UID in the precondition")
    );
    let going =
        plane.delete(&path, &json!({ "preconditions": { "uid": pod["metadata"]["uid"] } })).await.unwrap();
    assert_eq!((text(&going, "/kind"), &going["metadata"]["uid"]), ("Pod", &pod["metadata"]["uid"]));
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(!text(&going, "/metadata/deletionTimestamp").is_empty());
    until_gone(plane, &path).await;
    until_gone(plane, &slice).await;
}

pub(crate) async fn a_pod_that_is_on_no_node_goes_at_once(plane: &Plane) {
    let pods = plane.collection("api/v1", "pods");
    let body = json!({ "metadata": { "name": "p" }, "spec": {
        "nodeSelector": { "case": "none" },
        "containers": [{ "name": "a", "image": "example/a:v1" }],
    } });
    let pod = plane.create(&pods, &body).await.unwrap();
    let gone = plane.delete(&format!("{pods}/p"), &json!({})).await.unwrap();
    assert_eq!((text(&gone, "/kind"), &gone["metadata"]["uid"]), ("Pod", &pod["metadata"]["uid"]));
    assert_eq!(refusal(plane.get(&format!("{pods}/p")).await), (404, "NotFound".to_owned()));
}
