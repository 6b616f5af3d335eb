//! Labels as Kubernetes allows them: what breaks the rule is on no node and no pod, so a selector with it finds nothing.

use serde_json::Value;

use super::rules::is_subdomain;

/// What is wrong with one entry of a selector; none if it can match.
pub(super) fn wrong(key: &str, value: &Value) -> Option<(String, &'static str)> {
    let name = match key.rsplit_once('/') {
        Some((prefix, _)) if !is_subdomain(prefix) => {
            let help = "the part before `/` is a DNS name: small letters, digits, `-` and `.`, at most 253";
            return Some((format!("`{key}` is no label"), help));
        }
        Some((_, name)) => name,
        None => key,
    };
    if !is_name(name) {
        let help =
            "use letters, digits, `-`, `_` and `.`, at most 63 after a `/`, a letter or digit at both ends";
        return Some((format!("`{key}` is no label"), help));
    }
    let value = value.as_str().unwrap_or_default();
    if !value.is_empty() && !is_name(value) {
        let help = "use letters, digits, `-`, `_` and `.`, at most 63, a letter or digit at both ends";
        return Some((format!("`{value}` is no value of a label"), help));
    }
    None
}

fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_as_kubernetes_allows_them() {
        let fits = |key: &str, value: &str| wrong(key, &Value::from(value)).is_none();
        let long = "a".repeat(63);
        assert!(fits("pool", "") && fits("node-role.kubernetes.io/worker", "a_b.C-1") && fits(&long, &long));
        for key in ["", "a b", "-a", "a.", "/a", "a/", "A.b/c", "a/b/c", &format!("{long}a")] {
            assert!(!fits(key, "x"), "{key}");
        }
        for value in ["a b", "-a", "a/b", "ä", &format!("{long}a")] {
            assert!(!fits("pool", value), "{value}");
        }
    }
}
