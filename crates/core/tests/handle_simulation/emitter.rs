//! Two emitters that share windows by scan tasks with leases: they do what the real core says, against a database here, and
//! die, freeze, fail and leave in between.

use std::collections::{BTreeMap, VecDeque};

use tollgate_core::emit::{
    self, ClaimedTask, Options, Scan, ScanStep, ScannedChild, Task, TaskLease, Window,
};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::master::launches;
use crate::totals::Seen;
use crate::world::{Event, World};

/// What an emitter does next.
#[derive(Default)]
enum Work {
    /// It looks how far windows are open.
    #[default]
    Look,
    /// It plans windows without tasks, and opens those that must be open.
    Open(Opening),
    /// It gives a window the tasks that it has read.
    Plan(Window, Vec<Task>, Opening),
    Claim,
    Scan(Box<Job>),
    /// A round has failed: what it claimed is given back.
    GiveBack(Uuid),
}

/// What it saw when it looked.
struct Opening {
    plan: VecDeque<Window>,
    frontier_us: Option<i64>,
    incomplete: usize,
}

/// Tasks that are being carried out, window by window.
struct Job {
    lease: TaskLease,
    /// Whether they are given back should the round fail.
    given_back: bool,
    groups: VecDeque<Vec<ClaimedTask>>,
    scan: Scan,
    /// Shards that have what is being handed over: each has a transaction.
    handed: Vec<u16>,
    new: u32,
    leaving: bool,
    window: Window,
    /// Schedules as they were read, by generation.
    read: BTreeMap<(Uuid, i64), Schedule>,
}

#[derive(Default)]
pub(crate) struct Emitter {
    id: u32,
    frozen_until_us: i64,
    options: Options,
    work: Work,
}

/// What is handed over to one shard.
struct Part {
    tasks: Vec<ClaimedTask>,
    runs: Vec<Run>,
    skipped: Vec<Skipped>,
    /// Nothing is left after it.
    is_last: bool,
}

impl World {
    pub(crate) fn start_emitter(&mut self, slot: usize) {
        self.numbers += 1;
        let id = self.numbers as u32;
        let options = Options {
            // They need not agree.
            window_s: if slot == 1 && self.troubles.moves { 15 } else { 10 },
            ahead_s: 25,
            page: 1 + self.random.within(0, 3) as u32,
            claim: 1 + self.random.within(0, 4) as u32,
            lease_s: 8,
            late_after_s: if self.troubles.stops { 15 } else { 60 },
            catch_up_s: 30,
        };
        self.emitters[slot] = Emitter { id, options, ..Emitter::default() };
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
        self.all_windows_complete() && !self.emitters.iter().any(|e| matches!(e.work, Work::Scan(_)))
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
        let mut wait_us = if slow { self.wait_us(&[0, 0, 0, 10_000, 100_000, 4 * SECOND_US]) } else { 1_000 };
        let (work, options) =
            (std::mem::take(&mut self.emitters[slot].work), self.emitters[slot].options.clone());
        let next = self.work_on(work, &options);
        if matches!(next, Work::Look) {
            wait_us = if self.chaos { SECOND_US } else { 10 * SECOND_US };
        }
        self.emitters[slot].work = next;
        self.after(wait_us, Event::Emitter(slot, id));
    }

    fn work_on(&mut self, work: Work, options: &Options) -> Work {
        match work {
            Work::Look => {
                let (incomplete, plan) = self.incomplete_windows();
                Work::Open(Opening { plan: plan.into(), frontier_us: self.frontier_us(), incomplete })
            }
            Work::Open(opening) => self.open(opening, options),
            Work::Plan(window, tasks, opening) => {
                self.open_window(window, tasks);
                Work::Open(opening)
            }
            Work::Claim => {
                let id = self.new_uuid();
                let lease = TaskLease::new(id, self.now.wall_us, options);
                let tasks = self.claim_tasks(lease, options.claim as usize);
                if tasks.is_empty() {
                    Work::Look
                } else {
                    Work::Scan(Box::new(Job::new(lease, tasks, options)))
                }
            }
            Work::Scan(job) => self.go_on_with(job, options),
            Work::GiveBack(lease) => {
                self.release_tasks(lease);
                Work::Look
            }
        }
    }

    fn new_uuid(&mut self) -> Uuid {
        self.numbers += 1;
        Uuid::from_u64_pair(self.numbers, 0)
    }

    /// Reads the tasks of a window without any, or announces the next window.
    fn open(&mut self, mut opening: Opening, options: &Options) -> Work {
        if let Some(window) = opening.plan.pop_front() {
            return Work::Plan(window, self.tasks_of(window), opening);
        }
        if !self.chaos {
            return Work::Claim;
        }
        let now_us = self.now.wall_us;
        let Some(window) = emit::to_open(opening.frontier_us, opening.incomplete, now_us, options) else {
            return Work::Claim;
        };
        if self.announce(window) {
            opening.frontier_us = Some(window.end_us);
            opening.incomplete += 1;
            opening.plan.push_back(window);
        } else {
            let before_us = std::mem::replace(&mut opening.frontier_us, self.frontier_us());
            assert_ne!(before_us, opening.frontier_us, "{window:?} does not follow the windows before it");
        }
        Work::Open(opening)
    }

    fn go_on_with(&mut self, mut job: Box<Job>, options: &Options) -> Work {
        if self.strikes(self.troubles.emitters, 2) {
            self.count(Seen::RoundFailed);
            return if job.given_back { Work::GiveBack(job.lease.id) } else { Work::Look };
        }
        if self.strikes(self.troubles.emitters, 1) {
            job.leaving = true;
        }
        if job.leaving {
            job.scan.leave();
        }
        let now_us = self.now.wall_us;
        if let Some(until_us) = job.lease.renewal_us(now_us, options) {
            job.lease.until_us = until_us;
            self.renew_tasks(job.lease);
        }
        let leaving = job.leaving;
        let Job { scan, lease, handed, .. } = &mut *job;
        match scan.step(now_us) {
            ScanStep::Read { tasks, limit } => {
                let pages: Vec<_> =
                    tasks.iter().map(|(task, after)| self.scan(task, *after, limit)).collect();
                let children = pages.iter().flat_map(|page| &page.children);
                let read = |child: &ScannedChild| (child.schedule.uid, child.schedule.generation);
                job.read.extend(children.map(|child| (read(child), child.schedule.clone())));
                if pages.iter().any(|page| page.next.is_some()) {
                    self.count(Seen::PageLeft);
                }
                self.allow_scanned(job.window, &pages);
                job.scan.read(pages, now_us);
            }
            ScanStep::AskUnheard { schedule_uid, homes } => {
                let is_unheard = self.is_unheard(schedule_uid, homes);
                if is_unheard {
                    self.count(Seen::PutOff);
                }
                job.scan.heard(is_unheard);
            }
            ScanStep::AskKnown { schedule_uid, from_us, to_us } => {
                let of = |run: &&Run| {
                    run.schedule_uid == schedule_uid && (from_us..to_us).contains(&run.launch_us)
                };
                let runs = self.stores.iter().flat_map(|store| store.runs.values()).filter(of);
                let known: Vec<i64> = runs.map(|run| run.launch_us).collect();
                known.iter().for_each(|_| self.totals.count(Seen::DoubtSettled));
                job.scan.known(&known);
            }
            ScanStep::HandOver { tasks, runs, skipped } => {
                let part = next_part(handed, tasks, runs, skipped);
                self.hand_over_part(&mut job, part);
            }
            ScanStep::Mark { task, checkpoint } => {
                self.move_checkpoint(lease.id, task, checkpoint);
                job.scan.marked();
            }
            ScanStep::Complete { tasks, .. } => {
                self.complete_tasks(lease.id, &tasks);
                job.scan.completed();
            }
            ScanStep::End if leaving => return Work::GiveBack(job.lease.id),
            ScanStep::End => match job.groups.pop_front() {
                Some(tasks) => (job.window, job.scan) = (tasks[0].window, Scan::new(&tasks, options)),
                None => return Work::Claim,
            },
        }
        Work::Scan(job)
    }

    /// What a scan may make of what it has read is allowed, but for what fell due in a pause.
    fn allow_scanned(&mut self, window: Window, pages: &[emit::ScanPage]) {
        for child in pages.iter().flat_map(|page| &page.children) {
            let schedule = &child.schedule;
            for launch_us in launches(&schedule.timing, window.start_us - 1, window.end_us - 1) {
                if launch_us <= schedule.updated_us {
                    self.count(Seen::WindowScannedAfterChange);
                }
                if self.master.was_paused_at(schedule.uid, launch_us) {
                    self.count(Seen::ScannedAfterPause);
                } else {
                    self.model.allow(schedule.uid, launch_us);
                }
            }
        }
    }

    /// One transaction: it holds the tasks' rows, so that who has lost one hands nothing over.
    fn hand_over_part(&mut self, job: &mut Job, part: Part) {
        let Part { tasks, runs, skipped, is_last } = part;
        if tasks.iter().any(|task| !self.has_task(job.lease.id, task)) {
            self.count(Seen::TaskLost);
            job.handed.clear();
            job.scan.handed(None, self.now.wall_us, self.now.wall_us);
            return;
        }
        for run in runs {
            job.handed.push(run.shard);
            let schedule = &job.read[&(run.schedule_uid, run.generation)];
            check_run(&run, schedule, self.late_after_us());
            job.new += u32::from(self.hand_over_run(run, schedule));
        }
        if !is_last {
            return;
        }
        for skip in skipped {
            let mut read = job.read.range((skip.schedule_uid, 0)..=(skip.schedule_uid, i64::MAX));
            let late_after_us = self.late_after_us();
            assert!(
                read.any(|(_, schedule)| is_skipped(&skip, schedule, late_after_us)),
                "{skip:?} must run by {:?}",
                job.read
            );
            self.record_skip(skip);
        }
        job.scan.handed(Some(std::mem::take(&mut job.new)), self.now.wall_us, self.now.wall_us);
        job.handed.clear();
    }

    fn record_skip(&mut self, skip: Skipped) {
        let id = RunId::derive(skip.schedule_uid, skip.launch_us);
        if skip.reason == SkipReason::Missed {
            self.count(Seen::Missed);
            // Another generation may have had it in another task.
            let stored = self.master.schedules.get(&skip.schedule_uid);
            let unchanged =
                |run: &&Run| stored.is_some_and(|stored| stored.schedule.generation == run.generation);
            let run = self.stores.iter().find_map(|store| store.runs.get(&id)).filter(unchanged);
            assert!(
                run.is_none() || !self.model.emitted.contains(&id),
                "{skip:?} had its run in time: {run:?}"
            );
        }
        self.master.skipped.entry((skip.schedule_uid, skip.launch_us)).or_insert(skip);
    }

    /// Whether it was new.
    fn hand_over_run(&mut self, mut run: Run, schedule: &Schedule) -> bool {
        let shard = usize::from(run.shard);
        if self.is_made_elsewhere(&run) {
            return false;
        }
        let is_new = !self.stores[shard].runs.contains_key(&run.id);
        if !is_new {
            self.count(Seen::EmittedTwice);
            if self.bug == Bug::EmissionOverwrites {
                self.stores[shard].runs.insert(run.id, run);
                return false;
            }
            if self.bug == Bug::EmissionMakesNewRuns {
                run.launch_us += 1;
                run.id = RunId::derive(run.schedule_uid, run.launch_us);
            }
        }
        let latest = self.master.schedules.get(&run.schedule_uid);
        if latest.is_some_and(|latest| latest.schedule.generation > run.generation) {
            self.count(Seen::EmittedStale);
        }
        self.model.emitted.insert(run.id);
        self.stores[shard].emit(run, &RunSpec::of(schedule));
        is_new
    }

    /// Looked up in the transaction that hands it over.
    fn is_made_elsewhere(&self, run: &Run) -> bool {
        let Some(stored) = self.master.schedules.get(&run.schedule_uid).filter(|stored| !stored.deleted)
        else {
            return false;
        };
        let Schedule { former_homes, generation, updated_us, .. } = &stored.schedule;
        let others = || self.stores.iter().enumerate().filter(|(shard, _)| *shard != usize::from(run.shard));
        !former_homes.is_empty()
            && emit::is_in_doubt(run.launch_us, run.generation, (*generation, *updated_us))
            && others().any(|(_, store)| store.runs.contains_key(&run.id))
    }

    pub(crate) fn late_after_us(&self) -> i64 {
        self.emitters[0].options.late_after_us()
    }
}

impl Job {
    fn new(lease: TaskLease, mut tasks: Vec<ClaimedTask>, options: &Options) -> Self {
        let given_back = emit::is_given_back(&tasks);
        tasks.sort_by_key(|task| task.window);
        let of = |a: &ClaimedTask, b: &ClaimedTask| a.window == b.window;
        let mut groups: VecDeque<Vec<ClaimedTask>> = tasks.chunk_by(of).map(<[_]>::to_vec).collect();
        let first = groups.pop_front().unwrap_or_default();
        Self {
            lease,
            given_back,
            window: first[0].window,
            scan: Scan::new(&first, options),
            groups,
            handed: Vec::new(),
            new: 0,
            leaving: false,
            read: BTreeMap::new(),
        }
    }
}

/// What goes to the next shard that has not got its part; skips go with the last one.
fn next_part(handed: &[u16], tasks: Vec<ClaimedTask>, runs: &[Run], skipped: &[Skipped]) -> Part {
    let mut left = runs.iter().filter(|run| !handed.contains(&run.shard));
    let shard = left.next().map(|run| run.shard);
    Part {
        tasks,
        runs: runs.iter().filter(|run| Some(run.shard) == shard).cloned().collect(),
        skipped: skipped.to_vec(),
        is_last: left.all(|run| Some(run.shard) == shard),
    }
}

/// Whether a later launch than this one has fallen due at `now_us`, but for those within pauses.
fn has_later(schedule: &Schedule, launch_us: i64, now_us: i64) -> bool {
    launches(&schedule.timing, launch_us, now_us).into_iter().any(|later_us| !is_paused(schedule, later_us))
}

fn is_paused(schedule: &Schedule, launch_us: i64) -> bool {
    let now = schedule.pause.iter().map(|pause| (pause.since_us, i64::MAX));
    let past = schedule.past_pauses.iter().map(|pause| (pause.since_us, pause.until_us));
    now.chain(past).any(|(since_us, until_us)| since_us < launch_us && launch_us <= until_us)
}

/// Whether a launch that is so late is left out.
fn is_missed(schedule: &Schedule, launch_us: i64, now_us: i64, late_after_us: i64) -> bool {
    let is_late = launch_us + schedule.start_delay_us() < now_us - late_after_us;
    is_late
        && match schedule.catch_up {
            CatchUp::None => true,
            CatchUp::Latest => has_later(schedule, launch_us, now_us),
            CatchUp::All { horizon_s } => launch_us < now_us - horizon_s * SECOND_US,
        }
}

/// Nothing fires in a pause, or that has been missed.
fn check_run(run: &Run, schedule: &Schedule, late_after_us: i64) {
    assert!(!is_paused(schedule, run.launch_us), "{run:?} fires in a pause: {schedule:?}");
    let is_missed = is_missed(schedule, run.launch_us, run.emitted_us, late_after_us);
    assert!(!is_missed, "{run:?} fires though it has been missed: {schedule:?}");
}

fn is_skipped(skip: &Skipped, schedule: &Schedule, late_after_us: i64) -> bool {
    match skip.reason {
        SkipReason::Paused => is_paused(schedule, skip.launch_us),
        _ => is_missed(schedule, skip.launch_us, skip.recorded_us, late_after_us),
    }
}
