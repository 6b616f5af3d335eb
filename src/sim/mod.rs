//! The embedded cluster: a world machine in virtual time, for demos, simulation and tests.

pub mod api;
pub mod lab;
pub mod model;
