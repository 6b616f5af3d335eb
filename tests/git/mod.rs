//! The Git shell against real repositories, over the local path, HTTP and ssh.

pub(crate) mod bare;
pub(crate) mod lab;
mod probe;
mod push;
mod read;
pub(crate) mod server;
pub(crate) mod ssh;
mod trouble;
