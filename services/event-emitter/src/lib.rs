//! The Event Emitter: scans windows of launch times and hands runs over to the queue shards.
//!
//! [`Emitter::run`] keeps the windows of the coming minutes open, claims their scan tasks, reads the children that can
//! fire in them and emits a run for each launch. Any number of emitters share the windows. [`Emitter::service`] is the
//! gRPC side, which says how far they are.
//!
//! In: the launch index. Out: runs, recorded skips, windows. Invariants: every launch of a window makes one run or one
//! recorded skip, however many emitters scan and whenever one of them dies; emission never writes schedules or children.
//! Not here: what it decides ([`tollgate_core::emit`]), firing (the Event Handler), corrections of what has been emitted
//! (the Schedule Master).

mod drive;
mod follow;
mod open;
mod scan;
mod service;
mod stats;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_service::wake::Wake;
use tollgate_store::StoreError;
use tollgate_store::emit::{EmitStore, Frontier, WindowRow};
use tollgate_trace::Traces;
use uuid::Uuid;

pub use follow::Follower;
pub use service::EmitterService;
pub use stats::EmitterStats;
pub use tollgate_core::emit::Options;

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundReport {
    /// Windows that it opened.
    pub windows_opened: u32,
    /// Scan tasks that it finished.
    pub tasks: u32,
    /// Children that it read.
    pub children: u64,
    /// New runs that it handed over.
    pub runs: u64,
    /// Triggers recorded as missed.
    pub missed: u64,
    /// Triggers recorded as paused.
    pub paused: u64,
    /// Children, schedules and tasks that could not be read.
    pub corrupt: u32,
    /// Windows that are incomplete at its end: other emitters work on them, or have died.
    pub windows_incomplete: u32,
    /// Up to where windows are open at its end.
    pub opened_until_us: Option<i64>,
    /// How far the first window that is not complete lies behind now; negative while it lies ahead.
    pub lag_us: i64,
}

/// One emitter.
pub struct Emitter {
    store: Arc<dyn EmitStore>,
    clock: Clock,
    wake: Wake,
    options: Options,
    stats: Arc<EmitterStats>,
    traces: Traces,
    /// Under this lease tasks may be claimed that nobody carries out: a round has failed.
    failed: Mutex<Option<Uuid>>,
}

impl Emitter {
    /// An emitter over this store (an `Arc<dyn Store>` will do). Nothing happens before [`Emitter::run`] or
    /// [`Emitter::round`].
    pub fn new(store: Arc<dyn EmitStore>, clock: Clock, wake: Wake, options: Options) -> Self {
        let (stats, traces, failed) = (Arc::default(), Traces::default(), Mutex::default());
        Self { store, clock, wake, options, stats, traces, failed }
    }

    /// Writes a span for each run that it hands over.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Its counters.
    pub fn stats(&self) -> Arc<EmitterStats> {
        Arc::clone(&self.stats)
    }

    /// The gRPC service.
    pub fn service(&self) -> EmitterService {
        EmitterService::new(Arc::clone(&self.store), self.clock.clone(), self.options.clone())
    }

    /// One pass: opens every window that must be open, and carries out scan tasks until none is free.
    ///
    /// # Errors
    /// What the store says. What has been done stays done, and the next round goes on from there.
    pub async fn round(&self) -> Result<RoundReport, StoreError> {
        self.round_until(&CancellationToken::new()).await
    }

    /// As [`Emitter::round`], but leaves early, between two pages, when it is to stop.
    async fn round_until(&self, stop: &CancellationToken) -> Result<RoundReport, StoreError> {
        let mut report = RoundReport::default();
        loop {
            let opened = self.open(&mut report).await?;
            let claimed = self.scan_all(&mut report, stop).await?;
            if stop.is_cancelled() || (opened == 0 && claimed == 0) {
                break;
            }
        }
        let incomplete = self.store.windows(0).await?;
        let frontier = self.store.frontier().await?;
        report.windows_incomplete = u32::try_from(incomplete.len()).unwrap_or(u32::MAX);
        report.opened_until_us = frontier.opened_until_us;
        report.lag_us = self.note_lag(&frontier, &incomplete);
        self.stats.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(report)
    }

    /// Computes the lag, and keeps it for those who ask.
    fn note_lag(&self, frontier: &Frontier, incomplete: &[WindowRow]) -> i64 {
        let now_us = self.clock.wall_us();
        let lag_us = service::lag_us(frontier, incomplete, now_us);
        self.stats.lag_us.store(lag_us, Ordering::Relaxed);
        self.stats.emitted_until_us.store(now_us - lag_us, Ordering::Relaxed);
        lag_us
    }
}
