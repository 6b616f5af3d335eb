//! Files stay short enough to be read in one go.

use super::{Tree, none, repository, rust, tree};

const MOST_LINES: usize = 600;

fn faults(tree: &Tree) -> Vec<String> {
    rust(tree)
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| {
            format!("{path}: {lines} lines, more than {MOST_LINES}; split it where its subject splits")
        })
        .collect()
}

#[test]
fn no_file_is_too_long() {
    none(&faults(repository()));
}

#[test]
fn a_file_that_is_one_line_too_long_is_named() {
    let (fits, too_long) = ("\n".repeat(MOST_LINES), "\n".repeat(MOST_LINES + 1));
    let found = faults(&tree(&[("src/a.rs", &fits), ("src/b.rs", &too_long), ("NOTES.md", &too_long)]));
    assert_eq!(found, ["src/b.rs: 601 lines, more than 600; split it where its subject splits"]);
}
