//! How the commits of the last minute went: the difference between a histogram now and what it was then.
//!
//! In: a look now and then, as with each heartbeat. Out: counts since the latest look that is a minute old; of a process that
//! has just started, since its start. Memory: the looks of a minute, [`LOOKS_MAX`] at most.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tollgate_core::model::SECOND_US;

use crate::histogram::Histogram;

/// A commit that takes longer is slow.
const SLOW_US: i64 = SECOND_US;
/// How far apart looks are, and how many cover a minute.
const LOOK_EVERY_US: i64 = 10 * SECOND_US;
const LOOKS_MAX: usize = 7;

/// What a histogram was in the last minute: when (monotonic), how many durations, how many slow ones.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<VecDeque<(i64, (u64, u64))>>);

impl Recent {
    /// Looks at the histogram, where the last look is long enough ago.
    pub(crate) fn look(&self, histogram: &Histogram, now_us: i64) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.back().is_some_and(|(at_us, _)| now_us - at_us < LOOK_EVERY_US) {
            return;
        }
        if looks.len() == LOOKS_MAX {
            looks.pop_front();
        }
        looks.push_back((now_us, histogram.longer_than(SLOW_US)));
    }

    /// How many durations there were in the last minute, and how many slow ones.
    pub(crate) fn since_a_minute(&self, histogram: &Histogram, now_us: i64) -> (u64, u64) {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute_us = now_us - LOOK_EVERY_US * (LOOKS_MAX as i64 - 1);
        let before = looks.iter().rev().find(|(at_us, _)| *at_us <= minute_us);
        let (all, slow) = before.or(looks.front()).map_or((0, 0), |(_, counts)| *counts);
        let now = histogram.longer_than(SLOW_US);
        (now.0 - all, now.1 - slow)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_older_than_a_minute_is_not_counted() {
        let (histogram, recent) = (Histogram::calls(), Recent::default());
        for second in 0..200 {
            recent.look(&histogram, second * SECOND_US);
            // Slow until the hundredth second.
            histogram.observe_us(if second < 100 { SLOW_US + 1 } else { SLOW_US });
        }
        let at = |second: i64| recent.since_a_minute(&histogram, second * SECOND_US);
        assert_eq!(at(200), (60, 0));
        assert!(recent.0.lock().unwrap().len() <= LOOKS_MAX);
    }

    #[test]
    fn slow_ones_are_counted_from_the_start_on() {
        let (histogram, recent) = (Histogram::calls(), Recent::default());
        recent.look(&histogram, 5);
        [SLOW_US, SLOW_US + 1, 90 * SECOND_US].into_iter().for_each(|us| histogram.observe_us(us));
        assert_eq!(recent.since_a_minute(&histogram, SECOND_US), (3, 2));
    }
}
