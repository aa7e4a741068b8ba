//! Every decision of Tollgate, and no IO: no tokio, no SQL, no clock, no ambient randomness.
//!
//! - [`model`]: the words as types.
//! - [`plan`]: when a schedule fires; its children and launch classes.
//! - [`emit`]: which launch expressions a window can fire, and when each child does.
//! - [`handle`]: the state machine of a queue shard: buckets, tokens, order, retries.
//! - [`own`]: which shards a process owns, for how long, and what their owners do next.

pub mod emit;
pub mod handle;
pub mod model;
pub mod own;
pub mod plan;
