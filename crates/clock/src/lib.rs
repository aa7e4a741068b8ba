//! The one place where services read the time, so that tests can move it, and wait for it where milliseconds count.
//!
//! A [`Clock`] yields both clocks at once, as the core wants them. [`Alarms`] wake at an instant.

mod alarms;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::model::Now;

pub use alarms::Alarms;

/// A source of time; cheap to clone, all clones agree.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { start: Instant },
    Manual { wall_us: Arc<AtomicI64>, mono_us: Arc<AtomicI64> },
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands at `wall_us` until it is moved.
    pub fn manual(wall_us: i64) -> Self {
        Self(Source::Manual {
            wall_us: Arc::new(AtomicI64::new(wall_us)),
            mono_us: Arc::new(AtomicI64::new(0)),
        })
    }

    /// Both clocks now.
    pub fn now(&self) -> Now {
        Now { wall_us: self.wall_us(), mono_us: self.mono_us() }
    }

    /// The wall clock, in microseconds since the Unix epoch.
    pub fn wall_us(&self) -> i64 {
        match &self.0 {
            Source::System { .. } => {
                micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
            }
            Source::Manual { wall_us, .. } => wall_us.load(Ordering::SeqCst),
        }
    }

    /// The monotonic clock, in microseconds since this clock was made.
    pub fn mono_us(&self) -> i64 {
        match &self.0 {
            Source::System { start } => micros(start.elapsed().as_micros()),
            Source::Manual { mono_us, .. } => mono_us.load(Ordering::SeqCst),
        }
    }

    /// Moves a manual clock ahead; a system clock goes its own way.
    pub fn advance_us(&self, by_us: i64) {
        if let Source::Manual { wall_us, mono_us } = &self.0 {
            wall_us.fetch_add(by_us, Ordering::SeqCst);
            mono_us.fetch_add(by_us, Ordering::SeqCst);
        }
    }
}

fn micros(us: u128) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
