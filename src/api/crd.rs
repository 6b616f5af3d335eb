//! The CustomResourceDefinitions, derived from the types.
//!
//! Guarantees: deterministic; the schema is structural; an absent option is absent, never null; filling in the schema's
//! defaults gives what the types' own defaults give.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{CNIUpgrade, ClaimKind, ServiceUpgrade};

/// Both definitions, `CNIUpgrade` first.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![definition(ClaimKind::CniUpgrade), definition(ClaimKind::ServiceUpgrade)]
}

/// The definition of one kind.
pub fn definition(kind: ClaimKind) -> CustomResourceDefinition {
    let mut crd = match kind {
        ClaimKind::CniUpgrade => CNIUpgrade::crd(),
        ClaimKind::ServiceUpgrade => ServiceUpgrade::crd(),
    };
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
            complete(schema);
        }
    }
    crd
}

/// The schema of a whole object of one kind.
pub fn schema(kind: ClaimKind) -> JSONSchemaProps {
    let mut versions = definition(kind).spec.versions.into_iter();
    versions.find_map(|version| version.schema?.open_api_v3_schema).unwrap_or_default()
}

/// The root says what the kind is and names the fields that every object has.
fn complete(root: &mut JSONSchemaProps) {
    let properties = root.properties.get_or_insert_default();
    root.description = properties.get("spec").and_then(|spec| spec.description.clone());
    root.title = None;
    for (name, type_) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        let schema = JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() };
        properties.insert(name.to_owned(), schema);
    }
}

/// Takes out what the derive adds and the API server does not need: `nullable` would store nulls for absent options,
/// and number formats are bounds in disguise, so they become bounds.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    match schema.format.as_deref() {
        Some("int32") => {
            schema.format = None;
            schema.minimum = schema.minimum.or(Some(f64::from(i32::MIN)));
            schema.maximum = schema.maximum.or(Some(f64::from(i32::MAX)));
        }
        Some("int64" | "double") => schema.format = None,
        Some(_) | None => {}
    }
    schema.properties.iter_mut().flatten().for_each(|(_, schema)| tidy(schema));
    if let Some(JSONSchemaPropsOrBool::Schema(schema)) = &mut schema.additional_properties {
        tidy(schema);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &mut schema.items {
        tidy(schema);
    }
}
