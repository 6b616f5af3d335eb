//! One effect is one variant and one file in `perform/`, so that each write has one place and one fault point.

use std::collections::{BTreeMap, BTreeSet};

use trunkline::rollout::effect::StepName;

use super::{
    Tree,
    lexer::{Token, tokens, without_tests},
    none,
    paths::paths,
    repository, tree,
};

const VARIANTS: &str = "src/rollout/effect.rs";
const FOLDER: &str = "src/perform/";

fn faults(tree: &Tree) -> Vec<String> {
    let steps: BTreeSet<String> =
        variants(&tokens(&tree[VARIANTS]), "StepName").iter().map(|name| snake(name)).collect();
    let files: BTreeMap<&str, &str> = tree
        .iter()
        .filter_map(|(path, text)| Some((path.strip_prefix(FOLDER)?.strip_suffix(".rs")?, text.as_str())))
        .filter(|(name, _)| !["mod", "tests"].contains(name))
        .collect();
    let mut faults = Vec::new();
    for step in steps.iter().filter(|step| !files.contains_key(step.as_str())) {
        faults.push(format!("{FOLDER}{step}.rs: missing; every variant of `StepName` has a file of its own"));
    }
    for name in files.keys().filter(|name| !steps.contains(**name)) {
        // A file beside the effects is what several of them share.
        let shared = files.iter().filter(|(other, text)| *other != name && uses(text, name)).count();
        if shared < 2 {
            faults.push(format!(
                "{FOLDER}{name}.rs: neither an effect (no variant of `StepName` in {VARIANTS}) nor shared by two of them"
            ));
        }
    }
    faults
}

fn uses(text: &str, module: &str) -> bool {
    paths(&without_tests(&tokens(text))).iter().any(|path| match path.parts.as_slice() {
        [first, second, ..] => first == "super" && second == module,
        _ => false,
    })
}

#[test]
fn the_list_of_all_effects_names_each_variant() {
    let all: BTreeSet<String> = StepName::ALL.iter().map(|step| format!("{step:?}")).collect();
    let declared: BTreeSet<String> =
        variants(&tokens(&repository()[VARIANTS]), "StepName").into_iter().collect();
    assert_eq!(all, declared);
}

/// Names of the variants of an enum without data.
fn variants(tokens: &[Token], name: &str) -> Vec<String> {
    let start = tokens.windows(2).position(|pair| pair[0].is_word("enum") && pair[1].is_word(name)).unwrap();
    let body = tokens[start + 3..].iter().take_while(|token| !token.is('}'));
    body.filter_map(Token::word).map(str::to_owned).collect()
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[test]
fn every_effect_has_its_file_and_every_file_its_effect() {
    none(&faults(repository()));
}

#[test]
fn a_missing_file_and_a_file_without_effect_are_found() {
    let variants = (VARIANTS, "pub enum StepName { /// Doc.\n DeletePod, PushStatus }");
    let found = faults(&tree(&[
        variants,
        ("src/perform/mod.rs", "mod delete_pod; mod shared; mod alone;"),
        ("src/perform/delete_pod.rs", "use super::shared::Answer;"),
        ("src/perform/shared.rs", ""),
        ("src/perform/alone.rs", "use super::{shared, alone};"),
    ]));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("src/perform/push_status.rs: missing"));
    assert!(found[1].starts_with("src/perform/alone.rs: neither an effect"));
}
