//! What an owner reads: all of its shard after a takeover, news later.

use std::time::Duration;

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_core::handle::control::{Control, Message};
use tollgate_core::handle::{Context, MessageNeeds, ShardState};
use tollgate_core::model::{DAY_US, SECOND_US};
use tollgate_core::own::{Ask, News, Page, READ_MAX, Setup};
use tollgate_metrics::Role;
use tollgate_store::StoreError;
use tollgate_store::handle::{HandleStore, Lease};
use uuid::Uuid;

use super::strays::{Gone, hand_on};
use super::{Life, Owner, ReadTask};
use crate::outage;
use crate::queries::readable_specs;

/// Waits between tries to load a shard, in milliseconds.
const RETRY_MS: [u64; 5] = [100, 500, 1_000, 2_000, 5_000];

impl Owner {
    /// Loads the shard from the store. Its news are read before it decides anything: a former owner may have left a note of
    /// deliveries that it still waits for.
    pub(super) async fn load(&mut self) -> Result<Life, StoreError> {
        let counted_until_us = self.counted_until_us().await?;
        let (shard, options) = (self.lease.shard, &self.shared.options);
        self.gone = Arc::new(self.shared.store.moved_homes(shard).await?);
        let loaded = self.shared.store.load_shard(shard).await?;
        self.shared.moved.learn(&loaded.runs);
        let state = ShardState {
            policies: loaded.policies,
            policies_deleted: loaded.policies_deleted,
            schedules: loaded.schedules,
            runs: loaded.runs,
            batches: loaded.batches,
            tokens: loaded.tokens,
            unstarted: loaded.unstarted,
            counted: loaded.counted,
            left_out: loaded.left_out,
            specs: loaded.specs,
            pause: loaded.pause,
            counted_until_us,
        };
        let (options, load_ahead_us) = (options.machine.clone(), options.load_ahead_s * SECOND_US);
        let setup = Setup { shard, options, turns: self.shared.turns.clone(), load_ahead_us };
        let kept = std::mem::take(&mut self.kept);
        Ok(Life::new(setup, state, rand::random(), kept, self.shared.clock.now()))
    }

    /// Up to when what fell due has been counted: by this owner, or by the one before.
    async fn counted_until_us(&mut self) -> Result<Option<i64>, StoreError> {
        if self.counted_until_us.is_some() {
            return Ok(self.counted_until_us);
        }
        // Where nothing has happened for a day, nothing has fallen due.
        let since_us = self.shared.clock.wall_us() - DAY_US;
        let until_us = self.shared.store.minutes_until_us(self.lease.shard, since_us).await?;
        Ok(Some(until_us.unwrap_or(since_us)))
    }

    /// The shard could not be loaded, nor in the `failures` tries before.
    pub(super) fn tell_not_loaded(&self, failures: usize, error: &StoreError) {
        self.shared.options.metrics.store_failed(Role::Handler);
        if failures == 0 {
            outage::note(self.lease.shard, error, "the shard cannot be loaded; trying again");
        }
    }

    /// A commit failed, or nobody knows: a fresh lease makes sure that nothing of the old one can still come.
    /// False if somebody else has the shard.
    pub(super) async fn take_over_from_self(&mut self) -> bool {
        for attempt in 0.. {
            let shard = self.lease.shard;
            match self.reclaim().await {
                Ok(Some(lease)) => {
                    self.lease = lease;
                    return true;
                }
                Ok(None) => return false,
                Err(error) => {
                    if attempt == 0 {
                        outage::note(shard, &error, "the store does not answer; trying again");
                    }
                    if self.stop.is_cancelled() {
                        return false;
                    }
                    wait_to_try(attempt).await;
                }
            }
        }
        false
    }

    async fn reclaim(&mut self) -> Result<Option<Lease>, StoreError> {
        let store = &self.shared.store;
        // Before the look at the lease: a lapse after it must be seen.
        self.lapses = self.shared.trust.lapses();
        let Some(seen) = store.lease(self.lease.shard).await? else { return Ok(None) };
        if seen.owner != self.shared.process {
            return Ok(None);
        }
        store.take_shard(&seen, &self.shared.process).await
    }

    pub(super) fn begin_read(&self, ask: Ask) -> ReadTask {
        let (shared, lease, gone) = (self.shared.clone(), self.lease.clone(), self.gone.clone());
        tokio::spawn(async move {
            let from = (&*shared.store, &lease, shared.clock.wall_us());
            let (news, woken) = read_news(from, &gone, ask).await?;
            woken.into_iter().for_each(|shard| shared.peers.wake(shard));
            let revived = news.messages.iter().flat_map(|(_, context)| &context.runs);
            shared.moved.learn(news.runs.iter().chain(revived));
            Ok(news)
        })
    }

    /// News whose machine needs these specs first.
    pub(super) fn read_specs(&self, mut news: News, wanted: Vec<(Uuid, i64)>) -> ReadTask {
        let (store, shard) = (self.shared.store.clone(), self.lease.shard);
        tokio::spawn(async move {
            news.specs.extend(readable_specs(&*store, shard, &wanted).await?);
            Ok(news)
        })
    }
}

/// Waits until what has failed `failures` times before is tried again.
pub(super) async fn wait_to_try(failures: usize) {
    let wait_ms = RETRY_MS[failures.min(RETRY_MS.len() - 1)];
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
}

/// Emitted runs are read before messages, so that what a run needs is among the messages.
/// What belongs to another shard is handed on to it: also the shards that have got something.
async fn read_news(
    (store, lease, now_us): (&dyn HandleStore, &Lease, i64),
    gone: &Gone,
    ask: Ask,
) -> Result<(News, BTreeSet<u16>), StoreError> {
    let shard = lease.shard;
    let Ask { part, except, again, specs } = ask;
    let mended = !specs.is_empty() && !readable_specs(store, shard, &specs).await?.is_empty();
    let mut untaken = store.emitted_runs(shard, i64::MIN..part.recent_us.end, part.runs_max).await?;
    let rows = untaken.rows;
    let mut broken = rows > untaken.runs.len();
    if part.wants_recent(rows, untaken.runs.last().map(|run| run.launch_us)) {
        let recent = store.emitted_runs(shard, part.recent_us.clone(), part.runs_max).await?;
        broken |= recent.rows > recent.runs.len();
        untaken.runs.extend(recent.runs);
        untaken.specs.extend(recent.specs);
    }
    let mut looked = None;
    if let Some(after) = again {
        let passed_over = store.unreadable_runs(shard, after, READ_MAX).await?;
        looked = Some((passed_over.rows, passed_over.last.unwrap_or(after)));
        untaken.runs.extend(passed_over.runs);
        untaken.specs.extend(passed_over.specs);
    }
    let inbox = store.inbox_except(shard, &except, part.messages_max).await?;
    let Page { messages: mut in_turn, full, releases_whole } =
        part.page(inbox.rows, inbox.messages, &inbox.unreadable);
    // What has come with one is not in memory, if the shard was loaded before: it is, before anything else is taken in.
    let is_unknown =
        |message: &Message| matches!(message.control, Control::Arrived { epoch } if lease.epoch <= epoch);
    if in_turn.iter().any(is_unknown) {
        return Ok((News { mended: true, full: true, ..News::default() }, BTreeSet::new()));
    }
    let mut woken = BTreeSet::new();
    if !gone.is_empty() {
        woken = hand_on(store, (lease, gone), &mut untaken.runs, &mut in_turn, now_us).await?;
    }
    let full = full || part.is_full(rows);
    let (mut messages, mut unreadable) = (Vec::with_capacity(in_turn.len()), inbox.unreadable);
    for message in in_turn {
        match read_context(store, shard, &message.control).await {
            Ok(context) => messages.push((message, context)),
            // It stays in the inbox until what it is about can be read; the others go on.
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::debug!(shard, message = %message.id, %error, "a message waits");
                unreadable.push(message.id);
            }
            Err(error) => return Err(error),
        }
    }
    let (runs, specs) = (untaken.runs, untaken.specs);
    let news = News {
        runs,
        specs,
        messages,
        unreadable,
        again: looked,
        broken,
        mended,
        full,
        releases_whole,
        complete: false,
    };
    Ok((news, woken))
}

async fn read_context(store: &dyn HandleStore, shard: u16, control: &Control) -> Result<Context, StoreError> {
    let needs = MessageNeeds::of(control);
    let mut context = Context::default();
    if !needs.runs.is_empty() {
        context.runs = store.runs(shard, &needs.runs).await?;
    }
    // What is cancelled needs no spec.
    if !matches!(control, Control::CancelRun { .. }) {
        let mut keys = needs.specs.clone();
        keys.extend(context.runs.iter().map(|r| (r.schedule_uid, r.generation)));
        keys.sort_unstable();
        keys.dedup();
        context.specs = store.specs(shard, &keys).await?;
    }
    if let Some((run, indexes)) = &needs.dead {
        context.dead = store.dead_events(shard, *run, indexes, READ_MAX).await?;
    }
    Ok(context)
}

#[cfg(test)]
mod tests;
