//! Keeps the process's time: compares the machine's clock with the database's, and says when it is wrong.
//!
//! In: both clocks, each second. Out: the time that all roles read, whether the process is ready, a metric and a log line. Not
//! here: which clock is believed (`tollgate_clock::ClockJudge`), what a role does while none is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tollgate_clock::{Clock, ClockJudge, ClockReading, ClockState, Verdict};
use tollgate_metrics::{Check, Metrics, check};
use tollgate_store::Store;

/// How often clocks are compared.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// On SQLite: how long a clock that has jumped must stay where it is before it is believed.
const SETTLE_US: i64 = 60_000_000;
/// An answer of the database that took longer says nothing about clocks that differ by less.
const ANSWER_MAX_US: i64 = 2_000_000;

/// Compares clocks.
pub(super) struct Keeper {
    store: Arc<dyn Store>,
    clock: Clock,
    metrics: Metrics,
    judge: ClockJudge,
    /// The database has a clock of its own.
    beside: bool,
    before: Option<Verdict>,
}

impl Keeper {
    /// One that keeps `clock`; clocks agree that differ by at most `tolerance_ms`. It has compared them once.
    pub(super) async fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        metrics: Metrics,
        beside: bool,
        tolerance_ms: i64,
    ) -> Self {
        let tolerance_us = tolerance_ms.saturating_mul(1_000);
        let judge = if beside {
            ClockJudge::beside_a_database(tolerance_us)
        } else {
            ClockJudge::alone(tolerance_us, SETTLE_US)
        };
        let mut keeper = Self { store, clock, metrics, judge, beside, before: None };
        keeper.look().await;
        keeper
    }

    /// Compares until told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.look().await,
            }
        }
    }

    async fn look(&mut self) {
        let asked_us = self.clock.mono_us();
        // The log says elsewhere that the database does not answer.
        let answer = if self.beside { self.store.clock_us().await.ok().flatten() } else { None };
        let (machine_us, now) = self.clock.machine();
        let took_us = now.mono_us - asked_us;
        let reading = ClockReading {
            mono_us: now.mono_us,
            machine_us,
            held_us: now.wall_us,
            // It read its clock half-way, as far as anybody can tell.
            database_us: answer.filter(|_| took_us <= ANSWER_MAX_US).map(|us| us + took_us / 2),
        };
        let verdict = self.judge.read(reading);
        self.clock.hold(verdict.wall_us, reading.mono_us, verdict.state);
        self.metrics.clock_offset(verdict.offset_us);
        self.tell(verdict);
    }

    /// One line whenever something else is known.
    fn tell(&mut self, verdict: Verdict) {
        let before = self.before.replace(verdict).map_or(ClockState::Right, |before| before.state);
        if verdict.state == before {
            return;
        }
        let ahead_s = verdict.offset_us as f64 / 1e6;
        match verdict.state {
            ClockState::Right => tracing::info!(ahead_s, "the clock of this machine is right again"),
            ClockState::Apart => tracing::warn!(
                ahead_s,
                "the database's clock has jumped, or this machine has stood still: its clock is followed, its shards are loaded \
                 anew, and it makes way for processes whose clocks agree with the database's"
            ),
            ClockState::Off => tracing::error!(
                ahead_s,
                "the clock of this machine is wrong: this process goes on by the time that it knew, and is not ready"
            ),
            ClockState::Unknown => tracing::error!(
                ahead_s,
                "the clock of this machine differs from the database's, and nothing tells which is right: this process \
                 does nothing by time, and is not ready; set both clocks, or allow more with clock_offset_max"
            ),
        }
    }
}

/// Not ready while the machine's clock is not right.
pub(super) fn ready(clock: &Clock) -> Check {
    let clock = clock.clone();
    check("clock", move || {
        let state = clock.state();
        async move {
            match state {
                ClockState::Right | ClockState::Apart => Ok(()),
                ClockState::Off => Err("the clock of this machine is wrong".to_owned()),
                ClockState::Unknown => {
                    Err("the clock of this machine differs from the database's".to_owned())
                }
            }
        }
    })
}
