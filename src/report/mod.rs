//! Texts for people, and the files and commits that carry them: what happened, why, what next.
//!
//! Guarantees: absolute times only in what is stored or pushed, so that equal state gives equal bytes;
//! whatever came from outside is bounded, on one line, and escaped for the place it goes to.

pub mod commit;
pub mod doctor;
pub mod escape;
pub mod events;
pub mod explain;
pub mod paint;
pub mod plan;
pub mod problems;
pub mod readiness;
pub mod readme;
mod refusal;
pub mod repository;
pub mod status_file;
pub mod tree;
pub mod waiting;
mod words;
