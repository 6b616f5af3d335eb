//! Breaches of a schema in the words of the API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::core::cel::ValidationError;
use serde_json::Value;

use super::{failure::Cause, parse::cause as said};
use crate::api::schema::{self, FieldPath, PathElement, Violation, ViolationKind};

/// The cause that the API server names for a breach.
pub(super) fn cause(root: &JSONSchemaProps, object: &Value, violation: &Violation) -> Cause {
    let (path, field) = (&violation.path, violation.path.to_string());
    let invalid = |value: String, why: String| {
        said("FieldValueInvalid", &field, &format!("Invalid value: {value}: {field} in body {why}"))
    };
    let (Some(schema), Some(value)) = (schema::at(root, path), value_at(object, path)) else {
        return said("FieldValueRequired", &field, "Required value");
    };
    match violation.kind {
        ViolationKind::Missing => said("FieldValueRequired", &field, "Required value"),
        ViolationKind::Unknown => invalid(value.to_string(), violation.message.clone()),
        ViolationKind::WrongType => {
            let (wanted, is) = (wanted(schema), type_of(value));
            let message = format!("Invalid value: {is:?}: {field} in body must be of type {wanted}: {is:?}");
            said("FieldValueTypeInvalid", &field, &message)
        }
        ViolationKind::OutOfRange => match out_of_range(schema, value) {
            Range::Enumeration(allowed) => {
                let message = format!("Unsupported value: {value}: supported values: {allowed}");
                said("FieldValueNotSupported", &field, &message)
            }
            Range::TooLong(most) => {
                let message = format!("Too long: may not be more than {most} bytes");
                said("FieldValueTooLong", &field, &message)
            }
            Range::TooMany(count, most) => {
                let message = format!("Too many: {count}: must have at most {most} items");
                said("FieldValueTooMany", &field, &message)
            }
            Range::TooFew(count, why) => invalid(count.to_string(), why),
            Range::Other(why) => invalid(value.to_string(), why),
        },
    }
}

/// Whether the API server checks no rules after this.
pub(super) fn hides_rules(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// What it says then.
pub(super) fn rules_not_checked() -> Cause {
    let message = "Invalid value: null: some validation rules were not checked because the object was invalid; correct \
                   the existing errors to complete validation";
    said("FieldValueInvalid", "<nil>", message)
}

/// The cause that it names for a rule (`x-kubernetes-validations`) that does not hold; rules of objects and lists are
/// told without the value.
pub(super) fn broken_rule(root: &JSONSchemaProps, object: &Value, broken: &ValidationError) -> Cause {
    let (field, message) = (&broken.field_path, &broken.message);
    match broken.reason.as_deref() {
        Some("FieldValueRequired") => {
            said("FieldValueRequired", field, &format!("Required value: {message}"))
        }
        Some("FieldValueForbidden") => said("FieldValueForbidden", field, &format!("Forbidden: {message}")),
        _ => {
            let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
            let plain = !matches!(type_of_rule(root, &broken.rule), Some("object" | "array"));
            let value = object.pointer(&pointer).filter(|_| plain);
            let value = value.map(|value| format!("{value}: ")).unwrap_or_default();
            said("FieldValueInvalid", field, &format!("Invalid value: {value}{message}"))
        }
    }
}

/// The type of the values that a rule is about.
fn type_of_rule<'s>(schema: &'s JSONSchemaProps, rule: &str) -> Option<&'s str> {
    if schema.x_kubernetes_validations.iter().flatten().any(|of| of.rule == rule) {
        return schema.type_.as_deref();
    }
    let items = match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(&**items),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
    };
    let fields = schema.properties.iter().flatten().map(|(_, field)| field);
    fields.chain(items).find_map(|below| type_of_rule(below, rule))
}

/// In which way a value of the right type breaks its schema.
enum Range {
    Enumeration(String),
    TooLong(i64),
    TooMany(i64, i64),
    TooFew(i64, String),
    Other(String),
}

fn out_of_range(schema: &JSONSchemaProps, value: &Value) -> Range {
    if let Some(allowed) = &schema.enum_ {
        let words: Vec<String> = allowed.iter().map(|one| one.0.to_string()).collect();
        return Range::Enumeration(words.join(", "));
    }
    let (count, most, few) = match value {
        Value::Array(items) => {
            let few = format!("should have at least {} items", schema.min_items.unwrap_or(0));
            (items.len(), schema.max_items, few)
        }
        Value::Object(map) => {
            let few = format!("should have at least {} properties", schema.min_properties.unwrap_or(0));
            (map.len(), schema.max_properties, few)
        }
        Value::String(text) => return text_out_of_range(schema, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => return Range::Other(number_bounds(schema, value)),
    };
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    match most {
        Some(most) if count > most => Range::TooMany(count, most),
        Some(_) | None => Range::TooFew(count, few),
    }
}

fn text_out_of_range(schema: &JSONSchemaProps, text: &str) -> Range {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    match (schema.max_length, schema.min_length, &schema.pattern) {
        (Some(most), _, _) if length > most => Range::TooLong(most),
        (_, Some(least), _) if length < least => {
            Range::Other(format!("should be at least {least} chars long"))
        }
        (_, _, Some(pattern)) => Range::Other(format!("should match '{pattern}'")),
        (_, _, None) => Range::Other("should fit".to_owned()),
    }
}

fn number_bounds(schema: &JSONSchemaProps, value: &Value) -> String {
    match (schema.minimum, schema.maximum) {
        (Some(least), _) if value.as_f64().is_some_and(|number| number < least) => {
            format!("should be greater than or equal to {least}")
        }
        (_, Some(most)) => format!("should be less than or equal to {most}"),
        (_, None) => "should fit".to_owned(),
    }
}

fn wanted(schema: &JSONSchemaProps) -> &str {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return "integer,string";
    }
    schema.type_.as_deref().unwrap_or_default()
}

/// The type of a value in the words of JSON.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn value_at<'v>(object: &'v Value, path: &FieldPath) -> Option<&'v Value> {
    path.0.iter().try_fold(object, |value, element| match element {
        PathElement::Key(key) => value.get(key),
        PathElement::Index(index) => value.get(*index),
    })
}
