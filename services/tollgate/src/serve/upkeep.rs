//! Retention: what ended long ago goes, and there is room for the days to come.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_core::model::DAY_US;
use tollgate_store::Store;
use tollgate_store::history::PRUNE_EVERY;

/// Prunes now and every ten minutes, until told to stop.
pub(super) async fn run(store: Arc<dyn Store>, clock: Clock, retention_days: u32, stop: CancellationToken) {
    let mut rounds = tokio::time::interval(PRUNE_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = rounds.tick() => {}
        }
        let now_us = clock.wall_us();
        let before_us = now_us - i64::from(retention_days) * DAY_US;
        match store.prune(before_us, now_us).await {
            Ok(pruned) if pruned == tollgate_store::history::Pruned::default() => {}
            Ok(pruned) => tracing::info!(?pruned, "pruned what ended more than {retention_days} days ago"),
            Err(error) => tracing::warn!(%error, "pruning failed; it is tried again in ten minutes"),
        }
    }
}
