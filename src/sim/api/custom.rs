//! Custom resources: their CustomResourceDefinitions, and admission by their schemas.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps,
};
use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use super::{
    breach,
    failure::{Cause, Failure},
    resources::Resource,
};
use crate::{
    api::{ClaimKind, crd, schema},
    sim::model::store::{Kind, ObjRef},
};

struct Definition {
    crd: CustomResourceDefinition,
    schema: JSONSchemaProps,
    rules: CompiledSchema,
}

static CNI: LazyLock<Definition> = LazyLock::new(|| define(ClaimKind::CniUpgrade));
static SERVICE: LazyLock<Definition> = LazyLock::new(|| define(ClaimKind::ServiceUpgrade));

fn define(kind: ClaimKind) -> Definition {
    let schema = crd::schema(kind);
    let rules = compile_schema(&serde_json::to_value(&schema).unwrap_or_default());
    Definition { crd: crd::definition(kind), schema, rules }
}

fn definition(resource: &Resource) -> Option<&'static Definition> {
    match resource.stored {
        Kind::CniUpgrade => Some(&CNI),
        Kind::ServiceUpgrade => Some(&SERVICE),
        Kind::Namespace
        | Kind::Node
        | Kind::Pod
        | Kind::ConfigMap
        | Kind::Service
        | Kind::Event
        | Kind::DaemonSet
        | Kind::ControllerRevision
        | Kind::Lease
        | Kind::CustomResourceDefinition => None,
    }
}

/// Where the definition of a custom resource is stored; the resource is served while it is there.
pub(super) fn definition_ref(resource: &Resource) -> ObjRef {
    ObjRef::cluster(Kind::CustomResourceDefinition, resource.qualified())
}

/// The definition of a custom resource as an established object.
pub(super) fn definition_object(resource: &Resource) -> Option<Value> {
    let definition = definition(resource)?;
    let mut object = serde_json::to_value(&definition.crd).ok()?;
    let names = object.pointer("/spec/names").cloned()?;
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "InitialNamesAccepted" });
    object.as_object_mut()?.insert(
        "status".to_owned(),
        json!({
            "acceptedNames": names,
            "conditions": [condition("NamesAccepted"), condition("Established")],
            "storedVersions": [resource.version],
        }),
    );
    Some(object)
}

/// Schema of a custom resource.
pub(super) fn schema(resource: &Resource) -> Option<&'static JSONSchemaProps> {
    definition(resource).map(|definition| &definition.schema)
}

/// Printer columns of a custom resource.
pub(super) fn columns(resource: &Resource) -> &'static [CustomResourceColumnDefinition] {
    definition(resource)
        .and_then(|definition| definition.crd.spec.versions.first())
        .and_then(|version| version.additional_printer_columns.as_deref())
        .unwrap_or_default()
}

/// Brings an object into the form that is stored: pruned, defaulted and valid, also against the one that it replaces.
/// With `strict`, a field that would be pruned is a bad request.
pub(super) fn admit(
    resource: &'static Resource,
    name: &str,
    object: &mut Value,
    old: Option<&Value>,
    strict: bool,
) -> Result<(), Failure> {
    let Some(Definition { schema, rules, .. }) = definition(resource) else { return Ok(()) };
    if strict {
        let unknown: Vec<String> = schema::unknown_fields(schema, object)
            .iter()
            .map(|violation| format!("unknown field \"{}\"", violation.path))
            .collect();
        if !unknown.is_empty() {
            let (kind, version) = (resource.kind, resource.version);
            return Err(Failure::BadRequest(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                unknown.join(", ")
            )));
        }
    }
    schema::prune(schema, object);
    schema::fill_defaults(schema, object);
    schema::whole_numbers(object);
    let mut causes: Vec<Cause> =
        schema::validate(schema, object).iter().map(|of| breach::cause(schema, object, of)).collect();
    if causes.iter().any(breach::hides_rules) {
        causes.push(breach::rules_not_checked());
    } else if let Err(broken) = Validator::new().validate_compiled(rules, object, old) {
        causes.extend(broken.as_slice().iter().map(|rule| breach::broken_rule(schema, object, rule)));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::Invalid { resource, name: name.to_owned(), causes }) }
}
