//! How long a process may believe that its shards are still its own.
//!
//! In: heartbeats that were written, and what the process's own clock shows. Out: whether what was decided may still be carried
//! out. Others take a shard over when they have not seen a heartbeat change for the lease's time and a margin. So trust ends
//! before that, counted from the moment before the last successful heartbeat was written, on this process's own monotonic
//! clock. A process that was frozen for longer finds its trust *lapsed*: even when the next heartbeat succeeds, what was
//! decided before the lapse is not carried out, until the lease has been looked at again. Times are monotonic; `stops` says how
//! often the machine may have stood still, its monotonic clock with it, which nobody else did.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

/// Of the lease's time, at most so much is not used, in milliseconds.
const MARGIN_MAX_MS: i64 = 500;

/// For how long a heartbeat makes a process trust its leases, in microseconds.
pub(super) fn term_us(lease_ttl_ms: i64) -> i64 {
    (lease_ttl_ms - MARGIN_MAX_MS.min(lease_ttl_ms / 4)) * 1000
}

/// What an owner may think of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds.
    Holds,
    /// It may be another's by now; the next heartbeat tells.
    Ended,
    /// It had ended before it was renewed: what was decided before is not carried out.
    Lapsed,
}

/// A process's trust in its leases. Its senders look at it from other threads than its owners.
#[derive(Debug)]
pub struct Trust {
    term_us: i64,
    until_us: AtomicI64,
    /// How often the machine had stood still when the last heartbeat began that was written.
    stops: AtomicU64,
    lapses: AtomicU64,
    /// Nothing is sent later, even if this process still has shards.
    sends_until_us: AtomicI64,
}

impl Trust {
    /// None before the first heartbeat. `exclusive`: nobody else can have the store, so that it never ends.
    pub fn new(lease_ttl_ms: i64, exclusive: bool) -> Self {
        Self {
            term_us: term_us(lease_ttl_ms),
            until_us: AtomicI64::new(if exclusive { i64::MAX } else { i64::MIN }),
            stops: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
            sends_until_us: AtomicI64::new(i64::MAX),
        }
    }

    /// A heartbeat has been written, by a call that began at `began_us`, when the machine had stood still `stops` times. True
    /// where trust had ended before.
    pub fn renew(&self, began_us: i64, stops: u64, now_us: i64) -> bool {
        let until_us = self.until_us.load(SeqCst);
        let had_ended = now_us > until_us || self.is_old(stops);
        if had_ended {
            // Before the new term, so that a reader that sees the term sees the lapse.
            self.lapses.fetch_add(1, SeqCst);
        }
        self.stops.fetch_max(stops, SeqCst);
        self.until_us.fetch_max(began_us.saturating_add(self.term_us), SeqCst);
        had_ended && until_us > i64::MIN
    }

    /// Whether the last heartbeat is from before the machine stood still: it may be older than the clock says.
    fn is_old(&self, stops: u64) -> bool {
        self.stops.load(SeqCst) < stops
    }

    /// The number of lapses so far: what is decided now holds as long as it stays the same.
    pub fn lapses(&self) -> u64 {
        self.lapses.load(SeqCst)
    }

    /// What to think of a lease that was taken after `lapses` lapses.
    pub fn standing(&self, lapses: u64, stops: u64, now_us: i64) -> Standing {
        // Before the lapses are read: a reader that sees the new term sees the lapse.
        let is_over = self.is_old(stops) || now_us > self.until_us.load(SeqCst);
        if self.lapses() != lapses {
            Standing::Lapsed
        } else if is_over {
            Standing::Ended
        } else {
            Standing::Holds
        }
    }

    /// Whether a delivery that was decided after `lapses` lapses may go out.
    pub fn may_send(&self, lapses: u64, stops: u64, now_us: i64) -> bool {
        self.standing(lapses, stops, now_us) == Standing::Holds && now_us <= self.sends_until_us.load(SeqCst)
    }

    /// A process that leaves sends nothing after that: the next owners of its shards wait no longer.
    pub fn end_sends(&self, at_us: i64) {
        self.sends_until_us.store(at_us, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_ends_before_others_may_take_over_and_a_lapse_is_not_forgotten() {
        let trust = Trust::new(6_000, false);
        assert_eq!(trust.standing(0, 0, 0), Standing::Ended, "before the first heartbeat");
        assert!(!trust.renew(0, 0, 0));
        let before = trust.lapses();
        assert_eq!(trust.standing(before, 0, 5_500_000), Standing::Holds);
        assert_eq!(trust.standing(before, 0, 5_500_001), Standing::Ended);
        // Frozen meanwhile: the heartbeat succeeds, and what was decided before stays undone.
        assert!(trust.renew(5_500_001, 0, 5_500_001));
        assert_eq!(trust.standing(before, 0, 5_500_001), Standing::Lapsed);
        let after = trust.lapses();
        assert_eq!(trust.standing(after, 0, 11_000_001), Standing::Holds);
        // A heartbeat that was written slowly counts from its beginning.
        assert!(!trust.renew(6_000_000, 0, 11_000_000));
        assert_eq!(trust.standing(after, 0, 11_500_000), Standing::Holds);
        assert_eq!(trust.standing(after, 0, 11_500_001), Standing::Ended);
    }

    #[test]
    fn a_machine_that_may_have_stood_still_trusts_nothing_that_it_decided_before() {
        let trust = Trust::new(6_000, false);
        trust.renew(0, 0, 0);
        let before = trust.lapses();
        assert!(trust.may_send(before, 0, 1));
        // Nor anything at all, before a heartbeat that began since: others may have seen none for long.
        assert_eq!(trust.standing(before, 1, 1), Standing::Ended);
        trust.renew(1, 0, 2);
        assert_eq!(
            trust.standing(before, 1, 2),
            Standing::Ended,
            "it was under way when the machine stood still"
        );
        assert!(trust.renew(2, 1, 3));
        assert_eq!(trust.standing(before, 1, 3), Standing::Lapsed);
        assert!(trust.may_send(trust.lapses(), 1, 3), "it is loaded anew once");
    }

    #[test]
    fn a_process_that_leaves_sends_nothing_after_its_grace() {
        let trust = Trust::new(6_000, true);
        assert!(trust.may_send(0, 0, 0));
        trust.end_sends(2_000);
        assert!(trust.may_send(0, 0, 2_000) && !trust.may_send(0, 0, 2_001));
        assert_eq!(trust.standing(0, 0, 2_001), Standing::Holds, "it may still commit");
    }

    #[test]
    fn nobody_else_can_have_an_exclusive_store() {
        let trust = Trust::new(500, true);
        assert!(!trust.renew(0, 0, 1_000_000_000));
        assert_eq!(trust.standing(0, 0, 1_000_000_000), Standing::Holds);
    }
}
