//! Digests over canonical JSON: keys sorted, no blanks, the same bytes for the same meaning.

use serde_json::Value;

use crate::api::names::Digest;

/// Digest of any JSON value.
pub fn of(value: &Value) -> Digest {
    of_bytes(value.to_string().as_bytes())
}

/// Digest of bytes.
pub fn of_bytes(bytes: &[u8]) -> Digest {
    Digest::from(format!("sha256:{}", hex(bytes)))
}

/// Lower-case hexadecimal SHA-256.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Digest of a pod template; `$patch` and empty `creationTimestamp`, which ControllerRevisions add, do not count.
pub fn of_template(template: &Value) -> Digest {
    let mut template = template.clone();
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
        if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|key, value| key != "creationTimestamp" || !value.is_null());
        }
    }
    of(&template)
}
