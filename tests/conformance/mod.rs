//! What trunkline relies on of an API server, as one suite over a `kube::Client`; only `plane.rs` knows which server
//! it is, so that the suite can be run against a real one.

mod claims;
mod daemonsets;
mod deletion;
mod discovery;
mod faults;
mod kubectl;
mod lists;
mod objects;
mod patches;
pub(crate) mod plane;
mod watches;
