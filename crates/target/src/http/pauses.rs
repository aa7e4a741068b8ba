//! Remembers which hosts asked to be left alone, and until when.
//!
//! In: a host's `Retry-After`. Out: how long nothing may be sent to it. The later of two wishes holds: answers of requests
//! that were under way together arrive in any order. The memory is one process's own, and ends with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Hosts after which those whose pause has ended are dropped.
const SWEEP_AT: usize = 1024;

/// Pauses by host and port.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<String, Instant>>);

impl Pauses {
    /// How long the host still wants nothing. The time is asked for where it matters.
    pub(super) fn remaining(&self, host: &str, now: impl FnOnce() -> Instant) -> Option<Duration> {
        let mut pauses = self.lock();
        let left = pauses.get(host)?.saturating_duration_since(now());
        if left.is_zero() {
            pauses.remove(host);
            return None;
        }
        Some(left)
    }

    /// The host wants nothing for so long.
    pub(super) fn pause(&self, host: &str, length: Duration, now: Instant) {
        let mut pauses = self.lock();
        if pauses.len() >= SWEEP_AT {
            pauses.retain(|_, until| *until > now);
        }
        let until = now + length;
        let known = pauses.entry(host.to_owned()).or_insert(until);
        *known = until.max(*known);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        // Each change is one call on the map, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_wish_holds_until_it_ends_and_for_its_host_only() {
        let (pauses, start) = (Pauses::default(), Instant::now());
        let s = Duration::from_secs;
        pauses.pause("a:80", s(10), start);
        pauses.pause("a:80", s(2), start);
        assert_eq!(pauses.remaining("a:80", || start + s(4)), Some(s(6)));
        assert_eq!(pauses.remaining("b:80", || start), None);
        assert_eq!(pauses.remaining("a:80", || start + s(10)), None);
        assert_eq!(pauses.remaining("a:80", || start), None, "it is forgotten");
    }
}
