//! Every decision of Tollgate, and no IO: no tokio, no SQL, no clock, no ambient randomness.
//!
//! - [`model`]: the words as types.
//! - [`plan`]: when a schedule fires; its children and launch classes; where it lives; what a change tells the queue shards.
//! - [`emit`]: which windows are opened, which launch expressions they can fire, what becomes of each launch.
//! - [`handle`]: the state machine of a queue shard: buckets, tokens, order, retries.
//! - [`own`]: which shards a process owns, for how long, and what their owners do next.
//! - [`trouble`]: what is wrong, and what to do.
//! - [`nearest`]: which of several names somebody meant.
//! - [`alert`]: who must know of it, and when they are told.
//! - [`failure`]: which events failed alike.
//! - [`items`]: what the events of a submitted run carry.

pub mod alert;
pub mod emit;
pub mod expected_end;
pub mod failure;
pub mod handle;
pub mod items;
pub mod model;
pub mod nearest;
pub mod own;
pub mod plan;
pub mod trouble;
