#![doc = include_str!("README.md")]

// Modules in the order in which data flows; `src/README.md` draws the ring.
pub mod config;
pub mod api;
pub mod git;
pub mod manifest;
pub mod profile;
pub mod mirror;
pub mod observe;
pub mod world;
pub mod diff;
pub mod rollout;
pub mod report;
pub mod publish;
pub mod perform;
pub mod lease;
pub mod access;
pub mod engine;
pub mod serve;
pub mod reload;
pub mod cli;
pub mod sim;
pub mod clock;
pub mod dice;
pub mod metrics;
pub mod secret;
pub mod telemetry;
