//! Retention: what ended long ago goes, and there is room for the days to come.
//!
//! Invariant: even if a clock is wrong, no more than a day's rows go in an hour beyond what had gone before: a wrong clock
//! empties nothing before somebody has noticed, and a process that is started again and again goes no further than one that
//! stays. An installation that was off for a month has caught up within two days.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tollgate_clock::{Clock, ClockState};
use tollgate_core::model::{DAY_US, MINUTE_US};
use tollgate_store::history::{PRUNE_EVERY, Pruned};
use tollgate_store::{Store, StoreError};

/// Pruning goes so much further at once.
const STEP_US: i64 = DAY_US;
/// How long a process must have been there before it takes a step beyond what is usual (monotonic).
const STEP_EVERY_US: i64 = 60 * MINUTE_US;

/// Prunes now and every ten minutes, until told to stop.
pub(super) async fn run(store: Arc<dyn Store>, clock: Clock, retention_days: u32, stop: CancellationToken) {
    let mut rounds = tokio::time::interval(PRUNE_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut steps = Steps { last_us: clock.mono_us() };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = rounds.tick() => {}
        }
        if clock.state() != ClockState::Right {
            tracing::warn!("nothing is pruned: the clock of this machine is not right");
            continue;
        }
        match prune(store.as_ref(), &clock, retention_days, &mut steps).await {
            Ok(pruned) if pruned == Pruned::default() => {}
            Ok(pruned) => tracing::info!(
                ?pruned,
                "pruned events and runs that ended more than {retention_days} days ago"
            ),
            Err(error) => tracing::warn!(%error, "pruning failed; it is tried again in ten minutes"),
        }
    }
}

async fn prune(
    store: &dyn Store,
    clock: &Clock,
    retention_days: u32,
    steps: &mut Steps,
) -> Result<Pruned, StoreError> {
    let now = clock.now();
    let retention_us = i64::from(retention_days) * DAY_US;
    let wanted_us = now.wall_us - retention_us;
    let noted_us = store.pruned_before_us().await?;
    let from_us = match noted_us {
        Some(noted_us) => noted_us,
        // What is stored says when somebody was here last.
        None => {
            let opened_until_us = store.frontier().await?.opened_until_us;
            opened_until_us.map_or(wanted_us, |until_us| wanted_us.min(until_us - retention_us))
        }
    };
    let to_us = steps.next(from_us, wanted_us, now.mono_us);
    if wanted_us - to_us > STEP_US {
        let days = (wanted_us - to_us) / DAY_US;
        tracing::warn!(
            "pruning is {days} days behind what the clock says, and goes a day further each hour; was the service off, or \
             the retention longer? Else the clock is wrong"
        );
    }
    if noted_us != Some(to_us) && noted_us.is_none_or(|noted_us| noted_us < to_us) {
        // Where another process was faster, this one prunes as far as it may all the same.
        store.note_pruning(noted_us, to_us).await?;
    }
    store.prune(to_us, now.wall_us).await
}

/// When pruning may go further than is usual.
#[derive(Debug)]
struct Steps {
    /// When this process was started, or went further (monotonic).
    last_us: i64,
}

impl Steps {
    /// Up to where to prune, from where it stands to what the clock wants.
    fn next(&mut self, from_us: i64, wanted_us: i64, mono_us: i64) -> i64 {
        if wanted_us - from_us <= STEP_US {
            return wanted_us;
        }
        if mono_us - self.last_us < STEP_EVERY_US {
            return from_us;
        }
        self.last_us = mono_us;
        from_us + STEP_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: i64 = 60 * MINUTE_US;

    #[test]
    fn a_service_that_runs_prunes_what_the_clock_says() {
        let mut steps = Steps { last_us: 0 };
        assert_eq!(steps.next(5 * DAY_US, 5 * DAY_US + HOUR_US, 1), 5 * DAY_US + HOUR_US);
        assert_eq!(steps.next(5 * DAY_US, 6 * DAY_US, 1), 6 * DAY_US);
        assert_eq!(steps.next(5 * DAY_US, 4 * DAY_US, 1), 4 * DAY_US, "kept longer from now on");
    }

    #[test]
    fn a_clock_that_is_far_ahead_empties_nothing_however_often_it_is_started() {
        for started_us in [0, HOUR_US, 7 * HOUR_US] {
            let mut steps = Steps { last_us: started_us };
            for minute in (0..60).step_by(10) {
                assert_eq!(steps.next(0, 50 * DAY_US, started_us + minute * MINUTE_US), 0);
            }
            assert_eq!(steps.next(0, 50 * DAY_US, started_us + HOUR_US), DAY_US);
            assert_eq!(steps.next(DAY_US, 50 * DAY_US, started_us + HOUR_US + 1), DAY_US);
        }
    }

    #[test]
    fn a_month_off_is_caught_up_within_two_days() {
        let (mut steps, mut at_us, mut mono_us) = (Steps { last_us: 0 }, 0, 0);
        while mono_us < 2 * DAY_US {
            at_us = steps.next(at_us, 30 * DAY_US + mono_us, mono_us);
            mono_us += 10 * MINUTE_US;
        }
        assert!(at_us >= 32 * DAY_US - HOUR_US, "{at_us}");
    }
}
