//! Every path that a file names, with the groups of `use` taken apart.

use super::lexer::{Kind, Token, tokens};

/// One path as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Its parts; `*` for a glob; the leading part of a relative path stays as it is.
    pub(super) parts: Vec<String>,
    /// Line from 1.
    pub(super) line: usize,
    /// Whether a `use` item names it.
    pub(super) used: bool,
    /// Names of the inline modules around it.
    pub(super) inside: Vec<String>,
}

/// All paths of a file, single names included.
pub(super) fn paths(tokens: &[Token]) -> Vec<Named> {
    let mut reader = Reader { tokens, at: 0, depth: 0, used: false, inline: Vec::new(), found: Vec::new() };
    while reader.at < tokens.len() {
        reader.step();
    }
    reader.found
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
    used: bool,
    /// Inline modules that are open, with the depth of their block.
    inline: Vec<(String, usize)>,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    fn step(&mut self) {
        match self.peek(0).cloned() {
            Some(Kind::Word(word)) if word == "use" => {
                self.used = true;
                self.at += 1;
                self.tree(&[]);
                self.used = false;
            }
            Some(Kind::Word(word)) if word == "mod" => self.module(),
            Some(Kind::Word(_) | Kind::Path) => self.tree(&[]),
            Some(Kind::Sign('{')) => {
                self.depth += 1;
                self.at += 1;
            }
            Some(Kind::Sign('}')) => {
                self.depth = self.depth.saturating_sub(1);
                self.inline.retain(|(_, depth)| *depth <= self.depth);
                self.at += 1;
            }
            Some(Kind::Sign(_) | Kind::Other) | None => self.at += 1,
        }
    }

    /// `mod name {` or `mod name;`.
    fn module(&mut self) {
        if let (Some(Kind::Word(name)), Some(Kind::Sign('{'))) = (self.peek(1).cloned(), self.peek(2)) {
            self.inline.push((name, self.depth + 1));
        }
        self.at += 2;
    }

    /// One path, or a group of them behind a common beginning.
    fn tree(&mut self, before: &[String]) {
        let mut parts = before.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.peek(0).cloned() {
                Some(Kind::Word(word)) => {
                    // `self` at the end of a group is the path before it.
                    if parts.is_empty() || word != "self" {
                        parts.push(word);
                    }
                    self.at += 1;
                }
                Some(Kind::Sign('*')) if self.used => {
                    parts.push("*".to_owned());
                    self.at += 1;
                }
                Some(Kind::Sign('{')) if self.used => return self.group(&parts),
                Some(Kind::Path) => {}
                Some(Kind::Sign(_) | Kind::Other) | None => break,
            }
            if self.peek(0) != Some(&Kind::Path) {
                break;
            }
            self.at += 1;
        }
        if !parts.is_empty() {
            let inside = self.inline.iter().map(|(name, _)| name.clone()).collect();
            self.found.push(Named { parts, line, used: self.used, inside });
        }
    }

    fn group(&mut self, before: &[String]) {
        self.at += 1;
        loop {
            match self.peek(0) {
                Some(Kind::Sign('}')) => {
                    self.at += 1;
                    return;
                }
                Some(Kind::Word(word)) if word == "as" => self.at += 2,
                Some(Kind::Word(_) | Kind::Path | Kind::Sign('*' | '{')) => self.tree(before),
                Some(Kind::Sign(_) | Kind::Other) => self.at += 1,
                None => return,
            }
        }
    }
}

#[cfg(test)]
fn written(text: &str) -> Vec<String> {
    paths(&tokens(text)).into_iter().map(|path| path.parts.join("::")).collect()
}

#[test]
fn groups_of_use_are_taken_apart() {
    let found = written("use std::{fs, net::{self, TcpStream as S}, io::*}; use ::kube::Client;");
    assert_eq!(found, ["std::fs", "std::net", "std::net::TcpStream", "std::io::*", "kube::Client"]);
}

#[test]
fn paths_in_code_types_and_generics_are_found() {
    let found = written("fn f(c: &kube::Client) { let x = Vec::<std::fs::File>::new(); tokio::spawn(a); }");
    for path in ["kube::Client", "std::fs::File", "tokio::spawn"] {
        assert!(found.iter().any(|one| one == path), "{path} is not in {found:?}");
    }
}

#[test]
fn a_path_knows_the_inline_modules_around_it() {
    let found = paths(&tokens("mod a { mod b { use super::x; } fn f() {} } use super::y;"));
    let inside =
        |last: &str| &found.iter().find(|path| path.parts.ends_with(&[last.to_owned()])).unwrap().inside;
    assert_eq!(inside("x"), &["a", "b"]);
    assert!(inside("y").is_empty());
}
