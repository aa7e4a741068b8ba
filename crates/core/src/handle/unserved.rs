//! Which schedules wait for workers that nobody has, for [`crate::trouble`].
//!
//! In: the pools that no worker is able to do, which the shard cannot know. Out: the schedules of which something waits for room
//! of them, and the kinds of which a worker has an event. Read from memory when somebody asks, in time in proportion to the
//! launched runs; nothing is kept for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::ledger::Phase;
use super::shard::Shard;
use crate::model::{Now, PullTarget, SECOND_US};
use crate::trouble::{Sight, Unserved};

/// How many schedules are told of: those with the most that waits.
const UNSERVED_MAX: usize = 1_000;

/// How many events of a run are looked at for one that a worker has.
const OF_RUN_MAX: usize = 1_000;

/// For so long after it was taken over nobody may know yet what no worker is able to do.
const UNKNOWN_US: i64 = 15 * SECOND_US;

impl Shard {
    /// Adds to what is seen of the shard what waits for room of these pools, which no worker is able to do. As long as the shard
    /// is new, nobody knows that of the others.
    pub fn see_unserved(&self, sight: &mut Sight, pools: &BTreeSet<u128>, now: Now) {
        let is_new = now.mono_us.saturating_sub(self.since_us) < UNKNOWN_US;
        let mut found: BTreeMap<(Uuid, u128), Unserved> = BTreeMap::new();
        for run in self.ledger.runs.all().filter(|run| run.launched) {
            let Some(pool) = run.pool() else { continue };
            let again = self.rooms.again(pool, run.row.id) as u64;
            let lacks = !run.cancelled && self.lacks_room(run);
            if !lacks && again == 0 {
                continue;
            }
            if !pools.contains(&pool) {
                sight.settling |= is_new;
                continue;
            }
            let (waiting, since_us) = if lacks { self.waiting_of(run, now) } else { (0, 0) };
            let of = found.entry((run.row.schedule_uid, pool)).or_insert_with(|| Unserved {
                namespace: run.row.namespace.clone(),
                schedule: run.row.schedule_id.clone(),
                policy: run.spec.policy_id.clone().unwrap_or_default(),
                target: run.spec.target.address().to_owned(),
                pool,
                ..Unserved::default()
            });
            of.waiting += waiting;
            of.again += again;
            if waiting > 0 {
                of.oldest_launch_us = Some(of.oldest_launch_us.map_or(since_us, |us| us.min(since_us)));
            }
        }
        sight.unserved = found.into_values().collect();
        sight.incomplete |= sight.unserved.len() > UNSERVED_MAX;
        sight.unserved.sort_by_key(|unserved| Reverse(unserved.waiting + unserved.again));
        sight.unserved.truncate(UNSERVED_MAX);
    }

    /// The kinds of events of which a worker has one that it took itself and is not silent about: namespace, target, and for how
    /// long it may be silent, in milliseconds. For an owner that is new; in time in proportion to the launched runs.
    pub fn kinds_at_work(&self) -> Vec<(&str, &PullTarget, i64)> {
        let mut found: BTreeMap<u128, (&str, &PullTarget, i64)> = BTreeMap::new();
        for run in self.ledger.runs.all().filter(|run| run.launched) {
            let Some((pool, pull)) = run.pool().zip(run.spec.target.pull()) else { continue };
            let tokens = self.ledger.tokens.of(run.row.id);
            let held = tokens.filter(|(_, token)| token.phase() == Phase::Held { suspect: false });
            let Some(ms) = held.take(OF_RUN_MAX).map(|(key, _)| self.silence_ms(key)).max() else { continue };
            let kind = found.entry(pool).or_insert((&run.row.namespace, pull, ms));
            kind.2 = kind.2.max(ms);
        }
        found.into_values().collect()
    }
}
