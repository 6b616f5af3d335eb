//! Clusters that cannot be read, readers that go away, and wrong usage.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;

use super::scene::{Scene, trunkline};

fn errors(args: &[&str]) -> (Option<i32>, String) {
    let output = trunkline().args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_cluster_that_cannot_be_reached_says_what_to_check() {
    let (code, text) = errors(&["status"]);
    assert_eq!(code, Some(1));
    assert!(text.ends_with("name a file with --kubeconfig\n"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let kubeconfig = kubeconfig(dir.path(), "gone", &address.to_string());
    let path = kubeconfig.to_str().unwrap();
    let (code, text) = errors(&["status", "--kubeconfig", path]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("error: the API server cannot be reached; check --kubeconfig"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_context_that_is_not_there_is_wrong_usage_and_the_known_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = kubeconfig(dir.path(), "gone", "127.0.0.1:1");
    let path = file.to_str().unwrap();
    let (code, text) = errors(&["status", "--kubeconfig", path, "--context", "other"]);
    let says = format!("error: --context: `other` is not in {path}; known are `gone`\n");
    assert_eq!((code, text), (Some(2), says));
    let unset = fs::read_to_string(&file).unwrap().replace("current-context: gone", "current-context: \"\"");
    fs::write(&file, unset).unwrap();
    let (code, text) = errors(&["status", "--kubeconfig", path]);
    let says =
        format!("error: no current context is set in {path}; known are `gone`; choose with --context\n");
    assert_eq!((code, text), (Some(1), says));
}

#[test]
fn a_kubeconfig_that_cannot_be_read_is_named_with_the_place_and_without_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    fs::write(&file, "kind: Config\nusers:\n- name: a\n  user:\n    token: s3cret\n    password: [s3cret]\n")
        .unwrap();
    let path = file.to_str().unwrap();
    let (code, text) = errors(&["status", "--kubeconfig", path]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with(&format!("error: {path} is no usable kubeconfig")), "{text}");
    assert!(text.contains("line 6") && !text.contains("s3cret"), "{text}");
}

#[test]
fn of_several_kubeconfigs_those_that_are_missing_are_passed_over_as_kubectl_does() {
    let dir = tempfile::tempdir().unwrap();
    let (missing, first) = (dir.path().join("missing"), kubeconfig(dir.path(), "first", "127.0.0.1:1"));
    let second = kubeconfig(dir.path(), "second", "127.0.0.1:1");
    let asked = |paths: &[&PathBuf], args: &[&str]| {
        let output = trunkline()
            .arg("status")
            .args(args)
            .env("KUBECONFIG", std::env::join_paths(paths).unwrap())
            .output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let reached = "error: the API server cannot be reached";
    for (paths, args) in [
        (&[&missing, &first][..], &[][..]),
        (&[&first, &missing], &[]),
        (&[&missing, &first, &second], &["--context", "second"]),
    ] {
        let (code, text) = asked(paths, args);
        assert!(code == Some(1) && text.starts_with(reached), "{paths:?} {args:?}: {text}");
    }
    for args in [&[][..], &["--context", "first"]] {
        let (code, text) = asked(&[&missing], args);
        assert!(code == Some(1) && text.contains(missing.to_str().unwrap()), "{args:?}: {text}");
    }
    fs::write(&missing, "clusters: 3\n").unwrap();
    let (code, text) = asked(&[&missing, &first], &[]);
    assert!(code == Some(1) && text.contains("is no usable kubeconfig"), "{text}");
}

/// A kubeconfig with one context of that name, in a file of that name.
fn kubeconfig(dir: &Path, name: &str, server: &str) -> PathBuf {
    let path = dir.join(name);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster: {{server: \"http://{server}\"}}\n\
         users:\n- name: {name}\n  user: {{}}\ncontexts:\n- name: {name}\n  context: {{cluster: {name}, user: {name}}}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test(start_paused = true)]
async fn credentials_that_the_server_does_not_know_are_named() {
    let scene = Scene::new([]);
    let kubeconfig = fs::read_to_string(scene.file("note", "").with_file_name("kubeconfig")).unwrap();
    // The secret path of the embedded API stands for a token.
    let (before, after) = kubeconfig.split_once("\nusers:").unwrap();
    let wrong = scene
        .file("wrong", &format!("{}0000\nusers:{after}", before.trim_end_matches(char::is_alphanumeric)));
    let shown = scene.shown(&["status", "--kubeconfig", wrong.to_str().unwrap()]);
    assert!(
        shown.ends_with("error: the API server does not know these credentials; renew them\nexit 1\n"),
        "{shown}"
    );
}

#[test]
fn a_reader_that_is_gone_ends_every_command_quietly() {
    for args in [&["crd"][..], &["validate", "."], &["demo", "--speed", "max", "--nodes", "2"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let dir = tempfile::tempdir().unwrap();
        let mut command = trunkline();
        command.args(args).current_dir(dir.path()).env("RUST_LOG", "off").env("TMPDIR", dir.path());
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [&["status", "--unheard-of"][..], &["plan", "--node-seconds", "soon"], &["unheard-of"], &[]] {
        assert_eq!(errors(args).0, Some(2), "{args:?}");
    }
}

#[test]
fn a_file_on_the_command_line_that_is_not_there_is_wrong_usage_in_every_command() {
    for args in [
        &["validate", "/nowhere"][..],
        &["plan", "/nowhere"],
        &["status", "--kubeconfig", "/nowhere"],
        &["explain", "--kubeconfig", "/nowhere"],
        &["run", "--config", "/nowhere"],
    ] {
        assert_eq!(errors(args), (Some(2), "error: /nowhere does not exist\n".to_owned()), "{args:?}");
    }
}

#[test]
fn with_json_the_errors_of_every_command_are_json_too() {
    for (args, code, says) in [
        (&["validate", "/nowhere"][..], 2, "/nowhere does not exist"),
        (&["plan", "/nowhere"], 2, "/nowhere does not exist"),
        (&["plan", "/dev/null"], 1, "leads to a cluster"),
        (&["status"], 1, "leads to a cluster"),
        (&["explain"], 1, "leads to a cluster"),
        (&["demo", "--dir", "/dev/null/demo"], 1, "/dev/null/demo cannot be made"),
        (&["demo", "--nodes", "1"], 2, "--nodes"),
        (&["status", "--unheard-of"], 2, "--unheard-of"),
    ] {
        let output = trunkline().args(args).args(["--output", "json"]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stderr).unwrap();
        let told = said["error"].as_str().unwrap();
        assert!(told.contains(says) && !told.starts_with("error"), "{args:?}: {told}");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(code), &b""[..]), "{args:?}");
    }
}

#[test]
fn a_namespace_that_cannot_be_one_is_named_with_what_can() {
    for args in [
        &["status", "--namespace", "Kube System"][..],
        &["plan", "--namespace", "Kube System"],
        &["explain", "-n", "Kube System"],
        &["run", "--namespace", "Kube System"],
    ] {
        let (code, text) = errors(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert!(text.contains("'Kube System'") && text.contains("small letters, digits"), "{args:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_ledgers_is_named_with_those_that_have_some() {
    let mut scene = Scene::new([]);
    scene.start().await;
    let says = "no ledger in namespace kube-public: trunkline keeps its ledgers in kube-system (--namespace)";
    let shown = scene.shown(&["status", "--namespace", "kube-public"]);
    assert!(shown.ends_with(&format!("note: {says}\nexit 0\n")), "{shown}");
    let output = scene.run(&["status", "--namespace", "kube-public", "--output", "json"]);
    let note: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(note["note"], says);
}
