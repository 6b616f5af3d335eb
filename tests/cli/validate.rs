//! `trunkline validate` on folders, as a person or a pipeline runs it.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

const CNI: &str = include_str!("../golden/inputs/cni_upgrade.yaml");
const SERVICE: &str = include_str!("../golden/inputs/service_upgrade.yaml");

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn validate(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("validate").args(args).current_dir(folder).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_published_manifests_are_fine() {
    let folder = folder(&[
        ("cni.yaml", CNI.as_bytes()),
        ("apps/web/service.yml", SERVICE.as_bytes()),
        ("notes.txt", b"cni.example.com: ["),
        (".git/broken.yaml", b"cni.example.com: ["),
    ]);
    let output = validate(folder.path(), &[]);
    assert_eq!(text(&output), "2 declarations in 2 files: 0 errors, 0 warnings\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn every_finding_has_its_place_its_line_and_the_way_out() {
    let unquoted = CNI.replace("v3.28.0", "3.28").replace("calico-upgrade-v3.28", "other");
    let unknown = CNI.replace("canary:", "canry:").replace("calico-upgrade-v3.28", "third");
    let folder = folder(&[
        ("a/good.yaml", CNI.as_bytes()),
        ("a/same.yaml", CNI.as_bytes()),
        ("b/no-namespace.yaml", SERVICE.replace("  namespace: default\n", "").as_bytes()),
        ("b/unknown.yaml", unknown.as_bytes()),
        ("b/unquoted.yaml", unquoted.as_bytes()),
        ("c/latin.yaml", b"# cni.example.com \xe4\n"),
        ("c/service.yaml", SERVICE.as_bytes()),
    ]);
    let output = validate(folder.path(), &[]);
    insta::assert_snapshot!(text(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn warnings_alone_do_not_fail() {
    let folder = folder(&[("a.yaml", format!("{CNI}status: {{}}\n").as_bytes()), ("b.txt", b"")]);
    let output = validate(folder.path(), &["a.yaml", "b.txt"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains("b.txt"));
    assert!(text(&output).ends_with("1 declaration in 1 file: 0 errors, 2 warnings\n"));
}

#[test]
fn a_file_given_by_name_is_checked_even_if_it_names_nothing_of_ours() {
    let folder = folder(&[("broken.yaml", b"a: [\n")]);
    assert_eq!(validate(folder.path(), &["broken.yaml"]).status.code(), Some(1));
    assert_eq!(validate(folder.path(), &["./broken.yaml"]).status.code(), Some(1));
    assert_eq!(validate(folder.path(), &["."]).status.code(), Some(0));
}

#[test]
fn a_path_that_does_not_exist_is_wrong_usage() {
    let folder = folder(&[]);
    let output = validate(folder.path(), &["nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "error: nowhere does not exist\n");
}

#[test]
fn json_is_one_document_with_everything_found() {
    let folder = folder(&[
        ("good.yaml", CNI.as_bytes()),
        ("bad.yaml", CNI.replace("maxParallel: 3", "maxParallel: 0").replace("calico", "c").as_bytes()),
    ]);
    let output = validate(folder.path(), &["--output", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(document["errors"], 1);
    assert_eq!(document["declarations"][0]["object"], "CNIUpgrade/calico-upgrade-v3.28");
    assert_eq!(document["diagnostics"][0]["line"], 11);
    assert_eq!(document["diagnostics"][0]["code"], "OutOfRange");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn github_gets_one_annotation_per_finding() {
    let folder = folder(&[("a,b/bad.yaml", CNI.replace("canary:", "100%: {}\n  canary:").as_bytes())]);
    let output = validate(folder.path(), &["--output", "github"]);
    let first = text(&output).lines().next().unwrap().to_owned();
    assert!(first.starts_with(
        "::error file=a%2Cb/bad.yaml,line=7,col=3,title=UnknownField::spec.100%25: unknown field"
    ));
}

#[test]
fn what_a_file_says_cannot_move_the_cursor() {
    let folder =
        folder(&[("bad.yaml", CNI.replace("canary:", "\"\\e[2J\u{9b}x\": {}\n  canary:").as_bytes())]);
    let output = validate(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).chars().all(|c| c == '\n' || !c.is_control()));
}
