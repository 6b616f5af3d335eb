//! Lists: order, selectors, pages of one state.

use serde_json::{Value, json};

use super::plane::{Plane, config_map, refusal, text};

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
    let refused = plane.get(&format!("{}?fieldSelector=spec.nodeName%3Db", plane.config_maps())).await;
    assert_eq!(refusal(refused), (400, "BadRequest".to_owned()));
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
    let late = page(first["metadata"]["continue"].clone()).await;
    assert_eq!(refusal(late), (410, "Expired".to_owned()));
    assert_eq!(refusal(page(json!("what")).await).0, 400);
}
