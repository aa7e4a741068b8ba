//! Decides when owners read: asks the store about all shards of this process at once, whether there is anything for them.
//!
//! In: the shards that this process owns. Out: to each owner, a wake, or that there was nothing. This is for what nobody
//! told them of, runs that were emitted long before their launch among it; a process that has something for a shard now wakes its
//! owner. Not here: reading.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_core::model::SECOND_US;
use tollgate_metrics::Role;

use crate::Shared;
use crate::routes::Input;

/// Asks again and again, until told to stop.
pub(crate) async fn watch(shared: Shared, stop: CancellationToken) {
    let pause = Duration::from_millis(shared.options.poll_ms);
    while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        look(&shared).await;
    }
}

async fn look(shared: &Shared) {
    let routes = shared.peers.routes();
    let shards = routes.shards();
    if shards.is_empty() {
        return;
    }
    let now = shared.clock.now();
    let until_us = now.wall_us + shared.options.load_ahead_s * SECOND_US;
    match shared.store.shards_with_news(until_us).await {
        Ok(news) => {
            for shard in shards {
                let is_new = news.binary_search(&shard).is_ok();
                let input = if is_new { Input::Wake } else { Input::NoNews { began_us: now.mono_us } };
                // One that has gone is another process's, which asks for itself.
                let _owned = routes.tell(shard, input);
            }
        }
        Err(error) => {
            shared.options.metrics.store_failed(Role::Handler);
            tracing::debug!(%error, "whether there is news is not known");
        }
    }
}
