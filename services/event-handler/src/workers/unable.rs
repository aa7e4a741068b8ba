//! What no worker of any process is able to do, and since when.
//!
//! In: what owners here wait for, who is connected here, what other processes answer. Out: pools that nobody is able to do, with
//! what those lack that are there. Not here: whether that is a trouble yet.

use std::collections::BTreeMap;

use tollgate_core::model::SECOND_US;

use super::book::PoolOf;
use super::desk::Desk;
use super::lack::Lack;

/// Other processes that have somebody say so more often.
const SAID_WITHIN_US: i64 = 4 * SECOND_US;

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
    /// Pools of which something has waited so long, in microseconds, without any worker of any process that is able to do it.
    pub(crate) fn unable(&self, for_us: i64) -> BTreeMap<u128, Unable> {
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
        let unable = self.unable(SAID_WITHIN_US).remove(&pool)?;
        (!unable.is_polled).then_some(unable.words)
    }

    /// What the workers of this process lack for events of a pool.
    pub(super) fn lack(&self, of: &PoolOf) -> Lack {
        self.state().book.lack(&of.queue, &of.requires)
    }
}
