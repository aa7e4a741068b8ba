//! Looks at emitted runs that stay cheap while a snapshot is held.
//!
//! A run that has been read leaves its index when no snapshot can see the old version any more. Until then a look at
//! all runs from the oldest launch time on walks over those that have gone: with an hour's worth of them, for half a
//! second each time. In: how long such a look took. Out: from which launch time on the next one looks. What launches
//! now is always seen; what launched long before (a backfill, the end of an outage) is looked for so seldom that the
//! search takes a hundredth of the time. Where it is quick, which it is nearly always, every look is at all runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_clock::instant_now;

/// A look that takes less may come at any time.
const QUICK: Duration = Duration::from_millis(50);
/// After a look at all runs there is none for this many times as long as it took.
const PAUSE_TIMES: u32 = 100;
/// But not for longer.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How far before the end of the times asked for every look begins. Owners ask for the next five minutes.
const RECENT_US: i64 = 360_000_000;

/// When everything may be looked at again: for each shard's owner, and for a look at all shards (no shard).
#[derive(Debug, Default)]
pub(super) struct Backlog(Mutex<BTreeMap<Option<u16>, Instant>>);

/// A look under way.
#[derive(Debug)]
pub(super) struct BacklogLook<'a> {
    backlog: &'a Backlog,
    shard: Option<u16>,
    from_us: i64,
    began: Instant,
}

impl Backlog {
    /// A look begins, at runs that launch before `until_us`.
    pub(super) fn look(&self, shard: Option<u16>, until_us: i64) -> BacklogLook<'_> {
        let began = instant_now();
        let is_due = self.lock().get(&shard).is_none_or(|due| *due <= began);
        let from_us = if is_due { i64::MIN } else { until_us.saturating_sub(RECENT_US) };
        BacklogLook { backlog: self, shard, from_us, began }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<u16>, Instant>> {
        // Each change is one call, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BacklogLook<'_> {
    /// The first launch time that is looked at.
    pub(super) fn first_us(&self) -> i64 {
        self.from_us
    }

    /// It is over.
    pub(super) fn took(self) {
        let took = self.began.elapsed();
        self.took_so_long(took);
    }

    fn took_so_long(self, took: Duration) {
        if self.from_us > i64::MIN {
            return;
        }
        let mut due = self.backlog.lock();
        if took < QUICK {
            due.remove(&self.shard);
        } else {
            due.insert(self.shard, self.began + took + (took * PAUSE_TIMES).min(PAUSE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL_US: i64 = 1_000_000_000;

    #[test]
    fn only_a_slow_look_at_everything_puts_the_next_one_off() {
        let backlog = Backlog::default();
        backlog.look(Some(1), UNTIL_US).took_so_long(Duration::from_millis(1));
        assert_eq!(backlog.look(Some(1), UNTIL_US).first_us(), i64::MIN);
        backlog.look(Some(1), UNTIL_US).took_so_long(Duration::from_millis(450));
        let recent = backlog.look(Some(1), UNTIL_US);
        assert_eq!(recent.first_us(), UNTIL_US - RECENT_US);
        assert_eq!(backlog.look(None, UNTIL_US).first_us(), i64::MIN, "others look for themselves");
        // What is recent says nothing of the rest.
        recent.took_so_long(Duration::from_millis(1));
        assert!(backlog.look(Some(1), UNTIL_US).first_us() > i64::MIN);
        let due = backlog.lock().insert(Some(1), instant_now());
        assert!(due.is_some_and(|due| due > instant_now() + Duration::from_secs(40)));
        assert_eq!(backlog.look(Some(1), UNTIL_US).first_us(), i64::MIN);
    }
}
