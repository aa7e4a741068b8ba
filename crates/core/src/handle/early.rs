//! Tokens that are taken a moment before the launch time, so that what is sent then does not wait for a commit.
//!
//! In: runs whose launch time is near, durable acquisitions. Out: the deliveries, once their launch time has come.
//! Invariants: nothing is sent before its launch time by the wall clock; what has been paused or cancelled by then is
//! not sent; work that is due never finds more than half of a policy's tokens taken by what is not.

use super::change::Outcome;
use super::exchange::{Effect, Send};
use super::live::{LiveRun, LiveSchedule};
use super::shard::{Shard, WallTimer};
use crate::model::{Now, OverlapRule, RunId};

impl Shard {
    /// Whether what falls due next in a run does so soon, and not yet.
    pub(super) fn is_near(&self, id: RunId, now: Now) -> bool {
        self.ledger.runs.get(&id).is_some_and(|run| run.falls_due_us() > now.wall_us)
    }

    /// Whether its schedule's overlap rule lets a run go before its launch time: no unfinished run could still
    /// change the decision.
    fn may_launch_early(&self, run: &LiveRun, now: Now) -> bool {
        let schedule = self.schedules.get(&run.row.schedule_uid);
        let is_free = |s: &LiveSchedule| s.is_free() && s.rest_until_us() <= now.wall_us;
        schedule.is_none_or(is_free) || run.spec.overlap == OverlapRule::Allow
    }

    /// Whether what falls due next in a run may take its tokens now: its time is near, nothing else waits for them, and
    /// more than enough are free.
    fn may_start_early(&self, run: &LiveRun, now: Now) -> bool {
        let (policy, next_index) = (run.row.policy_uid, run.row.next_index);
        let due_us = run.launch_of(next_index);
        let near = self.options.early_at_us(due_us) <= now.wall_us;
        let within = run.window_end_us().is_none_or(|end_us| due_us < end_us);
        let parked = self.schedules.get(&run.row.schedule_uid).is_some_and(LiveSchedule::is_parked);
        // The keys of its items are read when it launches.
        if self.is_by_key(run) {
            return false;
        }
        if !near || !within || parked || self.draining || self.pause.pause.is_some() {
            return false;
        }
        if self.queues.get(&policy).is_some_and(|queue| !queue.is_empty()) {
            return false;
        }
        let events = if run.spec.spread_s.is_some() { 1 } else { run.row.events - next_index };
        let tokens = events.saturating_mul(run.load_at_first().units);
        let (is_bounded, sends_max) = (self.ledger.is_bounded(policy), self.options.sends_max);
        let own = self.ledger.buckets.get(&policy).is_some_and(|bucket| {
            bucket.allows_early(tokens)
                && (is_bounded || bucket.has_places_early(events, sends_max))
                && bucket.allows_key_early(run.spec.key(), &run.sharer, tokens)
        });
        own && self.ledger.above(policy).all(|(_, above)| above.allows_early(tokens))
    }

    /// Starts what falls due within a moment, as far as it may; the rest waits for its time. To be called when all that is
    /// due has been dealt with.
    pub(super) fn start_early(&mut self, now: Now) {
        while let Some(id) = self.near.pop_first() {
            let Some(run) = self.ledger.runs.get(&id) else { continue };
            if run.in_lane || run.launched && !run.wants(self.options.retrying_max) {
                continue;
            }
            let may_launch = run.launched || self.may_launch_early(run, now);
            if !may_launch || !self.may_start_early(run, now) {
                let timer = if run.launched { WallTimer::Spread(id) } else { WallTimer::Launch(id) };
                self.wall_timers.insert((run.falls_due_us(), timer));
                continue;
            }
            let policy = run.row.policy_uid;
            if run.launched {
                self.join_lane(id);
            } else {
                self.set_launched(id, now);
            }
            self.dispatch_from(policy, now);
        }
    }

    /// The deliveries whose launch times have come since their commits. To be asked for whenever time has passed,
    /// whether or not a commit is under way.
    pub fn due(&mut self, now: Now) -> Vec<Effect> {
        let mut due = Vec::new();
        while let Some(first) = self.early.first_entry().filter(|first| first.key().0 <= now.wall_us) {
            let send = first.remove();
            if self.is_wanted(&send) && !self.is_called_off(&send, now) {
                due.push(Effect::Send(send));
            } else {
                self.put_back_room(&send);
            }
        }
        due
    }

    /// Whether a pause or a cancel came first. The event gives its token back, unless a delivery before this one may have
    /// reached its consumer.
    fn is_called_off(&mut self, send: &Send, now: Now) -> bool {
        let key = (send.run, send.index);
        let (Some(run), Some(token)) = (self.ledger.runs.get(&send.run), self.ledger.tokens.get(&key)) else {
            return true;
        };
        let parked = self.schedules.get(&run.row.schedule_uid).is_some_and(LiveSchedule::is_parked);
        let bucket = self.ledger.buckets.get(&token.policy);
        let key_paused =
            bucket.is_some_and(|bucket| bucket.may_be_paused(run.key(&token.load.key), &token.load.key));
        let policy_paused = key_paused || self.ledger.is_paused(token.policy);
        if !(run.cancelled || parked || policy_paused || self.pause.pause.is_some()) {
            return false;
        }
        if token.doubtful {
            self.send_again_at(key, now.mono_us);
        } else if run.cancelled {
            self.finish(key, Outcome::Cancelled, String::new(), now);
        } else {
            self.wait(key, send.launch_us, String::new());
            self.sync_lane(send.run, now);
        }
        true
    }
}
