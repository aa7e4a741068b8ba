//! The database's part in emission: windows, scan tasks with leases and checkpoints, the launch index.

use std::collections::BTreeSet;

use tollgate_core::emit::{self, Checkpoint, ClaimedTask, ScanPage, ScannedChild, Task, TaskLease, Window};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::World;

#[derive(Clone, Debug)]
struct TaskRow {
    task: Task,
    lease: Option<Uuid>,
    lease_until_us: i64,
    checkpoint: Option<Checkpoint>,
    done: bool,
}

/// A window, and its tasks once it has been given them.
#[derive(Clone, Debug)]
pub(crate) struct WindowRow {
    window: Window,
    tasks: Option<Vec<TaskRow>>,
}

impl WindowRow {
    fn is_complete(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.iter().all(|task| task.done))
    }
}

impl World {
    /// The end of the newest window.
    pub(crate) fn frontier_us(&self) -> Option<i64> {
        self.windows.iter().map(|row| row.window.end_us).max()
    }

    /// Windows that are not complete, and which of them have no tasks.
    pub(crate) fn incomplete_windows(&self) -> (usize, Vec<Window>) {
        let incomplete = self.windows.iter().filter(|row| !row.is_complete());
        let unplanned = self.windows.iter().filter(|row| row.tasks.is_none()).map(|row| row.window);
        (incomplete.count(), unplanned.collect())
    }

    pub(crate) fn all_windows_complete(&self) -> bool {
        self.windows.iter().all(WindowRow::is_complete)
    }

    /// Nothing changes unless it follows the newest one. Returns whether it was new.
    pub(crate) fn announce(&mut self, window: Window) -> bool {
        let follows = self.frontier_us().is_none_or(|end_us| end_us == window.start_us);
        if !follows && self.bug != Bug::FrontierMovesBack {
            self.count(Seen::AnnouncedByAnother);
            return false;
        }
        self.master.frontier_before_us = self.frontier_us();
        self.master.announced_us = self.now.mono_us;
        self.check_window(window);
        self.windows.push(WindowRow { window, tasks: None });
        for (uid, stored) in &self.master.schedules {
            for launch_us in stored.launches((window.start_us - 1).max(stored.changed_us), window.end_us - 1)
            {
                self.model.expect(*uid, launch_us, RunKind::Scheduled);
            }
        }
        true
    }

    /// Windows follow each other without a gap, and none lies in another one.
    fn check_window(&self, window: Window) {
        assert!(window.start_us < window.end_us, "{window:?} has no length");
        if let Some(end_us) = self.frontier_us() {
            assert_eq!(window.start_us, end_us, "{window:?} does not follow the windows before it");
        }
    }

    /// The tasks that a window has by the launch index as it is now.
    pub(crate) fn tasks_of(&self, window: Window) -> Vec<Task> {
        let children = self.master.schedules.values().filter(|s| !s.deleted).flat_map(|s| s.plan.children());
        let registry: BTreeSet<(&str, &str)> =
            children.map(|child| (child.zone.as_str(), child.launch_expression.as_str())).collect();
        emit::tasks(window, registry)
    }

    /// Gives a window its tasks, if it has none.
    pub(crate) fn open_window(&mut self, window: Window, tasks: Vec<Task>) {
        if let Some(row) = self.windows.iter_mut().find(|row| row.window == window && row.tasks.is_none()) {
            let (lease, lease_until_us, checkpoint, done) = (None, 0, None, false);
            let new = |task| TaskRow { task, lease, lease_until_us, checkpoint, done };
            row.tasks = Some(tasks.into_iter().map(new).collect());
        }
    }

    /// Claims tasks of the oldest windows that nobody has claimed, or whose lease has run out.
    pub(crate) fn claim_tasks(&mut self, lease: TaskLease, limit: usize) -> Vec<ClaimedTask> {
        let now_us = self.now.wall_us;
        let mut claimed = Vec::new();
        for row in &mut self.windows {
            for task in row.tasks.iter_mut().flatten() {
                if claimed.len() == limit || task.done || task.lease.is_some() && task.lease_until_us > now_us
                {
                    continue;
                }
                let again = task.lease.is_some();
                if again {
                    self.totals.count(Seen::TaskRedone);
                }
                if again && task.checkpoint.is_some() {
                    self.totals.count(Seen::CheckpointTaken);
                }
                (task.lease, task.lease_until_us) = (Some(lease.id), lease.until_us);
                let (window, checkpoint) = (row.window, task.checkpoint);
                claimed.push(ClaimedTask { window, task: task.task.clone(), checkpoint, again });
            }
        }
        claimed
    }

    fn claimed(&mut self, lease: Uuid) -> impl Iterator<Item = &mut TaskRow> {
        let tasks = self.windows.iter_mut().flat_map(|row| row.tasks.iter_mut().flatten());
        tasks.filter(move |task| task.lease == Some(lease) && !task.done)
    }

    pub(crate) fn renew_tasks(&mut self, lease: TaskLease) {
        self.claimed(lease.id).for_each(|task| task.lease_until_us = lease.until_us);
    }

    pub(crate) fn release_tasks(&mut self, lease: Uuid) {
        self.claimed(lease).for_each(|task| task.lease_until_us = i64::MIN);
    }

    /// Whether a task is still claimed under the lease.
    pub(crate) fn has_task(&self, lease: Uuid, claimed: &ClaimedTask) -> bool {
        let row = self.windows.iter().find(|row| row.window == claimed.window);
        let mut tasks = row.iter().flat_map(|row| row.tasks.iter().flatten());
        tasks.any(|task| task.task == claimed.task && task.lease == Some(lease))
    }

    fn task(&mut self, lease: Uuid, claimed: &ClaimedTask) -> Option<&mut TaskRow> {
        let row = self.windows.iter_mut().find(|row| row.window == claimed.window)?;
        let mut tasks = row.tasks.iter_mut().flatten();
        tasks.find(|task| task.task == claimed.task && task.lease == Some(lease))
    }

    pub(crate) fn move_checkpoint(&mut self, lease: Uuid, claimed: &ClaimedTask, checkpoint: Checkpoint) {
        if let Some(task) = self.task(lease, claimed) {
            task.checkpoint = Some(checkpoint);
        }
    }

    pub(crate) fn complete_tasks(&mut self, lease: Uuid, claimed: &[ClaimedTask]) {
        for claimed in claimed {
            if let Some(task) = self.task(lease, claimed) {
                task.done = true;
            }
        }
    }

    /// The children of a task after its checkpoint.
    pub(crate) fn scan(&self, task: &Task, after: Option<Checkpoint>, limit: u32) -> ScanPage {
        let mut rows: Vec<(Checkpoint, ScannedChild)> = Vec::new();
        for (uid, stored) in self.master.schedules.iter().filter(|(_, stored)| !stored.deleted) {
            for (ordinal, child) in (0..).zip(stored.plan.children()) {
                let place = (child.slot, *uid, ordinal);
                let is_of = child.zone == task.zone
                    && child.launch_expression == task.launch_expression
                    && task.slots.iter().any(|slots| slots.contains(&child.slot));
                if is_of && after.is_none_or(|after| place > after) {
                    let (child, schedule, shard) = (child.clone(), stored.schedule.clone(), stored.shard);
                    rows.push((place, ScannedChild { ordinal, child, schedule, shard }));
                }
            }
        }
        rows.sort_by_key(|(place, _)| *place);
        let limit = limit as usize;
        let next = (rows.len() > limit).then(|| rows[limit - 1].0);
        rows.truncate(limit);
        ScanPage { children: rows.into_iter().map(|(_, child)| child).collect(), next, corrupt: 0 }
    }

    /// Whether a task of the window of this launch that may hold the schedule's children is not done.
    pub(crate) fn is_unscanned(&self, uid: Uuid, launch_us: i64) -> bool {
        let of = |row: &&WindowRow| (row.window.start_us..row.window.end_us).contains(&launch_us);
        let Some(stored) = self.master.schedules.get(&uid) else { return true };
        let holds = |task: &Task| {
            let mut children = stored.plan.children().iter();
            children.any(|child| child.zone == task.zone && child.launch_expression == task.launch_expression)
        };
        self.windows.iter().find(of).is_none_or(|row| {
            row.tasks.as_ref().is_none_or(|tasks| tasks.iter().any(|task| !task.done && holds(&task.task)))
        })
    }
}
