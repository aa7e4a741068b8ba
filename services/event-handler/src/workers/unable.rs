//! What no worker of any process is able to do, and since when.
//!
//! In: what owners here wait for, who is connected here, what other processes answer. Out: pools that nobody is able to do, with
//! what those lack that are there. Not here: whether that is a trouble yet.

use std::collections::BTreeMap;

use tollgate_core::model::{Now, SECOND_US};

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
        let now = self.now();
        let until_us = now.mono_us - for_us;
        let mut state = self.state();
        self.see_who_is_at_work(&mut state, until_us, now);
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
            (*pool, Unable { since_us: now.wall_us - (now.mono_us - known_us(of)), words })
        });
        unable.collect()
    }

    /// Who polls and has an event is able to do what is of its kind. Looked at for pools for which nobody was known since then.
    fn see_who_is_at_work(&self, state: &mut State, since_us: i64, now: Now) {
        let mut taken = self.taken();
        for of in state.pools.values_mut().filter(|of| of.known_us <= since_us) {
            if taken.is_able(&of.queue, &of.requires, now) {
                of.known_us = now.mono_us;
            }
        }
    }

    /// In words, that nobody is able to do events of a pool, where that is so.
    pub(crate) fn nobody_is_able(&self, pool: u128) -> Option<String> {
        self.unable(SAID_WITHIN_US).remove(&pool).map(|unable| unable.words)
    }

    /// What the workers of this process lack for events of a pool.
    pub(super) fn lack(&self, of: &PoolOf) -> Lack {
        self.state().book.lack(&of.queue, &of.requires)
    }
}
