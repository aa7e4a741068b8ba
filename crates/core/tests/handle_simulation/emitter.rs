//! Two emitters that share windows by scan tasks with leases. The rule that keeps them from making a run twice is that
//! of the real one: a launch that may have been judged before, or falls due before its schedule's latest change or soon
//! after it, is dropped if it has a run in whatever shard, where the schedule has lived elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::master::Plan;
use crate::totals::Seen;
use crate::world::{Event, World};

/// The time between two windows, how far ahead they are opened, and how long a task is left alone.
const WINDOW_US: i64 = 10 * SECOND_US;
const AHEAD_US: i64 = 25 * SECOND_US;
const LEASE_US: i64 = 8 * SECOND_US;
/// What falls due so soon after a change may have a run in an earlier home, which has not heard of the change.
const DOUBT_US: i64 = MINUTE_US;
/// Each window has so many tasks, by a part of the schedules each.
const TASKS: usize = 2;

fn part(uid: Uuid) -> usize {
    (uid.as_u128() % TASKS as u128) as usize
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    lease: u64,
    lease_until_us: i64,
    claimed: u32,
    done: bool,
}

/// A window: its span, and its tasks once it has been opened.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    from_us: i64,
    until_us: i64,
    tasks: Option<[Task; TASKS]>,
}

/// A run that was judged and not handed over.
struct Judged {
    run: Run,
    spec: RunSpec,
    doubtful: bool,
    /// When its schedule had changed last.
    changed_us: i64,
    /// Where its schedule lived before, if it had fallen due when it was judged, or does so soon after the latest change.
    late_from: Vec<u16>,
}

#[derive(Debug)]
enum Stage {
    Scan,
    Doubt,
    Emit,
    Complete,
}

struct Job {
    window: usize,
    task: usize,
    lease: u64,
    again: bool,
    stage: Stage,
    batch: Vec<Judged>,
    /// The task is read again: a former shard had not heard of a change.
    put_off: bool,
}

#[derive(Default)]
pub(crate) struct Emitter {
    id: u32,
    frozen_until_us: i64,
    job: Option<Job>,
}

impl World {
    pub(crate) fn start_emitter(&mut self, slot: usize) {
        self.numbers += 1;
        let id = self.numbers as u32;
        self.emitters[slot] = Emitter { id, ..Emitter::default() };
        self.after(0, Event::Emitter(slot, id));
    }

    pub(crate) fn disturb_emitter(&mut self) {
        let slot = self.random.within(0, 2) as usize;
        if self.random.percent(40) {
            self.count(Seen::EmitterDied);
            self.start_emitter(slot);
        } else {
            self.count(Seen::EmitterFrozen);
            let long_us = self.wait_us(&[2 * SECOND_US, 12 * SECOND_US, 25 * SECOND_US]);
            self.emitters[slot].frozen_until_us = self.now.mono_us + long_us;
        }
    }

    pub(crate) fn make_peace_among_emitters(&mut self) {
        for emitter in &mut self.emitters {
            emitter.frozen_until_us = 0;
        }
    }

    pub(crate) fn all_emitted(&self) -> bool {
        let done = |w: &Window| w.tasks.as_ref().is_some_and(|tasks| tasks.iter().all(|t| t.done));
        self.windows.iter().all(done) && self.emitters.iter().all(|e| e.job.is_none())
    }

    /// Whether nobody has handed over what the window of this launch holds of the schedule.
    pub(crate) fn is_unscanned(&self, uid: Uuid, launch_us: i64) -> bool {
        let window = self.windows.iter().find(|w| (w.from_us..w.until_us).contains(&launch_us));
        window.is_none_or(|w| w.tasks.as_ref().is_none_or(|tasks| !tasks[part(uid)].done))
    }

    /// One step of an emitter.
    pub(crate) fn go_on_emitting(&mut self, slot: usize, id: u32) {
        if self.emitters[slot].id != id {
            return;
        }
        let wait_us = self.emitters[slot].frozen_until_us - self.now.mono_us;
        if wait_us > 0 {
            self.after(wait_us, Event::Emitter(slot, id));
            return;
        }
        let slow = self.troubles.emitters && self.chaos;
        let mut wait_us = if slow { self.wait_us(&[0, 10_000, 500_000, 4 * SECOND_US]) } else { 10_000 };
        match self.emitters[slot].job.take() {
            Some(job) => self.emitters[slot].job = self.go_on_with(job),
            None => {
                self.open_windows();
                self.emitters[slot].job = self.claim();
                if self.emitters[slot].job.is_none() {
                    wait_us = if self.chaos { SECOND_US } else { 10 * SECOND_US };
                }
            }
        }
        self.after(wait_us, Event::Emitter(slot, id));
    }

    /// Announces the next window, or gives an announced one its tasks.
    fn open_windows(&mut self) {
        if let Some(window) = self.windows.iter_mut().find(|w| w.tasks.is_none()) {
            window.tasks = Some(Default::default());
            return;
        }
        if !self.chaos || self.master.frontier_us >= self.now.wall_us + AHEAD_US {
            return;
        }
        let from_us = self.master.frontier_us;
        let until_us = from_us + WINDOW_US;
        (self.master.frontier_before_us, self.master.announced_us) = (from_us, self.now.mono_us);
        self.master.frontier_us = until_us;
        self.windows.push(Window { from_us, until_us, tasks: None });
        for (uid, plan) in &self.master.plans {
            for launch_us in plan.launches((from_us - 1).max(plan.changed_us), until_us - 1) {
                self.model.expect(*uid, launch_us, RunKind::Scheduled);
            }
        }
    }

    fn claim(&mut self) -> Option<Job> {
        let now_us = self.now.wall_us;
        self.numbers += 1;
        let lease = self.numbers;
        for (number, window) in self.windows.iter_mut().enumerate() {
            let Some(tasks) = &mut window.tasks else { continue };
            for (place, task) in tasks.iter_mut().enumerate() {
                if task.done || task.claimed > 0 && task.lease_until_us > now_us {
                    continue;
                }
                let redone = task.claimed > 0;
                *task =
                    Task { lease, lease_until_us: now_us + LEASE_US, claimed: task.claimed + 1, done: false };
                if redone {
                    self.totals.count(Seen::TaskRedone);
                }
                return Some(Job {
                    window: number,
                    task: place,
                    lease,
                    again: redone,
                    stage: Stage::Scan,
                    batch: Vec::new(),
                    put_off: false,
                });
            }
        }
        None
    }

    fn go_on_with(&mut self, mut job: Job) -> Option<Job> {
        self.say(|| {
            let runs = job
                .batch
                .iter()
                .map(|j| (j.run.schedule_uid, j.run.launch_us, j.run.generation, j.run.shard));
            let runs: Vec<_> = runs.collect();
            format!("~ {:?} window {} task {} again {}: {runs:?}", job.stage, job.window, job.task, job.again)
        });
        match job.stage {
            Stage::Scan => {
                self.scan(&mut job);
                job.stage = Stage::Doubt;
                if self.bug == Bug::DoneBeforeHandOver {
                    self.complete(&job);
                }
            }
            Stage::Doubt => {
                self.put_off(&mut job);
                self.drop_known(&mut job);
                job.stage = Stage::Emit;
            }
            Stage::Emit => {
                // One transaction per shard.
                let Some(shard) = job.batch.first().map(|judged| judged.run.shard) else {
                    job.stage = Stage::Complete;
                    return Some(job);
                };
                let (now, later) = job.batch.drain(..).partition(|judged| judged.run.shard == shard);
                job.batch = later;
                self.hand_over_runs(&job, now);
            }
            Stage::Complete => {
                self.complete(&job);
                return None;
            }
        }
        Some(job)
    }

    fn complete(&mut self, job: &Job) {
        if job.put_off {
            return;
        }
        if let Some(tasks) = &mut self.windows[job.window].tasks {
            let task = &mut tasks[job.task];
            task.done |= task.lease == job.lease;
        }
    }

    fn scan(&mut self, job: &mut Job) {
        let window = self.windows[job.window].clone();
        let plans: Vec<Plan> =
            self.master.plans.values().filter(|p| part(p.spec.schedule_uid) == job.task).cloned().collect();
        for plan in plans {
            let uid = plan.spec.schedule_uid;
            for launch_us in plan.launches(window.from_us - 1, window.until_us - 1) {
                if launch_us <= plan.changed_us {
                    self.count(Seen::WindowScannedAfterChange);
                }
                if plan.was_paused_at(launch_us) {
                    self.count(Seen::ScannedAfterPause);
                    if self.bug != Bug::PastPausesForgotten {
                        continue;
                    }
                } else {
                    self.model.allow(uid, launch_us);
                }
                let run = plan.run(launch_us, RunKind::Scheduled, self.now);
                let recent = launch_us <= plan.changed_us + DOUBT_US;
                let doubtful = !plan.former_homes.is_empty() && (job.again || recent);
                let late = !plan.former_homes.is_empty()
                    && launch_us <= self.now.wall_us.max(plan.changed_us + DOUBT_US);
                // A change on its way to a former home may have got to the present one, which was a home before, too.
                let homes = || plan.former_homes.iter().copied().chain([plan.shard]).collect();
                job.batch.push(Judged {
                    run,
                    spec: plan.spec.clone(),
                    doubtful,
                    changed_us: plan.changed_us,
                    late_from: if late { homes() } else { Vec::new() },
                });
            }
        }
    }

    /// Takes out what a former shard of its schedule may still make a run of.
    fn put_off(&mut self, job: &mut Job) {
        let late = job.batch.iter().filter(|judged| !judged.late_from.is_empty());
        let homes: BTreeMap<Uuid, Vec<u16>> =
            late.map(|judged| (judged.run.schedule_uid, judged.late_from.clone())).collect();
        for (uid, homes) in homes {
            if self.bug != Bug::UnheardIgnored && self.is_unheard(uid, &homes) {
                self.count(Seen::PutOff);
                job.batch.retain(|judged| judged.run.schedule_uid != uid);
                job.put_off = true;
            }
        }
    }

    fn drop_known(&mut self, job: &mut Job) {
        if self.bug == Bug::DoubtIgnored {
            return;
        }
        let known: BTreeSet<RunId> =
            job.batch.iter().filter(|j| j.doubtful && self.has_run(&j.run.id)).map(|j| j.run.id).collect();
        for _ in &known {
            self.count(Seen::DoubtSettled);
        }
        job.batch.retain(|judged| !known.contains(&judged.run.id));
    }

    fn has_run(&self, id: &RunId) -> bool {
        self.stores.iter().any(|store| store.runs.contains_key(id))
    }

    fn hand_over_runs(&mut self, job: &Job, judged: Vec<Judged>) {
        // The transaction holds the task's row: who has lost the task hands nothing over.
        let task = self.windows[job.window].tasks.as_ref().map(|tasks| tasks[job.task]);
        if task.is_some_and(|task| task.lease != job.lease) {
            self.count(Seen::TaskLost);
            return;
        }
        for Judged { mut run, spec, changed_us, .. } in judged {
            let shard = usize::from(run.shard);
            let latest_us = self.master.plans.get(&run.schedule_uid).map(|p| p.changed_us);
            if self.stores[shard].runs.contains_key(&run.id) {
                self.count(Seen::EmittedTwice);
                if self.bug == Bug::EmissionOverwrites {
                    self.stores[shard].runs.insert(run.id, run);
                    continue;
                }
                if self.bug == Bug::EmissionMakesNewRuns {
                    run.launch_us += 1;
                    run.id = RunId::derive(run.schedule_uid, run.launch_us);
                }
            }
            if latest_us.is_some_and(|later_us| later_us > changed_us) {
                self.count(Seen::EmittedStale);
            }
            self.stores[shard].emit(run, &spec);
        }
    }
}
