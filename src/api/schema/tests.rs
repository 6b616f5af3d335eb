use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::*;
use crate::api::{
    ClaimKind, CniUpgradeSpec, CniUpgradeStatus, ServiceUpgradeSpec, ServiceUpgradeStatus, crd,
};

fn part(kind: ClaimKind, name: &str) -> JSONSchemaProps {
    crd::schema(kind).properties.unwrap().remove(name).unwrap()
}

fn words(schema: &JSONSchemaProps, value: &Value) -> Vec<String> {
    validate(schema, value).iter().map(ToString::to_string).collect()
}

/// Values that a schema allows, every optional field now there and now absent.
fn allowed(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    if let Some(words) = &schema.enum_ {
        return proptest::sample::select(words.iter().map(|word| word.0.clone()).collect::<Vec<_>>()).boxed();
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        return prop_oneof![(1..100).prop_map(|n| json!(n)), Just(json!("http"))].boxed();
    }
    match schema.type_.as_deref().unwrap() {
        "object" => allowed_object(schema),
        "array" => {
            let most = usize::try_from(schema.max_items.unwrap()).unwrap().min(2);
            proptest::collection::vec(allowed(item_schema(schema).unwrap()), 0..=most)
                .prop_map(Value::Array)
                .boxed()
        }
        "boolean" => any::<bool>().prop_map(Value::Bool).boxed(),
        "number" => (0..=10).prop_map(|tenths| json!(f64::from(tenths) / 10.0)).boxed(),
        "integer" => {
            let least = schema.minimum.map_or(i64::MIN, |n| n.to_string().parse().unwrap());
            let most = schema.maximum.map_or(i64::MAX, |n| n.to_string().parse().unwrap());
            (least..=most).prop_map(|n| json!(n)).boxed()
        }
        "string" if schema.format.as_deref() == Some("date-time") => {
            Just(json!("2026-11-30T10:00:00Z")).boxed()
        }
        "string" if schema.pattern.is_some() => {
            proptest::sample::select(vec![json!("10m"), json!("1h30m"), json!("1.5s")]).boxed()
        }
        "string" => "[a-zü]{2,8}".prop_map(Value::String).boxed(),
        other => panic!("no generator for {other}"),
    }
}

fn allowed_object(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &schema.additional_properties {
        let least = usize::try_from(schema.min_properties.unwrap_or(0)).unwrap();
        return proptest::collection::btree_map("[a-z]{1,5}", allowed(inner), least..=2)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed();
    }
    let required = schema.required.clone().unwrap_or_default();
    let fields: Vec<_> = schema
        .properties
        .iter()
        .flatten()
        .map(|(name, schema)| {
            let there = required.contains(name);
            (Just(name.clone()), allowed(schema), any::<bool>().prop_map(move |b| b || there))
        })
        .collect();
    fields
        .prop_map(|fields| {
            let there = fields.into_iter().filter(|(_, _, there)| *there);
            Value::Object(there.map(|(name, value, _)| (name, value)).collect())
        })
        .boxed()
}

/// The law between a schema and its type.
fn agree<T: DeserializeOwned + Serialize>(schema: &JSONSchemaProps, value: &Value) {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    let mut written = serde_json::to_value(&typed).unwrap();
    assert_eq!(words(schema, &written), Vec::<String>::new());
    let mut pruned = written.clone();
    prune(schema, &mut pruned);
    assert_eq!(pruned, written);
    assert_eq!(unknown_fields(schema, &written), []);
    // What the API server stores of the bare value reads as the same typed value.
    let mut stored = value.clone();
    fill_defaults(schema, &mut stored);
    let again: T = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), written);
    // What the type writes needs no further default, but for empty parts that it leaves out.
    let before = written.clone();
    fill_defaults(schema, &mut written);
    assert_eq!(before, written);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_allowed_cni_spec_is_read_and_written_without_loss(
        value in allowed(&part(ClaimKind::CniUpgrade, "spec"))
    ) {
        agree::<CniUpgradeSpec>(&part(ClaimKind::CniUpgrade, "spec"), &value);
    }

    #[test]
    fn every_allowed_service_spec_is_read_and_written_without_loss(
        value in allowed(&part(ClaimKind::ServiceUpgrade, "spec"))
    ) {
        agree::<ServiceUpgradeSpec>(&part(ClaimKind::ServiceUpgrade, "spec"), &value);
    }

    #[test]
    fn every_allowed_cni_status_is_read_and_written_without_loss(
        value in allowed(&part(ClaimKind::CniUpgrade, "status"))
    ) {
        agree::<CniUpgradeStatus>(&part(ClaimKind::CniUpgrade, "status"), &value);
    }

    #[test]
    fn every_allowed_service_status_is_read_and_written_without_loss(
        value in allowed(&part(ClaimKind::ServiceUpgrade, "status"))
    ) {
        agree::<ServiceUpgradeStatus>(&part(ClaimKind::ServiceUpgrade, "status"), &value);
    }
}

#[test]
fn the_servers_defaults_of_what_is_required_only_are_the_types_defaults() {
    let schema = part(ClaimKind::CniUpgrade, "spec");
    let mut stored = json!({ "targetVersion": "v1", "canary": {} });
    fill_defaults(&schema, &mut stored);
    assert_eq!(
        stored,
        json!({
            "targetVersion": "v1",
            "canary": { "percentage": 10, "observationMinutes": 5, "healthThreshold": 1.0 },
            "maxParallel": 1, "timeoutSeconds": 600, "autoRollback": false, "paused": false,
            "deletionPolicy": "Keep",
        })
    );
    let typed: CniUpgradeSpec =
        serde_json::from_value(json!({ "targetVersion": "v1", "canary": {} })).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), stored);

    let schema = part(ClaimKind::ServiceUpgrade, "spec");
    let bare = json!({
        "serviceName": "web", "targetService": { "selector": { "app": "web" } },
        "canary": { "observationPeriod": "10m" }, "rollback": {},
    });
    let mut stored = bare.clone();
    fill_defaults(&schema, &mut stored);
    let typed: ServiceUpgradeSpec = serde_json::from_value(bare).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), stored);
}

#[test]
fn a_null_counts_as_absent() {
    let schema = part(ClaimKind::CniUpgrade, "spec");
    let mut value = json!({ "targetVersion": null, "provider": null, "maxParallel": null });
    fill_defaults(&schema, &mut value);
    assert_eq!(value["maxParallel"], json!(1));
    assert_eq!(value.get("provider"), None);
    assert_eq!(words(&schema, &value), ["targetVersion: required field `targetVersion` is missing"]);
}

#[test]
fn every_breach_is_named_with_its_path() {
    let schema = crd::schema(ClaimKind::CniUpgrade);
    let object = json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade", "metadata": { "name": "a", "labels": {} },
        "spec": {
            "targetVersion": 3.28, "maxParallel": 0, "timeoutSeconds": 1.5, "driver": "other", "provider": "",
            "canary": { "percentage": 101, "healthThreshold": 1.5, "nodeLabels": { "pool": true } },
            "nodeSelector": [],
        },
    });
    assert_eq!(
        words(&schema, &object),
        [
            "spec.canary.healthThreshold: must be between 0 and 1, is 1.5",
            "spec.canary.nodeLabels.pool: must be a string, is a boolean",
            "spec.canary.percentage: must be between 1 and 100, is 101",
            "spec.driver: must be one of `daemonSet`, `ownedTemplate`, `nodeJob`, is `other`",
            "spec.maxParallel: must be between 1 and 100000, is 0",
            "spec.nodeSelector: must be a mapping, is a list",
            "spec.provider: must not be empty",
            "spec.targetVersion: must be a string, is a number",
            "spec.timeoutSeconds: must be an integer, is a number",
        ]
    );
}

#[test]
fn a_period_must_look_like_one_and_a_list_item_is_named_by_its_index() {
    let schema = part(ClaimKind::ServiceUpgrade, "spec");
    let value = json!({
        "serviceName": "web",
        "targetService": { "selector": {}, "ports": [{ "port": 80, "targetPort": "http" }, { "port": 70000 }] },
        "canary": { "observationPeriod": "ten minutes" },
    });
    assert_eq!(
        words(&schema, &value),
        [
            r"canary.observationPeriod: `ten minutes` does not match `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`",
            "targetService.ports[1].port: must be between 1 and 65535, is 70000",
            "targetService.selector: must not be empty",
        ]
    );
}

#[test]
fn pruning_keeps_metadata_and_drops_what_the_schema_does_not_name() {
    let schema = crd::schema(ClaimKind::CniUpgrade);
    let mut object = json!({
        "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade", "extra": 1,
        "metadata": { "name": "a", "annotations": { "x": "y" } },
        "spec": { "targetVersion": "v1", "canry": {}, "canary": { "percent": 3 } },
    });
    let unknown: Vec<String> =
        unknown_fields(&schema, &object).iter().map(|found| found.path.to_string()).collect();
    assert_eq!(unknown, ["extra", "spec.canary.percent", "spec.canry"]);
    prune(&schema, &mut object);
    assert_eq!(
        object,
        json!({
            "apiVersion": "cni.example.com/v1", "kind": "CNIUpgrade",
            "metadata": { "name": "a", "annotations": { "x": "y" } },
            "spec": { "targetVersion": "v1", "canary": {} },
        })
    );
}

#[test]
fn whole_numbers_are_written_without_a_point() {
    let mut value = json!({ "a": [1.0, 1.5, -3.0], "b": 1e3, "c": 1e300, "d": 7 });
    whole_numbers(&mut value);
    assert_eq!(value, json!({ "a": [1, 1.5, -3], "b": 1000, "c": 1e300, "d": 7 }));
}

#[test]
fn every_list_and_every_map_of_a_schema_is_bounded_and_nothing_is_nullable() {
    fn walk(schema: &JSONSchemaProps, path: &FieldPath) {
        assert_eq!(schema.nullable, None, "{path}");
        assert!(!matches!(schema.format.as_deref(), Some("int32" | "int64" | "double")), "{path}");
        if let Some(inner) = item_schema(schema) {
            assert!(schema.max_items.is_some(), "{path} has no maxItems");
            walk(inner, &path.index(0));
        }
        if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &schema.additional_properties {
            assert!(schema.max_properties.is_some(), "{path} has no maxProperties");
            walk(inner, &path.key("*"));
        }
        for (name, inner) in schema.properties.iter().flatten() {
            walk(inner, &path.key(name));
        }
    }
    walk(&crd::schema(ClaimKind::CniUpgrade), &FieldPath::default());
    walk(&crd::schema(ClaimKind::ServiceUpgrade), &FieldPath::default());
}
