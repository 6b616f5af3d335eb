//! The rules of the code, read from the code: each one names the file, the rule and the way to mend it.

mod allows;
mod effects;
mod lexer;
mod map;
mod names;
mod paths;
mod purity;
mod reach;
mod size;
mod words;

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

/// Text files of the repository by path from its root.
type Tree = BTreeMap<String, String>;

/// Every text file of this repository.
fn repository() -> &'static Tree {
    static TREE: LazyLock<Tree> = LazyLock::new(|| {
        let mut tree = Tree::new();
        walk(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut tree);
        tree
    });
    &TREE
}

fn walk(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            if path != ".git" && path != "target" {
                walk(&entry.path(), &format!("{path}/"), tree);
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            tree.insert(path, text);
        }
    }
}

/// Rust files, in order of path.
fn rust(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|extension| extension == "rs");
    tree.iter().map(|(path, text)| (path.as_str(), text.as_str())).filter(move |(path, _)| is_rust(path))
}

/// A tree of a few files, for tests of the rules themselves.
fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// Fails with every fault on a line of its own.
#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
