//! Names say what a thing is; words that fit everything are no names.

use super::{
    Tree,
    lexer::{Token, tokens},
    none, repository, rust, tree,
};

const EMPTY_WORDS: [&str; 9] =
    ["common", "handler", "handlers", "helper", "helpers", "manager", "managers", "util", "utils"];

/// Keywords that name a module or a type.
const NAMING: [&str; 6] = ["enum", "mod", "struct", "trait", "type", "union"];

/// Kubernetes' own words: folder, name.
const KUBERNETES: [(&str, &str); 1] = [
    // An entry of `managedFields` is a field manager.
    ("src/sim/", "Manager"),
];

fn faults(tree: &Tree) -> Vec<String> {
    let fault = |place: String, word: &str| {
        format!("{place}: `{word}` says nothing; name the thing by what it is or the step by what it does")
    };
    let mut faults = Vec::new();
    for (path, text) in rust(tree) {
        let folders = path.trim_end_matches(".rs").split('/');
        faults.extend(folders.filter_map(empty_word).map(|word| fault(path.to_owned(), &word)));
        for pair in tokens(text).windows(2) {
            let named = pair[0].word().filter(|word| NAMING.contains(word)).and_then(|_| pair[1].word());
            let named =
                named.filter(|name| !KUBERNETES.iter().any(|(at, own)| path.starts_with(at) && name == own));
            if let Some(word) = named.and_then(empty_word) {
                faults.push(fault(format!("{path}:{}", pair[1].line), &word));
            }
        }
    }
    faults
}

/// The first empty word in a `snake_case` or `CamelCase` name.
fn empty_word(name: &str) -> Option<String> {
    let mut spaced = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() || letter == '_' {
            spaced.push(' ');
        }
        spaced.extend(letter.to_lowercase().filter(|letter| *letter != '_'));
    }
    spaced.split_whitespace().find(|word| EMPTY_WORDS.contains(word)).map(str::to_owned)
}

#[test]
fn no_file_module_or_type_has_an_empty_name() {
    none(&faults(repository()));
}

#[test]
fn empty_names_are_found_wherever_they_name_something() {
    for (path, text) in [
        ("src/utils.rs", ""),
        ("tests/common/mod.rs", ""),
        ("src/git_helpers.rs", ""),
        ("src/a.rs", "pub struct RolloutManager;"),
        ("src/a.rs", "mod event_handler {}"),
    ] {
        assert_eq!(faults(&tree(&[(path, text)])).len(), 1, "{path} {text}");
    }
    // Kubernetes' own words stay.
    none(&faults(&tree(&[("src/a.rs", "const FIELD_MANAGER: &str = \"x\"; enum Mark { AddonManager }")])));
}

#[test]
fn a_token_before_the_name_is_needed() {
    assert!(tokens("let utils = 1;").iter().filter_map(Token::word).any(|word| word == "utils"));
    none(&faults(&tree(&[("src/a.rs", "let utils = 1;")])));
}
