//! A histogram of durations that is written without locks.
//!
//! prometheus-client's own takes a lock for each observation; here it is two atomic additions. Its reader may see an
//! observation in a bucket and not yet in the sum.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// From launch to send, in microseconds: what is on time, up to what waits for a token.
const LATENESS_US: [i64; 19] = [
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
];
/// Calls, in microseconds: the part of [`LATENESS_US`] up to 30 s.
const CALL_BOUNDS: usize = 15;

/// Durations, counted by how long they are.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds, in microseconds; the last bucket has none.
    bounds_us: &'static [i64],
    buckets: Box<[AtomicU64]>,
    sum_us: AtomicI64,
}

impl Histogram {
    /// For lateness: bounds from 0.5 ms to 10 min.
    pub fn lateness() -> Self {
        Self::new(&LATENESS_US)
    }

    /// For calls: bounds from 0.5 ms to 30 s.
    pub fn calls() -> Self {
        Self::new(LATENESS_US.get(..CALL_BOUNDS).unwrap_or(&LATENESS_US))
    }

    fn new(bounds_us: &'static [i64]) -> Self {
        let buckets = (0..=bounds_us.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds_us, buckets, sum_us: AtomicI64::new(0) }
    }

    /// Counts a duration in microseconds; a negative one, of clocks that jump, counts as zero.
    pub fn observe_us(&self, us: i64) {
        let us = us.max(0);
        let place = self.bounds_us.partition_point(|bound_us| *bound_us < us);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
            self.sum_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// How many durations there were, and how many of them were longer than a bound, which is one of the histogram's.
    pub(crate) fn longer_than(&self, bound_us: i64) -> (u64, u64) {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let bounds = self.bounds_us.iter().copied().chain([i64::MAX]);
        counts.zip(bounds).fold((0, 0), |(all, longer), (count, upper_us)| {
            (all + count, longer + if upper_us > bound_us { count } else { 0 })
        })
    }

    /// Each bucket's upper bound in seconds and its own count, and the sum of all durations in seconds.
    pub(crate) fn read(&self) -> (Vec<(f64, u64)>, f64) {
        let bounds_s = self.bounds_us.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        (bounds_s.zip(counts).collect(), self.sum_us.load(Ordering::Relaxed) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let histogram = Histogram::lateness();
        for us in [-7, 0, 500, 501, 600_000_000, 600_000_001] {
            histogram.observe_us(us);
        }
        let (buckets, sum_s) = histogram.read();
        assert_eq!(buckets.len(), 20);
        assert_eq!(buckets[0], (0.0005, 3));
        assert_eq!(buckets[1], (0.001, 1));
        assert_eq!(buckets[18], (600.0, 1));
        assert_eq!(buckets[19], (f64::INFINITY, 1));
        assert!((sum_s - 1_200.001_002).abs() < 1e-9, "{sum_s}");
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let histogram = Histogram::calls();
        std::thread::scope(|scope| {
            for at in 0..4 {
                let histogram = &histogram;
                scope.spawn(move || (0..10_000).for_each(|us| histogram.observe_us(us * at)));
            }
        });
        let (buckets, _) = histogram.read();
        assert_eq!(buckets.len(), 16);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 40_000);
    }
}
