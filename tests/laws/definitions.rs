//! What `validate` accepts the API server stores, and what the definitions refuse `validate` refuses too.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use trunkline::{
    api::names::Oid,
    clock::Clock,
    manifest::{Severity, read},
    sim::{
        api::EmbeddedCluster,
        model::{Model, Timings},
    },
    world::git::Blob,
};

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9-]{0,8}[a-z0-9]",
        1 => "[a-zA-Z0-9 ._+:-]{1,12}",
        1 => "[a-z]{50,63}",
    ]
}

fn cni() -> impl Strategy<Value = Value> {
    let version = prop_oneof![2 => "v[0-9]\\.[0-9]{1,2}\\.[0-9]", 1 => "[ a-zA-Z0-9._+:@\u{a0}-]{1,6}"];
    (version, -1..5_i64, 0..130_i64).prop_map(|(version, parallel, percentage)| {
        json!({ "targetVersion": version, "maxParallel": parallel, "canary": { "percentage": percentage } })
    })
}

fn gate() -> impl Strategy<Value = Value> {
    (proptest::option::of(0..3_i64), proptest::option::of(0..3_i64)).prop_map(|(min, max)| {
        let mut gate = json!({ "name": "errors", "query": "up" });
        for (key, bound) in [("min", min), ("max", max)] {
            if let Some(bound) = bound {
                gate[key] = json!(bound);
            }
        }
        gate
    })
}

fn service() -> impl Strategy<Value = Value> {
    let ports = prop::collection::vec(proptest::option::of(Just("http")), 0..3);
    let steps = prop::collection::vec(0..30_i64, 0..4);
    let gates = prop::collection::vec(gate(), 0..3);
    (word(), word(), ports, steps, 0..40_i64, gates).prop_map(
        |(name, suffix, ports, steps, weight, gates)| {
            let port = |name: Option<&str>| match name {
                Some(name) => json!({ "port": 80, "name": name }),
                None => json!({ "port": 80 }),
            };
            let ports: Vec<Value> = ports.into_iter().map(port).collect();
            json!({
                "serviceName": name,
                "targetService": { "selector": { "app": "web" }, "ports": ports },
                "canary": {
                    "serviceSuffix": suffix,
                    "observationPeriod": "10m",
                    "weight": weight,
                    "steps": steps,
                    "metrics": gates,
                },
            })
        },
    )
}

/// Whether `validate` has nothing against an object, and whether the server stores it.
fn verdicts(kind: &str, spec: &Value) -> (bool, Result<(), String>) {
    let (group, path) = if kind == "CNIUpgrade" {
        ("cni.example.com", "/apis/cni.example.com/v1/cniupgrades")
    } else {
        ("service.example.com", "/apis/service.example.com/v1/namespaces/default/serviceupgrades")
    };
    let mut object = json!({ "apiVersion": format!("{group}/v1"), "kind": kind });
    object["metadata"] = json!({ "name": "x" });
    object["spec"] = spec.clone();
    if kind == "ServiceUpgrade" {
        object["metadata"]["namespace"] = json!("default");
    }
    let bytes = object.to_string().into_bytes();
    let blob = Blob { oid: Oid::from("0"), bytes: bytes.clone().into() };
    let reading = read(&[("a.yaml".to_owned(), blob)].into(), &BTreeSet::new());
    let accepted = reading.diagnostics.iter().all(|found| found.severity != Severity::Error);
    let stored =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let stored = stored.block_on(async {
        let base = "2026-03-01T10:00:00Z".parse().unwrap();
        let cluster = EmbeddedCluster::new(Model::new(7, base, Timings::default()), Clock::embedded(base));
        let request = http::Request::post(path).body(bytes).unwrap();
        cluster.client().request::<Value>(request).await.map(drop).map_err(|error| error.to_string())
    });
    (accepted, stored)
}

fn agree(kind: &str, spec: &Value) -> Result<(), TestCaseError> {
    let (accepted, stored) = verdicts(kind, spec);
    prop_assert_eq!(accepted, stored.is_ok(), "{}: {:?}", spec, stored);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_cni_upgrade_is_valid_for_both_or_for_none(spec in cni()) {
        agree("CNIUpgrade", &spec)?;
    }

    #[test]
    fn a_service_upgrade_is_valid_for_both_or_for_none(spec in service()) {
        agree("ServiceUpgrade", &spec)?;
    }
}
