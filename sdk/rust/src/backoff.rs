//! How long to wait before the next try, and what is logged of an outage: one line at its beginning, one at its end.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first pause, and what is too quick for an answer that was waited for.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The longest `Retry-After` that is followed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Pauses that become twice as long, with jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self, retry_after: Duration) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.tries.min(10)).min(PAUSE_MAX);
        self.tries += 1;
        let pause = pause.mul_f64(rand::random_range(0.5..=1.0));
        pause.max(retry_after.min(RETRY_AFTER_MAX))
    }
}

/// Calls of a kind, which work or fail.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    since: Mutex<Option<Instant>>,
}

impl Outage {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, since: Mutex::new(None) }
    }

    pub(crate) fn failed(&self, error: &dyn Display) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(Instant::now());
            tracing::warn!("{} fails, and is tried again: {error}", self.what);
        }
    }

    pub(crate) fn worked(&self) {
        let ended = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = ended {
            tracing::info!("{} works again, after {} ms", self.what, since.elapsed().as_millis());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, PAUSE_MAX};

    #[test]
    fn pauses_grow_to_a_bound_and_follow_retry_after() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next(Duration::ZERO)).collect();
        assert!(pauses[0] <= Duration::from_millis(100) && pauses[0] >= Duration::from_millis(50));
        assert!(pauses[19] <= PAUSE_MAX && pauses[19] >= PAUSE_MAX / 2, "{pauses:?}");
        assert_eq!(Backoff::default().next(Duration::from_secs(7)), Duration::from_secs(7));
        assert_eq!(Backoff::default().next(Duration::from_secs(3_600)), Duration::from_secs(60));
    }
}
