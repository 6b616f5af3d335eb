//! Properties of the pure core, over seeded whole worlds.

mod core;
mod projection;
mod worlds;
