//! What no worker of any process is able to do, and since when.
//!
//! In: what owners here wait for, who is connected here, what other processes answer. Out: pools that nobody is able to do, with
//! what those lack that are there. Not here: whether that is a trouble yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::model::{PullTarget, SECOND_US};

use super::book::{PoolOf, QueueKey};
use super::desk::Desk;
use super::lack::Lack;
use crate::routes::{Input, Question};

/// Other processes that have somebody say so more often.
const SAID_WITHIN_US: i64 = 4 * SECOND_US;

/// How old may be what is known of those at work, and how long an owner has to say it.
const LOOKED_US: i64 = 2 * SECOND_US;
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What no worker is able to do.
#[derive(Clone, Debug)]
pub(crate) struct Unable {
    /// Since when (wall clock).
    pub(crate) since_us: i64,
    /// What those lack that are there.
    pub(crate) words: String,
    /// Workers have polled for them not long ago: one may be at work.
    pub(crate) is_polled: bool,
}

impl Desk {
    /// Pools of which something has waited so long, in microseconds, without any worker of any process that is able to do it,
    /// and nobody who polls is at work on events of their kind.
    pub(crate) async fn unable(&self, for_us: i64) -> BTreeMap<u128, Unable> {
        let mut unable = self.unattended(for_us);
        if !unable.is_empty() {
            let at_work = self.pools_at_work().await;
            unable.retain(|pool, _| !at_work.contains(pool));
        }
        unable
    }

    /// As far as is known of those that are connected, and of those that polled not long ago.
    fn unattended(&self, for_us: i64) -> BTreeMap<u128, Unable> {
        let now = self.now();
        let until_us = now.mono_us - for_us;
        let state = self.state();
        // One that polls and is at work may come again.
        let known_us = |of: &PoolOf| {
            let away = state.away.until_us(&of.queue, &of.requires);
            away.map_or(of.known_us, |until_us| until_us.max(of.known_us))
        };
        let is_unable = |(pool, of): &(&u128, &PoolOf)| {
            known_us(of) <= until_us
                && state.book.lacking(**pool, &of.queue) > 0
                && !state.book.is_able(&of.queue, &of.requires)
        };
        let unable = state.pools.iter().filter(is_unable).map(|(pool, of)| {
            let lack = state.book.lack(&of.queue, &of.requires);
            let lack = self.elsewhere().lack(*pool).iter().fold(lack, Lack::and);
            let words = lack.words(&of.queue.queue, &of.requires);
            let is_polled = state.away.has_polled(&of.queue, &of.requires, now.mono_us);
            (*pool, Unable { since_us: now.wall_us - (now.mono_us - known_us(of)), words, is_polled })
        });
        unable.collect()
    }

    /// In words, that nobody is able to do events of a pool, where that is so. Of one for which workers poll nobody says so.
    pub(crate) fn nobody_is_able(&self, pool: u128) -> Option<String> {
        let unable = self.unattended(SAID_WITHIN_US).remove(&pool)?;
        (!unable.is_polled).then_some(unable.words)
    }

    /// The pools of which somebody who polls has an event of a shard of this process, and is not silent; as of a moment ago. Who
    /// is done with one asks for more, also of other shards.
    pub(super) async fn pools_at_work(&self) -> Arc<BTreeSet<u128>> {
        // Those who ask meanwhile wait for the same answer.
        let mut known = self.at_work().lock().await;
        let now_us = self.now_us();
        if let Some((at_us, pools)) = &*known
            && now_us - at_us < LOOKED_US
        {
            return pools.clone();
        }
        let routes = self.routes();
        let asked = routes.shards().into_iter().map(|shard| async move {
            let answer = routes.ask(shard, |reply| Input::Ask(Question::PoolsAtWork { reply }));
            tokio::time::timeout(ANSWER_MAX, answer).await.ok().flatten().unwrap_or_default()
        });
        let pools = Arc::new(futures::future::join_all(asked).await.into_iter().flatten().collect());
        *known = Some((now_us, Arc::clone(&pools)));
        pools
    }

    /// Whether workers that are able to do such events have polled for them here within a day.
    pub(crate) fn has_polled(&self, namespace: &str, pull: &PullTarget) -> bool {
        let queue = QueueKey { namespace: namespace.into(), queue: pull.queue().into() };
        self.state().away.has_polled(&queue, pull.requires(), self.now_us())
    }

    /// What the workers of this process lack for events of a pool.
    pub(super) fn lack(&self, of: &PoolOf) -> Lack {
        self.state().book.lack(&of.queue, &of.requires)
    }
}
