//! Scan tasks that an emitter has claimed, what it reads of them, and for how long they are its own.
//!
//! Invariant: the emitter that works on a task keeps it, however long a page takes. Not here: who gets which (the stores).

use std::time::Duration;

use uuid::Uuid;

use super::{Options, Task, Window};
use crate::model::Schedule;
use crate::plan::Child;

/// The wait after the first failure; it doubles.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// The longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The (slot, schedule, ordinal) of a child that has been read, to go on after.
pub type Checkpoint = (i32, Uuid, u32);

/// A scan task that an emitter has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedTask {
    /// The window.
    pub window: Window,
    /// What to read.
    pub task: Task,
    /// The last child that has been emitted.
    pub checkpoint: Option<Checkpoint>,
    /// Whether it was claimed before: what it holds may have been judged and handed over.
    pub again: bool,
}

/// A child that may fire, with the schedule that it belongs to.
#[derive(Clone, Debug)]
pub struct ScannedChild {
    /// Its ordinal in the schedule.
    pub ordinal: u32,
    /// The index entry.
    pub child: Child,
    /// Its schedule as it is now. (Payload and target may be left empty: emission needs neither.)
    pub schedule: Schedule,
    /// The queue shard that owns the schedule's runs.
    pub shard: u16,
}

/// What a scan read of one task.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// In the order (slot, schedule, ordinal); fewer than were asked for where rows are corrupt.
    pub children: Vec<ScannedChild>,
    /// The last row that was read, corrupt or not, to go on after; none where nothing follows.
    pub next: Option<Checkpoint>,
    /// How many rows could not be read. Each has been named in the log.
    pub corrupt: u32,
}

/// Under which name tasks are claimed, and until when others leave them alone.
#[derive(Clone, Copy, Debug)]
pub struct TaskLease {
    /// The name.
    pub id: Uuid,
    /// Until when.
    pub until_us: i64,
}

impl TaskLease {
    /// A lease from now on.
    pub fn new(id: Uuid, now_us: i64, options: &Options) -> Self {
        Self { id, until_us: now_us + options.lease_us() }
    }

    /// Until when it is to be renewed: once a third of its time has gone.
    pub fn renewal_us(&self, now_us: i64, options: &Options) -> Option<i64> {
        let until_us = now_us + options.lease_us();
        (until_us - self.until_us >= options.lease_us() / 3).then_some(until_us)
    }
}

/// Whether tasks are given back at once where their round fails. What fails time and again does not stand before the
/// others: it waits until the lease has run out.
pub fn is_given_back(tasks: &[ClaimedTask]) -> bool {
    !tasks.iter().any(|task| task.again)
}

/// How long an emitter waits after a failure, where it waited for the time `before` after the last one.
pub fn backoff(before: Option<Duration>) -> Duration {
    before.map_or(BACKOFF_MIN, |before| (before * 2).min(BACKOFF_MAX))
}
