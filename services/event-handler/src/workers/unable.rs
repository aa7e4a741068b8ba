//! What no worker of any process is able to do, and since when.
//!
//! In: what owners here wait for, who is connected here, what other processes answer. Out: pools that nobody is able to do, with
//! what those lack that are there. Not here: whether that is a trouble yet.

use std::collections::BTreeMap;

use tollgate_core::model::SECOND_US;

use super::book::PoolOf;
use super::desk::{Desk, State};
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
}

impl Desk {
    /// Pools of which something has waited so long, in microseconds, without any worker of any process that is able to do it.
    pub(crate) fn unable(&self, for_us: i64) -> BTreeMap<u128, Unable> {
        let state = self.state();
        let unable = |(pool, of): (&u128, &PoolOf)| Some((*pool, self.unable_of(&state, *pool, of, for_us)?));
        state.pools.iter().filter_map(unable).collect()
    }

    /// In words, that nobody is able to do events of a pool, where that is so.
    pub(crate) fn nobody_is_able(&self, pool: u128) -> Option<String> {
        let state = self.state();
        let of = state.pools.get(&pool)?;
        self.unable_of(&state, pool, of, SAID_WITHIN_US).map(|unable| unable.words)
    }

    fn unable_of(&self, state: &State, pool: u128, of: &PoolOf, for_us: i64) -> Option<Unable> {
        let now = self.now();
        if of.known_us > now.mono_us - for_us
            || state.book.lacking(pool, &of.queue) == 0
            || state.book.is_able(&of.queue, &of.requires)
        {
            return None;
        }
        // One that polls and is at work may come again.
        let polled_us = state.away.until_us(&of.queue, &of.requires);
        let at_work_us = self.taken().until_us(&of.queue, &of.requires, now);
        let known_us = polled_us.max(at_work_us).unwrap_or(i64::MIN).max(of.known_us);
        if known_us > now.mono_us - for_us {
            return None;
        }
        let lack = state.book.lack(&of.queue, &of.requires);
        let lack = self.elsewhere().lack(pool).iter().fold(lack, Lack::and);
        let words = lack.words(&of.queue.queue, &of.requires);
        Some(Unable { since_us: now.wall_us - (now.mono_us - known_us), words })
    }

    /// What the workers of this process lack for events of a pool.
    pub(super) fn lack(&self, of: &PoolOf) -> Lack {
        self.state().book.lack(&of.queue, &of.requires)
    }
}
