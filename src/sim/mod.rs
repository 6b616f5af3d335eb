//! The embedded cluster: a world machine in virtual time, for demos, simulation and tests.

pub mod api;
pub mod core_run;
pub mod lab;
pub mod model;
