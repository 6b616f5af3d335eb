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
    let named: BTreeSet<String> = places(&tree[MAP]).map(str::to_owned).collect();
    let missing = there
        .difference(&named)
        .map(|place| format!("{MAP}: `{place}` has no line in the table of places; add one"));
    let gone =
        named.difference(&there).map(|place| format!("{MAP}: `{place}` does not exist; take its line out"));
    missing.chain(gone).collect()
}

/// Modules of `lib.rs` in its order, and in the order of the map.
fn orders(tree: &Tree) -> (Vec<String>, Vec<String>) {
    let module = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    let declared: Vec<String> = tree["src/lib.rs"].lines().filter_map(module).collect();
    let drawn = places(&tree[MAP]).map(|place| place.trim_end_matches('/').trim_end_matches(".rs"));
    let drawn =
        drawn.filter(|place| declared.iter().any(|module| module == place)).map(str::to_owned).collect();
    (declared, drawn)
}

/// First cells of the table of places: ``| `name/` | ...``.
fn places(map: &str) -> impl Iterator<Item = &str> {
    map.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")).map(|(place, _)| place)
}

#[test]
fn the_map_names_every_place_and_nothing_else() {
    none(&faults(repository()));
}

#[test]
fn the_library_declares_its_modules_in_the_order_of_the_map() {
    let (declared, drawn) = orders(repository());
    assert_eq!(declared, drawn, "src/lib.rs and the table of places in {MAP} differ in their order");
}

#[test]
fn another_order_is_seen() {
    let map = (MAP, "| `main.rs` | x |\n| `api/` | x |\n| `clock.rs` | x |\n");
    let (declared, drawn) = orders(&tree(&[map, ("src/lib.rs", "pub mod clock;\npub mod api;\n")]));
    assert_eq!((declared.join(" "), drawn.join(" ")), ("clock api".to_owned(), "api clock".to_owned()));
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
