//! The harness of the end-to-end tests: the real binary, real databases, and consumers that count.
//!
//! - [`Database`]: an empty SQLite file or PostgreSQL database.
//! - [`Service`]: `tollgate serve` as a process, to be stopped or killed; [`Cli`]: the client commands.
//! - [`Consumer`], [`SqsConsumer`]: take events, check their form, count distinct events in flight, release by gRPC.
//! - [`browser`]: Chromium, for the pages of the console.
//! - [`resources`]: policies, schedules and the calls that tests make often.
//!
//! Invariants: nothing here knows how the service works inside; what a consumer counts, it counts itself. Whatever
//! fails, fails the test, so nothing here returns errors.
#![expect(clippy::unwrap_used, reason = "whatever fails in the harness, fails the test")]

pub mod browser;
mod cli;
mod cloud_event;
mod consumer;
mod database;
mod emulator;
mod notebook;
mod release;
pub mod resources;
mod service;
mod sqs_consumer;

pub use cli::{Answer, Cli};
pub use consumer::{Consumer, SECRET};
pub use database::{Database, Kind};
pub use emulator::Emulator;
pub use notebook::{Arrival, Conduct, Notes, Work};
pub use release::{Link, Releases};
pub use service::{Service, binary, rss_bytes_in};
pub use sqs_consumer::SqsConsumer;

use std::time::{Duration, Instant, SystemTime};

/// Now, in microseconds since the epoch.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// Waits until something is there, and returns it.
///
/// # Panics
/// When `what` has not come within so many seconds.
pub async fn wait_for<T>(what: &str, seconds: u64, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
