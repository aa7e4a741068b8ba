//! The harness of everything that runs the real binary: end-to-end tests, the fault campaign, load.
//!
//! - [`process`], [`kernel`]: a child process, and what the kernel knows of it; [`Serve`]: `tollgate serve` as one.
//! - [`Service`]: a process that serves, and its API; [`Cli`]: the client commands.
//! - [`Commands`], [`order`]: a process that takes commands from queues; commands as messages have them.
//! - [`Database`]: an empty SQLite file or PostgreSQL database; [`postgres`]: a server of one's own.
//! - [`Consumer`], [`SqsConsumer`]: take events, check their form, count distinct events in flight, release by gRPC.
//! - [`http`], [`sqs`], [`event`]: what a sink is made of that keeps its own books.
//! - [`machine`], [`proxy`]: a disk, a clock and a network that can be broken.
//! - [`browser`]: Chromium, for the pages of the console.
//! - [`resources`]: policies, schedules and the calls that tests make often.
//!
//! Invariants: nothing here knows how the service works inside, or shares code with it but the API; what a consumer counts,
//! it counts itself. What campaigns and load use too returns errors; the rest is for tests only, and fails the test.
#![expect(clippy::unwrap_used, reason = "whatever fails in what is for tests only, fails the test")]

pub mod browser;
mod cli;
mod commands;
mod consumer;
mod database;
pub mod http;
pub mod kernel;
pub mod machine;
pub mod order;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod resources;
mod serve;
mod service;
pub mod sqs;

pub use cli::{Answer, Cli};
pub use commands::Commands;
pub use consumer::event;
pub use consumer::notes::{Arrival, Conduct, Notes, Work};
pub use consumer::release::{Link, Releases};
pub use consumer::{Consumer, SECRET};
pub use database::{Database, Kind, Own};
pub use serve::{Serve, binary, program};
pub use service::{FREE_PORT, Service};
pub use sqs::consumer::SqsConsumer;
pub use sqs::emulator::Emulator;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tollgate_proto::v1::HandlerStatus;

/// Stamps a test for each store; the functions are given its kind.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::Kind::Sqlite).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::Kind::Postgres).await;
            })+
        }
    };
}

/// Now, in microseconds since the epoch.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// Below those that systems give to whoever asks for any port, and to connections on their way out.
const PORTS: Range<u16> = 12_000..32_000;

/// A port of this machine that nobody has now. It stays free until it is used, and between two uses: nobody gets it by chance.
///
/// # Errors
/// A machine without free ports.
pub fn free_port() -> std::io::Result<u16> {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    // Processes at once begin at different places, and one process gets none twice.
    let first = std::process::id() as usize * 997;
    for _ in PORTS {
        let place = (first + ASKED.fetch_add(1, Ordering::Relaxed)) % PORTS.len();
        let port = PORTS.start + u16::try_from(place).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(std::io::Error::other("no port is free"))
}

/// Waits until something is there, and returns it. So many seconds are what it may take where nothing else is done. Other tests
/// run at the same time: twice as long is waited, and a minute at least. Where the time is what is promised: [`within`].
///
/// # Panics
/// When `what` has not come by then.
pub async fn wait_for<T>(what: &str, seconds: u64, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, (2 * seconds).max(60), look).await
}

/// Waits until something is there, and returns it.
///
/// # Panics
/// When `what` has not come within so many seconds.
pub async fn within<T>(what: &str, seconds: u64, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Waits until exactly the handlers of these ids own every queue shard, and go on so. `status` is asked again and again.
pub async fn lasting_shares(ids: &BTreeSet<String>, mut status: impl AsyncFnMut() -> HandlerStatus) {
    let mut last = (Vec::new(), Instant::now());
    wait_for("a lasting share of the shards for each process", 40, async || {
        let status = status().await;
        if status.shards != last.0 {
            last = (status.shards, Instant::now());
        }
        let owners: BTreeSet<String> = last.0.iter().map(|shard| shard.owner.clone()).collect();
        let settled = owners == *ids && status.silent_handlers.is_empty();
        // Twice as long as the slowest of them needs for a look at the others.
        (settled && last.1.elapsed() > Duration::from_millis(2_500)).then_some(())
    })
    .await;
}
