//! The published CustomResourceDefinitions are those of the binary.

use std::process::Command;

#[test]
fn the_published_definitions_are_what_the_binary_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline")).arg("crd").output().unwrap();
    assert!(output.status.success());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crds/trunkline.yaml");
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        String::from_utf8(output.stdout).unwrap() == published,
        "deploy/crds/trunkline.yaml is out of date; run `cargo run -- crd > deploy/crds/trunkline.yaml`"
    );
}
