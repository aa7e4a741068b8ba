//! Has the rounds of an emitter, one after the other.
//!
//! In: how the round before ended. Out: rounds, and one log line when the store fails and one when it answers again.
//! Not here: what a round does, when the next one is due ([`tollgate_core::emit`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_clock::ClockState;
use tollgate_core::emit;

use crate::Emitter;

/// How often the clock is read while an emitter waits: the wall clock may jump, and the machine may sleep.
const NAP: Duration = Duration::from_secs(1);

impl Emitter {
    /// Has one round after the other until `stop`, each when the next window must be opened. A round under way ends at
    /// its next page.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut backoff: Option<Duration> = None;
        while !stop.is_cancelled() {
            if self.clock.state() == ClockState::Unknown {
                // Windows that are opened by a wrong clock stay open for all.
                nap(NAP, &stop).await;
                continue;
            }
            match self.round_until(&stop).await {
                Ok(report) => {
                    if backoff.take().is_some() {
                        tracing::info!(lag_us = report.lag_us, "the emitter works again");
                    }
                    let now_us = self.clock.wall_us();
                    let (opened_until_us, incomplete) = (report.opened_until_us, report.windows_incomplete);
                    let next_us = emit::next_round_us(opened_until_us, incomplete, now_us, &self.options);
                    self.wait(next_us, &stop).await;
                }
                Err(error) => {
                    self.stats.failures.fetch_add(1, Ordering::Relaxed);
                    if backoff.is_none() {
                        tracing::warn!(%error, "the emitter fails and tries again");
                    }
                    let pause = emit::backoff(backoff);
                    backoff = Some(pause);
                    nap(pause, &stop).await;
                }
            }
        }
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
