//! The state machine of one queue shard: which events are due, which of them get tokens, which are tried again.
//!
//! [`Shard`] takes inputs with `now` and is polled: after each batch of inputs call [`Shard::poll_commit`]; write
//! what it returns; call [`Shard::committed`] and perform the effects, and those of [`Shard::due`]; sleep until
//! [`Shard::next_deadline`] at most.
//! If a commit fails, drop the machine and make a new one from the store.
//!
//! Invariants: an event is sent only by an effect of the commit that recorded its acquisition and attempt; a token
//! that is freed may be taken in the same commit, never before it; per policy, held tokens never rise above
//! `max_in_flight`; time to live is counted on the monotonic clock. Not here: any IO, any clock, history reads.

mod again;
pub mod batch;
mod branch;
mod bucket;
pub mod change;
pub mod control;
mod cursor;
mod dispatch;
mod early;
mod exchange;
mod explain;
mod finish;
mod follow;
mod forget;
mod hand_out;
mod handover;
mod key_counts;
mod key_reads;
mod keys;
mod ledger;
mod line;
mod live;
mod minutes;
#[cfg(test)]
mod neighbours;
mod outdated;
mod outlook;
mod pace;
mod pending;
mod places;
mod queue;
mod reasons;
pub mod release;
mod restore;
mod results;
mod rooms;
mod rounds;
mod settle;
mod shard;
mod sight;
mod sorted;
mod specs;
mod steer;
mod steps;
mod targets;
#[cfg(test)]
pub(crate) mod testing;
mod tree;
mod turns;
mod unsent;
mod unserved;
mod waiting;

pub use change::Unstarted;
pub use exchange::{
    Commit, Context, Deadline, Effect, Following, KeysWanted, MessageNeeds, Options, Pulled, PulledEvent,
    Send, ShardState, TakenUp,
};
pub use explain::{EventState, Explanation, Gauge, Holder, Reason, Remembered, Status};
pub use key_counts::{KeyCount, KeyCounts};
pub use outlook::Outlook;
pub use pace::LastError;
pub use rooms::RoomAsk;
pub use shard::Shard;
pub use sight::Refusal;
pub use targets::TargetGauge;
