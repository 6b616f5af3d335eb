//! The single runner of all tests outside the library.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_macros,
    reason = "tests"
)]

mod crash;
mod flow;
mod conformance;
mod embedded;
mod git;
mod laws;
mod cli {
    mod access;
    mod demo;
    mod doctor;
    mod explain;
    mod help;
    mod plan;
    mod scene;
    mod status;
    mod transcript;
    mod validate;
}
mod golden {
    mod crds;
    mod deploy;
    mod report;
    mod report_waiting;
}
mod rules;
