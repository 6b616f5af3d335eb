//! Every Rust file is compiled: a file that no `mod` line reaches would be checked by nobody.

use std::collections::BTreeMap;

use super::{
    Tree,
    lexer::{Token, is_cfg_test, tokens},
    none, repository, rust, tree,
};

/// Where the compiler starts.
const ROOTS: [&str; 4] = ["src/lib.rs", "src/main.rs", "tests/main.rs", "tests/cluster/main.rs"];

/// A file that is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    /// Its path in the crate: `rollout`, `effect`.
    pub(super) path: Vec<String>,
    /// Whether only tests compile it.
    pub(super) test: bool,
}

/// Every file that `mod` lines reach from a root.
pub(super) fn reached(tree: &Tree, root: &str) -> BTreeMap<String, Module> {
    let mut found = BTreeMap::new();
    let mut open = vec![(root.to_owned(), Module { path: Vec::new(), test: false })];
    while let Some((file, module)) = open.pop() {
        let Some(text) = tree.get(&file) else { continue };
        let folder = folder_of(&file, module.path.is_empty());
        for (names, test) in declared(&tokens(text)) {
            let base = format!("{folder}{}", names.join("/"));
            let child =
                [format!("{base}.rs"), format!("{base}/mod.rs")].into_iter().find(|it| tree.contains_key(it));
            if let Some(child) = child {
                let path = module.path.iter().cloned().chain(names).collect();
                open.push((child, Module { path, test: test || module.test }));
            }
        }
        found.insert(file, module);
    }
    found
}

/// Folder in which the children of a file are.
fn folder_of(file: &str, root: bool) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap();
    if root || name == "mod.rs" { format!("{folder}/") } else { format!("{}/", file.trim_end_matches(".rs")) }
}

/// Names behind `mod ...;`, with the inline modules around them, and whether `#[cfg(test)]` stands before.
fn declared(tokens: &[Token]) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let name = || tokens.get(at + 1).and_then(Token::word).map(str::to_owned);
        let then = |sign| tokens.get(at + 2).is_some_and(|token| token.is(sign));
        if token.is('{') {
            depth += 1;
        } else if token.is('}') {
            depth = depth.saturating_sub(1);
            inline.retain(|(_, inner)| *inner <= depth);
        } else if let (true, Some(name)) = (token.is_word("mod"), name()) {
            if then('{') {
                inline.push((name, depth + 1));
            } else if then(';') {
                let names = inline.iter().map(|(name, _)| name.clone()).chain([name]).collect();
                found.push((names, is_for_tests(&tokens[..at])));
            }
        }
    }
    found
}

/// Whether `#[cfg(test)]` ends the tokens, a visibility and other attributes left aside.
fn is_for_tests(before: &[Token]) -> bool {
    let start = before.iter().rposition(|token| token.is(';') || token.is('}')).map_or(0, |at| at + 1);
    let item = &before[start..];
    (0..item.len()).any(|at| is_cfg_test(&item[at..]))
}

fn faults(tree: &Tree) -> Vec<String> {
    let reached: Vec<_> = ROOTS.iter().flat_map(|root| reached(tree, root).into_keys()).collect();
    rust(tree)
        .filter(|(path, _)| path.starts_with("src/") || path.starts_with("tests/"))
        .filter(|(path, _)| !reached.iter().any(|file| file == path))
        .map(|(path, _)| format!("{path}: no `mod` line reaches this file; add one, or delete the file"))
        .collect()
}

#[test]
fn every_rust_file_is_reached_by_a_mod_line() {
    none(&faults(repository()));
}

#[test]
fn a_forgotten_file_is_found_and_a_listed_one_is_not() {
    let forgotten = faults(&tree(&[
        ("src/lib.rs", "mod a;"),
        ("src/a.rs", "pub mod b; // mod d;"),
        ("src/a/b.rs", ""),
        ("src/a/d.rs", ""),
        ("tests/main.rs", "mod flow { mod push; } mod git;"),
        ("tests/flow/push.rs", ""),
        ("tests/flow/pull.rs", ""),
        ("tests/git/mod.rs", "mod read;"),
        ("tests/git/read.rs", ""),
    ]));
    assert_eq!(forgotten.len(), 2, "{forgotten:?}");
    assert!(
        forgotten[0].starts_with("src/a/d.rs: no `mod` line")
            && forgotten[1].starts_with("tests/flow/pull.rs")
    );
}

#[test]
fn a_file_that_only_tests_compile_is_known_as_such_with_its_children() {
    let found = reached(
        &tree(&[
            ("src/lib.rs", "#[cfg(test)] #[rustfmt::skip] pub(crate) mod lab; mod a;"),
            ("src/lab.rs", "mod inner;"),
            ("src/lab/inner.rs", ""),
            ("src/a.rs", ""),
        ]),
        "src/lib.rs",
    );
    let tests: Vec<&str> =
        found.iter().filter(|(_, module)| module.test).map(|(file, _)| file.as_str()).collect();
    assert_eq!(tests, ["src/lab.rs", "src/lab/inner.rs"]);
    assert_eq!(found["src/lab/inner.rs"].path, ["lab", "inner"]);
}
