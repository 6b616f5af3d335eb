//! `trunkline validate` on folders, as a person or a pipeline runs it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use trunkline::{
    git::{Git2Remote, GitOptions, Remote as _, TrackedQuery},
    manifest::{self, Diagnostic},
};

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
fn the_published_manifests_are_fine_and_what_is_not_built_is_said() {
    let folder = folder(&[
        ("cni.yaml", CNI.as_bytes()),
        ("apps/web/service.yml", SERVICE.as_bytes()),
        ("notes.txt", b"cni.example.com: ["),
        (".git/broken.yaml", b"cni.example.com: ["),
    ]);
    let output = validate(folder.path(), &[]);
    assert!(text(&output).contains("a ServiceUpgrade is read and checked, and then refused"));
    assert!(text(&output).ends_with("2 declarations in 2 files: 0 errors, 1 warning\n"));
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
    let document: Value = serde_json::from_str(&text(&output)).unwrap();
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

/// One manifest with one change, as `validate` judges it: its exit code, and all it says.
fn judged(from: &str, to: &str) -> (Option<i32>, String) {
    assert!(CNI.contains(from), "{from}");
    let folder = folder(&[("a.yaml", CNI.replacen(from, to, 1).as_bytes())]);
    let output = validate(folder.path(), &[]);
    (output.status.code(), text(&output))
}

#[test]
fn what_the_daemon_would_refuse_on_every_cluster_is_refused_here() {
    let cases = [
        ("v3.28.0", "latest", "spec.targetVersion: `latest` is no version"),
        ("v3.28.0", "v03.28.0", "spec.targetVersion: `v03.28.0` is no version"),
        (
            "  maxParallel",
            "  nodeSelector: {\"a b\": x}\n  maxParallel",
            "spec.nodeSelector: `a b` is no label",
        ),
        ("  maxParallel", "  nodeSelector: {pool: \"a b\"}\n  maxParallel", "`a b` is no value of a label"),
        (
            "    percentage",
            "    nodeLabels: {pool: \"-\"}\n    percentage",
            "spec.canary.nodeLabels: `-` is no",
        ),
        ("  maxParallel", "  provider: calcio\n  maxParallel", "no profile is named `calcio`"),
        ("calico-upgrade-v3.28", &"a".repeat(251), "the name has 251 characters, at most 250 are possible"),
        ("calico-upgrade-v3.28", &"a".repeat(254), "is no valid name"),
    ];
    for (from, to, says) in cases {
        let (code, text) = judged(from, to);
        assert!(code == Some(1) && text.contains(says), "{to}: {code:?}\n{text}");
    }
    assert_eq!(judged("calico-upgrade-v3.28", &"a".repeat(250)).0, Some(0));
    assert_eq!(
        judged("  maxParallel", "  nodeSelector: {node-role.kubernetes.io/worker: \"\"}\n  maxParallel").0,
        Some(0)
    );
}

#[test]
fn annotations_of_ours_that_have_no_effect_in_a_manifest_are_warned_of() {
    let annotated = |what: &str| {
        let to = format!("metadata:\n  annotations: {{{what}}}\n");
        judged("metadata:\n", &to)
    };
    let cases = [
        ("trunkline.dev/hold: wait", "commit `paused: true`, or put the annotation on the custom resource"),
        ("trunkline.dev/requestedAt: now", "put it on the custom resource"),
        ("trunkline.dev/wish: x", "trunkline writes it on the custom resource"),
        ("trunkline.dev/retri: x", "did you mean `trunkline.dev/retry`?"),
        ("trunkline.dev/retry: \"\"", "is empty, so it is no token"),
    ];
    for (what, says) in cases {
        let (code, text) = annotated(what);
        assert!(
            code == Some(0) && text.contains(says) && text.contains(", 1 warning"),
            "{what}: {code:?}\n{text}"
        );
    }
    let (_, text) = annotated("trunkline.dev/retry: again, example.com/owner: us");
    assert!(text.ends_with("0 errors, 0 warnings\n"), "{text}");
}

#[test]
fn a_list_of_manifests_and_a_tab_are_named_with_their_place() {
    let item = CNI.trim_end().replace('\n', "\n    ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n  - {{apiVersion: v1, kind: Pod}}\n  - {item}\n");
    let folder = folder(&[
        ("list.yaml", list.as_bytes()),
        ("tab.yaml", CNI.replace("    percentage", "\tpercentage").as_bytes()),
        ("tab-after.yaml", CNI.replace("    observationMinutes", "\t\tobservationMinutes").as_bytes()),
        ("tab-between.yaml", CNI.replace("  maxParallel", " \tmaxParallel").as_bytes()),
    ]);
    let output = validate(folder.path(), &[]);
    insta::assert_snapshot!(text(&output));
    assert_eq!(output.status.code(), Some(1));
}

fn git(folder: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(args).current_dir(folder);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// What the daemon says of the repository in this folder.
fn said_by_the_daemon(folder: &Path) -> Vec<Diagnostic> {
    let clone = tempfile::tempdir().unwrap();
    let mut remote = Git2Remote::open(GitOptions {
        url: folder.to_str().unwrap().to_owned(),
        clone_dir: clone.path().join("clone"),
        credentials: None,
        allow_local: true,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(20),
    })
    .unwrap();
    let query = TrackedQuery { branch: "main".to_owned(), paths: vec![".".to_owned()], since: None };
    let tracked = remote.tracked(&query).unwrap();
    let mut said = manifest::read(&tracked.at_head, &BTreeSet::new()).diagnostics;
    said.extend(tracked.skipped.into_iter().map(|(path, why)| Diagnostic::unread(path, &why)));
    said.sort();
    said
}

#[test]
fn what_is_passed_over_in_a_folder_is_said_as_the_daemon_says_it_of_the_same_tree_in_git() {
    let unknown = CNI.replace("canary:", "canry:");
    let huge = format!("# no manifest\n{}", "- x\n".repeat(400_000));
    let deep = format!("{}x.yaml", "d/".repeat(64));
    let folder = folder(&[
        ("good.yaml", CNI.replace("calico", "c").as_bytes()),
        (".hidden/unknown.yaml", unknown.as_bytes()),
        ("huge.yaml", huge.as_bytes()),
        ("huge.txt", huge.as_bytes()),
        (&deep, CNI.as_bytes()),
        ("other/a.yaml", CNI.as_bytes()),
    ]);
    let path = folder.path();
    symlink(".hidden", path.join("linked")).unwrap();
    symlink("good.yaml", path.join("linked.yaml")).unwrap();
    symlink("nowhere", path.join("dangling")).unwrap();
    for (at, message) in [(path.join("other"), "Another repository"), (path.to_owned(), "Everything")] {
        git(&at, &["init", "-q", "-b", "main"]);
        git(&at, &["add", "-A"]);
        git(&at, &["commit", "-q", "-m", message]);
    }
    let document: Value = serde_json::from_str(&text(&validate(path, &["--output", "json"]))).unwrap();
    let said: Vec<Diagnostic> = serde_json::from_value(document["diagnostics"].clone()).unwrap();
    assert_eq!(said, said_by_the_daemon(path));
    let skipped: Vec<_> = said
        .iter()
        .filter_map(|found| Some((found.path.as_str(), found.message.strip_prefix("skipped: ")?)))
        .collect();
    let deep = deep.as_str();
    assert_eq!(
        skipped,
        [
            (deep, "more than 64 levels deep"),
            ("dangling", "a symlink"),
            ("huge.yaml", "larger than 1 MiB"),
            ("linked", "a symlink"),
            ("linked.yaml", "a symlink"),
            ("other", "a submodule"),
        ]
    );
    assert!(text(&validate(path, &[])).contains("skipped: larger than 1 MiB\n --> huge.yaml\n"));
}
