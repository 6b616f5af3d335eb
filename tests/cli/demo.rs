//! `trunkline demo` as a process: its folder, the lines it prints to be copied, and its JSON.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use super::scene::trunkline;

fn demo(dir: &Path, args: &[&str]) -> Command {
    let mut command = trunkline();
    command
        .args(["demo", "--nodes", "2", "--speed", "max", "--dir"])
        .arg(dir)
        .args(args)
        .env("RUST_LOG", "off");
    command
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn a_folder_has_one_demo_at_a_time_and_another_one_is_told_which_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    let mut first = demo(&path, &["--stay"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    // Kept to the end: without a reader the first demo would end.
    let mut shown = BufReader::new(first.stdout.take().unwrap());
    shown.read_line(&mut line).unwrap();
    let second = demo(&path, &[]).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let says = format!(
        "error: {} is in use by another demo (process {}); end that one, or name another folder with --dir\n",
        path.display(),
        first.id()
    );
    assert_eq!(said(&second), (Some(2), says));
    let third = demo(&path, &[]).output().unwrap();
    let says = format!(
        "error: {} holds a demo already; name another folder with --dir, or remove it\n",
        path.display()
    );
    assert_eq!(said(&third), (Some(2), says));
}

#[test]
fn of_demos_that_start_at_once_in_one_folder_one_plays_undisturbed() {
    let dir = tempfile::tempdir().unwrap();
    let start = || demo(dir.path(), &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let all = [start(), start(), start()].map(|child| child.wait_with_output().unwrap());
    let mut codes: Vec<_> = all.iter().map(|output| output.status.code()).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(2), Some(2)], "{all:?}");
}

#[test]
fn the_lines_to_copy_can_be_copied_whatever_the_folder_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it's a $b");
    let output = demo(&path, &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  git ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    for line in lines {
        let ran = Command::new("sh").arg("-c").arg(format!("git {line}")).output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
    }
    assert!(path.join("work/clusters/demo/calico.yaml").is_file());
}

#[test]
fn with_json_every_line_is_json_and_the_last_one_tells_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(dir.path(), &["--output", "json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.last().unwrap();
    assert_eq!((&end["event"], &end["data"]["ok"]), (&"end".into(), &true.into()));
}
