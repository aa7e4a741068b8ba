//! What an emitter has done since it was started, as plain counters to be exported as metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tollgate_core::model::SkipReason;
use tollgate_metrics::sample::EmitterSample;

/// Counters of one emitter. They only grow, but for the lag.
#[derive(Debug, Default)]
pub struct EmitterStats {
    pub(crate) rounds: AtomicU64,
    pub(crate) windows: AtomicU64,
    pub(crate) tasks: AtomicU64,
    pub(crate) children: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) paused: AtomicU64,
    pub(crate) corrupt: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) lag_us: AtomicI64,
    /// 0 before the first look.
    pub(crate) emitted_until_us: AtomicI64,
}

impl EmitterStats {
    /// Rounds that ended well.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Windows that this emitter has opened.
    pub fn windows(&self) -> u64 {
        self.windows.load(Ordering::Relaxed)
    }

    /// Scan tasks that it has done.
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Ordering::Relaxed)
    }

    /// Children that it has read.
    pub fn children(&self) -> u64 {
        self.children.load(Ordering::Relaxed)
    }

    /// New runs that it has handed over.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Triggers that it has recorded as skipped for this reason. (Overlaps, and lists that cannot be
    /// fetched, are found by the handler.)
    pub fn skipped(&self, reason: SkipReason) -> u64 {
        match reason {
            SkipReason::Missed => self.missed.load(Ordering::Relaxed),
            SkipReason::Paused => self.paused.load(Ordering::Relaxed),
            SkipReason::Overlap | SkipReason::NotListed => 0,
        }
    }

    /// Children, schedules and scan tasks that it could not read.
    pub fn corrupt(&self) -> u64 {
        self.corrupt.load(Ordering::Relaxed)
    }

    /// Rounds that the store broke off.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// How far the first window that is not complete lies behind now, in microseconds, as of the last round; negative
    /// while it lies ahead.
    pub fn lag_us(&self) -> i64 {
        self.lag_us.load(Ordering::Relaxed)
    }

    /// Up to when everything has been emitted, as of the last look at the windows; none before the first.
    pub fn emitted_until_us(&self) -> Option<i64> {
        Some(self.emitted_until_us.load(Ordering::Relaxed)).filter(|until_us| *until_us > 0)
    }

    /// All of it, for a scrape.
    pub fn sample(&self) -> EmitterSample {
        EmitterSample {
            emitted_until_us: self.emitted_until_us(),
            windows: self.windows(),
            tasks: self.tasks(),
            children: self.children(),
            runs: self.runs(),
            missed: self.skipped(SkipReason::Missed),
            paused: self.skipped(SkipReason::Paused),
            corrupt: self.corrupt(),
            failures: self.failures(),
        }
    }
}
