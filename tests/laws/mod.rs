//! Properties of the pure core, over seeded whole worlds.

mod core;
mod definitions;
mod projection;
mod worlds;
