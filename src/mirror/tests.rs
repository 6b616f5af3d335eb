//! The mirror pass over small repositories and an embedded store, driven until nothing more is to be done.

mod attempts;
mod authority;
mod documents;
mod holds;
mod lab;
mod laws;
mod removal;
