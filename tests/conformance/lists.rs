//! Lists: order, selectors, pages of one state.

use serde_json::{Value, json};

use super::plane::{Plane, config_map, text};

async fn names(plane: &Plane, query: &str) -> Vec<String> {
    let list = plane.get(&format!("{}?{query}", plane.config_maps())).await.unwrap();
    assert_eq!(list["kind"], "ConfigMapList");
    list["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

async fn with_maps(plane: &Plane, names: &[&str]) {
    for name in names {
        let mut map = config_map(name, "1");
        map["metadata"]["labels"] = json!({ "name": name, "all": "yes" });
        plane.create(&plane.config_maps(), &map).await.unwrap();
    }
}

pub(crate) async fn selectors_narrow_a_list_in_order_of_name(plane: &Plane) {
    with_maps(plane, &["c", "a", "b"]).await;
    assert_eq!(names(plane, "").await, ["a", "b", "c"]);
    assert_eq!(names(plane, "resourceVersion=0").await, ["a", "b", "c"]);
    assert_eq!(names(plane, "labelSelector=name+in+(a,c),all%3Dyes").await, ["a", "c"]);
    assert_eq!(names(plane, "fieldSelector=metadata.name%3Db").await, ["b"]);
    let bad = async |query: &str| {
        let status = plane.get(&format!("{}?{query}", plane.config_maps())).await.unwrap_err();
        assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{query}");
        status.message
    };
    let known =
        "\"spec.nodeName\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(bad("fieldSelector=spec.nodeName%3Db").await, known);
    assert!(bad("labelSelector=a+in+(b").await.starts_with("unable to parse requirement"));
    for query in ["limit=x", "resourceVersion=x"] {
        assert!(bad(query).await.contains("parsing \"x\": invalid syntax"), "{query}");
    }
}

pub(crate) async fn pages_are_of_one_state_whatever_is_written_between(plane: &Plane) {
    with_maps(plane, &["a", "b", "c", "d"]).await;
    let page = |token: Value| {
        let query = format!("{}?limit=2&continue={}", plane.config_maps(), token.as_str().unwrap_or(""));
        async move { plane.get(&query).await }
    };
    let first = page(Value::Null).await.unwrap();
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    plane.delete(&plane.config_map("c"), &json!({})).await.unwrap();
    plane.create(&plane.config_maps(), &config_map("e", "1")).await.unwrap();
    let second = page(first["metadata"]["continue"].clone()).await.unwrap();
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"].get("continue"), None);
    let names: Vec<&str> =
        second["items"].as_array().unwrap().iter().map(|item| text(item, "/metadata/name")).collect();
    assert_eq!(names, ["c", "d"]);

    plane.create(&plane.config_maps(), &config_map("f", "1")).await.unwrap();
    plane.forget().await;
    let late = page(first["metadata"]["continue"].clone()).await.unwrap_err();
    assert_eq!((late.code, late.reason.as_str()), (410, "Expired"));
    let why = "The provided continue parameter is too old to display a consistent list result.";
    assert!(late.message.starts_with(why), "{}", late.message);
    let broken = page(json!("what")).await.unwrap_err();
    assert_eq!((broken.code, broken.reason.as_str()), (400, "BadRequest"));
    assert!(broken.message.starts_with("invalid continue token: continue key is not valid"));
}

pub(crate) async fn a_list_is_as_it_was_at_an_exact_version_and_none_of_the_future(plane: &Plane) {
    with_maps(plane, &["a"]).await;
    let list = plane.get(&plane.config_maps()).await.unwrap();
    let version: u64 = text(&list, "/metadata/resourceVersion").parse().unwrap();
    with_maps(plane, &["b"]).await;
    assert_eq!(names(plane, &format!("resourceVersion={version}&resourceVersionMatch=Exact")).await, ["a"]);
    assert_eq!(names(plane, &format!("resourceVersion={version}")).await, ["a", "b"]);
    let ahead = plane.get(&format!("{}?resourceVersion={}", plane.config_maps(), version + 100_000)).await;
    let ahead = ahead.unwrap_err();
    assert_eq!((ahead.code, ahead.reason.as_str()), (504, "Timeout"));
    assert!(ahead.message.starts_with("Timeout: Too large resource version: "), "{}", ahead.message);
    assert_eq!(ahead.details.unwrap().causes[0].reason, "ResourceVersionTooLarge");
    plane.forget().await;
    let exact = format!("{}?resourceVersion={version}&resourceVersionMatch=Exact", plane.config_maps());
    let late = plane.get(&exact).await.unwrap_err();
    let why = "The resourceVersion for the provided list is too old.";
    assert_eq!((late.code, late.reason.as_str(), late.message.as_str()), (410, "Expired", why));
}
