//! Whole stories through the shipped engine, the embedded cluster and a real repository, in virtual time.

mod daemon;
mod declarations;
mod documents;
mod engine;
mod lease;
mod events;
mod ledger;
mod look;
mod manifests;
mod nodes;
mod people;
mod reload;
mod remote;
mod restart;
mod revert;
mod run;
mod scope;
mod serve;
pub(crate) mod stage;
mod undo;
mod upgrade;
