//! Discovery, and tables as `kubectl` asks for them.

use http::Request;
use serde_json::{Value, json};

use super::plane::{CLAIMS, MERGE_PATCH, NODES, Plane, claim, text};

#[tokio::test(start_paused = true)]
async fn the_client_library_discovers_our_kinds() {
    let plane = Plane::embedded();
    let version = plane.client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "33"));
    let all = kube::discovery::Discovery::new(plane.client.clone()).run().await.unwrap();
    let group = all.get("cni.example.com").unwrap();
    let (resource, capabilities) = group.recommended_kind("CNIUpgrade").unwrap();
    assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("cniupgrades", "v1"));
    assert_eq!(capabilities.scope, kube::discovery::Scope::Cluster);
    assert!(capabilities.subresources.iter().any(|(status, _)| status.plural == "status"));
    assert!(all.get("apps").unwrap().recommended_kind("DaemonSet").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_table_has_the_printer_columns_of_the_definition() {
    let plane = Plane::embedded();
    plane.create(CLAIMS, &claim("calico")).await.unwrap();
    let status = json!({ "status": { "phase": "Pending", "targetVersion": "v3.27.9" } });
    plane.patch(&format!("{CLAIMS}/calico/status"), MERGE_PATCH, &status).await.unwrap();
    plane.wait(std::time::Duration::from_secs(300)).await;
    let request = Request::get(CLAIMS)
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
    assert_eq!(cells[..4], [json!("calico"), json!("Pending"), json!(null), json!("v3.27.9")]);
    assert_eq!(cells[columns.iter().position(|name| *name == "Age").unwrap()], "5m");
}

#[tokio::test(start_paused = true)]
async fn open_api_tells_that_writes_are_validated_and_which_fields_our_kinds_have() {
    let plane = Plane::embedded();
    let index = plane.get("/openapi/v3").await.unwrap();
    for part in ["api/v1", "apis/apps/v1", "apis/cni.example.com/v1"] {
        let url = text(&index["paths"][part], "/serverRelativeURL");
        let document = plane.get(url).await.unwrap();
        let patches: Vec<&Value> =
            document["paths"].as_object().unwrap().values().filter_map(|path| path.get("patch")).collect();
        assert!(!patches.is_empty(), "{part}");
        for patch in patches {
            assert_eq!(patch["parameters"][0]["name"], "fieldValidation", "{part}");
        }
    }
    let ours = plane.get("/openapi/v3/apis/cni.example.com/v1").await.unwrap();
    let schema = &ours["components"]["schemas"]["cni.example.com.v1.CNIUpgrade"];
    assert_eq!(schema["properties"]["spec"]["properties"]["maxParallel"]["type"], "integer");
    assert_eq!(plane.get("/openapi/v3/apis/other/v1").await.unwrap_err().code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_client_cannot_read_is_not_sent() {
    let plane = Plane::embedded();
    let accept = "application/vnd.kubernetes.protobuf";
    let request = Request::get(NODES).header(http::header::ACCEPT, accept).body(Vec::new()).unwrap();
    let Err(kube::Error::Api(status)) = plane.client.request::<Value>(request).await else { panic!() };
    assert_eq!((status.code, status.reason.as_str()), (406, "NotAcceptable"));
}
