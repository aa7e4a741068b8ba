//! What becomes of events, counted by minute and policy, for the history that people look at.
//!
//! In: the runs that a commit changes, and those that go. Out, when asked: rows with all that this owner has counted of
//! the minute under way, and of those that have ended since it was asked last. Invariants: nothing is done for an event
//! that goes well: each run is compared, once a commit, with what has been counted of it; runs are looked at only if
//! something has happened to them since, or some of their events are still to fall due; what no durable commit says
//! is not counted; a minute that has been handed out as ended is not counted in any more, whatever the clock does. Kept
//! are, for each policy to which something happens, the counts of a minute. Not here: who writes the rows.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::exchange::Options;
use super::live::LiveRun;
use super::shard::Shard;
use crate::model::{Counts, MINUTE_US, MinuteCounts, MinuteRow, Now, Run, RunState};

/// A policy, or none, and the namespace.
type Whose = (Option<Uuid>, String);
type Book = BTreeMap<Whose, MinuteCounts>;

/// What has been counted of a run.
#[derive(Debug)]
pub(super) struct Noted {
    counts: Counts,
    started: u32,
    due: u32,
    /// Events that ended without having started: they lie below the run's next index, as those that started do.
    unstarted: u32,
    /// What it adds to the gauges.
    shown: Gauge,
    /// It is to be looked at.
    stirred: bool,
}

/// Events that were due and held no token when it was looked last, and those that held one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gauge {
    waiting: u32,
    held: u32,
}

impl Noted {
    /// Of a run that enters the shard: what its row says was counted before.
    pub(super) fn of(row: &Run) -> Self {
        let (counts, started, due) = (row.counts, row.next_index, row.next_index);
        Self { counts, started, due, unstarted: 0, shown: Gauge::default(), stirred: false }
    }

    /// Whether it was not to be looked at before.
    pub(super) fn stir(&mut self) -> bool {
        !std::mem::replace(&mut self.stirred, true)
    }

    /// How many events have been counted as due.
    pub(super) fn due(&self) -> u32 {
        self.due
    }

    /// So many events are passed over, and do not start any more.
    pub(super) fn pass_over(&mut self, events: u32) {
        self.unstarted += events;
    }

    /// An event that was counted as dead lives again.
    pub(super) fn revive(&mut self) {
        self.counts.dead = self.counts.dead.saturating_sub(1);
    }

    /// What has happened to the run since it was asked last.
    fn news(&mut self, row: &Run) -> MinuteCounts {
        let (counts, before) = (row.counts, self.counts);
        let started = row.next_index.saturating_sub(self.unstarted);
        let more = |now: u32, before: u32| u64::from(now.saturating_sub(before));
        let news = MinuteCounts {
            started: more(started, self.started),
            succeeded: more(counts.succeeded, before.succeeded),
            failed: more(counts.failed, before.failed),
            dead: more(counts.dead, before.dead),
            expired: more(counts.expired, before.expired),
            cancelled: more(counts.cancelled, before.cancelled),
            lost: more(counts.lost, before.lost),
            ..MinuteCounts::default()
        };
        (self.counts, self.started) = (counts, started);
        news
    }

    /// How many more events are due, where `due` are.
    pub(super) fn fell_due(&mut self, due: u32) -> u64 {
        let more = due.saturating_sub(self.due);
        self.due += more;
        u64::from(more)
    }
}

impl LiveRun {
    /// What a former owner has counted as due, up to this moment, is not counted again.
    pub(super) fn due_was_counted(&mut self, until_us: i64) {
        let due = self.due_until(0, until_us);
        self.noted.fell_due(due);
    }

    /// How its events stand.
    fn gauge(&self, due: u32, now: Now, options: &Options) -> Gauge {
        let retrying = self.counts.retrying();
        let held = self.counts.outstanding() - retrying;
        if self.cancelled || !self.launched {
            return Gauge { waiting: 0, held };
        }
        let is_due = self.next_is_due(now.wall_us, options);
        let not_started = if is_due { due.saturating_sub(self.row.next_index) } else { 0 };
        Gauge { waiting: not_started + retrying, held }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Minutes {
    /// In no commit yet.
    pending: Book,
    /// Of the commit under way.
    committing: Book,
    /// Durable, by the minute's beginning.
    durable: BTreeMap<i64, Book>,
    /// The latest minute; it never goes back.
    minute_us: i64,
    /// The minute in which the runs were looked at last.
    looked_us: i64,
    /// What waits and is held, where that is anything.
    gauges: BTreeMap<Whose, Gauges>,
}

/// Of all runs of one policy and namespace.
#[derive(Debug, Default)]
struct Gauges {
    waiting: u64,
    held: u64,
}

impl Minutes {
    pub(super) fn new(now: Now) -> Self {
        Self {
            pending: Book::new(),
            committing: Book::new(),
            durable: BTreeMap::new(),
            minute_us: minute_of(now),
            looked_us: minute_of(now),
            gauges: BTreeMap::new(),
        }
    }

    /// A run that goes adds nothing to the gauges any more.
    pub(super) fn leaves(&mut self, run: &mut LiveRun) {
        self.show(run, Gauge::default());
    }

    /// What a run adds to the gauges from now on.
    fn show(&mut self, run: &mut LiveRun, gauge: Gauge) {
        let before = std::mem::replace(&mut run.noted.shown, gauge);
        if before == gauge {
            return;
        }
        let whose = (run.row.policy_uid, run.row.namespace.clone());
        let all = self.gauges.entry(whose.clone()).or_default();
        all.waiting = all.waiting + u64::from(gauge.waiting) - u64::from(before.waiting);
        all.held = all.held + u64::from(gauge.held) - u64::from(before.held);
        if all.waiting + all.held == 0 {
            self.gauges.remove(&whose);
        }
    }

    /// To be counted with the next commit.
    pub(super) fn next(&mut self, row: &Run, news: MinuteCounts) {
        if !news.is_nothing() {
            *self.pending.entry((row.policy_uid, row.namespace.clone())).or_default() += news;
        }
    }

    /// So many events of a run fell due in these minutes.
    fn fell_due(&mut self, row: &Run, minutes: [(i64, u64); 2]) {
        for (at_us, due) in minutes.into_iter().filter(|(_, due)| *due > 0) {
            let book = self.durable.entry(at_us).or_default();
            book.entry((row.policy_uid, row.namespace.clone())).or_default().due += due;
        }
    }

    /// The commit under way is durable.
    pub(super) fn committed(&mut self, now: Now) {
        self.minute_us = self.minute_us.max(minute_of(now));
        if self.committing.is_empty() {
            return;
        }
        let book = self.durable.entry(self.minute_us).or_default();
        for (whose, news) in std::mem::take(&mut self.committing) {
            *book.entry(whose).or_default() += news;
        }
    }
}

fn minute_of(now: Now) -> i64 {
    now.wall_us - now.wall_us.rem_euclid(MINUTE_US)
}

impl Shard {
    /// Counts what the runs that the next commit writes have come to.
    pub(super) fn count_changes(&mut self) {
        for id in &self.pending.runs {
            if let Some(LiveRun { row, noted, .. }) = self.ledger.runs.get_mut(id) {
                self.minutes.next(row, noted.news(row));
            }
        }
        self.minutes.committing = std::mem::take(&mut self.minutes.pending);
    }

    /// As [`Self::count_changes`] of a run that has ended. All its events have fallen due then, unless there was to be
    /// none.
    pub(super) fn count_last(&mut self, run: &mut LiveRun) {
        let LiveRun { row, noted, .. } = run;
        let due = if row.state == RunState::Skipped { 0 } else { noted.fell_due(row.events) };
        let news = noted.news(row);
        self.minutes.next(row, MinuteCounts { due, ..news });
    }

    /// All that this owner has counted, of the minute under way and of those that have ended since it was asked last;
    /// to be asked once a minute at least. `epoch`: of its lease.
    pub fn take_minutes(&mut self, epoch: i64, now: Now) -> Vec<MinuteRow> {
        let minute_us = self.minutes.minute_us.max(minute_of(now));
        self.minutes.minute_us = minute_us;
        self.look_at_runs(minute_us, now);
        let rows = self.minute_rows(epoch, now);
        self.minutes.durable.retain(|at_us, _| *at_us >= minute_us);
        rows
    }

    /// What has fallen due, waits and is held. The minute before that has just ended gets what fell due in it, and
    /// shows what waits now.
    fn look_at_runs(&mut self, minute_us: i64, now: Now) {
        let has_ended = std::mem::replace(&mut self.minutes.looked_us, minute_us) < minute_us;
        let ended_us = minute_us - MINUTE_US;
        for id in self.ledger.runs.take_stirred() {
            let Some(run) = self.ledger.runs.get_mut(&id) else { continue };
            if !std::mem::take(&mut run.noted.stirred) {
                continue;
            }
            if run.launched {
                let (due_before, due) = (run.due_until(0, minute_us), run.due_until(0, now.wall_us));
                self.minutes.show(run, run.gauge(due, now, &self.options));
                let before = run.noted.fell_due(due_before);
                let since = run.noted.fell_due(due.max(run.row.next_index));
                let before_us = if has_ended { ended_us } else { minute_us };
                self.minutes.fell_due(&run.row, [(before_us, before), (minute_us, since)]);
                if due < run.row.events {
                    self.ledger.runs.stir(&id);
                }
            }
        }
        let Minutes { durable, gauges, .. } = &mut self.minutes;
        for counts in durable.range_mut(ended_us..).flat_map(|(_, book)| book.values_mut()) {
            (counts.waiting, counts.held) = (0, 0);
        }
        // Each of them gets a row.
        for (whose, Gauges { waiting, held }) in gauges {
            for at_us in [Some(minute_us), has_ended.then_some(ended_us)].into_iter().flatten() {
                let counts = durable.entry(at_us).or_default().entry(whose.clone()).or_default();
                (counts.waiting, counts.held) = (*waiting, *held);
            }
        }
    }

    fn minute_rows(&self, epoch: i64, now: Now) -> Vec<MinuteRow> {
        let mut rows = Vec::new();
        for (minute_us, book) in &self.minutes.durable {
            let row = |policy_uid, namespace: &str, counts| MinuteRow {
                shard: self.number,
                policy_uid,
                namespace: namespace.to_owned(),
                minute_us: *minute_us,
                epoch,
                until_us: now.wall_us.clamp(*minute_us, minute_us + MINUTE_US),
                counts,
            };
            let mut whole: BTreeMap<&str, MinuteCounts> = BTreeMap::new();
            for ((policy, namespace), counts) in book.iter().filter(|(_, counts)| !counts.is_nothing()) {
                *whole.entry(namespace).or_default() += *counts;
                rows.extend(policy.map(|uid| row(Some(uid), namespace, *counts)));
            }
            rows.extend(whole.into_iter().map(|(namespace, counts)| row(None, namespace, counts)));
        }
        rows
    }
}
