//! Structural schemas as the API server applies them: validate, find unknown fields, prune, fill in defaults.
//!
//! Guarantees: `prune`, then `fill_defaults`, then `whole_numbers` gives the form that the API server stores.
//! Assumptions: a schema that names `apiVersion`, `kind` and `metadata` is one of a whole object; `metadata` belongs to
//! the API server and is left alone.
//! Limits: what our CRDs use; `anyOf`, `oneOf`, `not` and CEL rules are not looked at.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Number, Value};

/// A structural schema, as in a CustomResourceDefinition.
pub type Schema = JSONSchemaProps;

/// One step from a value into it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// Of a mapping.
    Key(String),
    /// Of a list, from 0.
    Index(usize),
}

/// The way from the root to a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(pub Vec<PathElement>);

impl FieldPath {
    /// The path one key further.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(PathElement::Key(key.to_owned()))
    }

    /// The path one item further.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(PathElement::Index(index))
    }

    fn with(&self, element: PathElement) -> Self {
        Self(self.0.iter().cloned().chain([element]).collect())
    }

    /// The path without its last step; of the root the root.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.split_last().map(|(_, before)| before.to_vec()).unwrap_or_default())
    }

    /// The last key, if the path ends with one.
    pub fn last_key(&self) -> Option<&str> {
        match self.0.last()? {
            PathElement::Key(key) => Some(key),
            PathElement::Index(_) => None,
        }
    }
}

/// `spec.canary.percentage`, `spec.targetService.ports[0].port`.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, element) in self.0.iter().enumerate() {
            match element {
                PathElement::Index(index) => write!(f, "[{index}]")?,
                PathElement::Key(key) if at == 0 => f.write_str(key)?,
                PathElement::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// In which way a value breaks its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// A required field is absent; the path names it.
    Missing,
    /// Not of the type.
    WrongType,
    /// Of the type, but outside of its range, length, enumeration or pattern.
    OutOfRange,
    /// No field of the schema.
    Unknown,
}

/// One breach of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where.
    pub path: FieldPath,
    /// In which way.
    pub kind: ViolationKind,
    /// What is wrong, without the path.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Every breach of type, presence and range, in the order of the schema. Unknown fields are none: they are pruned.
pub fn validate(schema: &Schema, value: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    check(schema, value, &FieldPath::default(), &mut found);
    found
}

/// Fields that `prune` would drop.
pub fn unknown_fields(schema: &Schema, value: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    unknown(schema, value, &FieldPath::default(), &mut found);
    found
}

/// Names of the fields that the mapping at a path can have; none when it takes any key.
pub fn field_names<'s>(root: &'s Schema, path: &FieldPath) -> Vec<&'s str> {
    at(root, path)
        .and_then(|schema| schema.properties.as_ref())
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// The numbers that the field at a path can have, in words: `between 1 and 100`; none where the schema sets no bound.
pub fn bounds(root: &Schema, path: &FieldPath) -> Option<String> {
    let schema = at(root, path)?;
    between(schema.minimum, schema.maximum)
}

/// The schema of the field at a path.
pub fn at<'s>(root: &'s Schema, path: &FieldPath) -> Option<&'s Schema> {
    path.0.iter().try_fold(root, |schema, element| match element {
        PathElement::Key(key) => inner(schema, key),
        PathElement::Index(_) => item_schema(schema),
    })
}

/// Path of the first field of a spec that has this name.
pub fn find_field(root: &Schema, name: &str) -> Option<FieldPath> {
    let spec = FieldPath::default().key("spec");
    field_below(inner(root, "spec")?, &spec, name)
}

fn field_below(schema: &Schema, path: &FieldPath, name: &str) -> Option<FieldPath> {
    let fields = || schema.properties.iter().flatten();
    if fields().any(|(field, _)| field == name) {
        return Some(path.key(name));
    }
    fields()
        .find_map(|(field, schema)| field_below(schema, &path.key(field), name))
        .or_else(|| field_below(item_schema(schema)?, path, name))
}

/// Drops the fields that the schema does not name.
pub fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| is_known(schema, key));
            for (key, value) in map.iter_mut() {
                if let Some(schema) = inner(schema, key) {
                    prune(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = item_schema(schema) {
                for item in items {
                    prune(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills in the defaults of absent fields; a null where the schema wants a value counts as absent.
pub fn fill_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, schema) in schema.properties.iter().flatten() {
                if map.get(key).is_some_and(Value::is_null) && schema.nullable != Some(true) {
                    map.remove(key);
                }
                if let Some(default) = &schema.default
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.0.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(schema) = inner(schema, key) {
                    fill_defaults(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = item_schema(schema) {
                for item in items {
                    fill_defaults(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes numbers such as `1.0` as `1`: the API server's JSON does not tell them apart.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *number = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The number as an integer, if it is one.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15)?;
        format!("{float:.0}").parse().ok()
    })
}

fn is_resource(schema: &Schema) -> bool {
    let names = schema.properties.as_ref();
    names.is_some_and(|names| ["apiVersion", "kind", "metadata"].iter().all(|name| names.contains_key(*name)))
}

/// Schema of a key; none for `metadata` of a whole object and for what is kept without a schema.
fn inner<'s>(schema: &'s Schema, key: &str) -> Option<&'s Schema> {
    if key == "metadata" && is_resource(schema) {
        return None;
    }
    let named = schema.properties.as_ref().and_then(|properties| properties.get(key));
    named.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    })
}

fn is_known(schema: &Schema, key: &str) -> bool {
    let free = matches!(
        &schema.additional_properties,
        Some(JSONSchemaPropsOrBool::Bool(true) | JSONSchemaPropsOrBool::Schema(_))
    );
    free || schema.x_kubernetes_preserve_unknown_fields == Some(true)
        || schema.properties.as_ref().is_some_and(|properties| properties.contains_key(key))
}

fn item_schema(schema: &Schema) -> Option<&Schema> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(schema)) => Some(schema),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
    }
}

fn unknown(schema: &Schema, value: &Value, path: &FieldPath, found: &mut Vec<Violation>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = path.key(key);
                if !is_known(schema, key) {
                    let message = format!("unknown field `{key}`");
                    found.push(Violation { path, kind: ViolationKind::Unknown, message });
                } else if let Some(schema) = inner(schema, key) {
                    unknown(schema, value, &path, found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = item_schema(schema) {
                for (at, item) in items.iter().enumerate() {
                    unknown(schema, item, &path.index(at), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check(schema: &Schema, value: &Value, path: &FieldPath, found: &mut Vec<Violation>) {
    if value.is_null() && schema.nullable == Some(true) {
        return;
    }
    if let Some(message) = wrong_type(schema, value) {
        found.push(Violation { path: path.clone(), kind: ViolationKind::WrongType, message });
        return;
    }
    if let Some(message) = out_of_range(schema, value) {
        found.push(Violation { path: path.clone(), kind: ViolationKind::OutOfRange, message });
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, found),
        Value::Array(items) => {
            if let Some(schema) = item_schema(schema) {
                for (at, item) in items.iter().enumerate() {
                    check(schema, item, &path.index(at), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_object(schema: &Schema, map: &Map<String, Value>, path: &FieldPath, found: &mut Vec<Violation>) {
    for name in schema.required.iter().flatten().filter(|name| !map.contains_key(*name)) {
        let message = format!("required field `{name}` is missing");
        found.push(Violation { path: path.key(name), kind: ViolationKind::Missing, message });
    }
    for (key, value) in map {
        if let Some(schema) = inner(schema, key) {
            check(schema, value, &path.key(key), found);
        }
    }
}

/// The word for the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if whole(number).is_some() || number.is_u64() => "an integer",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn wrong_type(schema: &Schema, value: &Value) -> Option<String> {
    let (wanted, fits) = if schema.x_kubernetes_int_or_string == Some(true) {
        ("an integer or a string", matches!(type_of(value), "an integer" | "a string"))
    } else {
        match schema.type_.as_deref()? {
            "object" => ("a mapping", value.is_object()),
            "array" => ("a list", value.is_array()),
            "string" => ("a string", value.is_string()),
            "boolean" => ("a boolean", value.is_boolean()),
            "integer" => ("an integer", type_of(value) == "an integer"),
            "number" => ("a number", value.is_number()),
            _ => return None,
        }
    };
    (!fits).then(|| format!("must be {wanted}, is {}", type_of(value)))
}

fn out_of_range(schema: &Schema, value: &Value) -> Option<String> {
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|one| one.0 == *value)
    {
        let words: Vec<String> = allowed.iter().map(|one| shown(&one.0)).collect();
        return Some(format!("must be one of {}, is {}", words.join(", "), shown(value)));
    }
    match value {
        Value::Number(number) => out_of_bounds(schema, number.as_f64()?),
        Value::String(text) => wrong_text(schema, text),
        Value::Array(items) => wrong_count(items.len(), schema.min_items, schema.max_items, "items"),
        Value::Object(map) => wrong_count(map.len(), schema.min_properties, schema.max_properties, "entries"),
        Value::Null | Value::Bool(_) => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn out_of_bounds(schema: &Schema, number: f64) -> Option<String> {
    let (least, most) = (schema.minimum, schema.maximum);
    let fits = least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
    if fits { None } else { Some(format!("must be {}, is {number}", between(least, most)?)) }
}

fn between(least: Option<f64>, most: Option<f64>) -> Option<String> {
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("between {least} and {most}")),
        (Some(least), None) => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        (None, None) => None,
    }
}

fn wrong_text(schema: &Schema, text: &str) -> Option<String> {
    let length = text.chars().count();
    wrong_count(length, schema.min_length, schema.max_length, "characters").or_else(|| {
        let pattern = schema.pattern.as_deref()?;
        let fits = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
        (!fits).then(|| format!("`{text}` does not match `{pattern}`"))
    })
}

fn wrong_count(count: usize, least: Option<i64>, most: Option<i64>, what: &str) -> Option<String> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(least) = least.filter(|least| count < *least) {
        return Some(if count == 0 {
            "must not be empty".to_owned()
        } else {
            format!("must have at least {least} {what}, has {count}")
        });
    }
    let most = most.filter(|most| count > *most)?;
    Some(format!("must have at most {most} {what}, has {count}"))
}

#[cfg(test)]
mod tests;
