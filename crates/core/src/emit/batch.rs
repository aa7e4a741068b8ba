//! Gathers judged launches until they are handed over, and says which of them are in doubt.
//!
//! In: launches with their fate. Out: runs and skips, and what must be asked of the store before they may go: whether a shard
//! has yet to hear of a change, and which launches have a run. Invariants: a launch that has a run is not recorded as
//! skipped later; what a former shard of a schedule may still make a run of waits until that shard has heard of the change.
//! Not here: judging ([`super::judge`]), the order of steps ([`super::scan`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::ScannedChild;
use crate::model::{MINUTE_US, Run, RunId, RunKind, RunState, SECOND_US, Schedule, SkipReason, Skipped};

/// The most rows that are handed over at once: on SQLite, everybody's commits wait for them.
const ROWS_MAX: usize = 250;
/// A shard's owner is woken for runs that launch within this time. Later ones it finds within a second or two by itself, all
/// that a round has emitted at once.
const SOON_US: i64 = 30 * SECOND_US;
/// The longest pause after a part of what lies further ahead.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// A launch that falls due within this time after a change may have a run by what its schedule was before, also in an earlier
/// home of it: longer than windows are opened ahead, with masters whose clocks disagree.
const DOUBT_US: i64 = 60 * MINUTE_US;
/// How long after its launch time a launch still waits for a former shard to hear of a change. A message that cannot be read
/// must not hold it up for ever.
const PUT_OFF_US: i64 = 15 * MINUTE_US;

/// Whether a launch falls due before the latest change of its schedule, or soon after it.
fn is_recent(schedule: &Schedule, launch_us: i64) -> bool {
    launch_us <= schedule.updated_us.saturating_add(DOUBT_US)
}

/// Whether a launch may have got a run in another shard since the emitter that hands it over has asked: its schedule, which has
/// moved, is of another generation by now than when it was read, which may stand in tasks of another emitter; or the change is
/// recent. `now`: its generation, and when it was changed.
pub fn is_in_doubt(launch_us: i64, generation: i64, now: (i64, i64)) -> bool {
    now.0 != generation || launch_us <= now.1.saturating_add(DOUBT_US)
}

/// A schedule of which launches have fallen due, or do so soon after the latest change: a shard in which it lived may make
/// them itself, when it hears of an earlier change.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) homes: Vec<u16>,
    /// Which tasks found them.
    tasks: BTreeSet<usize>,
}

/// What has been handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The shards that have something to do soon.
    pub wake: BTreeSet<u16>,
    /// How long the emitter rests, so that what others write comes in between.
    pub pause: Duration,
    /// Triggers recorded as missed.
    pub missed: u64,
    /// Triggers recorded as paused.
    pub paused: u64,
}

/// What has been judged and not handed over. Tasks are numbers.
#[derive(Debug, Default)]
pub(super) struct JudgedBatch {
    pub(super) runs: Vec<Run>,
    pub(super) skipped: Vec<Skipped>,
    /// Somebody may have judged the same launches before, at a time when they were not late: a task was claimed before.
    again: bool,
    /// Launches whose run may exist already, in this shard or another: their schedule has moved or changed.
    doubtful: Vec<(Uuid, i64)>,
    /// Whom to ask about before they are handed over.
    pub(super) late: BTreeMap<Uuid, Late>,
    /// Of which tasks it holds something.
    pub(super) tasks: BTreeSet<usize>,
}

impl JudgedBatch {
    /// An empty batch. `again`: its launches may have been judged before.
    pub(super) fn new(again: bool) -> Self {
        Self { again, ..Self::default() }
    }

    /// Whether it should be handed over.
    pub(super) fn is_full(&self) -> bool {
        self.runs.len() + self.skipped.len() >= ROWS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.skipped.is_empty()
    }

    /// Notes where what is added comes from.
    fn note(&mut self, task: usize, child: &ScannedChild, launch_us: i64, now_us: i64) {
        let schedule = &child.schedule;
        // A former home may start what it has made before it hears of the latest change.
        let until_us = now_us.max(schedule.updated_us.saturating_add(DOUBT_US));
        if !schedule.former_homes.is_empty() && (now_us - PUT_OFF_US..=until_us).contains(&launch_us) {
            // A change on its way to a former home may have got to the present one, which was a home before, too.
            let homes = || schedule.former_homes.iter().copied().chain([child.shard]).collect();
            let late = self.late.entry(schedule.uid);
            late.or_insert_with(|| Late { homes: homes(), tasks: BTreeSet::new() }).tasks.insert(task);
        }
        // What falls due long after the move, the shard where it lived before never had. Of what it had it may have
        // started or ended some before it heard of the move; the rest it has passed on by itself, and the present home may
        // have made its runs already.
        if !schedule.former_homes.is_empty() && (self.again || is_recent(schedule, launch_us)) {
            self.doubtful.push((schedule.uid, launch_us));
        }
        self.tasks.insert(task);
    }

    /// Adds the run of a child's launch.
    pub(super) fn run(&mut self, task: usize, child: &ScannedChild, launch_us: i64, now_us: i64) {
        self.note(task, child, launch_us, now_us);
        let schedule = &child.schedule;
        self.runs.push(Run {
            shard: child.shard,
            id: RunId::derive(schedule.uid, launch_us),
            schedule_uid: schedule.uid,
            generation: schedule.generation,
            namespace: schedule.namespace.clone(),
            schedule_id: schedule.id.clone(),
            policy_uid: schedule.policy_uid,
            launch_us,
            events: schedule.events,
            priority: schedule.priority,
            kind: RunKind::Scheduled,
            state: RunState::first(schedule),
            emitted_us: now_us,
            ..Run::default()
        });
    }

    /// Adds a launch that makes no run.
    pub(super) fn skip(
        &mut self,
        task: usize,
        child: &ScannedChild,
        launch_us: i64,
        reason: SkipReason,
        now_us: i64,
    ) {
        self.note(task, child, launch_us, now_us);
        let schedule = &child.schedule;
        let (schedule_uid, triggers) = (schedule.uid, schedule.timing.triggers.len());
        // The timing before the latest change may have had it, in a window that was opened before, or another trigger, which was
        // judged a moment ago.
        if triggers > 1 || schedule.generation > 1 && is_recent(schedule, launch_us) {
            self.doubtful.push((schedule_uid, launch_us));
        }
        self.skipped.push(Skipped { schedule_uid, launch_us, reason, recorded_us: now_us });
    }

    /// Takes out what a former shard of this schedule may still make a run of. Returns the tasks that found it.
    pub(super) fn put_off(&mut self, uid: Uuid, late: Late) -> BTreeSet<usize> {
        self.runs.retain(|run| run.schedule_uid != uid);
        self.skipped.retain(|skip| skip.schedule_uid != uid);
        self.doubtful.retain(|(doubtful, _)| *doubtful != uid);
        late.tasks
    }

    /// The launches that must not be handed over if they have a run, in any shard, as spans [first, last] of schedules: an
    /// emitter made it in time and died before its task was done, or an earlier home did.
    pub(super) fn in_doubt(&self) -> BTreeMap<Uuid, (i64, i64)> {
        let skipped = self.skipped.iter().filter(|_| self.again);
        let launches = self.doubtful.iter().copied();
        let mut spans: BTreeMap<Uuid, (i64, i64)> = BTreeMap::new();
        for (uid, launch_us) in launches.chain(skipped.map(|skip| (skip.schedule_uid, skip.launch_us))) {
            let span = spans.entry(uid).or_insert((launch_us, launch_us));
            *span = (span.0.min(launch_us), span.1.max(launch_us));
        }
        spans
    }

    /// Takes out what has a run, or is to have one.
    pub(super) fn drop_known(&mut self, known: &BTreeSet<(Uuid, i64)>) {
        if !self.skipped.is_empty() && !self.runs.is_empty() {
            let made: BTreeSet<_> = self.runs.iter().map(|run| (run.schedule_uid, run.launch_us)).collect();
            self.skipped.retain(|skip| !made.contains(&(skip.schedule_uid, skip.launch_us)));
        }
        if !known.is_empty() {
            self.skipped.retain(|skip| !known.contains(&(skip.schedule_uid, skip.launch_us)));
            self.runs.retain(|run| !known.contains(&(run.schedule_uid, run.launch_us)));
        }
    }

    /// What follows once it has been handed over by a transaction from `began_us` to `now_us`.
    pub(super) fn handed(&self, began_us: i64, now_us: i64) -> Handed {
        let soon_us = now_us.saturating_add(SOON_US);
        let lies_ahead = |run: &Run| run.launch_us > now_us + 2 * SOON_US;
        let no_hurry = !self.runs.is_empty() && self.runs.iter().all(lies_ahead);
        let pause_us = if no_hurry { u64::try_from(now_us - began_us).unwrap_or_default() } else { 0 };
        let soon = self.runs.iter().filter(|run| run.launch_us <= soon_us);
        let count = |reason| self.skipped.iter().filter(|skip| skip.reason == reason).count() as u64;
        Handed {
            wake: soon.map(|run| run.shard).collect(),
            pause: Duration::from_micros(pause_us).min(PAUSE_MAX),
            missed: count(SkipReason::Missed),
            paused: count(SkipReason::Paused),
        }
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Trigger;
    use crate::plan::Child;
    use crate::plan::warnings::tests::schedule;

    fn child(former_homes: Vec<u16>) -> ScannedChild {
        let mut schedule = schedule(Trigger::At { at_us: 0 });
        schedule.former_homes = former_homes;
        let child =
            Child { zone: String::new(), launch_expression: String::new(), slot: 0, rule: String::new() };
        ScannedChild { child, ordinal: 0, shard: 2, schedule }
    }

    /// A moved schedule's run may have been made by the shard where it lives now, which heard of the move: then its trigger was
    /// not missed, whoever reads it, and whether or not somebody has read it before.
    #[test]
    fn of_a_schedule_that_has_moved_or_changed_a_trigger_is_missed_only_without_a_run() {
        let uid = child(vec![1]).schedule.uid;
        for (homes, again, asked) in [(vec![1], false, true), (vec![], false, false), (vec![], true, true)] {
            let mut batch = JudgedBatch::new(again);
            batch.skip(0, &child(homes.clone()), MINUTE_US, SkipReason::Missed, 3 * MINUTE_US);
            let doubt = batch.in_doubt();
            assert_eq!(doubt.get(&uid), asked.then_some(&(MINUTE_US, MINUTE_US)), "{homes:?}, {again}");
            batch.drop_known(&BTreeSet::from([(uid, MINUTE_US)]));
            assert!(batch.is_empty());
        }
        let launch_us = 2 * DOUBT_US;
        let ahead_us = launch_us - DOUBT_US;
        for (updated_us, asked) in [(launch_us, true), (ahead_us, true), (ahead_us - 1, false)] {
            let mut changed = child(Vec::new());
            (changed.schedule.generation, changed.schedule.updated_us) = (2, updated_us);
            let mut batch = JudgedBatch::new(false);
            batch.skip(0, &changed, launch_us, SkipReason::Missed, launch_us + 3 * MINUTE_US);
            assert_eq!(batch.in_doubt().contains_key(&uid), asked, "the timing before may have had it");
        }
    }
}
