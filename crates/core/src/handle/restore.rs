//! From rows to memory: what a new owner makes of unfinished runs and their tokens.
//!
//! Nobody knows what became of deliveries that were under way: they are made again, with the next attempt. Silence
//! counts from the takeover on, so that down-time expires nothing.

use std::collections::BTreeMap;

use super::bucket::Bucket;
use super::change::{TokenRow, TokenState};
use super::live::{LiveRun, LiveToken};
use super::planted::Planted;
use super::shard::{Shard, State, WallTimer};
use crate::model::{Now, Run, RunState};

impl Shard {
    /// Takes in what the store knew of the shard. What happened to it meanwhile happens now.
    pub(super) fn restore(&mut self, state: State, now: Now) {
        self.pause = state.pause;
        for policy in state.policies {
            self.buckets.insert(Some(policy.uid), Bucket::new(Some(policy), now));
        }
        self.keep_specs(state.specs);
        for row in state.schedules {
            self.forget_later(&row);
            let uid = row.uid;
            self.schedules.entry(uid).or_default().row = Some(row);
        }
        let mut unfit = BTreeMap::new();
        for run in state.runs {
            let (id, policy) = (run.id, run.policy_uid);
            self.restore_run(run, now);
            if !self.runs.contains_key(&id) {
                unfit.insert(id, policy);
            }
        }
        let batches = state.batches;
        let batched = batches.iter().flat_map(|b| b.rows().map(|row| (row, Some(b.first))));
        for (token, batch) in batched.chain(state.tokens.into_iter().map(|row| (row, None))) {
            match unfit.get(&token.run) {
                // Nobody can work on the run, and the consumer may well have the event.
                Some(policy) if token.state != TokenState::Waiting => self.bucket(*policy, now).held += 1,
                Some(_) => {}
                None => self.restore_token(token, batch, now),
            }
        }
        let fit = batches.into_iter().filter(|b| self.runs.contains_key(&b.run));
        self.batches = fit.map(|b| (b.key(), b)).collect();
        for (policy, tokens) in state.counted {
            self.bucket(policy, now).held += tokens;
        }
        let uids: Vec<_> = self.schedules.keys().copied().collect();
        for uid in uids {
            self.park_if_needed(uid);
        }
        let done: Vec<_> = self.runs.keys().copied().collect();
        for run in done {
            self.finish_if_done(run, now);
        }
    }

    fn restore_run(&mut self, row: Run, now: Now) {
        let Some(spec) = self.specs.get(&(row.schedule_uid, row.generation)).cloned() else { return };
        self.bucket(row.policy_uid, now).runs += 1;
        let (id, launch_us, running) = (row.id, row.launch_us, row.state == RunState::Running);
        let schedule = row.schedule_uid;
        self.runs.insert(id, LiveRun::new(row, spec));
        if running {
            self.schedules.entry(schedule).or_default().active.insert(id);
            self.set_launched(id, now);
        } else {
            self.schedules.entry(schedule).or_default();
            self.wall_timers.insert((launch_us, WallTimer::Launch(id)));
        }
    }

    fn restore_token(&mut self, row: TokenRow, batch: Option<u32>, now: Now) {
        let key = (row.run, row.index);
        let goes_on = self.has(Planted::TtlRunsWhileDown);
        let Some(run) = self.runs.get_mut(&row.run) else { return };
        let policy = run.row.policy_uid;
        run.outstanding += 1;
        let state = row.state;
        let due_us = row.due_us;
        let mut token = LiveToken::new(row, policy, now.mono_us);
        (token.stored, token.batch) = (true, batch);
        if let Some(delivered_us) = token.row.delivered_us.filter(|_| goes_on) {
            token.sign_us -= now.wall_us - delivered_us;
        }
        token.doubtful = state == TokenState::Acquired;
        self.tokens.insert(key, token);
        match state {
            TokenState::Waiting => {
                run.retrying += 1;
                self.wall_timers.insert((due_us, WallTimer::Retry(key.0, key.1)));
            }
            // Nobody knows whether it was delivered: it is delivered again.
            TokenState::Acquired => {
                let bucket = self.bucket(policy, now);
                bucket.held += 1;
                bucket.sending += 1;
                self.arm(key, Some(now.mono_us));
            }
            TokenState::Held => {
                self.bucket(policy, now).held += 1;
                self.arm_silence(key, now);
            }
        }
        self.sync_lane(key.0, now);
    }
}
