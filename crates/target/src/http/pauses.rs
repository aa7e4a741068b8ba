//! Remembers which hosts asked to be left alone, by whom, and until when.
//!
//! In: a host's `Retry-After`, and the namespace whose event it answered. Out: how long nothing of that namespace may be sent
//! there: what one tenant's path at a shared host asks for is not the others' affair. The later of two wishes holds, as answers
//! of requests that were under way together arrive in any order, but none holds for longer than [`PAUSE_MAX`], and an event
//! that is taken ends it. The memory is one process's own, and ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::shares::key_of;

/// The longest pause. A host that wants a longer one is asked again by one event after each of these, and says so again.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Pauses after which those that have ended are dropped.
const SWEEP_AT: usize = 1024;

/// Pauses by namespace, and host and port.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    all: Mutex<HashMap<u64, Instant>>,
    /// There may be some.
    any: AtomicBool,
}

impl Pauses {
    /// How long the host still wants nothing of this namespace.
    pub(super) fn remaining(&self, namespace: &str, host: &str, now: Instant) -> Option<Duration> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let key = key_of((namespace, host));
        let mut pauses = self.lock();
        let left = pauses.get(&key)?.saturating_duration_since(now);
        if left.is_zero() {
            self.forget(&mut pauses, key);
            return None;
        }
        Some(left)
    }

    /// The host wants nothing of this namespace for the time `length`.
    pub(super) fn pause(&self, namespace: &str, host: &str, length: Duration, now: Instant) {
        let mut pauses = self.lock();
        if pauses.len() >= SWEEP_AT {
            pauses.retain(|_, until| *until > now);
        }
        let until = now + length.min(PAUSE_MAX);
        let known = pauses.entry(key_of((namespace, host))).or_insert(until);
        *known = until.max(*known);
        self.any.store(true, Ordering::Release);
    }

    /// The host has taken an event of this namespace.
    pub(super) fn end(&self, namespace: &str, host: &str) {
        if self.any.load(Ordering::Acquire) {
            self.forget(&mut self.lock(), key_of((namespace, host)));
        }
    }

    fn forget(&self, pauses: &mut HashMap<u64, Instant>, key: u64) {
        pauses.remove(&key);
        self.any.store(!pauses.is_empty(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_clock::instant_now;

    use super::*;

    #[test]
    fn the_later_wish_holds_until_it_ends_and_for_its_namespace_and_host_only() {
        let (pauses, start) = (Pauses::default(), instant_now());
        let s = Duration::from_secs;
        pauses.pause("n", "a:80", s(10), start);
        pauses.pause("n", "a:80", s(2), start);
        assert_eq!(pauses.remaining("n", "a:80", start + s(4)), Some(s(6)));
        assert_eq!(pauses.remaining("n", "b:80", start), None);
        assert_eq!(pauses.remaining("m", "a:80", start), None);
        assert_eq!(pauses.remaining("n", "a:80", start + s(10)), None);
        assert_eq!(pauses.remaining("n", "a:80", start), None, "it is forgotten");
    }

    #[test]
    fn a_pause_is_bounded_and_ends_with_an_event_that_is_taken() {
        let (pauses, start) = (Pauses::default(), instant_now());
        pauses.pause("n", "a:80", Duration::from_secs(86_400), start);
        assert_eq!(pauses.remaining("n", "a:80", start), Some(PAUSE_MAX));
        pauses.end("m", "a:80");
        assert!(pauses.remaining("n", "a:80", start).is_some());
        pauses.end("n", "a:80");
        assert_eq!(pauses.remaining("n", "a:80", start), None);
    }
}
