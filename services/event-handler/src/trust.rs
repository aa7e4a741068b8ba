//! How long this process may believe that its shards are still its own ([`own::Trust`]), by its own clock.

use std::sync::Arc;

use tollgate_clock::Clock;
use tollgate_core::own::{self, Standing};

/// A process's trust in its leases; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    clock: Clock,
    trust: Arc<own::Trust>,
}

impl Trust {
    pub(crate) fn new(clock: Clock, lease_ttl_ms: i64, exclusive: bool) -> Self {
        Self { clock, trust: Arc::new(own::Trust::new(lease_ttl_ms, exclusive)) }
    }

    /// A heartbeat is about to be written: what to renew the trust with once it is.
    pub(crate) fn beat_begins(&self) -> (i64, u64) {
        (self.clock.mono_us(), self.clock.stops())
    }

    /// A heartbeat has been written that began then.
    pub(crate) fn renew(&self, (began_us, stops): (i64, u64)) {
        if self.trust.renew(began_us, stops, self.clock.mono_us()) {
            tracing::warn!(
                "this process gave no sign of life for too long: its latest decisions are dropped, and its shards are loaded anew"
            );
        }
    }

    /// The number of lapses so far: what is decided now holds as long as it stays the same.
    pub(crate) fn lapses(&self) -> u64 {
        self.trust.lapses()
    }

    /// What to think of a lease that was taken after `lapses` lapses.
    pub(crate) fn standing(&self, lapses: u64) -> Standing {
        let now_us = self.clock.mono_us();
        self.trust.standing(lapses, self.clock.stops(), now_us)
    }

    /// Whether a delivery that was decided after `lapses` lapses may go out.
    pub(crate) fn may_send(&self, lapses: u64) -> bool {
        let now_us = self.clock.mono_us();
        self.trust.may_send(lapses, self.clock.stops(), now_us)
    }

    /// A process that leaves sends nothing after `grace_ms` from now.
    pub(crate) fn end_sends_in(&self, grace_ms: u64) {
        let grace_us = i64::try_from(grace_ms).unwrap_or(i64::MAX).saturating_mul(1000);
        self.trust.end_sends(self.clock.mono_us().saturating_add(grace_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_may_have_stood_still_trusts_nothing_that_it_decided_before() {
        let clock = Clock::manual(0);
        let trust = Trust::new(clock.clone(), 6_000, false);
        trust.renew(trust.beat_begins());
        let before = trust.lapses();
        clock.hold(1_000, 0, tollgate_clock::ClockState::Right);
        assert!(trust.may_send(before));
        for _ in 0..2 {
            clock.hold(1_000, 0, tollgate_clock::ClockState::Apart);
            assert!(!trust.may_send(before));
            trust.renew(trust.beat_begins());
            assert!(trust.may_send(before + 1), "it is loaded anew once");
        }
        trust.end_sends_in(2);
        clock.advance_us(2_001);
        assert!(!trust.may_send(before + 1));
        assert_eq!(trust.standing(before + 1), Standing::Holds);
    }
}
