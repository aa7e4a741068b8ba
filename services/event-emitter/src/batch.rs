//! Gathers runs and skips of several children and hands them over together.
//!
//! In: judged launches. Out: [`EmitStore::emit`](tollgate_store::emit::EmitStore::emit), and a wake for each shard that
//! got a run that launches soon. Invariants: a launch that has a run is not recorded as skipped later; nothing is handed over
//! once the lease on its task is lost; what a former shard of a schedule may still make a run of waits until that shard
//! has heard of the change.
//! Not here: judging.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::model::{MINUTE_US, Run, RunId, RunKind, RunState, SECOND_US, SkipReason, Skipped};
use tollgate_store::StoreError;
use tollgate_store::emit::{ClaimedTask, ScannedChild};
use uuid::Uuid;

use crate::scan::Lease;
use crate::{Emitter, RoundReport};

/// So many rows are handed over at once: on SQLite, everybody's commits wait for them.
const ROWS_MAX: usize = 250;
/// A shard's owner is woken for runs that launch so soon. Later ones it finds within a second or two by itself, all that a
/// round has emitted at once.
const SOON_US: i64 = 30 * SECOND_US;

/// The longest pause after a part of what lies further ahead.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What falls due so soon after a change may have a run in an earlier home of its schedule: longer than windows are
/// opened ahead, with masters whose clocks disagree.
const DOUBT_US: i64 = 60 * MINUTE_US;

/// For so long after its launch time a launch waits for a former shard to hear of a change. A message that cannot be read
/// must not hold it up for ever.
const PUT_OFF_US: i64 = 15 * MINUTE_US;

/// What has been judged and not handed over.
pub(crate) struct Batch {
    runs: Vec<Run>,
    skipped: Vec<Skipped>,
    /// Somebody may have judged the same launches before, at a time when they were not late: a task was claimed before.
    again: bool,
    /// Launches whose run may exist in another shard: their schedule lived there.
    doubtful: Vec<(Uuid, i64)>,
    /// Schedules of which launches have fallen due, or do so soon after the latest change, with the shards where they lived and the
    /// tasks that found them: such a shard may make those launches itself, when it hears of an earlier change.
    late: BTreeMap<Uuid, (Vec<u16>, BTreeSet<TaskKey>)>,
    /// Of which tasks it holds something.
    tasks: BTreeMap<TaskKey, ClaimedTask>,
    /// Under which its tasks are claimed.
    pub(crate) lease: Lease,
    /// Tasks that must be read again, because a shard had not heard of a change.
    put_off: BTreeSet<TaskKey>,
    /// Somebody else has the tasks.
    lost: bool,
    emitted: u32,
}

/// A task of a window.
type TaskKey = (String, String);

fn task_key(claimed: &ClaimedTask) -> TaskKey {
    (claimed.task.zone.clone(), claimed.task.launch_expression.clone())
}

impl Batch {
    /// An empty batch for tasks of one window. `again`: its launches may have been judged before.
    pub(crate) fn new(lease: Lease, again: bool) -> Self {
        Self {
            runs: Vec::new(),
            skipped: Vec::new(),
            again,
            doubtful: Vec::new(),
            late: BTreeMap::new(),
            tasks: BTreeMap::new(),
            lease,
            put_off: BTreeSet::new(),
            lost: false,
            emitted: 0,
        }
    }

    /// Whether somebody else has the tasks: what is left of them is theirs.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a task must be read again later.
    pub(crate) fn is_put_off(&self, claimed: &ClaimedTask) -> bool {
        self.put_off.contains(&task_key(claimed))
    }

    /// Notes where what is added comes from.
    fn note(&mut self, claimed: &ClaimedTask, child: &ScannedChild, launch_us: i64, now_us: i64) {
        let key = task_key(claimed);
        let schedule = &child.schedule;
        // A former home may start what it has made before it hears of the latest change.
        let until_us = now_us.max(schedule.updated_us.saturating_add(DOUBT_US));
        if !schedule.former_homes.is_empty() && (now_us - PUT_OFF_US..=until_us).contains(&launch_us) {
            let late = self.late.entry(schedule.uid);
            // A change on its way to a former home may have got to the present one, which was a home before, too.
            let homes = || schedule.former_homes.iter().copied().chain([child.shard]).collect();
            late.or_insert_with(|| (homes(), BTreeSet::new())).1.insert(key.clone());
        }
        self.tasks.entry(key).or_insert_with(|| claimed.clone());
    }

    /// Whether it should be handed over.
    pub(crate) fn is_full(&self) -> bool {
        self.runs.len() + self.skipped.len() >= ROWS_MAX
    }

    /// How many new runs it has handed over in all.
    pub(crate) fn emitted(&self) -> u32 {
        self.emitted
    }

    /// Adds the run of a child's launch.
    pub(crate) fn run(&mut self, claimed: &ClaimedTask, child: &ScannedChild, launch_us: i64, now_us: i64) {
        self.note(claimed, child, launch_us, now_us);
        let schedule = &child.schedule;
        // What falls due long after the move, the shard where it lived before never had. Of what it had it may have
        // started or ended some before it heard of the move; the rest it passes on by itself.
        let recent = launch_us <= schedule.updated_us.saturating_add(DOUBT_US);
        if !schedule.former_homes.is_empty() && (self.again || recent) {
            self.doubtful.push((schedule.uid, launch_us));
        }
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
            state: RunState::Emitted,
            emitted_us: now_us,
            ..Run::default()
        });
    }

    /// Adds a launch that makes no run.
    pub(crate) fn skip(
        &mut self,
        claimed: &ClaimedTask,
        child: &ScannedChild,
        launch_us: i64,
        reason: SkipReason,
        now_us: i64,
    ) {
        self.note(claimed, child, launch_us, now_us);
        let schedule_uid = child.schedule.uid;
        self.skipped.push(Skipped { schedule_uid, launch_us, reason, recorded_us: now_us });
    }

    /// Empties it.
    fn clear(&mut self) {
        self.runs.clear();
        self.skipped.clear();
        self.doubtful.clear();
        self.late.clear();
        self.tasks.clear();
    }
}

impl Emitter {
    /// Hands over what a batch holds, and wakes the shards that have something to do soon.
    pub(crate) async fn flush(&self, batch: &mut Batch, report: &mut RoundReport) -> Result<(), StoreError> {
        self.renew(&mut batch.lease).await?;
        self.put_off(batch).await?;
        if batch.again {
            let skipped = batch.skipped.iter().map(|skip| (skip.schedule_uid, skip.launch_us));
            let known = self.known(skipped).await?;
            batch.skipped.retain(|skip| !known.contains(&(skip.schedule_uid, skip.launch_us)));
        }
        let known = self.known(batch.doubtful.iter().copied()).await?;
        batch.runs.retain(|run| !known.contains(&(run.schedule_uid, run.launch_us)));
        if batch.runs.is_empty() && batch.skipped.is_empty() {
            batch.clear();
            return Ok(());
        }
        tollgate_fault_points::pass("emitter.emit.before");
        let began_us = self.clock.wall_us();
        let tasks: Vec<ClaimedTask> = batch.tasks.values().cloned().collect();
        let handed = self.store.emit_claimed(batch.lease.id, &tasks, &batch.runs, &batch.skipped).await?;
        let Some(new) = handed else {
            tracing::info!(
                tasks = tasks.len(),
                "another emitter has taken scan tasks over: this one was too slow"
            );
            batch.clear();
            batch.lost = true;
            return Ok(());
        };
        let now_us = self.clock.wall_us();
        self.traces.emitted(&batch.runs, began_us, now_us);
        tollgate_fault_points::pass("emitter.emit.after");
        let soon_us = now_us.saturating_add(SOON_US);
        // What others write comes in between, where there is time.
        let lies_ahead = |run: &Run| run.launch_us > now_us + 2 * SOON_US;
        let no_hurry = !batch.runs.is_empty() && batch.runs.iter().all(lies_ahead);
        let pause_us = if no_hurry { now_us - began_us } else { 0 };
        let shards: BTreeSet<u16> =
            batch.runs.iter().filter(|run| run.launch_us <= soon_us).map(|run| run.shard).collect();
        shards.into_iter().for_each(|shard| (self.wake)(shard));
        let missed = count(&batch.skipped, SkipReason::Missed);
        let paused = count(&batch.skipped, SkipReason::Paused);
        batch.emitted = batch.emitted.saturating_add(new);
        report.runs += u64::from(new);
        report.missed += missed;
        report.paused += paused;
        self.stats.runs.fetch_add(new.into(), Ordering::Relaxed);
        self.stats.missed.fetch_add(missed, Ordering::Relaxed);
        self.stats.paused.fetch_add(paused, Ordering::Relaxed);
        batch.clear();
        let pause = Duration::from_micros(u64::try_from(pause_us).unwrap_or_default());
        tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        Ok(())
    }

    /// Takes out what a former shard of its schedule may still make a run of: only schedules that have moved are asked for.
    async fn put_off(&self, batch: &mut Batch) -> Result<(), StoreError> {
        for (uid, (homes, tasks)) in std::mem::take(&mut batch.late) {
            if self.store.is_unheard(uid, &homes).await? {
                tracing::debug!(%uid, ?homes, "late launches wait until a shard has heard of a change");
                batch.runs.retain(|run| run.schedule_uid != uid);
                batch.skipped.retain(|skip| skip.schedule_uid != uid);
                batch.doubtful.retain(|(doubtful, _)| *doubtful != uid);
                batch.put_off.extend(tasks);
            }
        }
        Ok(())
    }

    /// Those launches that have a run, in whatever shard: an emitter made it in time and died before its task was done.
    async fn known(
        &self,
        launches: impl Iterator<Item = (Uuid, i64)>,
    ) -> Result<HashSet<(Uuid, i64)>, StoreError> {
        let mut spans: BTreeMap<Uuid, (i64, i64)> = BTreeMap::new();
        for (uid, launch_us) in launches {
            let span = spans.entry(uid).or_insert((launch_us, launch_us));
            *span = (span.0.min(launch_us), span.1.max(launch_us));
        }
        let mut known = HashSet::new();
        for (uid, (first_us, last_us)) in spans {
            let launches = self.store.launches_with_runs(uid, first_us, last_us + 1).await?;
            known.extend(launches.into_iter().map(|launch_us| (uid, launch_us)));
        }
        Ok(known)
    }
}

fn count(skipped: &[Skipped], reason: SkipReason) -> u64 {
    skipped.iter().filter(|skip| skip.reason == reason).count() as u64
}
