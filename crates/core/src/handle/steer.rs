//! Control messages: policies, schedules, cancels, retries of the dead, pauses. They go before everything else.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::again::queued_again;
use super::change::{HistoryRow, Outcome, ShardPause, ShardSchedule, TokenRow, TokenState};
use super::control::{Control, Message};
use super::cursor::cursor_message;
use super::exchange::{Context, MessageNeeds};
use super::ledger::Phase;
use super::live::{LiveRun, LiveToken};
use super::shard::{Shard, WallTimer};
use super::steps::Counted as _;
use crate::model::{Counts, DAY_US, Now, Policy, Run, RunId, RunKind, RunState};

impl MessageNeeds {
    /// What must be read before this message is handed over.
    pub fn of(control: &Control) -> Self {
        match control {
            Control::ScheduleChanged { schedule, .. } => Self {
                specs: vec![(schedule.uid, schedule.generation)],
                runs: schedule.launches_us.iter().map(|l| RunId::derive(schedule.uid, *l)).collect(),
                dead: None,
            },
            Control::CancelRun { run, .. } => Self { runs: vec![*run], ..Self::default() },
            Control::RetryDead { run, indexes } => {
                Self { runs: vec![*run], dead: Some((*run, indexes.clone())), ..Self::default() }
            }
            _ => Self::default(),
        }
    }
}

impl Shard {
    /// Carries out a message of the inbox; its row goes with the next commit. One that was taken in already is
    /// passed over, and so is one that waits for its run.
    pub fn control(&mut self, message: Message, mut context: Context, now: Now) {
        let known = self.messages.contains(&message.id);
        if known || self.is_outdated(&message.control) || self.waits_for_run(&message.control) {
            return;
        }
        self.pending.urgent = true;
        let stays = match &message.control {
            // Until it has been passed on.
            Control::ScheduleChanged { onward, .. } => !onward.is_empty(),
            Control::RunEnded { .. } => true,
            _ => false,
        };
        if stays {
            self.messages.insert_for_later(message.id, ());
        } else {
            self.messages.insert(message.id, self.pending_commit(), ());
            self.pending.changes.inbox_done.push(message.id);
        }
        self.specs.keep(std::mem::take(&mut context.specs));
        match message.control {
            Control::PolicyChanged { policy } => self.policy_changed(policy, now),
            Control::PolicyDeleted { uid } => self.policy_deleted(uid, now),
            Control::ScheduleChanged { mut schedule, namespace, schedule_id, policy_uid, onward } => {
                let template = Template { namespace, schedule_id, policy_uid };
                if onward.is_empty() {
                    let (uid, cursor, left_us) = (schedule.uid, schedule.cursor.take(), schedule.cursor_us);
                    self.schedule_changed(schedule, &template, &context.runs, now);
                    if let Some(cursor) = cursor {
                        self.cursor_left(uid, (cursor, Some(left_us)), message.id.as_bytes(), now);
                    }
                } else {
                    self.schedule_moved(message.id, onward, schedule, template, &context.runs, now);
                }
            }
            Control::CursorLeft { schedule_uid, cursor, left_us } => {
                self.cursor_left(schedule_uid, (cursor, left_us), message.id.as_bytes(), now);
            }
            Control::CancelRun { run, reason } => {
                let untaken = context.runs.into_iter().find(|r| r.id == run && r.state.is_untaken());
                // One that has been withdrawn since the read has no row any more.
                let is_here = self.ledger.runs.contains(&run) || self.gone.contains(&run);
                match untaken.filter(|_| !is_here) {
                    // It may run elsewhere, where its schedule lives now.
                    Some(run) if self.is_withdrawn(&run) => self.record_withdrawn(run.id),
                    Some(run) => self.cancel_untaken(run, reason, now),
                    None => self.cancel(run, reason, now),
                }
            }
            Control::RetryDead { run, .. } => self.retry_dead(run, context, now),
            Control::PauseShard { pause } if message.id >= self.pause.order => {
                // What was ready, or has become so meanwhile, is after a resume.
                self.pause = ShardPause { order: message.id, pause };
                self.pending.changes.pause = Some(self.pause.clone());
            }
            // What has come with it has been loaded.
            Control::PauseShard { .. } | Control::Arrived { .. } => {}
            Control::ChainEnded { schedule_uid, run } => self.chain_ended(schedule_uid, run, now),
            Control::RunEnded { end } => self.wish_next(message.id, end),
            Control::UnderWay { deliveries } => self.under_way_elsewhere(deliveries, now),
            Control::Sent { run, index, attempt, sent } => self.sent(run, index, attempt, sent, now),
            Control::Release { release } => self.recorded(release, now),
        }
    }

    /// Cancels what a run has not started; what is in flight stays until it is released.
    pub(super) fn cancel(&mut self, id: RunId, reason: String, now: Now) {
        let Some(run) = self.ledger.runs.stir(&id) else { return };
        if run.cancelled {
            return;
        }
        run.cancelled = true;
        if let Some(schedule) = self.schedules.get_mut(&run.row.schedule_uid) {
            schedule.active.cancel(id);
        }
        run.row.reason = if reason.is_empty() { "cancelled".to_owned() } else { reason };
        if run.row.state == RunState::Waiting {
            run.row.state = RunState::Running;
        }
        // A run that waits for its launch time or for another run has nothing left to wait for.
        run.launched = true;
        let message = run.row.reason.clone();
        self.pending.runs.insert(id);
        self.pending.urgent = true;
        self.close_unstarted(id, Outcome::Cancelled, &message, now);
        let waiting: Vec<_> =
            self.ledger.tokens.of(id).filter(|(_, token)| !token.in_flight()).map(|(key, _)| key).collect();
        for key in waiting {
            self.finish(key, Outcome::Cancelled, message.clone(), now);
        }
        for key in queued_again(self.ledger.tokens.of(id)) {
            self.hold(key, now);
        }
        self.finish_if_done(id, now);
    }

    fn policy_changed(&mut self, policy: Policy, now: Now) {
        let uid = policy.uid;
        let bucket = self.ledger.bucket(Some(uid), now);
        if bucket.policy.as_ref().is_some_and(|known| known.generation >= policy.generation) {
            return;
        }
        let counted_by_key = bucket.rules().is_some();
        self.ledger.learn(policy.clone(), now);
        self.pending.changes.policies.push(policy);
        if let Some(deleted_us) = self.policies_ended.remove(&uid)
            && let Some(bucket) = self.ledger.buckets.get_mut(&Some(uid))
        {
            bucket.deleted = true;
            self.pending.changes.policies_deleted.push((uid, deleted_us));
        }
        self.ledger.ready.insert(Some(uid));
        if self.counts_by_key(Some(uid)) != counted_by_key {
            self.count_by_key(Some(uid), now);
        }
        // What holds a token needs a place only as long as no limit bounds them, here or above.
        for policy in self.ledger.with_all_below(uid) {
            for key in queued_again(self.ledger.tokens_under(Some(policy))) {
                self.send_again_at(key, now.mono_us);
            }
        }
        // A time to live may have become shorter or longer, and a suspect token may be reclaimed from now on.
        let held =
            self.ledger.tokens_under(Some(uid)).filter(|(_, token)| token.row.state == TokenState::Held);
        for key in held.map(|(key, _)| key).collect::<Vec<_>>() {
            self.arm_silence(key, now);
        }
    }

    /// It is kept for a day, for runs that were made before and come late. A change may come late as well.
    fn policy_deleted(&mut self, uid: Uuid, now: Now) {
        match self.ledger.buckets.get_mut(&Some(uid)).filter(|bucket| bucket.policy.is_some()) {
            Some(bucket) if bucket.deleted => return,
            Some(bucket) => {
                bucket.deleted = true;
                self.pending.changes.policies_deleted.push((uid, now.wall_us));
            }
            None => {
                self.policies_ended.entry(uid).or_insert(now.wall_us);
            }
        }
        self.wall_timers.insert((now.wall_us + DAY_US, WallTimer::ForgetPolicy(uid)));
    }

    /// The schedule has a new generation: what was emitted for the time after the change is put right. One that is
    /// known changes nothing; an older generation that arrives late holds until its successor's start.
    fn schedule_changed(&mut self, mut row: ShardSchedule, template: &Template, read: &[Run], now: Now) {
        let uid = row.uid;
        let schedule = self.schedules.entry(uid).or_default();
        if let Some(old) = &mut schedule.row {
            if old.knows(row.generation) {
                return;
            }
            if let Some(replaced_us) = old.replaced_us(row.generation) {
                old.earlier.push((row.generation, row.changed_us));
                self.pending.schedules.insert(uid);
                row.launches_us.retain(|launch_us| *launch_us <= replaced_us);
                self.put_right_upcoming(&row, replaced_us, now);
                self.make_missing(&row, template, read, now);
                return;
            }
            row.follow(old);
            self.wall_timers.remove(&(old.forget_us(), WallTimer::Forget(uid)));
        }
        let deleted = row.deleted;
        let before = schedule.row.replace(row.clone()).map(|before| before.generation);
        if self.has_another_target(uid, before, row.generation) {
            self.unblock_now(uid);
        }
        self.forget_later(&row);
        self.pending.schedules.insert(uid);
        self.put_right_upcoming(&row, i64::MAX, now);
        self.make_missing(&row, template, read, now);
        if deleted {
            let rest: Vec<_> = self.ledger.runs.of(uid).map(|r| r.row.id).collect();
            for id in rest {
                self.cancel(id, super::dispatch::DELETED.to_owned(), now);
            }
        }
        self.park_if_needed(uid);
    }

    /// Whether a generation of a schedule goes elsewhere than the one before; also where nobody knows.
    fn has_another_target(&self, uid: Uuid, before: Option<i64>, now: i64) -> bool {
        let target = |generation| self.specs.get(&(uid, generation)).map(|spec| &spec.target);
        match (before.and_then(target), target(now)) {
            (Some(before), Some(now)) => before != now,
            _ => true,
        }
    }

    /// Makes the runs of a generation's launch times that no emitter has handed over, and takes in those that the owner
    /// has not read yet: after the next change they would look stale.
    fn make_missing(&mut self, row: &ShardSchedule, template: &Template, read: &[Run], now: Now) {
        let read: BTreeMap<RunId, &Run> = read.iter().counted().map(|run| (run.id, run)).collect();
        for launch_us in row.launches_us.iter().copied() {
            let id = RunId::derive(row.uid, launch_us);
            if self.has_been(id) {
                continue;
            }
            // Its row exists, and goes on existing once the pending changes are durable.
            let known = read.get(&id).filter(|_| self.gone.get(&id).is_none_or(|withdrawn| !withdrawn));
            if let Some(&run) = known {
                // One that a later generation's emitter handed over is that generation's.
                if run.state.is_untaken() && run.generation <= row.generation {
                    let events = self.events_now(run, row);
                    let (generation, priority) = (row.generation, row.priority);
                    self.adopt_run(Run { generation, events, priority, ..run.clone() }, now);
                }
                continue;
            }
            let run = template.run(self.number, row, launch_us, now);
            self.pending.withdrawn.remove(&id);
            self.gone.remove(&id);
            self.pending.made.insert(id, run.clone());
            self.adopt_run(run, now);
        }
    }

    /// Runs that had been emitted for after the change: changed, or withdrawn.
    fn put_right_upcoming(&mut self, row: &ShardSchedule, until_us: i64, now: Now) {
        let upcoming: Vec<RunId> = self
            .ledger
            .runs
            .of(row.uid)
            .filter(|r| r.row.kind == RunKind::Scheduled)
            .filter(|r| (row.changed_us + 1..=until_us).contains(&r.row.launch_us))
            .filter(|r| r.row.generation < row.generation)
            .filter(|r| r.row.started_us.is_none() && r.row.next_index == 0)
            .map(|r| r.row.id)
            .collect();
        for id in upcoming {
            let Some(run) = self.withdraw(id, now) else { continue };
            if row.launches_us.binary_search(&run.row.launch_us).is_ok() {
                let due = run.noted.due();
                let mut run = Run { sorted_to: None, ..run.row };
                run.events = self.events_now(&run, row);
                (run.generation, run.priority) = (row.generation, row.priority);
                self.adopt_run(run, now);
                // What the history has of it as due is not due once more.
                if let Some(run) = self.ledger.runs.get_mut(&id) {
                    run.noted.fell_due(due);
                }
            } else {
                self.record_withdrawn(id);
            }
        }
    }

    /// Whether a run is here, or was and has ended; a read that began before may show otherwise.
    pub(super) fn has_been(&self, id: RunId) -> bool {
        self.ledger.runs.contains(&id) || self.gone.get(&id).is_some_and(|withdrawn| !withdrawn)
    }

    /// Whether the context of a message may show its run as it was before what is pending or was being committed. The
    /// message stays in the inbox for the next read.
    fn is_outdated(&self, control: &Control) -> bool {
        match control {
            Control::RetryDead { run, .. } => self.gone.contains(run) || self.revived.contains(run),
            // It may wait for its items.
            Control::CancelRun { run, .. } => !self.ledger.runs.contains(run) && self.listing.contains(run),
            _ => false,
        }
    }

    /// Whether a message is a release of a run that was left out as it could not be read: its consumer was told that it is
    /// recorded. It stays in the inbox until the shard is loaded with that run.
    pub fn waits_for_run(&self, control: &Control) -> bool {
        let is_out = |run: &RunId| self.left_out.contains(run) && !self.ledger.runs.contains(run);
        matches!(control, Control::Release { release } if is_out(&release.run))
    }

    /// The row of a run that has not started goes.
    pub(super) fn record_withdrawn(&mut self, id: RunId) {
        self.pending.runs.remove(&id);
        self.pending.made.remove(&id);
        self.pending.withdrawn.insert(id);
        self.gone.insert(id, self.pending_commit(), true);
        self.pending.urgent = true;
    }

    /// Takes a run that has not started out of memory, as if it had not been emitted.
    fn withdraw(&mut self, id: RunId, now: Now) -> Option<LiveRun> {
        self.leave_lane(id);
        let run = self.leave_run(id)?;
        for at_us in [run.start_us(), self.options.early_at_us(run.start_us())] {
            self.wall_timers.remove(&(at_us, WallTimer::Launch(id)));
        }
        if let Some(schedule) = self.schedules.get_mut(&run.row.schedule_uid) {
            schedule.active.remove(id);
            if schedule.buffered == Some(id) {
                schedule.buffered = None;
            }
            self.launch_buffered(run.row.schedule_uid, now);
            self.forget_if_idle(run.row.schedule_uid);
        }
        Some(run)
    }

    /// The schedule's runs belong to another shard from this generation on, or did before it. What has started here
    /// stays; what has not goes there, so that no launch time has a run in both. The next shard on the way is told only
    /// once it is durable that nothing of that starts here.
    fn schedule_moved(
        &mut self,
        id: Uuid,
        onward: Vec<u16>,
        mut row: ShardSchedule,
        template: Template,
        read: &[Run],
        now: Now,
    ) {
        let here = ShardSchedule {
            launches_us: Vec::new(),
            home: onward.last().copied(),
            cursor: None,
            ..row.clone()
        };
        self.schedule_changed(here, &template, read, now);
        let started = |r: &Run| !(r.state.is_untaken() || r.state == RunState::Waiting);
        let settled: BTreeSet<RunId> = read.iter().filter(|r| started(r)).map(|r| r.id).collect();
        row.launches_us.retain(|launch_us| {
            let run = RunId::derive(row.uid, *launch_us);
            !self.has_been(run) && !settled.contains(&run)
        });
        let Template { namespace, schedule_id, policy_uid } = template;
        let shard = onward[0];
        let onward = onward[1..].to_vec();
        let control = Control::ScheduleChanged { schedule: row, namespace, schedule_id, policy_uid, onward };
        let after = self.own_durable_after().unwrap_or(self.commits());
        // The same id every time, so that a second try changes nothing.
        self.moves.push_back(Move { after, shard, message: Message { id, control } });
    }

    /// Passes on the schedules that are durably given up. A cursor goes by a message of its own: this one may have been passed on
    /// before, in vain, and what is passed on again is what it was then.
    pub(super) fn hand_over(&mut self) {
        let durable = self.commits();
        while let Some(Move { shard, mut message, .. }) = self.moves.pop_front_if(|m| m.after <= durable) {
            if let Control::ScheduleChanged { schedule, .. } = &mut message.control
                && let Some(here) = self.schedules.get_mut(&schedule.uid).and_then(|s| s.row.as_mut())
                && let Some(home) = here.home
            {
                schedule.rest_until_us = schedule.rest_until_us.max(here.rest_until_us);
                if let Some(cursor) = here.cursor.take() {
                    self.pending.schedules.insert(schedule.uid);
                    let by = here.generation.to_be_bytes();
                    let left = cursor_message(schedule.uid, (cursor, here.cursor_us), (self.number, &by));
                    self.pending.changes.forwards.push((home, left));
                }
            }
            self.pending.changes.inbox_done.push(message.id);
            self.messages.insert(message.id, self.pending_commit(), ());
            self.pending.changes.forwards.push((shard, message));
            self.pending.urgent = true;
        }
    }

    fn retry_dead(&mut self, id: RunId, context: Context, now: Now) {
        if context.dead.is_empty() {
            return;
        }
        if !self.ledger.runs.contains(&id) {
            let Some(mut row) = context.runs.into_iter().find(|r| r.id == id) else { return };
            let Some(spec) = self.specs.share(&(row.schedule_uid, row.generation)) else { return };
            row.state = RunState::Running;
            row.finished_us = None;
            row.reason.clear();
            let mut run = LiveRun::new(row, spec);
            run.launched = true;
            self.schedules.entry(run.row.schedule_uid).or_default().active.insert(id, run.cancelled);
            self.ledger.run_enters(run, now);
        }
        for dead in context.dead {
            self.revive(dead, now);
        }
        self.revived.insert(id, self.pending_commit(), ());
        self.pending.runs.insert(id);
    }

    fn revive(&mut self, dead: HistoryRow, now: Now) {
        let key = (dead.run, dead.index);
        if dead.outcome != Outcome::Dead || self.ledger.tokens.contains(&key) {
            return;
        }
        let Some(run) = self.ledger.runs.get_mut(&dead.run) else { return };
        run.noted.revive();
        run.row.counts = Counts { dead: run.row.counts.dead.saturating_sub(1), ..run.row.counts };
        let policy = run.row.policy_uid;
        let row = TokenRow {
            state: TokenState::Waiting,
            attempt: dead.attempt,
            due_us: now.wall_us,
            message: dead.message,
            ..TokenRow::acquired(key, dead.acquired_us.unwrap_or(now.wall_us))
        };
        self.pending.changes.history_gone.push(key);
        let load = run.load_at_first();
        self.ledger.enter(key, LiveToken::new(row, policy, load, (Phase::Waiting, now.mono_us)));
        self.pending.tokens.insert(key);
        self.wall_timers.insert((now.wall_us, WallTimer::Retry(key.0, key.1)));
    }
}

/// A schedule to be passed on to another shard.
#[derive(Debug)]
pub(super) struct Move {
    /// Once this commit is durable.
    pub after: u64,
    pub shard: u16,
    pub message: Message,
}

/// What the runs of a changed schedule have in common.
struct Template {
    namespace: String,
    schedule_id: String,
    policy_uid: Option<Uuid>,
}

impl Template {
    fn run(&self, shard: u16, row: &ShardSchedule, launch_us: i64, now: Now) -> Run {
        Run {
            shard,
            id: RunId::derive(row.uid, launch_us),
            schedule_uid: row.uid,
            generation: row.generation,
            namespace: self.namespace.clone(),
            schedule_id: self.schedule_id.clone(),
            policy_uid: self.policy_uid,
            launch_us,
            events: row.events,
            priority: row.priority,
            kind: RunKind::Scheduled,
            state: RunState::Emitted,
            emitted_us: now.wall_us,
            ..Run::default()
        }
    }
}
