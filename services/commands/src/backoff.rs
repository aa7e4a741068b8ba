//! How long to wait before the next try, and what is logged of an outage: one line at its beginning, one at its end.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_clock::instant_now;

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The longest wait that the service may ask for.
const ASKED_MAX: Duration = Duration::from_secs(60);

/// Pauses that become twice as long, with jitter.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next one; no shorter than what was asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.tries.min(10)).min(PAUSE_MAX);
        self.tries = self.tries.saturating_add(1);
        let pause = pause.mul_f64(rand::random_range(0.5..=1.0));
        pause.max(asked.unwrap_or_default().min(ASKED_MAX))
    }
}

/// Calls of a kind, which work or fail.
#[derive(Debug)]
pub(crate) struct Outage {
    what: String,
    since: Mutex<Option<Instant>>,
    count: AtomicU64,
}

impl Outage {
    pub(crate) fn new(what: String) -> Self {
        Self { what, since: Mutex::new(None), count: AtomicU64::new(0) }
    }

    pub(crate) fn failed(&self, error: &dyn Display) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(instant_now());
            self.count.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{}: {error}; nothing is lost, and it is tried again", self.what);
        } else {
            tracing::debug!("{}: {error}", self.what);
        }
    }

    pub(crate) fn worked(&self) {
        self.over("works again");
    }

    /// It has not failed for a while, which is all that is known of it.
    #[cfg(feature = "kafka")]
    pub(crate) fn silent(&self) {
        self.over("no more errors");
    }

    fn over(&self, words: &str) {
        let ended = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = ended {
            tracing::info!("{}: {words}, after {} ms", self.what, since.elapsed().as_millis());
        }
    }

    /// Whether one lasts.
    pub(crate) fn lasts(&self) -> bool {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_follow_what_is_asked_for() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next(None)).collect();
        assert!(pauses[0] <= PAUSE_MIN && pauses[0] >= PAUSE_MIN / 2, "{pauses:?}");
        assert!(pauses[19] <= PAUSE_MAX && pauses[19] >= PAUSE_MAX / 2, "{pauses:?}");
        let asked = |secs| Backoff::default().next(Some(Duration::from_secs(secs)));
        assert_eq!(asked(7), Duration::from_secs(7));
        assert_eq!(asked(3_600), ASKED_MAX);
    }

    #[tokio::test]
    async fn an_outage_is_counted_once() {
        let outage = Outage::new("the service".to_owned());
        outage.worked();
        outage.failed(&"away");
        outage.failed(&"still away");
        assert!(outage.lasts());
        outage.worked();
        assert_eq!((outage.lasts(), outage.count()), (false, 1));
    }
}
