#![doc = include_str!("README.md")]

// Modules in the order in which data flows; `src/README.md` draws the ring.
pub mod api;
pub mod config;
pub mod git;
pub mod manifest;
pub mod mirror;
pub mod profile;
pub mod report;
pub mod rollout;
pub mod sim;
pub mod secret;
pub mod world;
