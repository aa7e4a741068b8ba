//! The ends of things: events, runs, and what nobody needs any more.

use uuid::Uuid;

use super::change::{HistoryRow, Outcome, ShardSchedule};
use super::ledger::Phase;
use super::live::{LiveRun, LiveToken};
use super::shard::{Shard, WallTimer};
use crate::model::{Now, RunId, RunState, SECOND_US};

impl Shard {
    /// Takes an event out of memory and gives its token back.
    pub(super) fn drop_token(&mut self, key: (RunId, u32)) -> Option<LiveToken> {
        self.arm(key, None);
        self.leave_queue(key);
        let token = self.ledger.leave(key)?;
        self.pending.tokens.remove(&key);
        match token.batch {
            Some(first) => self.leave_batch(key, first),
            None if token.stored => self.pending.changes.tokens_gone.push(key),
            None => {}
        }
        if !token.in_flight() {
            self.wall_timers.remove(&(token.row.due_us, WallTimer::Retry(key.0, key.1)));
        }
        Some(token)
    }

    /// It is not to be sent again, or not yet. Whether it was.
    pub(super) fn leave_queue(&mut self, key: (RunId, u32)) -> bool {
        let Some(token) = self.ledger.tokens.get_mut(&key) else { return false };
        let again = token.again_us().is_some();
        if std::mem::take(&mut token.queued)
            && let (Some(run), Some(queue)) =
                (self.ledger.runs.get(&key.0), self.queues.get_mut(&token.policy))
        {
            queue.remove_retry(run.lane(&token.load.key), token.queued_us(), key.0, key.1);
            if queue.is_open() {
                self.ledger.ready.insert(token.policy);
            }
        }
        if again {
            self.ledger.turn(key, Phase::Acquired);
        }
        again
    }

    /// An event has ended: its row goes, the done queue gets one.
    pub(super) fn finish(&mut self, key: (RunId, u32), outcome: Outcome, message: String, now: Now) {
        let Some(token) = self.drop_token(key) else { return };
        self.tally_end(&token, now);
        self.pending.urgent = true;
        self.pending.changes.history.push(HistoryRow {
            run: key.0,
            index: key.1,
            count: 1,
            outcome,
            attempt: token.row.attempt,
            acquired_us: Some(token.row.acquired_us),
            delivered_us: token.row.delivered_us,
            finished_us: now.wall_us,
            message,
        });
        self.count(key.0, outcome, 1);
        self.finish_if_done(key.0, now);
    }

    pub(super) fn count(&mut self, run: RunId, outcome: Outcome, events: u32) {
        let Some(run) = self.ledger.runs.get_mut(&run) else { return };
        let counts = &mut run.row.counts;
        *match outcome {
            Outcome::Succeeded => &mut counts.succeeded,
            Outcome::Failed => &mut counts.failed,
            Outcome::Dead => &mut counts.dead,
            Outcome::Expired => &mut counts.expired,
            Outcome::Cancelled => &mut counts.cancelled,
            Outcome::Lost => &mut counts.lost,
        } += events;
        self.pending.runs.insert(run.row.id);
    }

    /// Closes a run of which nothing is left, and lets the run that waits for it go.
    pub(super) fn finish_if_done(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        if run.row.next_index < run.row.events || run.counts.outstanding() > 0 || !run.launched {
            self.sync_lane(id, now);
            return;
        }
        run.row.state = if run.cancelled { RunState::Cancelled } else { RunState::Finished };
        run.row.finished_us = Some(now.wall_us);
        self.retire(id, now);
    }

    /// Forgets a run whose last row is written.
    pub(super) fn retire(&mut self, id: RunId, now: Now) {
        self.leave_lane(id);
        self.pending.runs.remove(&id);
        let Some(mut run) = self.leave_run(id) else { return };
        self.count_last(&mut run);
        self.pending.urgent = true;
        let (uid, delay_s) = (run.row.schedule_uid, run.spec.delay_after_finish_s);
        self.gone.insert(id, self.pending_commit(), false);
        self.run_ended(&run.row, Some(&run.spec));
        self.pending.changes.runs_changed.push(run.row);
        if let Some(delay_s) = delay_s {
            self.rest_after(uid, id, delay_s, now);
        }
        self.leave_schedule(uid, id, now);
    }

    /// The schedule of a run that has ended rests, if the run had launched.
    fn rest_after(&mut self, uid: Uuid, id: RunId, delay_s: i64, now: Now) {
        let Some(schedule) = self.schedules.get_mut(&uid).filter(|schedule| schedule.active.has(id)) else {
            return;
        };
        let row = schedule.row.get_or_insert_with(|| ShardSchedule::unknown(uid));
        if row.deleted {
            return;
        }
        row.rest_until_us = now.wall_us.saturating_add(delay_s.saturating_mul(SECOND_US));
        self.wall_timers.insert((row.rest_until_us, WallTimer::Forget(uid)));
        self.pending.schedules.insert(uid);
    }

    /// Takes a run out of memory; with the last one of a bucket that goes, its queue.
    pub(super) fn leave_run(&mut self, id: RunId) -> Option<LiveRun> {
        self.leave_key_reads(id);
        let mut run = self.ledger.run_leaves(id)?;
        self.minutes.leaves(&mut run);
        self.specs.give_back((run.row.schedule_uid, run.row.generation));
        if !self.ledger.buckets.contains_key(&run.row.policy_uid) {
            self.queues.remove(&run.row.policy_uid);
        }
        Some(run)
    }

    fn leave_schedule(&mut self, uid: Uuid, id: RunId, now: Now) {
        let Some(schedule) = self.schedules.get_mut(&uid) else { return };
        schedule.active.remove(id);
        if schedule.buffered == Some(id) {
            schedule.buffered = None;
        }
        self.launch_buffered(uid, now);
        self.forget_if_idle(uid);
    }

    /// The run that waits for the others of its schedule goes, once these have ended and the schedule has rested.
    pub(super) fn launch_buffered(&mut self, uid: Uuid, now: Now) {
        let next = self.schedules.get(&uid).and_then(|schedule| schedule.buffered);
        let own = next.and_then(|next| self.ledger.runs.get(&next)).and_then(LiveRun::chain);
        let schedule = self.schedules.get_mut(&uid).filter(|schedule| schedule.is_free_for(own));
        let Some(schedule) = schedule else { return };
        let rest_until_us = schedule.rest_until_us();
        if rest_until_us > now.wall_us {
            if let Some(next) = schedule.buffered {
                self.wall_timers.insert((rest_until_us, WallTimer::Launch(next)));
            }
        } else if let Some(next) = schedule.buffered.take() {
            self.set_launched(next, now);
        }
    }
}
