//! Documents that cannot be read: each holds back only itself.

use std::fmt::Write as _;

use trunkline::api::{ClaimKey, cni_upgrade::CniPhase};

use super::{
    look::attempt,
    manifests::{calico, upgrade},
    stage::Stage,
};
use crate::git::bare::Entry;

/// Nine levels of nine: a billion nodes once the aliases are followed.
fn alias_bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{items}]");
    }
    text + &upgrade("bomb", "v3.28.0")
}

#[tokio::test(start_paused = true)]
async fn a_good_manifest_runs_beside_bad_ones_and_each_of_them_is_told_with_its_place() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    let wrong = |name: &str, from: &str, to: &str| upgrade(name, "v3.28.0").replace(from, to);
    let tab = wrong("tab", "  canary:", "\tcanary:");
    let unknown = wrong("unknown", "maxParallel: 3", "maxParalel: 3");
    let duplicate = wrong("duplicate", "maxParallel: 3", "maxParallel: 3\n  maxParallel: 4");
    let typed = wrong("typed", "maxParallel: 3", "maxParallel: three");
    let bomb = alias_bomb();
    let latin = [upgrade("latin", "v3.28.0").as_bytes(), b"# caf\xe9\n"].concat();
    stage.remote.commit_entries(
        "main",
        &[
            ("calico.yaml", Entry::Text(&calico("v3.28.0"))),
            ("tab.yaml", Entry::Text(&tab)),
            ("unknown.yaml", Entry::Text(&unknown)),
            ("duplicate.yaml", Entry::Text(&duplicate)),
            ("typed.yaml", Entry::Text(&typed)),
            ("bomb.yaml", Entry::Text(&bomb)),
            ("latin.yaml", Entry::Bytes(&latin)),
        ],
    );
    stage.until_phase("calico", CniPhase::Completed, 30).await;
    assert_eq!(stage.running("v3.28.0"), 3);
    stage.until_so("the problems are told", 5, |stage| stage.told("README.md").contains("Problems")).await;
    let page = stage.told("README.md").replace('\\', "");
    for place in [
        "tab.yaml:7:1",
        "unknown.yaml:11:3",
        "duplicate.yaml:12:3",
        "typed.yaml:11:16",
        "latin.yaml:",
        "bomb.yaml:",
    ] {
        assert!(page.contains(place), "{place} is not told: {page}");
    }
    let problems = stage.told("problems.yaml");
    assert!(problems.contains("maxParallel") && problems.contains("path: latin.yaml"), "{problems}");
    for name in ["tab", "unknown", "duplicate", "typed", "bomb", "latin"] {
        assert!(!stage.exists(&ClaimKey::cni(name)), "{name} was mirrored");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_breaks_under_way_keeps_its_accepted_form_in_force() {
    let stage = Stage::new(5);
    stage.engine();
    stage.pass(60).await;
    let good = calico("v3.28.0").replace("observationMinutes: 1", "observationMinutes: 30");
    stage.remote.commit("main", &[("calico.yaml", &good)]);
    let running = stage.until_phase("calico", CniPhase::Canary, 5).await;
    let moved =
        |text: &str| [("calico.yaml".to_owned(), None), ("new.yaml".to_owned(), Some(text.to_owned()))];
    let broken = [
        vec![("calico.yaml".to_owned(), Some(good.replace("  canary:", "\tcanary:")))],
        vec![(
            "calico.yaml".to_owned(),
            Some(format!("<<<<<<< ours\n{good}=======\n{good}>>>>>>> theirs\n")),
        )],
        moved(&good.replace("spec:", "spec: [")).to_vec(),
        vec![
            ("new.yaml".to_owned(), None),
            (
                "calico.yaml".to_owned(),
                Some(good.replace("maxParallel: 3", "maxParallel: 3\n  maxParallel: 4")),
            ),
        ],
    ];
    for files in broken {
        let entries: Vec<(&str, Entry<'_>)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_deref().map_or(Entry::Gone, Entry::Text)))
            .collect();
        let commit = stage.remote.commit_entries("main", &entries);
        let told = |stage: &Stage| {
            stage.told("ledger.yaml").contains(&commit) && stage.told("README.md").contains("Problems")
        };
        stage.until_so("the problem is told", 3, told).await;
        let now = stage.status("calico").unwrap();
        assert_eq!((now.phase, attempt(&now)), (CniPhase::Canary, attempt(&running)));
        assert_eq!(stage.spec_of("calico")["targetVersion"], "v3.28.0");
    }
    let done = stage.until_phase("calico", CniPhase::Completed, 60).await;
    assert_eq!((attempt(&done), stage.running("v3.28.0")), (attempt(&running), 5));
    // The object follows again once it can be read.
    stage.remote.commit("main", &[("calico.yaml", &good.replace("maxParallel: 3", "maxParallel: 4"))]);
    stage.until_so("the setting is mirrored", 5, |stage| stage.spec_of("calico")["maxParallel"] == 4).await;
    stage.until_so("no problem is left", 5, |stage| !stage.told("README.md").contains("Problems")).await;
}

#[tokio::test(start_paused = true)]
async fn another_document_that_breaks_in_the_same_file_holds_back_only_itself() {
    let stage = Stage::new(3);
    stage.engine();
    stage.pass(60).await;
    let file = |calico: &str, other: &str| format!("{calico}---\n{other}");
    let other =
        upgrade("other", "v3.28.0").replace("CNIUpgrade", "ConfigMap").replace("cni.example.com/v1", "v1");
    stage.remote.commit("main", &[("calico.yaml", &file(&calico("v3.28.0"), &other))]);
    stage.until_phase("calico", CniPhase::Completed, 30).await;
    let broken = upgrade("other", "v3.28.0").replace("maxParallel: 3", "maxParallel: {");
    stage.remote.commit("main", &[("calico.yaml", &file(&calico("v3.28.1"), &broken))]);
    stage.until_so("the readable one goes on", 30, |stage| stage.running("v3.28.1") == 3).await;
}
