//! Discovery, and tables as `kubectl` asks for them.

use http::Request;
use serde_json::{Value, json};

use super::plane::{CLAIMS, MERGE_PATCH, NODES, Plane, claim, text};

pub(crate) async fn the_client_library_discovers_our_kinds(plane: &Plane) {
    let version = plane.client.apiserver_version().await.unwrap();
    assert!(version.major == "1" && version.minor.parse::<u32>().unwrap() >= 33, "{version:?}");
    let all = kube::discovery::Discovery::new(plane.client.clone()).run().await.unwrap();
    let group = all.get("cni.example.com").unwrap();
    let (resource, capabilities) = group.recommended_kind("CNIUpgrade").unwrap();
    assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("cniupgrades", "v1"));
    assert_eq!(capabilities.scope, kube::discovery::Scope::Cluster);
    assert!(capabilities.subresources.iter().any(|(status, _)| status.plural == "status"));
    assert!(all.get("apps").unwrap().recommended_kind("DaemonSet").is_some());
}

pub(crate) async fn a_table_has_the_printer_columns_of_the_definition(plane: &Plane) {
    plane.create(CLAIMS, &claim(&plane.name("calico"))).await.unwrap();
    let status = json!({ "status": { "phase": "Pending", "targetVersion": "v3.27.9" } });
    plane.patch(&format!("{}/status", plane.claim("calico")), MERGE_PATCH, &status).await.unwrap();
    let path = format!("{CLAIMS}?fieldSelector=metadata.name%3D{}", plane.name("calico"));
    let request = Request::get(path)
        .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .body(Vec::new())
        .unwrap();
    let table: Value = plane.client.request(request).await.unwrap();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns[..4], ["Name", "Phase", "Progress", "Target"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!(plane.name("calico")), json!("Pending"), json!(null), json!("v3.27.9")]);
    let age = &cells[columns.iter().position(|name| *name == "Age").unwrap()];
    assert!(age.as_str().unwrap().ends_with('s'), "{age}");
}

pub(crate) async fn open_api_tells_that_writes_are_validated_and_which_fields_our_kinds_have(plane: &Plane) {
    let index = plane.get("/openapi/v3").await.unwrap();
    for part in ["api/v1", "apis/apps/v1", "apis/cni.example.com/v1"] {
        let url = text(&index["paths"][part], "/serverRelativeURL");
        let document = plane.get(url).await.unwrap();
        let paths = document["paths"].as_object().unwrap().values();
        let patches: Vec<&Value> = paths
            .filter_map(|path| path.get("patch"))
            .filter(|patch| patch["x-kubernetes-action"] == "patch")
            .collect();
        assert!(!patches.is_empty(), "{part}");
        for patch in patches {
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|of| of["name"] == "fieldValidation"), "{part}");
        }
    }
    let ours = plane.get("/openapi/v3/apis/cni.example.com/v1").await.unwrap();
    let schema = &ours["components"]["schemas"]["com.example.cni.v1.CNIUpgrade"];
    assert_eq!(schema["properties"]["spec"]["properties"]["maxParallel"]["type"], "integer");
    assert_eq!(plane.get("/openapi/v3/apis/other/v1").await.unwrap_err().code, 404);
}

pub(crate) async fn an_answer_that_the_client_cannot_read_is_not_sent(plane: &Plane) {
    let accept = "application/pdf";
    let request = Request::get(NODES).header(http::header::ACCEPT, accept).body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = plane.client.request::<Value>(request).await else { panic!() };
    assert_eq!((status.code, status.reason.as_str()), (406, "NotAcceptable"));
}
