//! Remembers which runs of this process's queue shards ended badly in the last day, for those who ask what is wrong.
//!
//! In: rows of what has ended since the last look at a shard; all of the day at the first. Out: of each run, how many
//! events ended how. Invariants: it is looked at when somebody asks, and a shard no more often than every
//! [`LOOK_EVERY_US`]; of a shard the latest [`RUNS_MAX`] runs are remembered; a run that is retried, and so goes on, or that
//! somebody has closed, is none of them. Not here: runs that go on, which their owner knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tollgate_core::handle::change::Outcome;
use tollgate_core::model::{DAY_US, EventId, EventRef, Run, RunId, SECOND_US};
use tollgate_core::trouble::Ended;
use tollgate_store::StoreError;

use crate::Shared;
use crate::queries::readable_specs;

/// How often the store is asked.
const LOOK_EVERY_US: i64 = 10 * SECOND_US;
/// How long after the time that they bear rows may become visible.
const OVERLAP_US: i64 = 60 * SECOND_US;
/// How long a caller waits before it gets what was known before.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// How many runs of a shard are remembered.
const RUNS_MAX: u32 = 200;
/// For how many new ones it is looked up what was said.
const WORDS_MAX: usize = 20;
/// How many shards are looked at at once.
const AT_ONCE: usize = 4;

/// What is remembered; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedBadly {
    known: Arc<Mutex<BTreeMap<u16, OfShard>>>,
    /// One look at a time.
    looking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug, Default)]
struct OfShard {
    /// When it was looked at (monotonic).
    looked_us: i64,
    /// What ended before then has been read (wall clock).
    read_us: i64,
    runs: BTreeMap<RunId, Ended>,
    /// There were more than are remembered.
    is_cut: bool,
}

impl EndedBadly {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u16, OfShard>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What ended badly in these shards in the last day, run by run, and whether something may be missing.
    pub(crate) async fn ended_badly(&self, shards: &[u16]) -> (Vec<Ended>, bool) {
        let (shared, of) = (self.clone(), shards.to_vec());
        let is_new = tokio::time::timeout(LOOK_MAX, async move {
            let turn = shared.ended.looking.clone().lock_owned().await;
            // A task of its own comes to its end, also where nobody waits any more; there is one at a time.
            let look = tokio::spawn(async move {
                let done = shared.look_for_ended(&of).await;
                drop(turn);
                done
            });
            matches!(look.await, Ok(Ok(())))
        });
        let is_new = is_new.await.unwrap_or(false);
        let mut known = self.ended.known();
        known.retain(|shard, _| shards.contains(shard));
        let is_cut = known.values().any(|of| of.is_cut);
        let ended = known.values().flat_map(|of| of.runs.values().cloned()).collect();
        (ended, is_cut || !is_new)
    }

    async fn look_for_ended(&self, shards: &[u16]) -> Result<(), StoreError> {
        let now_us = self.clock.mono_us();
        let due: Vec<u16> = {
            let known = self.ended.known();
            let is_due =
                |shard: &u16| known.get(shard).is_none_or(|of| now_us - of.looked_us >= LOOK_EVERY_US);
            shards.iter().copied().filter(is_due).collect()
        };
        let looks = due.into_iter().map(|shard| async move { (shard, self.look_at_ended(shard).await) });
        let mut looks = futures::stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some((shard, of)) = looks.next().await {
            self.ended.known().insert(shard, of?);
        }
        Ok(())
    }

    async fn look_at_ended(&self, shard: u16) -> Result<OfShard, StoreError> {
        let now = self.clock.now();
        let before = self.ended.known().get(&shard).cloned();
        let day_us = now.wall_us - DAY_US;
        let since_us = before.as_ref().map_or(day_us, |before| (before.read_us - OVERLAP_US).max(day_us));
        let known = before.unwrap_or_default().runs;
        let mut runs = self.people.runs_not_well(shard, since_us, RUNS_MAX).await?;
        let found: BTreeSet<RunId> = runs.iter().map(|run| run.id).collect();
        let others: Vec<RunId> = known.keys().copied().filter(|id| !found.contains(id)).collect();
        if !others.is_empty() {
            runs.extend(self.people.runs(shard, &others).await?);
            let closed = self.people.closed_failures(shard, &others).await?;
            // Nothing more is to be done about what somebody has closed.
            runs.retain(|run| {
                !closed.iter().any(|(id, until)| *id == run.id && Some(*until) >= run.finished_us)
            });
        }
        // One that is retried has not ended any more.
        runs.retain(|run| run.finished_us.is_some_and(|at_us| at_us >= day_us));
        runs.sort_by_key(|run| std::cmp::Reverse(run.finished_us));
        let is_cut = runs.len() >= RUNS_MAX as usize;
        runs.truncate(RUNS_MAX as usize);
        let runs = self.ended_of(shard, &runs, &known).await?;
        Ok(OfShard { looked_us: now.mono_us, read_us: now.wall_us, runs, is_cut })
    }

    /// What is told of these runs; what is known of one is not looked up again.
    async fn ended_of(
        &self,
        shard: u16,
        runs: &[Run],
        known: &BTreeMap<RunId, Ended>,
    ) -> Result<BTreeMap<RunId, Ended>, StoreError> {
        let new = runs.iter().filter(|run| !known.contains_key(&run.id));
        let keys: BTreeSet<_> = new.clone().map(|run| (run.schedule_uid, run.generation)).collect();
        let keys: Vec<_> = keys.into_iter().collect();
        let specs = readable_specs(&*self.people, shard, &keys).await?;
        let mut words = BTreeMap::new();
        for run in new.take(WORDS_MAX) {
            words.insert(run.id, self.words_of(run).await?);
        }
        let ended = runs.iter().map(|run| {
            let counts = &run.counts;
            let spec = specs
                .iter()
                .find(|spec| (spec.schedule_uid, spec.generation) == (run.schedule_uid, run.generation));
            let before = known.get(&run.id);
            let policy = spec.and_then(|spec| spec.policy_id.clone());
            let ended = Ended {
                namespace: run.namespace.clone(),
                schedule: run.schedule_id.clone(),
                policy: policy.or_else(|| before.map(|known| known.policy.clone())).unwrap_or_default(),
                failed: u64::from(counts.failed + counts.dead + counts.lost),
                expired: counts.expired.into(),
                runs: 1,
                since_us: run.finished_us.unwrap_or_default(),
                words: words
                    .remove(&run.id)
                    .or_else(|| before.map(|known| known.words.clone()))
                    .unwrap_or_default(),
            };
            (run.id, ended)
        });
        Ok(ended.filter(|(_, ended)| ended.failed + ended.expired > 0).collect())
    }

    /// What was said of the first event of a run that failed for good.
    async fn words_of(&self, run: &Run) -> Result<String, StoreError> {
        let counts = &run.counts;
        let outcomes =
            [(counts.dead, Outcome::Dead), (counts.failed, Outcome::Failed), (counts.lost, Outcome::Lost)];
        let Some((_, outcome)) = outcomes.into_iter().find(|(events, _)| *events > 0) else {
            return Ok(String::new());
        };
        let rows = self.people.history(run.shard, run.id, 0, Some(outcome), 1).await?;
        let row = rows.into_iter().next();
        Ok(row.map(|row| self.without_seal((row.run, row.index), row.message)).unwrap_or_default())
    }

    /// What somebody said of an event, without its token: consumers may quote the id that they got.
    pub(super) fn without_seal(&self, (run, index): (RunId, u32), words: String) -> String {
        let behind_shard = format!("-{run}-{index}-");
        if !words.contains(&behind_shard) {
            return words;
        }
        let named = words.match_indices(&behind_shard).map(|(at, _)| at);
        let mut shown = words.clone();
        // The shard of its name: two to four digits.
        for digits in named.flat_map(|at| (2..=4).filter_map(move |length| Some(at.checked_sub(length)?..at)))
        {
            let shard = words.get(digits).and_then(|digits| u16::from_str_radix(digits, 16).ok());
            let Some(shard) = shard else { continue };
            let sealed = self.keyring.id(EventRef { shard, run, index });
            if let Some(name) = EventId::without_seal(sealed.as_str()) {
                shown = shown.replace(sealed.as_str(), name);
            }
        }
        shown
    }
}
