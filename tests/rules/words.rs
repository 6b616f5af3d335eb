//! What is published speaks of itself: no unfinished marks, nothing about who or what made it, no foreign folders.

use super::{Tree, none, repository, tree};

/// Marks of what is not done. Written in two halves, so that this file does not find itself.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Words about the making.
const MAKING: [&str; 7] = [
    concat!("cla", "ude"),
    concat!("anth", "ropic"),
    concat!("open", "ai"),
    concat!("chat", "gpt"),
    concat!("cop", "ilot"),
    concat!("l", "lm"),
    concat!("ai ", "agent"),
];

/// Folders that a clone does not have.
const FOREIGN: [&str; 2] = [concat!("/wo", "rk/"), concat!("../sha", "red")];

fn faults(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| *path != "Cargo.lock") {
        for (at, line) in text.lines().enumerate() {
            let small = line.to_lowercase();
            let unfinished = UNFINISHED.iter().find(|word| has_word(line, word));
            let making = MAKING.iter().find(|word| has_word(&small, word));
            let foreign = FOREIGN.iter().find(|word| line.contains(*word));
            let place = format!("{path}:{}", at + 1);
            faults
                .extend(unfinished.map(|word| {
                    format!("{place}: {word}: finish it, or say in the README what is left out")
                }));
            faults.extend(making.map(|word| format!("{place}: `{word}`: the product speaks only of itself")));
            faults.extend(
                foreign.map(|word| format!("{place}: `{word}` is not in a clone; say what it says instead")),
            );
        }
    }
    faults
}

/// Whether a word stands in a line by itself.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line.get(..at).unwrap(), line.get(at + word.len()..).unwrap());
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

#[test]
fn nothing_is_marked_as_unfinished_and_nothing_tells_of_its_making() {
    none(&faults(repository()));
}

#[test]
fn each_word_is_found_by_itself_and_not_inside_of_another() {
    for word in UNFINISHED.iter().chain(&MAKING).chain(&FOREIGN) {
        let bad = faults(&tree(&[("README.md", &format!("# a\n({word})\n"))]));
        assert_eq!(bad.len(), 1, "{word}");
        assert!(bad[0].starts_with("README.md:2: "), "{bad:?}");
    }
    none(&faults(&tree(&[("src/a.rs", "// a\u{e9}TODOS, allmost, mastodon"), ("Cargo.lock", MAKING[2])])));
}
