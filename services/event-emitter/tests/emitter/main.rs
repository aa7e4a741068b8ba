//! The emitter over SQLite, with a clock that tests move.
#![expect(clippy::unwrap_used, reason = "tests")]

mod moved;
mod outage;
mod service;
mod shared;
mod steady;
mod world;
