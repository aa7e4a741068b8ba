//! Decides when an emitter has its next round.
//!
//! In: how the round before ended. Out: rounds, and one log line when the store fails and one when it answers again.
//! Not here: what a round does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_clock::State;
use tollgate_core::model::SECOND_US;

use crate::{Emitter, RoundReport};

/// The wait after the first failure; it doubles.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How soon windows are looked at again that others have not completed.
const INCOMPLETE_US: i64 = 2 * SECOND_US;
/// The clock is read so often while an emitter waits: the wall clock may jump, and the machine may sleep.
const NAP: Duration = Duration::from_secs(1);

impl Emitter {
    /// Has one round after the other until `stop`, each when the next window must be opened. A round under way ends at
    /// its next page.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut backoff: Option<Duration> = None;
        while !stop.is_cancelled() {
            if self.clock.state() == State::Unknown {
                // Windows that are opened by a wrong clock stay open for all.
                nap(NAP, &stop).await;
                continue;
            }
            match self.round_until(&stop).await {
                Ok(report) => {
                    if backoff.take().is_some() {
                        tracing::info!(lag_us = report.lag_us, "the emitter works again");
                    }
                    self.wait(self.next_round_us(&report), &stop).await;
                }
                Err(error) => {
                    self.stats.failures.fetch_add(1, Ordering::Relaxed);
                    if backoff.is_none() {
                        tracing::warn!(%error, "the emitter fails and tries again");
                    }
                    let pause = backoff.map_or(BACKOFF_MIN, |before| (before * 2).min(BACKOFF_MAX));
                    backoff = Some(pause);
                    nap(pause, &stop).await;
                }
            }
        }
    }

    fn next_round_us(&self, report: &RoundReport) -> i64 {
        let now_us = self.clock.wall_us();
        // One microsecond after the moment up to which the windows suffice.
        let open_us = report.opened_until_us.map_or(now_us, |until| until - self.options.ahead_us() + 1);
        if report.windows_incomplete > 0 { open_us.min(now_us + INCOMPLETE_US) } else { open_us }
    }

    async fn wait(&self, until_us: i64, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let left_us = until_us - self.clock.wall_us();
            let Some(left_us) = u64::try_from(left_us).ok().filter(|left_us| *left_us > 0) else { break };
            nap(Duration::from_micros(left_us).min(NAP), stop).await;
        }
    }
}

async fn nap(pause: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = stop.cancelled() => {}
    }
}
