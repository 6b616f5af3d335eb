//! Everything that needs a real kube-apiserver.
//!
//! The programs of the control plane are found or built by `assets.rs`; without them every test here is shown as
//! ignored, and a line says why; with `TRUNKLINE_LEAVE_OUT=nothing` that is a failure, and what takes long runs as well.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod assets;
mod audit;
mod conforming;
mod daemon;
mod deploy;
mod doctor;
mod faults;
mod leaders;
mod kubelets;
mod plane;
mod proxy;
mod readme;
mod scene;
mod stories;
mod story;

#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../git/bare.rs"]
#[allow(dead_code, reason = "shared with the other runner")]
mod bare;
#[path = "../flow/manifests.rs"]
#[allow(dead_code, reason = "shared with the other runner")]
mod manifests;
#[path = "../git/server.rs"]
#[allow(dead_code, reason = "shared with the other runner")]
mod server;
#[path = "../git/ssh.rs"]
#[allow(dead_code, reason = "shared with the other runner")]
mod ssh;

use std::{io::Write, path::PathBuf, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Trial};

/// A test: its name, and what it does with the folder of the programs.
type Case = (&'static str, fn(PathBuf));

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test has a control plane of its own; two cores bear one at a time.
    arguments.test_threads.get_or_insert(1);
    let programs = if arguments.list { Err(String::new()) } else { assets::find() };
    let whole = std::env::var_os("TRUNKLINE_LEAVE_OUT").is_some_and(|value| value == "nothing");
    if let Err(why) = &programs
        && !arguments.list
    {
        say(&format!("left out: every test against a real API server, since {why}"));
        if whole {
            say("TRUNKLINE_LEAVE_OUT=nothing: that is a failure");
            return ExitCode::FAILURE;
        }
    }
    let by_name = arguments.filter.is_some() || arguments.include_ignored || arguments.ignored;
    if programs.is_ok() && !whole && !by_name {
        say(
            "left out: tests against a real API server that take long; TRUNKLINE_LEAVE_OUT=nothing runs all of them",
        );
    }
    let programs = Arc::new(programs);
    let trial = |(name, run): Case| {
        let given = Arc::clone(&programs);
        let left_out = programs.is_err() || !(whole || by_name || is_quick(name));
        Trial::test(name, move || {
            if let Ok(programs) = &*given {
                run(programs.clone());
            }
            Ok(())
        })
        .with_ignored_flag(left_out && !arguments.list)
    };
    let cases = [
        stories::CASES,
        faults::CASES,
        leaders::CASES,
        deploy::CASES,
        doctor::CASES,
        readme::CASES,
        conforming::CASES,
    ]
    .concat();
    let conclusion = libtest_mimic::run(&arguments, cases.into_iter().map(trial).collect());
    conforming::end(conclusion.has_failed());
    conclusion.exit_code()
}

/// Whether a case is in the set that every `cargo test` runs: conformance, and one story of each kind.
fn is_quick(name: &str) -> bool {
    const STORIES: [&str; 4] = [
        "a_bad_canary_goes_back_and_git_says_why",
        "a_repository_over_ssh_gets_the_rollout_and_its_statuses",
        "a_daemon_killed_around_its_pushes_makes_one_rollback_commit",
        "of_three_replicas_one_acts_and_another_goes_on_when_it_is_killed",
    ];
    name.starts_with("conformance::") || STORIES.iter().any(|story| name.ends_with(story))
}

/// The cases of a module from its functions, named after both.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((concat!(module_path!(), "::", stringify!($name)), |programs| crate::running($name(programs)))),*]
    };
}
use cases;

/// Tells people something, whatever the runner captures.
fn say(text: &str) {
    let _closed = writeln!(std::io::stderr(), "{text}");
}

/// Runs a case to its end.
fn running(case: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(case);
}
