//! Whole stories through the shipped engine, the embedded cluster and a real repository, in virtual time.

mod engine;
mod run;
pub(crate) mod stage;
