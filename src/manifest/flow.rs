//! A value as YAML on one line.

use serde_json::Value;

use super::scalar;

/// The value in braces and brackets; text stays plain where every reader takes it for text.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}: {}", text(&Value::from(key.as_str())), text(value))
            };
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+'))
        && scalar::resolve(text).is_some_and(|value| value.is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::yaml::parse;

    #[test]
    fn what_is_written_on_one_line_is_read_back() {
        let value = json!({ "a": "v1.0", "b": "3.28", "c": "yes", "d": [1, "x: y", "ü", ""], "e/f": { "g": null, "h": "0644" } });
        let line = text(&value);
        assert_eq!(
            line,
            r#"{a: v1.0, b: "3.28", c: "yes", d: [1, "x: y", "ü", ""], e/f: {g: null, h: "0644"}}"#
        );
        assert_eq!(parse(&line, 0).unwrap().unwrap().value(), (value, Vec::new()));
    }
}
