//! From rows to memory: what a new owner makes of unfinished runs and their tokens.
//!
//! Nobody knows what became of deliveries that were under way: they are made again, with the next attempt. Silence
//! counts from the takeover on, so that down-time expires nothing.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::batch::TokenBatch;
use super::change::{TokenRow, TokenState, Unstarted};
use super::exchange::ShardState;
use super::ledger::Phase;
use super::live::{LiveRun, LiveToken};
use super::shard::{Shard, WallTimer};
use super::sorted::Sorted;
use crate::model::{DAY_US, Now, Run, RunId, RunState};

impl Shard {
    /// Takes in what the store knew of the shard. What happened to it meanwhile happens now.
    pub(super) fn restore(&mut self, state: ShardState, now: Now) {
        self.pause = state.pause;
        for policy in state.policies {
            self.ledger.learn(policy, now);
        }
        for (uid, deleted_us) in state.policies_deleted {
            if let Some(bucket) = self.ledger.buckets.get_mut(&Some(uid)) {
                bucket.deleted = true;
                self.wall_timers.insert((deleted_us + DAY_US, WallTimer::ForgetPolicy(uid)));
            }
        }
        self.specs.keep(state.specs);
        for row in state.schedules {
            self.forget_later(&row);
            let uid = row.uid;
            self.schedules.entry(uid).or_default().row = Some(row);
        }
        let mut unfit = BTreeMap::new();
        let mut unstarted: BTreeMap<RunId, Vec<Unstarted>> = BTreeMap::new();
        for stretch in state.unstarted {
            unstarted.entry(stretch.run).or_default().push(stretch);
        }
        for run in state.runs {
            // What its schedule says of units is in the spec that cannot be read.
            let (id, counts_as) = (run.id, (run.policy_uid, run.units_max.max(1)));
            self.restore_run(run, unstarted.remove(&id).unwrap_or_default(), now);
            if !self.ledger.runs.contains(&id) {
                unfit.insert(id, counts_as);
            }
        }
        self.left_out = unfit.keys().copied().chain(state.left_out).collect();
        // Rows of their own first: they say more than a batch.
        for token in state.tokens {
            self.restore_any(token, None, &unfit, now);
        }
        for batch in state.batches {
            self.restore_batch(batch, &unfit, now);
        }
        for (policy, tokens) in state.counted {
            self.ledger.unreadable(policy, tokens, now);
        }
        if let Some(until_us) = state.counted_until_us {
            self.ledger.runs.all_mut().for_each(|run| run.due_was_counted(until_us.min(now.wall_us)));
        }
        let done: Vec<_> = self.ledger.runs.all().map(|run| run.row.id).collect();
        for run in done {
            self.finish_if_done(run, now);
        }
    }

    fn restore_run(&mut self, row: Run, unstarted: Vec<Unstarted>, now: Now) {
        let Some(spec) = self.specs.share(&(row.schedule_uid, row.generation)) else { return };
        let (id, running) = (row.id, row.state == RunState::Running);
        let mut run = LiveRun::new(row, spec);
        run.sorted = run.row.sorted_to.map(|to| Box::new(Sorted::restored(unstarted, to)));
        let start_us = run.start_us();
        self.ledger.run_enters(run, now);
        if running {
            self.set_launched(id, now);
        } else {
            self.wall_timers.insert((self.options.early_at_us(start_us), WallTimer::Launch(id)));
        }
    }

    /// What a batch says of an event that is elsewhere already does not count; the next commit puts it right, and drops a
    /// batch of which nothing is left.
    fn restore_batch(
        &mut self,
        mut batch: TokenBatch,
        unfit: &BTreeMap<RunId, (Option<Uuid>, u32)>,
        now: Now,
    ) {
        let key = batch.key();
        for row in batch.rows().collect::<Vec<_>>() {
            if self.ledger.tokens.contains(&(row.run, row.index)) {
                batch.leave(row.index);
                self.pending.batches.insert(key);
            } else {
                self.restore_any(row, Some(batch.first), unfit, now);
            }
        }
        if batch.is_empty() {
            self.pending.batches.insert(key);
        }
        if self.ledger.runs.contains(&batch.run) {
            self.batches.insert(key, batch);
        }
    }

    fn restore_any(
        &mut self,
        token: TokenRow,
        batch: Option<u32>,
        unfit: &BTreeMap<RunId, (Option<Uuid>, u32)>,
        now: Now,
    ) {
        match unfit.get(&token.run) {
            // Nobody can work on the run, and the consumer may well have the event.
            Some((policy, units)) if token.state != TokenState::Waiting => {
                self.ledger.unreadable(*policy, *units, now);
            }
            Some(_) => {}
            None => self.restore_token(token, batch, now),
        }
    }

    fn restore_token(&mut self, row: TokenRow, batch: Option<u32>, now: Now) {
        let key = (row.run, row.index);
        let Some(run) = self.ledger.runs.get(&row.run) else { return };
        let (policy, state, due_us) = (run.row.policy_uid, row.state, row.due_us);
        let mut token =
            LiveToken::new(row, policy, run.load_at_first(), (Phase::restored(state), now.mono_us));
        (token.stored, token.batch) = (true, batch);
        token.doubtful = state == TokenState::Acquired;
        self.ledger.enter(key, token);
        match state {
            TokenState::Waiting => {
                self.wall_timers.insert((due_us, WallTimer::Retry(key.0, key.1)));
            }
            // Nobody knows whether it was delivered: it is delivered again.
            TokenState::Acquired => self.send_again_at(key, now.mono_us),
            TokenState::Held => self.arm_silence(key, now),
        }
        self.needs_key(key.0);
        self.sync_lane(key.0, now);
    }
}
