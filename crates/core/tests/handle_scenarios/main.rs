//! The shard's state machine, seen from outside: one world with one shard, its store and its driver; a file a subject.

#![expect(clippy::unwrap_used, reason = "tests")]

mod batches;
mod chains;
mod change;
mod cursors;
mod early;
mod expected;
mod explain;
mod fuzz;
#[path = "../handle_world/mod.rs"]
mod handle_world;
mod handover;
mod item_keys;
mod keys;
mod limits;
mod lists;
mod minutes;
mod moves;
mod overlap;
#[path = "../handle_simulation/random.rs"]
mod random;
mod release;
mod removed;
mod results;
mod retry;
mod rooms;
mod sight;
mod start;
mod targets;
mod tokens;
mod tree;
mod units;
mod unreadable;
mod unsent;
mod world;
