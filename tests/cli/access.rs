//! Clusters that cannot be read, readers that go away, and wrong usage.

use std::{net::TcpListener, process::Stdio};

use super::scene::{Scene, trunkline};

fn errors(args: &[&str]) -> (Option<i32>, String) {
    let output = trunkline().args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_cluster_that_cannot_be_reached_says_what_to_check() {
    let (code, text) = errors(&["status"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("name a file with --kubeconfig"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: gone\nclusters:\n- name: gone\n  cluster: {{server: \"http://{address}\"}}\n\
         users:\n- name: gone\n  user: {{}}\ncontexts:\n- name: gone\n  context: {{cluster: gone, user: gone}}\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let path = kubeconfig.to_str().unwrap();
    let (code, text) = errors(&["status", "--kubeconfig", path]);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("error: the API server cannot be reached; check --kubeconfig"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let (code, text) = errors(&["status", "--kubeconfig", path, "--context", "other"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("other"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_the_server_does_not_know_are_named() {
    let scene = Scene::new([]);
    let kubeconfig = std::fs::read_to_string(scene.file("note", "").with_file_name("kubeconfig")).unwrap();
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
