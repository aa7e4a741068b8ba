//! From due to acquired: launches, lanes, tokens.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::bucket::Bucket;
use super::change::{HistoryRow, Outcome, ShardSchedule, TokenRow};
use super::exchange::{Effect, Pulled, Send};
use super::keys::KeyOf;
use super::live::{LiveRun, LiveToken};
use super::queue::Work;
use super::shard::{Shard, WallTimer};
use crate::model::{
    MinuteCounts, Now, OverlapRule, Reclaim, Run, RunId, RunKind, RunState, SkipReason, Skipped,
};

/// Why the runs of a deleted schedule are cancelled.
pub(super) const DELETED: &str = "its schedule was deleted";

impl Shard {
    /// Takes in one emitted run, unless its schedule has changed since it was emitted.
    pub(super) fn adopt_run(&mut self, mut run: Run, now: Now) {
        if run.kind == RunKind::Followed {
            self.followed.insert(run.id, self.pending_commit(), ());
        }
        if let Some(row) = self.schedules.get(&run.schedule_uid).and_then(|s| s.row.as_ref()) {
            let current = (row.generation, self.events_now(&run, row), row.priority);
            if self.is_withdrawn(&run) {
                self.record_withdrawn(run.id);
                return;
            }
            if row.is_stale(&run) {
                (run.generation, run.events, run.priority) = current;
            }
            if row.deleted {
                self.cancel_untaken(run, DELETED.to_owned(), now);
                return;
            }
        }
        let key = (run.schedule_uid, run.generation);
        if run.events == 0 {
            match self.specs.get(&key) {
                Some(spec) if spec.payload.from.is_some() => self.await_list(run),
                _ => self.pass_over(run),
            }
            return;
        }
        let Some(spec) = self.specs.share(&key) else {
            self.pass_over(run);
            return;
        };
        run.reason.clear();
        if run.kind == RunKind::Scheduled {
            run.policy_uid = spec.policy_uid;
        }
        run.state = RunState::Waiting;
        self.pending.runs.insert(run.id);
        let run = LiveRun::new(run, spec);
        let at_us = self.options.early_at_us(run.start_us());
        self.wall_timers.insert((at_us, WallTimer::Launch(run.row.id)));
        self.ledger.run_enters(run, now);
    }

    /// How many events a run of an earlier generation has in that of `row`: where both have the same list, what was fetched
    /// for it holds.
    pub(super) fn events_now(&self, run: &Run, row: &ShardSchedule) -> u32 {
        let from =
            |generation| self.specs.get(&(row.uid, generation)).and_then(|spec| spec.payload.from.as_ref());
        match (from(run.generation), from(row.generation)) {
            (Some(before), Some(now)) if before == now => run.events,
            _ => row.events,
        }
    }

    /// The items of a run are to be fetched first. Until they have been, no owner knows of it.
    fn await_list(&mut self, mut run: Run) {
        run.state = RunState::Listing;
        run.reason.clear();
        (run.next_index, run.sorted_to) = (0, None);
        self.gone.insert(run.id, self.pending_commit(), false);
        self.listing.insert(run.id, self.pending_commit(), ());
        self.pending.urgent = true;
        match self.pending.made.get_mut(&run.id) {
            Some(made) => *made = run,
            None => self.pending.changes.runs_changed.push(run),
        }
    }

    /// Whether an untaken run is no run any more: its schedule has changed since, and does not fire here at that time.
    pub(super) fn is_withdrawn(&self, run: &Run) -> bool {
        let row = self.schedules.get(&run.schedule_uid).and_then(|schedule| schedule.row.as_ref());
        row.is_some_and(|row| {
            let fires = !row.deleted && row.launches_us.binary_search(&run.launch_us).is_ok();
            row.is_stale(run) && !fires
        })
    }

    /// The specs, besides their own, that runs need which an emitter has handed over: those of the generations that have
    /// taken the place of theirs. To be asked before [`Self::adopt`].
    pub fn specs_wanted(&self, runs: &[Run]) -> Vec<(Uuid, i64)> {
        let current = |run: &Run| {
            let row = self.schedules.get(&run.schedule_uid)?.row.as_ref()?;
            let wanted = (row.uid, row.generation);
            (run.kind == RunKind::Scheduled
                && row.generation > run.generation
                && self.specs.get(&wanted).is_none())
            .then_some(wanted)
        };
        runs.iter().filter_map(current).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Nobody can work on the run without its spec. It is marked, so that it is in nobody's way.
    fn pass_over(&mut self, mut run: Run) {
        if run.state == RunState::Emitted {
            run.state = RunState::Unreadable;
            run.reason = format!("the spec of its schedule's generation {} cannot be read", run.generation);
            self.pending.changes.runs_changed.push(run);
            self.passed_over += 1;
            self.pending.urgent = true;
        }
    }

    /// Ends a run that no owner has taken in, without anything of it having started.
    pub(super) fn cancel_untaken(&mut self, mut run: Run, reason: String, now: Now) {
        run.state = RunState::Cancelled;
        run.reason = if reason.is_empty() { "cancelled".to_owned() } else { reason };
        let events = run.events - run.next_index;
        // Before its items have been fetched it has none.
        let ended = (events > 0).then(|| HistoryRow {
            run: run.id,
            index: run.next_index,
            count: events,
            outcome: Outcome::Cancelled,
            attempt: 0,
            acquired_us: None,
            delivered_us: None,
            finished_us: now.wall_us,
            message: run.reason.clone(),
        });
        self.pending.changes.history.extend(ended);
        let (due, cancelled) = (events.into(), events.into());
        self.minutes.next(&run, MinuteCounts { due, cancelled, ..MinuteCounts::default() });
        run.counts.cancelled += events;
        run.next_index = run.events;
        run.finished_us = Some(now.wall_us);
        self.gone.insert(run.id, self.pending_commit(), false);
        let spec = self.specs.get(&(run.schedule_uid, run.generation)).cloned();
        self.run_ended(&run, spec.as_deref());
        self.pending.changes.runs_changed.push(run);
        self.pending.urgent = true;
    }

    /// The time at which a run starts has come: its schedule's overlap rule decides.
    pub(super) fn launch(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.get(&id) else { return };
        if run.launched {
            return;
        }
        let (uid, rule) = (run.row.schedule_uid, run.spec.overlap);
        let (is_automatic, own) = (run.row.kind.is_automatic(), run.chain());
        let schedule = self.schedules.entry(uid).or_default();
        let other = schedule.active.other_than(id);
        let chain = schedule.chain_but(own).filter(|_| other.is_none());
        let rest_until_us = schedule.rest_until_us();
        if !is_automatic || other.or(chain).is_none() && rest_until_us <= now.wall_us {
            if schedule.buffered == Some(id) {
                schedule.buffered = None;
            }
            self.set_launched(id, now);
            return;
        }
        match rule {
            OverlapRule::Allow => self.set_launched(id, now),
            OverlapRule::BufferOne if schedule.buffered.is_none_or(|b| b == id) => {
                schedule.buffered = Some(id);
                self.launch_buffered(uid, now);
                self.arm_window(id);
            }
            OverlapRule::Skip | OverlapRule::BufferOne => {
                let reason = match (other, chain) {
                    (Some(other), _) => format!("overlap: the run {other} was unfinished"),
                    (None, Some(first)) => format!("overlap: the chain of the run {first} was unfinished"),
                    (None, None) => "overlap: its schedule rested after the run before".to_owned(),
                };
                self.skip(id, reason, now);
            }
            OverlapRule::CancelOther => {
                for other in schedule.active.not_cancelled() {
                    if other != id {
                        self.cancel(other, format!("overlap: the run {id} fell due"), now);
                    }
                }
                self.set_launched(id, now);
            }
        }
    }

    fn skip(&mut self, id: RunId, reason: String, now: Now) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        run.row.state = RunState::Skipped;
        run.row.reason = reason;
        run.noted.pass_over(run.row.events - run.row.next_index);
        (run.row.next_index, run.row.sorted_to) = (run.row.events, None);
        run.row.finished_us = Some(now.wall_us);
        self.pending.changes.skipped.push(Skipped {
            schedule_uid: run.row.schedule_uid,
            launch_us: run.row.launch_us,
            reason: SkipReason::Overlap,
            recorded_us: now.wall_us,
        });
        self.retire(id, now);
    }

    /// From now on the run's events may start.
    pub(super) fn set_launched(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.run_launches(&id) else { return };
        self.schedules.entry(run.row.schedule_uid).or_default().active.insert(id, run.cancelled);
        self.arm_window(id);
        self.sync_lane(id, now);
    }

    fn arm_window(&mut self, id: RunId) {
        if let Some(at_us) = self.ledger.runs.get(&id).and_then(LiveRun::window_end_us) {
            self.wall_timers.insert((at_us, WallTimer::FinishBy(id)));
        }
    }

    /// Puts a run into its lane or takes it out, as its state says.
    pub(super) fn sync_lane(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.get(&id) else { return };
        if self.is_by_key(run) {
            return self.sync_sorted(id, now);
        }
        let wants = run.wants(self.options.retrying_max);
        let due = run.next_is_due(now.wall_us, &self.options);
        if wants && !due {
            let near_us = self.options.early_at_us(run.launch_of(run.row.next_index));
            if near_us <= now.wall_us {
                self.near.insert(id);
            } else {
                self.wall_timers.insert((near_us, WallTimer::Spread(id)));
            }
        }
        if !(wants && due) {
            self.leave_lane(id);
        } else if !run.in_lane {
            self.join_lane(id);
        }
    }

    /// Puts a run into its lane.
    pub(super) fn join_lane(&mut self, id: RunId) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        if !std::mem::replace(&mut run.in_lane, true) {
            let (run, row) = (&*run, &run.row);
            let queue = self.queues.entry(row.policy_uid).or_default();
            run.lanes().for_each(|lane| queue.push_run(lane, row.launch_us, id));
            let (policy, uid) = (row.policy_uid, row.schedule_uid);
            self.ledger.ready.insert(policy);
            self.park_in(policy, uid);
        }
    }

    pub(super) fn leave_lane(&mut self, id: RunId) {
        let Some(run) = self.ledger.runs.get_mut(&id) else { return };
        if std::mem::take(&mut run.in_lane)
            && let Some(queue) = self.queues.get_mut(&run.row.policy_uid)
        {
            run.lanes().for_each(|lane| queue.remove_run(lane, run.row.launch_us, id));
            if queue.is_open() {
                self.ledger.ready.insert(run.row.policy_uid);
            }
        }
    }

    /// A waiting event's time has come: it joins its queue.
    pub(super) fn retry_is_due(&mut self, id: RunId, index: u32) {
        let Some(run) = self.ledger.runs.get(&id) else { return };
        let Some(token) = self.ledger.tokens.get(&(id, index)) else { return };
        if token.in_flight() || token.queued {
            return;
        }
        let (policy, uid) = (token.policy, run.row.schedule_uid);
        if token.load.key == KeyOf::Unread && self.needs_items(run) {
            return self.needs_key(id);
        }
        let Some(token) = self.ledger.tokens.get_mut(&(id, index)) else { return };
        token.queued = true;
        self.queues.entry(policy).or_default().push_retry(
            run.lane(&token.load.key),
            token.queued_us(),
            id,
            index,
        );
        self.ledger.ready.insert(policy);
        self.park_in(policy, uid);
    }

    /// A schedule that is paused, or whose target asked for a pause, takes no turns: to be called when that changes.
    pub(super) fn park_if_needed(&mut self, uid: Uuid) {
        let parked = self.is_parked(uid);
        for policy in self.ledger.runs.policies_of(uid) {
            let Some(queue) = self.queues.get_mut(&policy) else { continue };
            if queue.park(uid, parked) && !parked || queue.is_open() {
                self.ledger.ready.insert(policy);
            }
        }
    }

    /// As [`Self::park_if_needed`], for what has just joined the queue of one policy.
    pub(super) fn park_in(&mut self, policy: Option<Uuid>, uid: Uuid) {
        if self.is_parked(uid)
            && let Some(queue) = self.queues.get_mut(&policy)
        {
            queue.park(uid, true);
        }
    }

    fn is_parked(&self, uid: Uuid) -> bool {
        self.schedules.get(&uid).is_some_and(super::live::LiveSchedule::is_parked)
    }

    /// What has not started by the end of its window is recorded as one range.
    pub(super) fn window_ended(&mut self, id: RunId, now: Now) {
        let Some(run) = self.ledger.runs.stir(&id) else { return };
        // The timer may be an earlier generation's.
        if run.window_end_us().is_none_or(|at_us| at_us > now.wall_us) {
            return;
        }
        // A run that waits for another one has nothing left to wait for.
        run.launched = true;
        self.close_unstarted(id, Outcome::Expired, "not started within its window", now);
        self.finish_if_done(id, now);
    }

    /// Ends every event from the next index on without starting it.
    pub(super) fn close_unstarted(&mut self, id: RunId, outcome: Outcome, message: &str, now: Now) {
        let Some(run) = self.ledger.runs.stir(&id) else { return };
        let count = run.row.events - run.row.next_index;
        if count == 0 {
            return;
        }
        let unstarted = run.unstarted();
        run.noted.pass_over(count);
        run.row.next_index = run.row.events;
        self.pending.urgent = true;
        self.pending.changes.history.extend(unstarted.into_iter().map(|range| HistoryRow {
            run: id,
            index: range.start,
            count: range.end - range.start,
            outcome,
            attempt: 0,
            acquired_us: None,
            delivered_us: None,
            finished_us: now.wall_us,
            message: message.to_owned(),
        }));
        self.count(id, outcome, count);
        self.leave_lane(id);
        self.forget_keys(id);
        if let Some(run) = self.ledger.runs.get_mut(&id) {
            run.row.sorted_to = None;
        }
    }

    /// Acquires a token for one piece of work. False where the work has vanished.
    pub(super) fn start(&mut self, work: Work, now: Now) -> bool {
        let key = match work {
            Work::Retry(id, index) => {
                let key = (id, index);
                let Some(token) = self.ledger.tokens.get_mut(&key) else { return false };
                token.queued = false;
                if token.in_flight() {
                    return self.start_again(key, now);
                }
                token.row.attempt += 1;
                token.row.delivered_us = None;
                token.row.heartbeat_ttl_ms = None;
                let (policy, of) = (token.policy, token.load.key.clone());
                self.ledger.turn(key, self.ledger.sending_under(policy));
                self.spend(policy, id, &of, now);
                key
            }
            Work::Next(id, group) => {
                let of_key = self.take_of_key(id, group);
                let Some(run) = self.ledger.runs.get_mut(&id) else { return false };
                let (index, load) = match of_key {
                    Some(taken) => taken,
                    None if run.sorted.is_some() => return false,
                    None => (run.row.next_index, run.load_at_first()),
                };
                run.row.next_index += 1;
                if run.row.started_us.is_none() {
                    run.row.started_us = Some(now.wall_us.max(run.start_us()));
                    run.row.state = RunState::Running;
                    // The run before may have handed on its own.
                    if run.row.predecessor.is_none() || run.row.cursor_in.is_none() {
                        let schedule = self.schedules.get(&run.row.schedule_uid);
                        run.row.cursor_in =
                            schedule.and_then(|s| s.row.as_ref()).and_then(|r| r.cursor.clone());
                    }
                }
                self.pending.runs.insert(id);
                let (key, policy) = ((id, index), run.row.policy_uid);
                let row = TokenRow::acquired(key, now.wall_us.max(run.launch_of(index)));
                self.spend(policy, id, &load.key, now);
                let phase = self.ledger.sending_under(policy);
                self.ledger.enter(key, LiveToken::new(row, policy, load, (phase, now.mono_us)));
                key
            }
        };
        self.sync_lane(key.0, now);
        self.send(key);
        true
    }

    /// What the rates let through becomes one less.
    fn spend(&mut self, policy: Option<Uuid>, run: RunId, of: &KeyOf, now: Now) {
        let bucket = self.ledger.buckets.entry(policy).or_insert_with(|| Bucket::unknown(now));
        bucket.spend();
        let parent = bucket.parent();
        if let Some(run) = self.ledger.runs.get(&run) {
            bucket.spend_of(run.key(of), &run.sharer.with(of), now);
        }
        if parent.is_some() {
            self.spend_above(policy);
        }
    }

    /// Sends an event that holds its token again. False where that is not to be done any more, or not yet.
    fn start_again(&mut self, key: (RunId, u32), now: Now) -> bool {
        let (Some(run), Some(token)) = (self.ledger.runs.get(&key.0), self.ledger.tokens.get(&key)) else {
            return false;
        };
        if token.again_us().is_none() {
            return false;
        }
        if run.cancelled {
            self.hold(key, now);
            return false;
        }
        let (policy, of) = (token.policy, token.load.key.clone());
        self.spend(policy, key.0, &of, now);
        self.send_again(key);
        self.sync_lane(key.0, now);
        true
    }

    /// The cursor that an event gets: that of its run, or, where it has come again, the one that was left last.
    fn cursor_for(&self, run: &LiveRun, checks: u32) -> Option<String> {
        let row = &run.row;
        if checks == 0 {
            return row.cursor_in.clone();
        }
        let schedule = self.schedules.get(&row.schedule_uid).and_then(|schedule| schedule.row.as_ref());
        // Where the schedule lives elsewhere by now, or nowhere, what is here may be older than the run's own.
        let latest =
            schedule.filter(|row| row.home.is_none() && !row.deleted).and_then(|row| row.cursor.as_ref());
        latest.or(row.cursor_out.as_ref()).or(row.cursor_in.as_ref()).cloned()
    }

    /// Sends once the pending changes are durable.
    pub(super) fn send(&mut self, key: (RunId, u32)) {
        let (Some(run), Some(token)) = (self.ledger.runs.get(&key.0), self.ledger.tokens.get(&key)) else {
            return;
        };
        self.pending.urgent = true;
        self.pending.tokens.insert(key);
        if let Some(pool) = run.pool() {
            self.rooms.take(pool);
        }
        self.pending.effects.push(Effect::Send(Send {
            run: key.0,
            named_shard: run.row.named_shard(),
            index: key.1,
            attempt: token.row.attempt,
            events: run.row.events,
            launch_us: run.launch_of(key.1),
            checks: token.row.checks,
            cursor: self.cursor_for(run, token.row.checks),
            explicit_release: run.spec.target.releases_explicitly(token.policy.is_some()),
            spec: run.spec.clone(),
            predecessor: run.row.predecessor.clone(),
            item_in: run.spec.items_of(&run.row),
            pulled: run.pool().map(|pool| {
                let (ttl_ms, _, reclaim) = self.ttl_of(key);
                let token_ttl_ms = (reclaim == Reclaim::AfterTtl).then_some(ttl_ms);
                Pulled { pool, silence_ms: self.silence_ms(key), token_ttl_ms }
            }),
        }));
    }
}
