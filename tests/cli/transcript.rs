//! The transcripts of the examples are replayed, command by command.
//!
//! In a transcript, `$ trunkline …` is run as it stands, `$ git push` pushes the folder as it is, `$ sed …` changes it,
//! and `# N minutes later` lets time pass.

use std::{path::Path, process::Command};

use super::scene::Scene;

/// Lines of each text that a difference shows.
const DIFFERING: usize = 12;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// Lines of a transcript with what they print now.
async fn replay(folder: &Path, transcript: &str, scene: &mut Scene) -> String {
    let mut out = String::new();
    let mut inside = false;
    for line in transcript.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && !line.starts_with("$ ") && !line.starts_with("# ") {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        if !inside {
            continue;
        }
        if let Some(text) = line.strip_prefix("# ") {
            let minutes: u64 = text.split_once(" minutes later").unwrap().0.parse().unwrap();
            scene.wait(minutes * 60).await;
        } else if let Some(command) = line.strip_prefix("$ ") {
            out.push_str(&run(folder, command, scene).await);
        }
    }
    out
}

async fn run(folder: &Path, command: &str, scene: &mut Scene) -> String {
    if command.contains("git push") {
        let manifest = std::fs::read_to_string(folder.join("clusters/demo/calico.yaml")).unwrap();
        scene.push(&manifest, "Change Calico");
        scene.wait(5).await;
        return String::new();
    }
    if let Some(rest) = command.strip_prefix("trunkline ") {
        let args: Vec<&str> = rest.split_whitespace().collect();
        let output = scene.run_in(folder, &args);
        return String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    }
    assert!(command.starts_with("sed -i "), "a transcript has no `{command}`");
    let output = Command::new("sh").arg("-c").arg(command).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{command}");
    String::new()
}

/// Lines between what both texts begin and end with; empty when they are equal.
fn difference(was: &str, is: &str) -> String {
    let (mut was, mut is): (Vec<&str>, Vec<&str>) = (was.lines().collect(), is.lines().collect());
    while was.last().is_some() && was.last() == is.last() {
        was.pop();
        is.pop();
    }
    let same = was.iter().zip(&is).take_while(|(was, is)| was == is).count();
    let lines = |sign: char, lines: &[&str]| {
        lines.iter().take(DIFFERING).fold(String::new(), |text, line| text + &format!("{sign} {line}\n"))
    };
    let (was, is) = (lines('-', &was[same..]), lines('+', &is[same..]));
    if was.is_empty() && is.is_empty() { String::new() } else { format!("line {}:\n{was}{is}", same + 1) }
}

#[tokio::test(start_paused = true)]
async fn the_first_rollout_goes_as_its_transcript_says() {
    let example = Path::new(EXAMPLES).join("first-rollout");
    let copy = tempfile::tempdir().unwrap();
    let manifests = copy.path().join("clusters/demo");
    std::fs::create_dir_all(&manifests).unwrap();
    std::fs::copy(example.join("clusters/demo/calico.yaml"), manifests.join("calico.yaml")).unwrap();
    let path = example.join("transcript.md");
    let transcript = std::fs::read_to_string(&path).unwrap();
    let mut scene = Scene::new([]);
    scene.start().await;
    let now = replay(copy.path(), &transcript, &mut scene).await;
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    let difference = difference(&transcript, &now);
    assert!(difference.is_empty(), "run the tests with UPDATE_GENERATED=1 if it is right; from {difference}");
}

#[test]
fn a_difference_is_told_by_the_lines_between() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), "");
    assert_eq!(difference("a\nb\nc\nd\n", "a\nB\nc\nd\n"), "line 2:\n- b\n+ B\n");
    assert_eq!(difference("a\n", "a\na\n"), "line 1:\n+ a\n");
}
