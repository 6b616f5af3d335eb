//! Manifests as people write them.

/// The published example, byte for byte.
pub(crate) const EXAMPLE: &str = include_str!("../../examples/first-rollout/clusters/demo/calico.yaml");
/// Name of its object.
pub(crate) const EXAMPLE_NAME: &str = "calico-upgrade-v3.28";

/// A manifest like the example with one observed minute.
pub(crate) fn upgrade(name: &str, version: &str) -> String {
    EXAMPLE
        .replace(EXAMPLE_NAME, name)
        .replace("v3.28.0", version)
        .replace("observationMinutes: 30", "observationMinutes: 1")
}

/// The object `calico`.
pub(crate) fn calico(version: &str) -> String {
    upgrade("calico", version)
}

/// The object `calico` with a retry token.
pub(crate) fn with_token(version: &str, token: &str) -> String {
    let annotations = format!("name: calico\n  annotations:\n    trunkline.dev/retry: {token}\n");
    calico(version).replace("name: calico\n", &annotations)
}

/// A manifest with one field more.
pub(crate) fn and(manifest: &str, field: &str) -> String {
    format!("{manifest}  {field}\n")
}
