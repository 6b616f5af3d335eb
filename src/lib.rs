#![doc = include_str!("README.md")]

// Modules in the order in which data flows; `src/README.md` draws the ring.
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dice;
pub mod diff;
pub mod engine;
pub mod git;
pub mod manifest;
pub mod mirror;
pub mod observe;
pub mod perform;
pub mod profile;
pub mod publish;
pub mod report;
pub mod rollout;
pub mod secret;
pub mod sim;
pub mod telemetry;
pub mod world;
