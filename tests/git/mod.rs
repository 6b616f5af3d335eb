//! The Git shell against real repositories, over the local path and over HTTP.

pub(crate) mod bare;
pub(crate) mod lab;
mod push;
mod read;
pub(crate) mod server;
mod trouble;
