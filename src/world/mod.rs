//! Everything seen, slim and indexed; one value owned by one task.
//!
//! Guarantees: applying the same observations in any order per object ends in the same world, since per object the
//! newer resourceVersion wins; `since` is the engine's own time of first seeing the present shape, so that "stable for
//! ten seconds" needs no clock of another machine.

pub mod digest;
pub mod git;
mod ledgers;
mod keys;
pub mod objects;
mod pods;
mod setback;
mod state;
mod target;
mod topology;

pub use objects::{
    Agent, AgentKey, Claim, ClaimStatus, Hold, Mark, Node, Object, ObjectId, Pod, PodKey, Record, Revision,
    Shape, Strategy, Template, WaitReason,
};
pub use pods::{PodMemory, Pods};
pub use state::{Feed, FeedHealth, Key, Observation, Seen, World};
pub use target::Target;
pub use topology::{Labels, Topology};
