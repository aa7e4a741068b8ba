//! How late the campaign itself is. It shares a machine with all that it tries: what lies unread in its sockets comes late by its
//! own clock, and nobody else is to blame.
//!
//! A task sleeps for a moment, again and again, and notes by how much it woke too late: the worst of each second. Not here: what
//! that explains, which is the auditor's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_harness::now_us;

/// How long the task sleeps.
const SLEEP: Duration = Duration::from_millis(50);
/// Less than this is how sleeping is.
const NOTED_US: i64 = 10_000;
/// One stop of everything is noted in so many seconds at most.
const SECONDS_MAX: i64 = 600;
/// Who is late by as much as a deadline judges nobody.
const TOO_LATE_US: i64 = 1_000_000;
/// In more than one of so many seconds too late: the machine was overloaded.
const OVERLOADED_ONE_OF: usize = 100;
const SECOND_US: i64 = 1_000_000;

/// Measures it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Lag(Arc<Mutex<Lags>>);

/// By how much the campaign was late at most, for each second in which it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags {
    worst_us: BTreeMap<i64, i64>,
    /// The first and the last second that were looked at.
    watched_s: Option<(i64, i64)>,
}

impl Lag {
    /// Measures from now on. It ends with the runtime.
    pub(crate) fn start() -> Self {
        let lag = Self::default();
        let noted = lag.clone();
        tokio::spawn(async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(SLEEP).await;
                let late = began.elapsed().saturating_sub(SLEEP);
                noted.lags().note(now_us(), i64::try_from(late.as_micros()).unwrap_or(i64::MAX));
            }
        });
        lag
    }

    /// What has been measured.
    pub(crate) fn lags(&self) -> MutexGuard<'_, Lags> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lags {
    /// Who was to do something before now did it so much too late.
    pub(crate) fn note(&mut self, now_us: i64, late_us: i64) {
        let now_s = now_us.div_euclid(SECOND_US);
        let (first_s, last_s) = self.watched_s.unwrap_or((now_s, now_s));
        self.watched_s = Some((first_s, last_s.max(now_s)));
        if late_us < NOTED_US {
            return;
        }
        let from_s = (now_us - late_us).div_euclid(SECOND_US).max(now_s - SECONDS_MAX);
        for second in from_s..=now_s {
            let worst_us = self.worst_us.entry(second).or_default();
            *worst_us = late_us.max(*worst_us);
        }
    }

    /// The worst in the second of a moment, the one before and the one after.
    pub(crate) fn around(&self, at_us: i64) -> i64 {
        let second = at_us.div_euclid(SECOND_US);
        let near = self.worst_us.range(second - 1..=second + 1);
        near.map(|(_, worst_us)| *worst_us).max().unwrap_or_default()
    }

    /// The worst of all.
    pub(crate) fn worst_us(&self) -> i64 {
        self.worst_us.values().copied().max().unwrap_or_default()
    }

    /// How many seconds there were, and in how many of them it was late by a deadline or more.
    pub(crate) fn seconds(&self) -> (usize, usize) {
        let all = self.watched_s.map_or(0, |(first_s, last_s)| last_s - first_s + 1);
        let late = self.worst_us.values().filter(|worst_us| **worst_us >= TOO_LATE_US);
        (usize::try_from(all).unwrap_or_default(), late.count())
    }

    /// Whether that is too often: such a run proves little.
    pub(crate) fn is_overload(&self) -> bool {
        let (all, late) = self.seconds();
        late * OVERLOADED_ONE_OF > all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_US: i64 = 1_000 * SECOND_US;

    #[test]
    fn the_worst_around_a_moment_is_known_and_no_other() {
        let mut lags = Lags::default();
        lags.note(AT_US, 9_999);
        assert_eq!((lags.around(AT_US), lags.worst_us()), (0, 0), "that is how sleeping is");
        lags.note(AT_US + 300_000, 200_000);
        lags.note(AT_US + 400_000, 50_000);
        for (second, lag_us) in [(-2, 0), (-1, 200_000), (0, 200_000), (1, 200_000), (2, 0)] {
            assert_eq!(lags.around(AT_US + second * SECOND_US), lag_us, "{second}");
        }
        // One that lasted is known all the time that it lasted.
        lags.note(AT_US + 20 * SECOND_US, 8 * SECOND_US);
        for (second, lag_us) in [(10, 0), (11, 8 * SECOND_US), (21, 8 * SECOND_US), (22, 0)] {
            assert_eq!(lags.around(AT_US + second * SECOND_US), lag_us, "{second}");
        }
        assert_eq!(lags.worst_us(), 8 * SECOND_US);
    }

    #[test]
    fn more_than_one_of_a_hundred_seconds_too_late_is_an_overload() {
        let mut lags = Lags::default();
        assert!(!lags.is_overload());
        for second in 0..300 {
            lags.note(AT_US + second * SECOND_US, TOO_LATE_US - 1);
        }
        assert_eq!(lags.seconds(), (300, 0));
        // It is noted in the second in which it began, too.
        lags.note(AT_US + 100 * SECOND_US + 500_000, TOO_LATE_US);
        assert_eq!((lags.seconds(), lags.is_overload()), ((300, 2), false));
        lags.note(AT_US + 200 * SECOND_US + 500_000, TOO_LATE_US);
        assert_eq!((lags.seconds(), lags.is_overload()), ((300, 4), true));
    }
}
