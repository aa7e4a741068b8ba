//! How long this process may believe that its shards are still its own.
//!
//! Others take a shard over when they have not seen a heartbeat change for the lease's time and a margin. So trust ends
//! before that, counted from the moment before the last successful heartbeat was written, on this process's own
//! monotonic clock. A process that was frozen for longer finds its trust *lapsed*: even when the next heartbeat
//! succeeds, what was decided before the lapse is not carried out, until the lease has been looked at again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use tollgate_clock::Clock;

/// Of the lease's time, at most so much is not used, in milliseconds.
const MARGIN_MAX_MS: i64 = 500;

/// A process's trust in its leases; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    clock: Clock,
    term_us: i64,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Monotonic.
    until_us: AtomicI64,
    lapses: AtomicU64,
    /// Nothing is sent later, whatever this process still has (monotonic).
    sends_until_us: AtomicI64,
}

impl Trust {
    /// None before the first heartbeat. `exclusive`: nobody else can have the store, so that it never ends.
    pub(crate) fn new(clock: Clock, lease_ttl_ms: i64, exclusive: bool) -> Self {
        let margin_ms = MARGIN_MAX_MS.min(lease_ttl_ms / 4);
        let until_us = AtomicI64::new(if exclusive { i64::MAX } else { i64::MIN });
        let state =
            Arc::new(State { until_us, lapses: AtomicU64::new(0), sends_until_us: AtomicI64::new(i64::MAX) });
        Self { clock, term_us: (lease_ttl_ms - margin_ms) * 1000, state }
    }

    /// A heartbeat has been written, by a call that began at `began_us` (monotonic).
    pub(crate) fn renew(&self, began_us: i64) {
        let until_us = self.state.until_us.load(SeqCst);
        if self.now_us() > until_us {
            // Before the new term, so that whoever sees the term sees the lapse.
            self.state.lapses.fetch_add(1, SeqCst);
            if until_us > i64::MIN {
                tracing::warn!(
                    "no sign of life for too long: what was decided meanwhile is not done, and the shards are loaded anew"
                );
            }
        }
        self.state.until_us.fetch_max(began_us.saturating_add(self.term_us), SeqCst);
    }

    /// The number of lapses so far: what is decided now holds as long as it stays the same.
    pub(crate) fn lapses(&self) -> u64 {
        // A machine that stood still did not see its trust end.
        self.state.lapses.load(SeqCst) + self.clock.stops()
    }

    /// Whether what was decided after so many lapses may still be carried out.
    pub(crate) fn holds(&self, lapses: u64) -> bool {
        self.now_us() <= self.state.until_us.load(SeqCst) && self.lapses() == lapses
    }

    /// The same for a delivery that is about to go out.
    pub(crate) fn may_send(&self, lapses: u64) -> bool {
        self.holds(lapses) && self.now_us() <= self.state.sends_until_us.load(SeqCst)
    }

    /// A process that leaves sends nothing after so long: whoever gets its shards waits no longer.
    pub(crate) fn end_sends_in(&self, grace_ms: u64) {
        let grace_us = i64::try_from(grace_ms).unwrap_or(i64::MAX).saturating_mul(1000);
        self.state.sends_until_us.store(self.now_us().saturating_add(grace_us), SeqCst);
    }

    fn now_us(&self) -> i64 {
        self.clock.mono_us()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ends_before_others_may_take_over_and_a_lapse_is_not_forgotten() {
        let clock = Clock::manual(0);
        let trust = Trust::new(clock.clone(), 6_000, false);
        assert!(!trust.holds(trust.lapses()), "before the first heartbeat");
        trust.renew(0);
        let before = trust.lapses();
        clock.advance_us(5_500_000);
        assert!(trust.holds(before));
        clock.advance_us(1);
        assert!(!trust.holds(before));
        // Frozen meanwhile: the heartbeat succeeds, and what was decided before stays undone.
        trust.renew(5_500_001);
        assert!(!trust.holds(before));
        assert!(trust.holds(trust.lapses()));
        // A heartbeat that was written slowly counts from its beginning.
        trust.renew(1);
        clock.advance_us(5_500_000);
        assert!(trust.holds(trust.lapses()));
        clock.advance_us(1);
        assert!(!trust.holds(trust.lapses()));
    }

    #[test]
    fn a_machine_that_may_have_stood_still_trusts_nothing_that_it_decided_before() {
        let clock = Clock::manual(0);
        let trust = Trust::new(clock.clone(), 6_000, false);
        trust.renew(0);
        let before = trust.lapses();
        clock.hold(1_000, 0, tollgate_clock::State::Right);
        assert!(trust.may_send(before));
        for _ in 0..2 {
            clock.hold(1_000, 0, tollgate_clock::State::Apart);
            assert!(!trust.may_send(before));
            assert!(trust.may_send(before + 1), "it is loaded anew once");
        }
    }

    #[test]
    fn a_process_that_leaves_sends_nothing_after_its_grace() {
        let clock = Clock::manual(0);
        let trust = Trust::new(clock.clone(), 6_000, true);
        assert!(trust.may_send(0));
        trust.end_sends_in(2);
        clock.advance_us(2_000);
        assert!(trust.may_send(0));
        clock.advance_us(1);
        assert!(!trust.may_send(0) && trust.holds(0), "it may still commit");
    }

    #[test]
    fn nobody_else_can_have_an_exclusive_store() {
        let clock = Clock::manual(0);
        let trust = Trust::new(clock.clone(), 500, true);
        clock.advance_us(1_000_000_000);
        trust.renew(0);
        assert!(trust.holds(0));
    }
}
