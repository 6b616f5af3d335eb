//! `src/README.md` is the map of the code, so it names what is there and nothing else.

use std::collections::BTreeSet;

use super::{Tree, none, repository, tree};

const MAP: &str = "src/README.md";

fn faults(tree: &Tree) -> Vec<String> {
    let mut there: BTreeSet<String> = tree
        .keys()
        .filter(|path| *path != MAP)
        .filter_map(|path| path.strip_prefix("src/"))
        .map(|path| path.split_once('/').map_or_else(|| path.to_owned(), |(folder, _)| format!("{folder}/")))
        .collect();
    // A folder beside its file (`config.rs`, `config/`) is one place.
    there.retain(|place| {
        !place.ends_with('/') || !tree.contains_key(&format!("src/{}.rs", place.trim_end_matches('/')))
    });
    let named = places(&tree[MAP]);
    let missing = there
        .difference(&named)
        .map(|place| format!("{MAP}: `{place}` has no line in the table of places; add one"));
    let gone =
        named.difference(&there).map(|place| format!("{MAP}: `{place}` does not exist; take its line out"));
    missing.chain(gone).collect()
}

/// First cells of the table of places: ``| `name/` | ...``.
fn places(map: &str) -> BTreeSet<String> {
    map.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(place, _)| place.to_owned())
        .collect()
}

#[test]
fn the_map_names_every_place_and_nothing_else() {
    none(&faults(repository()));
}

#[test]
fn a_place_without_a_line_and_a_line_without_a_place_are_found() {
    let found = faults(&tree(&[
        (MAP, "| place | is |\n|---|---|\n| `api/` | words |\n| `gone/` | nothing |\n"),
        ("src/api/mod.rs", ""),
        ("src/clock.rs", ""),
    ]));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`clock.rs` has no line") && found[1].contains("`gone/` does not exist"));
}
