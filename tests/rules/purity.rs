//! Pure modules stay pure: no I/O, no clock, no randomness, no `async`, and nothing of the shell.

use super::{
    Tree,
    lexer::{Token, tokens, without_tests},
    none,
    paths::{Named, paths},
    reach::reached,
    repository, tree,
};

/// Modules that only compute.
const PURE: [&[&str]; 15] = [
    &["access"],
    &["api"],
    &["config"],
    &["diff"],
    &["lease"],
    &["manifest"],
    &["mirror"],
    &["policy"],
    &["profile"],
    &["publish"],
    &["report"],
    &["rollout"],
    &["sim", "core_run"],
    &["sim", "model"],
    &["world"],
];

/// What no pure module names.
const FORBIDDEN: [&[&str]; 23] = [
    &["anyhow"],
    &["clap"],
    &["futures"],
    &["git2"],
    &["hyper"],
    &["hyper_util"],
    &["kube"],
    &["notify"],
    &["rand"],
    &["reqwest"],
    &["rustls"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "io"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["tokio"],
    &["tower"],
    &["tracing"],
];

/// Plain types and derives out of what is forbidden otherwise.
const ALLOWED: [&[&str]; 4] =
    [&["kube", "CustomResource"], &["kube", "CustomResourceExt"], &["kube", "KubeSchema"], &["kube", "core"]];

/// Types whose `now` reads a clock, whatever path leads to them.
const CLOCKS: [&str; 4] = ["Instant", "SystemTime", "Timestamp", "Zoned"];

/// Macros that write to a terminal.
const TERMINAL: [&str; 5] = ["dbg", "eprint", "eprintln", "print", "println"];

fn faults(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, module) in reached(tree, "src/lib.rs") {
        if module.test || !is_pure(&module.path) {
            continue;
        }
        let tokens = without_tests(&tokens(&tree[&file]));
        for path in paths(&tokens) {
            if let Some(why) = path_fault(&path, &module.path) {
                faults.push(format!("{file}:{}: `{}` {why}", path.line, path.parts.join("::")));
            }
        }
        faults.extend(tokens.windows(2).filter_map(|pair| word_fault(pair, &file)));
    }
    faults
}

fn is_pure(module: &[String]) -> bool {
    PURE.iter().any(|pure| starts_with(module, pure))
}

fn starts_with(path: &[String], beginning: &[&str]) -> bool {
    path.len() >= beginning.len() && path.iter().zip(beginning).all(|(part, word)| part == word)
}

fn path_fault(path: &Named, module: &[String]) -> Option<String> {
    if let Some(inner) = in_crate(path, module) {
        let ours = inner.is_empty() || is_pure(&inner);
        return (!ours).then(|| {
            "is no pure module; move the decision here and the doing there, or pass the value in".to_owned()
        });
    }
    let parts = &path.parts;
    let clock = parts.windows(2).any(|pair| pair[1] == "now" && CLOCKS.contains(&pair[0].as_str()));
    if clock {
        return Some("reads a clock; take the time as an argument".to_owned());
    }
    if ALLOWED.iter().any(|allowed| starts_with(parts, allowed)) {
        return None;
    }
    let opened = |forbidden: &[&str]| {
        // `use std;` or `use std::*;` would let the rest through unseen.
        let stem = parts.strip_suffix(&["*".to_owned()]).unwrap_or(parts);
        path.used
            && stem.len() < forbidden.len()
            && stem.iter().zip(forbidden).all(|(part, word)| part == word)
    };
    let hit = FORBIDDEN.iter().any(|forbidden| starts_with(parts, forbidden) || opened(forbidden));
    let named = parts.len() > 1 || path.used;
    (hit && named)
        .then(|| "does I/O or leads to it; pure modules only compute, so it belongs in the shell".to_owned())
}

/// Path from the root of the crate, if it is one of ours.
fn in_crate(path: &Named, module: &[String]) -> Option<Vec<String>> {
    let mut base: Vec<String> = module.iter().chain(&path.inside).cloned().collect();
    let mut rest = path.parts.as_slice();
    match rest.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
            return Some(base.into_iter().chain(rest.iter().cloned()).collect());
        }
        _ => return None,
    }
    Some(base.into_iter().chain(rest[1..].iter().cloned()).collect())
}

fn word_fault(pair: &[Token], file: &str) -> Option<String> {
    let (line, word) = (pair[0].line, pair[0].word()?);
    match word {
        "async" | "await" => {
            Some(format!("{file}:{line}: `{word}` in a pure module; waiting belongs in the shell"))
        }
        _ if TERMINAL.contains(&word) && pair[1].is('!') => {
            Some(format!("{file}:{line}: `{word}!` in a pure module; return the text"))
        }
        _ => None,
    }
}

#[test]
fn pure_modules_name_nothing_that_does_anything() {
    none(&faults(repository()));
}

#[test]
fn the_pure_modules_are_there() {
    let tree = repository();
    for pure in [
        ["api"].as_slice(),
        &["config"],
        &["manifest"],
        &["profile"],
        &["rollout"],
        &["sim", "model"],
        &["world"],
    ] {
        assert!(PURE.contains(&pure));
        assert!(
            reached(tree, "src/lib.rs").values().any(|module| starts_with(&module.path, pure)),
            "{pure:?}"
        );
    }
}

fn found(file: &str, text: &str) -> Vec<String> {
    let lib = ("src/lib.rs", "mod world; mod rollout; mod sim; mod config; mod engine;");
    let sim = ("src/sim/mod.rs", "mod model; mod api;");
    let world = ("src/world/mod.rs", "mod inner;");
    let mut files = vec![lib, sim, world];
    files.retain(|(path, _)| *path != file);
    files.push((file, text));
    faults(&tree(&files))
}

#[test]
fn every_way_to_name_what_is_forbidden_is_found() {
    for text in [
        "use std::fs;",
        "use std::{collections::BTreeMap, fs::File};",
        "use std::{net::{TcpStream}};",
        "use std::*;",
        "use std as s;",
        "use ::tokio::time;",
        "fn f() { std::env::var(\"A\"); }",
        "fn f(client: &kube::Client) {}",
        "use kube::{CustomResource, Client};",
        "use kube::*;",
        "use git2;",
        "fn f() { let now = jiff::Timestamp::now(); }",
        "fn f() { let now = Timestamp::now(); }",
        "use std::time::{Duration, Instant};",
        "fn f() { let r: Vec<reqwest::Client> = Vec::new(); }",
        "async fn f() {}",
        "fn f() { println!(\"x\"); }",
        "#[cfg(not(test))] use std::fs;",
    ] {
        let faults = found("src/world/inner.rs", text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].starts_with("src/world/inner.rs:1: `"), "{faults:?}");
    }
}

#[test]
fn every_way_to_name_the_shell_is_found() {
    for text in [
        "use crate::engine::Engine;",
        "use crate::{rollout::decide, engine};",
        "fn f() { super::super::engine::run(); }",
        "use crate::sim::api::Server;",
        "use crate::sim;",
        "use crate::*;",
        "mod deep { use super::super::super::engine; }",
    ] {
        let faults = found("src/world/inner.rs", text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].contains("is no pure module"), "{faults:?}");
    }
}

#[test]
fn what_only_computes_passes() {
    for text in [
        "use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};",
        "use kube::{CustomResource, core::ObjectMeta};",
        "use crate::{rollout::effect::Effect, sim::model::Model, world::World};",
        "use super::World; use self::deep::X; mod deep { use super::Y; pub struct X; }",
        "// std::fs\n/// tokio::spawn\nconst TEXT: &str = \"use std::fs;\";",
        "#[cfg(test)] mod tests { use std::fs; }",
        "fn now(now: jiff::Timestamp) -> jiff::Timestamp { let fs = now; fs }",
    ] {
        none(&found("src/world/inner.rs", text));
    }
    none(&found("src/engine.rs", "use std::fs; use crate::world; async fn f() {}"));
    none(&found("src/sim/api.rs", "use tokio::net;"));
    assert_eq!(found("src/config.rs", "use std::fs;").len(), 1);
}
