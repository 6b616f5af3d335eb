//! Properties of the pure core, over seeded whole worlds.

mod worlds;
