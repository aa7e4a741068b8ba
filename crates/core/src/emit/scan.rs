//! Decides how scan tasks of one window are carried out: what is read, asked, handed over and marked next.
//!
//! In: claimed tasks, then what became of each [`ScanStep`]. Out: the next step. Invariants: a checkpoint moves, and a task is
//! done, only after everything before it has been handed over; nothing is handed over once the lease on its task is
//! lost; a child that cannot be read is named and passed over; a task with a million children does not stand before those
//! with a few. Not here: which windows and tasks there are ([`super::windows`], the stores), reading and writing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use uuid::Uuid;

use super::batch::{Handed, JudgedBatch};
use super::judge::{Fate, Judge};
use super::{Checkpoint, ClaimedTask, Options, ScanPage, ScannedChild, Task, launch_times};
use crate::model::{Run, SkipReason, Skipped};
use crate::plan::Exclusion;

/// How many children of each task are read together with those of the others.
const FIRST_PAGE: u32 = 16;

/// What is to be done next, and then told to the scan.
#[derive(Debug)]
pub enum ScanStep<'a> {
    /// Read the children of these tasks after their checkpoints, of each at most `limit`; then [`Scan::read`].
    Read {
        /// The tasks.
        tasks: Vec<(&'a Task, Option<Checkpoint>)>,
        /// Children of each.
        limit: u32,
    },
    /// Ask whether a change of a schedule waits to be heard, in the outbox or by one of these shards; then [`Scan::heard`].
    AskUnheard {
        /// The schedule.
        schedule_uid: Uuid,
        /// The shards.
        homes: &'a [u16],
    },
    /// Ask which launches of a schedule in [from, to) have a run in any shard; then [`Scan::known`].
    AskKnown {
        /// The schedule.
        schedule_uid: Uuid,
        /// First moment.
        from_us: i64,
        /// First moment after.
        to_us: i64,
    },
    /// Hand over, as long as all of these tasks are claimed; then [`Scan::handed`].
    HandOver {
        /// The tasks from which it comes.
        tasks: Vec<ClaimedTask>,
        /// What fires.
        runs: &'a [Run],
        /// What does not.
        skipped: &'a [Skipped],
    },
    /// Move the checkpoint of a task; then [`Scan::marked`].
    Mark {
        /// The task.
        task: &'a ClaimedTask,
        /// Where to.
        checkpoint: Checkpoint,
    },
    /// These tasks are done; then [`Scan::completed`].
    Complete {
        /// The tasks.
        tasks: Vec<ClaimedTask>,
        /// How many new runs the scan has handed over.
        runs: u32,
    },
    /// Nothing is left.
    End,
}

/// A child that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its schedule's namespace.
    pub namespace: String,
    /// Its schedule.
    pub schedule_id: String,
    /// Which child of it.
    pub ordinal: u32,
    /// Why.
    pub error: String,
}

/// Where a scan stands.
#[derive(Debug)]
enum Stage {
    /// The first children of all tasks are read at once: most tasks have no more.
    First,
    /// The next task has its turn.
    Turn,
    /// The next page of a task is read.
    Read(usize),
    Judge(Box<Page>),
    /// What has been judged is on its way out.
    Flush(Flush, Then),
    Mark(usize),
    Complete,
    End,
}

#[derive(Debug)]
enum Flush {
    Unheard,
    /// What is asked, and what is known.
    Known(BTreeMap<Uuid, (i64, i64)>, BTreeSet<(Uuid, i64)>),
    HandOver,
}

/// What follows once the batch is handed over.
#[derive(Debug)]
enum Then {
    Judge(Box<Page>),
    Mark(usize),
    Complete,
}

/// A page that is being judged.
#[derive(Debug)]
struct Page {
    task: usize,
    children: std::vec::IntoIter<ScannedChild>,
    child: Option<(ScannedChild, Vec<i64>, usize)>,
    next: Option<Checkpoint>,
    is_first: bool,
    judge: Judge,
}

/// Tasks of one window on their way.
#[derive(Debug)]
pub struct Scan {
    options: Options,
    tasks: Vec<ClaimedTask>,
    /// Which task comes when, with its first page where that has been read.
    turns: VecDeque<(usize, Option<ScanPage>)>,
    stage: Stage,
    batch: JudgedBatch,
    done: BTreeSet<usize>,
    /// Tasks that must be read again later, because a shard had not heard of a change.
    put_off: BTreeSet<usize>,
    /// Somebody else has the tasks: what is left of them is theirs.
    lost: bool,
    leaving: bool,
    emitted: u32,
    children: u64,
    unreadable: Vec<Unreadable>,
}

impl Scan {
    /// A scan of tasks of one window.
    pub fn new(tasks: &[ClaimedTask], options: &Options) -> Self {
        Self {
            options: options.clone(),
            tasks: tasks.to_vec(),
            turns: VecDeque::new(),
            stage: Stage::First,
            batch: JudgedBatch::new(tasks.iter().any(|task| task.again)),
            done: BTreeSet::new(),
            put_off: BTreeSet::new(),
            lost: false,
            leaving: false,
            emitted: 0,
            children: 0,
            unreadable: Vec::new(),
        }
    }

    /// What is to be done next. Judges what has been read by the time `now_us`.
    pub fn step(&mut self, now_us: i64) -> ScanStep<'_> {
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::End);
            self.stage = match stage {
                Stage::Turn => self.turn(now_us),
                Stage::Judge(page) => self.judge(page),
                Stage::Flush(Flush::Unheard, then) if self.batch.late.is_empty() => {
                    Stage::Flush(Flush::Known(self.batch.in_doubt(), BTreeSet::new()), then)
                }
                Stage::Flush(Flush::Known(asked, known), then) if asked.is_empty() => {
                    self.batch.drop_known(&known);
                    Stage::Flush(Flush::HandOver, then)
                }
                Stage::Flush(Flush::HandOver, then) if self.batch.is_empty() => {
                    self.batch.clear();
                    self.then(then)
                }
                Stage::Complete if self.lost || self.done.is_empty() => Stage::End,
                wait => {
                    self.stage = wait;
                    return self.ask();
                }
            };
        }
    }

    /// The step of a stage that waits for an answer.
    fn ask(&mut self) -> ScanStep<'_> {
        let of = |tasks: &BTreeSet<usize>| tasks.iter().map(|at| self.tasks[*at].clone()).collect();
        match &self.stage {
            Stage::First => ScanStep::Read {
                tasks: self.tasks.iter().map(|claimed| (&claimed.task, claimed.checkpoint)).collect(),
                limit: self.options.page.clamp(1, FIRST_PAGE),
            },
            Stage::Read(at) => {
                let claimed = &self.tasks[*at];
                ScanStep::Read {
                    tasks: vec![(&claimed.task, claimed.checkpoint)],
                    limit: self.options.page.max(1),
                }
            }
            Stage::Flush(Flush::Unheard, _) => {
                let late = self.batch.late.first_key_value();
                late.map_or(ScanStep::End, |(uid, late)| ScanStep::AskUnheard {
                    schedule_uid: *uid,
                    homes: &late.homes,
                })
            }
            Stage::Flush(Flush::Known(asked, _), _) => {
                asked.first_key_value().map_or(ScanStep::End, |(uid, (first_us, last_us))| {
                    ScanStep::AskKnown { schedule_uid: *uid, from_us: *first_us, to_us: *last_us + 1 }
                })
            }
            Stage::Flush(Flush::HandOver, _) => ScanStep::HandOver {
                tasks: of(&self.batch.tasks),
                runs: &self.batch.runs,
                skipped: &self.batch.skipped,
            },
            Stage::Mark(at) => {
                let task = &self.tasks[*at];
                task.checkpoint.map_or(ScanStep::End, |checkpoint| ScanStep::Mark { task, checkpoint })
            }
            Stage::Complete => ScanStep::Complete { tasks: of(&self.done), runs: self.emitted },
            Stage::Turn | Stage::Judge(_) | Stage::End => ScanStep::End,
        }
    }

    /// Page by page in turns.
    fn turn(&mut self, now_us: i64) -> Stage {
        if self.leaving || self.lost {
            // The emitter that claims the rest next goes on.
            self.turns.clear();
        }
        match self.turns.pop_front() {
            Some((task, Some(page))) => self.page(task, page, true, now_us),
            Some((task, None)) => Stage::Read(task),
            None => Stage::Flush(Flush::Unheard, Then::Complete),
        }
    }

    fn page(&self, task: usize, page: ScanPage, is_first: bool, now_us: i64) -> Stage {
        let judge = Judge::new(now_us, self.options.late_after_us());
        let ScanPage { children, next, .. } = page;
        let children = children.into_iter();
        Stage::Judge(Box::new(Page { task, children, child: None, next, is_first, judge }))
    }

    /// Judges a page until the batch is full or the page ends.
    fn judge(&mut self, mut page: Box<Page>) -> Stage {
        while !self.batch.is_full() {
            let Some((child, launches, at)) = &mut page.child else {
                let Some(child) = page.children.next() else { return self.judged(&page) };
                self.children += 1;
                let exclusion = Exclusion::of(&child.schedule.timing);
                match launch_times(&child.child, exclusion.as_ref(), self.tasks[page.task].window) {
                    Ok(launches) => page.child = Some((child, launches, 0)),
                    Err(error) => self.unreadable.push(Unreadable::new(&child, &error)),
                }
                continue;
            };
            let Some(launch_us) = launches.get(*at).copied() else {
                page.child = None;
                continue;
            };
            *at += 1;
            let judged_us = page.judge.now_us();
            match page.judge.fate(&child.schedule, launch_us, launches.get(*at).copied()) {
                Ok(Fate::Run) => self.batch.run(page.task, child, launch_us, judged_us),
                Ok(Fate::Skip(reason)) => self.batch.skip(page.task, child, launch_us, reason, judged_us),
                Ok(Fate::Before) => {}
                Err(error) => {
                    // Whether it is the latest is not known: it is recorded rather than fired out of time.
                    self.unreadable.push(Unreadable::new(child, &error));
                    self.batch.skip(page.task, child, launch_us, SkipReason::Missed, judged_us);
                }
            }
        }
        Stage::Flush(Flush::Unheard, Then::Judge(page))
    }

    /// What follows a page.
    fn judged(&mut self, page: &Page) -> Stage {
        let Some(checkpoint) = page.next else {
            self.done.insert(page.task);
            return Stage::Turn;
        };
        self.tasks[page.task].checkpoint = Some(checkpoint);
        if page.is_first {
            // To read the first page again costs less than a checkpoint after it.
            self.turns.push_back((page.task, None));
            return Stage::Turn;
        }
        Stage::Flush(Flush::Unheard, Then::Mark(page.task))
    }

    fn then(&mut self, then: Then) -> Stage {
        match then {
            Then::Judge(_) if self.lost => Stage::Turn,
            Then::Judge(page) => Stage::Judge(page),
            Then::Mark(task) if self.lost || self.put_off.contains(&task) => {
                self.turns.push_back((task, None));
                Stage::Turn
            }
            Then::Mark(task) => Stage::Mark(task),
            Then::Complete => {
                let put_off = &self.put_off;
                self.done.retain(|task| !put_off.contains(task));
                Stage::Complete
            }
        }
    }

    /// Pages have been read.
    pub fn read(&mut self, pages: Vec<ScanPage>, now_us: i64) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Turn) {
            Stage::First => {
                self.turns =
                    (0..self.tasks.len()).zip(pages).map(|(task, page)| (task, Some(page))).collect();
                Stage::Turn
            }
            Stage::Read(task) => match pages.into_iter().next() {
                Some(page) => self.page(task, page, false, now_us),
                None => {
                    self.done.insert(task);
                    Stage::Turn
                }
            },
            other => other,
        };
    }

    /// The page of one task cannot be read: the others go on, this one comes again when its lease has run out. Returns it;
    /// none where all were to be read at once.
    pub fn pass_over(&mut self) -> Option<&ClaimedTask> {
        let Stage::Read(task) = std::mem::replace(&mut self.stage, Stage::Turn) else { return None };
        self.tasks.get(task)
    }

    /// Whether a change of the schedule waits to be heard: then its launches are read again later.
    pub fn heard(&mut self, is_unheard: bool) {
        if let Some((uid, late)) = self.batch.late.pop_first()
            && is_unheard
        {
            self.put_off.extend(self.batch.put_off(uid, late));
        }
    }

    /// Which launches have a run.
    pub fn known(&mut self, launches_us: &[i64]) {
        if let Stage::Flush(Flush::Known(asked, known), _) = &mut self.stage
            && let Some((uid, _)) = asked.pop_first()
        {
            known.extend(launches_us.iter().map(|launch_us| (uid, *launch_us)));
        }
    }

    /// How many runs of what was handed over from `began_us` to `now_us` were new; none where somebody else has taken
    /// the tasks. Returns what follows.
    pub fn handed(&mut self, new: Option<u32>, began_us: i64, now_us: i64) -> Option<Handed> {
        let handed = new.map(|_| self.batch.handed(began_us, now_us));
        self.lost |= new.is_none();
        self.emitted = self.emitted.saturating_add(new.unwrap_or_default());
        self.batch.clear();
        handed
    }

    /// The checkpoint has moved.
    pub fn marked(&mut self) {
        if let Stage::Mark(task) = self.stage {
            self.turns.push_back((task, None));
            self.stage = Stage::Turn;
        }
    }

    /// The tasks are done.
    pub fn completed(&mut self) {
        self.stage = Stage::End;
    }

    /// No further page is read; what has been judged goes its way.
    pub fn leave(&mut self) {
        self.leaving = true;
        if matches!(self.stage, Stage::First | Stage::Read(_)) {
            self.stage = Stage::Turn;
        }
    }

    /// How many children it has read since the last call, and which of them it has passed over.
    pub fn take_notes(&mut self) -> (u64, Vec<Unreadable>) {
        (std::mem::take(&mut self.children), std::mem::take(&mut self.unreadable))
    }
}

impl Unreadable {
    fn new(child: &ScannedChild, error: &dyn std::error::Error) -> Self {
        Self {
            namespace: child.schedule.namespace.clone(),
            schedule_id: child.schedule.id.clone(),
            ordinal: child.ordinal,
            error: error.to_string(),
        }
    }
}
