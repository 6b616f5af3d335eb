//! A lint that is switched off says why.

use super::{
    Tree,
    lexer::{Token, tokens},
    none, repository, rust, tree,
};

fn faults(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in rust(tree) {
        let tokens = tokens(text);
        for (at, token) in tokens.iter().enumerate() {
            let switch = token.is_word("allow") || token.is_word("expect");
            let in_attribute =
                at > 0 && tokens[at - 1].is('[') && tokens.get(at + 1).is_some_and(|next| next.is('('));
            if switch && in_attribute && !has_reason(&tokens[at + 1..]) {
                faults.push(format!(
                    "{path}:{}: a lint is switched off without `reason = \"...\"`",
                    token.line
                ));
            }
        }
    }
    faults
}

/// Whether `reason =` stands between the bracket that tokens begin with and its end.
fn has_reason(tokens: &[Token]) -> bool {
    let end = tokens.iter().position(|token| token.is(']')).unwrap_or(tokens.len());
    tokens[..end].windows(2).any(|pair| pair[0].is_word("reason") && pair[1].is('='))
}

#[test]
fn every_lint_that_is_switched_off_has_its_reason() {
    none(&faults(repository()));
}

#[test]
fn a_switch_without_reason_is_found() {
    for text in ["#[allow(dead_code)]", "#![allow(clippy::panic)]", "#[expect(unused)] fn f(reason: u8) {}"] {
        assert_eq!(faults(&tree(&[("src/a.rs", text)])).len(), 1, "{text}");
    }
    none(&faults(&tree(&[(
        "src/a.rs",
        "#[allow(dead_code, reason = \"read by serde\")] fn f() { allow(1); }",
    )])));
}
