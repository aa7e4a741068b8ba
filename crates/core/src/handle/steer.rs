//! Control messages: policies, schedules, cancels, retries of the dead, pauses. They go before everything else.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::again::queued_again;
use super::change::{HistoryRow, Outcome, ShardPause, ShardSchedule, TokenRow, TokenState};
use super::control::{Control, Message};
use super::exchange::{Context, Needs};
use super::live::{LiveRun, LiveToken};
use super::shard::{Shard, WallTimer};
use crate::model::{Counts, DAY_US, Now, Policy, Run, RunId, RunKind, RunState};

impl Needs {
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
    /// passed over.
    pub fn control(&mut self, message: Message, context: Context, now: Now) {
        let known = self.messages.contains_key(&message.id);
        if known || self.is_outdated(&message.control) {
            return;
        }
        self.urgent = true;
        if matches!(&message.control, Control::ScheduleChanged { onward, .. } if !onward.is_empty()) {
            // Until it has been passed on.
            self.messages.insert(message.id, u64::MAX);
        } else {
            self.messages.insert(message.id, self.pending_commit());
            self.changes.inbox_done.push(message.id);
        }
        self.keep_specs(context.specs.clone());
        match message.control {
            Control::PolicyChanged { policy } => self.policy_changed(policy, now),
            Control::PolicyDeleted { uid } => self.policy_deleted(uid, now),
            Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, onward } => {
                let template = Template { namespace, schedule_id, policy_uid };
                if onward.is_empty() {
                    self.schedule_changed(schedule, &template, &context.runs, now);
                } else {
                    self.schedule_moved(message.id, onward, schedule, template, &context.runs, now);
                }
            }
            Control::CursorLeft { schedule_uid, cursor } => {
                self.cursor_left(schedule_uid, cursor, message.id);
            }
            Control::CancelRun { run, reason } => {
                let untaken = context.runs.into_iter().find(|r| r.id == run && r.state.is_untaken());
                // One that has been withdrawn since the read has no row any more.
                let is_here = self.runs.contains_key(&run) || self.gone.contains_key(&run);
                match untaken.filter(|_| !is_here) {
                    // It may run elsewhere, where its schedule lives now.
                    Some(run) if self.is_withdrawn(&run) => self.record_withdrawn(run.id),
                    Some(run) => self.cancel_untaken(run, reason, now),
                    None => self.cancel(run, reason, now),
                }
            }
            Control::RetryDead { run, .. } => self.retry_dead(run, context, now),
            Control::PauseShard { pause } if message.id >= self.pause.order => {
                self.pause = ShardPause { order: message.id, pause };
                self.changes.pause = Some(self.pause.clone());
                self.ready.extend(self.buckets.keys().copied());
            }
            Control::PauseShard { .. } => {}
            Control::UnderWay { deliveries } => self.under_way_elsewhere(deliveries, now),
            Control::Sent { run, index, attempt, sent } => self.sent(run, index, attempt, sent, now),
            Control::Release { release } => self.recorded(release, now),
        }
    }

    /// Cancels what a run has not started; what is in flight stays until it is released.
    pub(super) fn cancel(&mut self, id: RunId, reason: String, now: Now) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.cancelled {
            return;
        }
        run.cancelled = true;
        run.row.reason = if reason.is_empty() { "cancelled".to_owned() } else { reason };
        if run.row.state == RunState::Waiting {
            run.row.state = RunState::Running;
        }
        // A run that waits for its launch time or for another run has nothing left to wait for.
        run.launched = true;
        let message = run.row.reason.clone();
        self.dirty_runs.insert(id);
        self.urgent = true;
        self.close_unstarted(id, Outcome::Cancelled, &message, now);
        let waiting: Vec<_> = self
            .tokens
            .range((id, 0)..=(id, u32::MAX))
            .filter(|(_, t)| !t.in_flight())
            .map(|(key, _)| *key)
            .collect();
        for key in waiting {
            self.finish(key, Outcome::Cancelled, message.clone(), now);
        }
        let all = self.tokens.range((id, 0)..=(id, u32::MAX));
        for key in queued_again(all) {
            self.hold(key, now);
        }
        self.finish_if_done(id, now);
    }

    fn policy_changed(&mut self, policy: Policy, now: Now) {
        let uid = policy.uid;
        let bucket = self.bucket(Some(uid), now);
        if bucket.policy.as_ref().is_some_and(|known| known.generation >= policy.generation) {
            return;
        }
        bucket.unknown = false;
        bucket.change(policy.clone(), now);
        self.changes.policies.push(policy);
        if let Some(deleted_us) = self.policies_ended.remove(&uid)
            && let Some(bucket) = self.buckets.get_mut(&Some(uid))
        {
            bucket.deleted = true;
            self.changes.policies_deleted.push((uid, deleted_us));
        }
        self.ready.insert(Some(uid));
        // What holds a token needs a place only as long as no limit bounds them.
        for key in queued_again(self.tokens.iter().filter(|(_, token)| token.policy == Some(uid))) {
            self.send_again_at(key, now.mono_us);
        }
        // A time to live may have become shorter or longer, and a suspect token may be reclaimed from now on.
        let held: Vec<_> = self
            .tokens
            .iter()
            .filter(|(_, t)| t.policy == Some(uid) && t.row.state == TokenState::Held)
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            self.arm_silence(key, now);
        }
    }

    /// It is kept for a day, for runs that were made before and come late. A change may come late as well.
    fn policy_deleted(&mut self, uid: Uuid, now: Now) {
        match self.buckets.get_mut(&Some(uid)).filter(|bucket| bucket.policy.is_some()) {
            Some(bucket) if bucket.deleted => return,
            Some(bucket) => {
                bucket.deleted = true;
                self.changes.policies_deleted.push((uid, now.wall_us));
            }
            None => {
                self.policies_ended.entry(uid).or_insert(now.wall_us);
            }
        }
        self.wall_timers.insert((now.wall_us + DAY_US, WallTimer::ForgetPolicy(uid)));
    }

    /// The schedule has a new generation: what was emitted for the time after the change is put right. One that is
    /// known changes nothing; one that was overtaken holds until the next one's moment.
    fn schedule_changed(&mut self, mut row: ShardSchedule, template: &Template, read: &[Run], now: Now) {
        let uid = row.uid;
        let schedule = self.schedules.entry(uid).or_default();
        if let Some(old) = &mut schedule.row {
            if (old.knows(row.generation) || old.replaced_us(row.generation).is_some())
                && let Some(cursor) = row.cursor.take()
            {
                self.dirty_schedules.insert(uid);
                old.cursor = Some(cursor);
            }
            if old.knows(row.generation) {
                return;
            }
            if let Some(replaced_us) = old.replaced_us(row.generation) {
                old.earlier.push((row.generation, row.changed_us));
                self.dirty_schedules.insert(uid);
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
        self.dirty_schedules.insert(uid);
        self.put_right_upcoming(&row, i64::MAX, now);
        self.make_missing(&row, template, read, now);
        if deleted {
            let rest: Vec<_> = self.runs.of(uid).map(|r| r.row.id).collect();
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
        let known = self.known(read);
        for launch_us in row.launches_us.iter().copied() {
            let id = RunId::derive(row.uid, launch_us);
            if self.has_been(id) {
                continue;
            }
            if known.contains(&id) {
                // One that a later generation's emitter handed over is that generation's.
                let unread = |r: &&Run| r.id == id && r.state.is_untaken() && r.generation <= row.generation;
                if let Some(mut run) = read.iter().find(unread).cloned() {
                    (run.generation, run.events, run.priority) = (row.generation, row.events, row.priority);
                    self.adopt_run(run, now);
                }
                continue;
            }
            let run = template.run(self.number, row, launch_us, now);
            self.changes.runs_withdrawn.retain(|r| *r != id);
            self.gone.remove(&id);
            self.changes.runs_new.push(run.clone());
            self.adopt_run(run, now);
        }
    }

    /// Runs that had been emitted for after the change: changed, or withdrawn.
    fn put_right_upcoming(&mut self, row: &ShardSchedule, until_us: i64, now: Now) {
        let upcoming: Vec<RunId> = self
            .runs
            .of(row.uid)
            .filter(|r| r.row.kind == RunKind::Scheduled)
            .filter(|r| (row.changed_us + 1..=until_us).contains(&r.row.launch_us))
            .filter(|r| r.row.generation < row.generation)
            .filter(|r| r.row.started_us.is_none() && r.row.cursor == 0)
            .map(|r| r.row.id)
            .collect();
        for id in upcoming {
            let Some(run) = self.withdraw(id, now) else { continue };
            if row.launches_us.binary_search(&run.row.launch_us).is_ok() {
                let mut run = run.row;
                (run.generation, run.events, run.priority) = (row.generation, row.events, row.priority);
                self.adopt_run(run, now);
            } else {
                self.record_withdrawn(id);
            }
        }
    }

    /// The runs whose rows exist, and go on existing once the pending changes are durable.
    fn known(&self, read: &[Run]) -> BTreeSet<RunId> {
        let withdrawn = |id: &RunId| self.gone.get(id).is_some_and(|(_, withdrawn)| *withdrawn);
        read.iter().map(|r| r.id).filter(|id| !withdrawn(id)).collect()
    }

    /// Whether a run is here, or was and has ended, whatever a read shows that began before.
    fn has_been(&self, id: RunId) -> bool {
        self.runs.contains_key(&id) || self.gone.get(&id).is_some_and(|(_, withdrawn)| !withdrawn)
    }

    /// Whether the context of a message may show its run as it was before what is pending or was being committed. The
    /// message stays in the inbox for the next read.
    fn is_outdated(&self, control: &Control) -> bool {
        match control {
            Control::RetryDead { run, .. } => self.gone.contains_key(run) || self.revived.contains_key(run),
            _ => false,
        }
    }

    /// The row of a run that has not started goes.
    pub(super) fn record_withdrawn(&mut self, id: RunId) {
        self.dirty_runs.remove(&id);
        self.changes.runs_new.retain(|r| r.id != id);
        self.changes.runs_withdrawn.push(id);
        self.gone.insert(id, (self.pending_commit(), true));
        self.urgent = true;
    }

    /// Takes a run that has not started out of memory, as if it had not been emitted.
    fn withdraw(&mut self, id: RunId, now: Now) -> Option<LiveRun> {
        self.leave_lane(id);
        let run = self.runs.remove(&id)?;
        for early_us in [0, self.options.early_us] {
            self.wall_timers.remove(&(run.row.launch_us - early_us, WallTimer::Launch(id)));
        }
        self.leave_bucket(run.row.policy_uid);
        if let Some(schedule) = self.schedules.get_mut(&run.row.schedule_uid) {
            schedule.active.remove(&id);
            if schedule.buffered == Some(id) {
                schedule.buffered = None;
            }
            if schedule.active.is_empty()
                && let Some(next) = schedule.buffered.take()
            {
                self.set_launched(next, now);
            }
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
        let after = self.durable_after().unwrap_or(self.commits());
        // The same id every time, so that a second try changes nothing.
        self.moves.push(Move { after, shard, message: Message { id, control } });
    }

    /// Passes on the schedules that are durably given up.
    pub(super) fn hand_over(&mut self) {
        let durable = self.commits();
        for Move { shard, mut message, .. } in self.moves.extract_if(.., |m| m.after <= durable) {
            if let Control::ScheduleChanged { schedule, .. } = &mut message.control
                && let Some(here) = self.schedules.get_mut(&schedule.uid).and_then(|s| s.row.as_mut())
                && here.home.is_some()
                && let Some(cursor) = here.cursor.take()
            {
                schedule.cursor = Some(cursor);
                self.dirty_schedules.insert(schedule.uid);
            }
            self.changes.inbox_done.push(message.id);
            self.messages.insert(message.id, durable + 1);
            self.changes.forwards.push((shard, message));
            self.urgent = true;
        }
    }

    /// A run of the schedule has left a cursor for the next one. `id`: of the message, should the schedule live in
    /// another shard.
    pub(super) fn cursor_left(&mut self, uid: Uuid, cursor: String, id: Uuid) {
        let Some(row) = self.schedules.get_mut(&uid).and_then(|s| s.row.as_mut()) else { return };
        if let Some(home) = row.home {
            let control = Control::CursorLeft { schedule_uid: uid, cursor };
            self.changes.forwards.push((home, Message { id, control }));
        } else {
            row.cursor = Some(cursor);
            self.dirty_schedules.insert(uid);
        }
    }

    fn retry_dead(&mut self, id: RunId, context: Context, now: Now) {
        if context.dead.is_empty() {
            return;
        }
        if !self.runs.contains_key(&id) {
            let Some(mut row) = context.runs.into_iter().find(|r| r.id == id) else { return };
            let Some(spec) = self.specs.get(&(row.schedule_uid, row.generation)).cloned() else { return };
            row.state = RunState::Running;
            row.finished_us = None;
            row.reason.clear();
            self.bucket(row.policy_uid, now).runs += 1;
            self.schedules.entry(row.schedule_uid).or_default().active.insert(id);
            let mut run = LiveRun::new(row, spec);
            run.launched = true;
            self.runs.insert(run);
        }
        for dead in context.dead {
            self.revive(dead, now);
        }
        self.revived.insert(id, self.pending_commit());
        self.dirty_runs.insert(id);
    }

    fn revive(&mut self, dead: HistoryRow, now: Now) {
        let key = (dead.run, dead.index);
        if dead.outcome != Outcome::Dead || self.tokens.contains_key(&key) {
            return;
        }
        let Some(run) = self.runs.get_mut(&dead.run) else { return };
        run.outstanding += 1;
        run.retrying += 1;
        run.row.counts = Counts { dead: run.row.counts.dead.saturating_sub(1), ..run.row.counts };
        let policy = run.row.policy_uid;
        let row = TokenRow {
            run: dead.run,
            index: dead.index,
            state: TokenState::Waiting,
            attempt: dead.attempt,
            failures: 0,
            checks: 0,
            due_us: now.wall_us,
            acquired_us: dead.acquired_us.unwrap_or(now.wall_us),
            delivered_us: None,
            heartbeat_ttl_ms: None,
            message: dead.message,
        };
        self.changes.history_gone.push(key);
        self.tokens.insert(key, LiveToken::new(row, policy, now.mono_us));
        self.dirty_tokens.insert(key);
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
            reason: String::new(),
            cursor: 0,
            counts: Counts::default(),
            cursor_in: None,
            cursor_out: None,
            emitted_us: now.wall_us,
            started_us: None,
            finished_us: None,
        }
    }
}
