//! Windows, scan tasks, scanned children.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use sqlx::FromRow;
use tollgate_core::emit::{Task, Window, launch_times};
use tollgate_core::model::Schedule;
use tollgate_core::plan::Child;
use uuid::Uuid;

use super::plan::read_schedule;
use super::{corrupt, count, json, parse, shard_of};
use crate::StoreError;
use crate::columns::row;
use crate::corrupt::{CorruptRow, Corruption};
use crate::emit::{Checkpoint, ClaimedTask, Frontier, ScanPage, ScannedChild, WindowRow};

/// How far the emitters are.
#[derive(Debug, FromRow)]
pub(crate) struct FrontierRow {
    pub(crate) opened_until_us: Option<i64>,
    pub(crate) completed_until_us: Option<i64>,
}

impl From<FrontierRow> for Frontier {
    fn from(row: FrontierRow) -> Self {
        Self { opened_until_us: row.opened_until_us, completed_until_us: row.completed_until_us }
    }
}

/// A row of `scan_windows`.
#[derive(Debug, FromRow)]
pub(crate) struct WindowRecord {
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
    pub(crate) opened_us: i64,
    pub(crate) completed_us: Option<i64>,
    pub(crate) tasks: Option<i32>,
    pub(crate) tasks_left: i64,
    pub(crate) runs: i64,
}

impl TryFrom<WindowRecord> for WindowRow {
    type Error = StoreError;

    fn try_from(row: WindowRecord) -> Result<Self, StoreError> {
        let key = || row.start_us.to_string();
        let tasks = row.tasks.map(|tasks| count("tasks", tasks)).transpose();
        let tasks = tasks.map_err(corrupt("scan_windows", key))?;
        Ok(Self {
            window: Window { start_us: row.start_us, end_us: row.end_us },
            opened_us: row.opened_us,
            completed_us: row.completed_us,
            planned: tasks.is_some(),
            tasks: tasks.unwrap_or_default(),
            tasks_left: u32::try_from(row.tasks_left).unwrap_or(u32::MAX),
            runs: u32::try_from(row.runs).unwrap_or(u32::MAX),
        })
    }
}

row! {
    /// A row of `scan_tasks` to be written.
    TaskRow of "scan_tasks" {
        key {
            start_us: i64,
            zone: String,
            launch_expression: String,
        }
        fixed {
            slots: String,
        }
        changing {}
    }
}

row! {
    /// The key of a scan task.
    TaskKey of "keys of scan_tasks" {
        key {
            start_us: i64,
            zone: String,
            launch_expression: String,
        }
        fixed {}
        changing {}
    }
}

impl TaskRow {
    fn new(window: Window, task: &Task) -> Result<Self, StoreError> {
        let slots: Vec<[i32; 2]> = task.slots.iter().map(|range| [*range.start(), *range.end()]).collect();
        Ok(Self {
            start_us: window.start_us,
            zone: task.zone.clone(),
            launch_expression: task.launch_expression.clone(),
            slots: json(&slots)?,
        })
    }
}

/// The rows of a window's tasks.
pub(crate) fn window_tasks(window: Window, tasks: &[Task]) -> Result<Vec<TaskRow>, StoreError> {
    tasks.iter().map(|task| TaskRow::new(window, task)).collect()
}

/// The keys of claimed tasks.
pub(crate) fn task_keys(tasks: &[ClaimedTask]) -> Vec<TaskKey> {
    let key = |claimed: &ClaimedTask| TaskKey {
        start_us: claimed.window.start_us,
        zone: claimed.task.zone.clone(),
        launch_expression: claimed.task.launch_expression.clone(),
    };
    tasks.iter().map(key).collect()
}

/// Claimed tasks, oldest window first, and those that are corrupt. These are claimed again when their leases have run out.
pub(crate) fn in_task_order(mut rows: Vec<ClaimRow>) -> (Vec<ClaimedTask>, Vec<CorruptRow>) {
    rows.sort_by(|a, b| {
        (a.start_us, &a.zone, &a.launch_expression).cmp(&(b.start_us, &b.zone, &b.launch_expression))
    });
    super::sound(None, rows)
}

/// A claimed row of `scan_tasks`.
#[derive(Debug, FromRow)]
pub(crate) struct ClaimRow {
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
    pub(crate) zone: String,
    pub(crate) launch_expression: String,
    pub(crate) slots: String,
    pub(crate) checkpoint_slot: Option<i32>,
    pub(crate) checkpoint_uid: Option<Uuid>,
    pub(crate) checkpoint_ordinal: Option<i32>,
    pub(crate) again: bool,
}

impl TryFrom<ClaimRow> for ClaimedTask {
    type Error = StoreError;

    fn try_from(row: ClaimRow) -> Result<Self, StoreError> {
        let key = || format!("window {}, {} {}", row.start_us, row.zone, row.launch_expression);
        let slots: Vec<[i32; 2]> = parse("slots", &row.slots).map_err(corrupt("scan_tasks", key))?;
        let ordinal = row.checkpoint_ordinal.map(|ordinal| count("checkpoint_ordinal", ordinal));
        let ordinal = ordinal.transpose().map_err(corrupt("scan_tasks", key))?;
        Ok(Self {
            window: Window { start_us: row.start_us, end_us: row.end_us },
            checkpoint: match (row.checkpoint_slot, row.checkpoint_uid, ordinal) {
                (Some(slot), Some(uid), Some(ordinal)) => Some((slot, uid, ordinal)),
                _ => None,
            },
            task: Task {
                slots: slots.iter().map(|[first, last]| *first..=*last).collect(),
                zone: row.zone,
                launch_expression: row.launch_expression,
            },
            again: row.again,
        })
    }
}

/// One read of a scan: children after `after` in the order (slot, schedule, ordinal), up to slot `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanRange {
    pub(crate) after: (i32, Uuid, i32),
    pub(crate) last: i32,
}

/// The reads that make a scan from a checkpoint on: ranges that lie before it are done.
pub(crate) fn scan_ranges(slots: &[RangeInclusive<i32>], checkpoint: Option<Checkpoint>) -> Vec<ScanRange> {
    let mut sorted: Vec<_> = slots.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| *range.start());
    let checkpoint = checkpoint.map(|(slot, uid, ordinal)| (slot, uid, super::int(ordinal)));
    let mut ranges: Vec<ScanRange> = Vec::with_capacity(sorted.len());
    // Where everything before has been read or need not be. No ordinal is negative.
    let mut from = checkpoint;
    for range in sorted {
        let first = (*range.start(), Uuid::nil(), -1);
        let after = from.map_or(first, |from| from.max(first));
        if after.0 > *range.end() {
            continue;
        }
        match ranges.last_mut() {
            // Neighbours make one read.
            Some(before) if before.last.checked_add(1) == Some(*range.start()) => before.last = *range.end(),
            _ => ranges.push(ScanRange { after, last: *range.end() }),
        }
        from = Some((*range.end(), Uuid::max(), i32::MAX));
    }
    ranges
}

/// A read of a scan for a statement that does several at once.
#[derive(Debug)]
pub(crate) struct RangeRow {
    /// The task's place among those that are asked for.
    pub(crate) task: i32,
    pub(crate) zone: String,
    pub(crate) launch_expression: String,
    pub(crate) slot: i32,
    pub(crate) schedule_uid: Uuid,
    pub(crate) ordinal: i32,
    pub(crate) last: i32,
}

/// The reads of scans of several tasks.
pub(crate) fn range_rows(tasks: &[(&Task, Option<Checkpoint>)]) -> Vec<RangeRow> {
    let ranges = (0..).zip(tasks).flat_map(|(number, &(task, checkpoint))| {
        scan_ranges(&task.slots, checkpoint).into_iter().map(move |range| RangeRow {
            task: number,
            zone: task.zone.clone(),
            launch_expression: task.launch_expression.clone(),
            slot: range.after.0,
            schedule_uid: range.after.1,
            ordinal: range.after.2,
            last: range.last,
        })
    });
    ranges.collect()
}

/// A row of a scan.
#[derive(Debug, FromRow)]
pub(crate) struct ScanRow {
    /// The place of its task among those that were asked for.
    pub(crate) task: i32,
    pub(crate) slot: i32,
    pub(crate) schedule_uid: Uuid,
    pub(crate) ordinal: i32,
    pub(crate) rule: String,
    pub(crate) spec: String,
    pub(crate) shard: i32,
}

/// Makes children of a task's rows: at most `limit`, which is how many of each range were read. A schedule with many
/// children is read once.
///
/// What cannot be read is named and left out: one bad row must not stop the others of its minute.
pub(crate) fn scanned(
    corruption: &Corruption,
    task: &Task,
    checkpoint: Option<Checkpoint>,
    mut rows: Vec<ScanRow>,
    limit: u32,
) -> ScanPage {
    rows.truncate(limit as usize);
    let last = rows.last().filter(|_| rows.len() >= limit as usize);
    let next = last.map(|row| (row.slot, row.schedule_uid, u32::try_from(row.ordinal).unwrap_or_default()));
    let mut known: HashMap<Uuid, Option<Arc<Schedule>>> = HashMap::new();
    let mut page = ScanPage { children: Vec::with_capacity(rows.len()), next, corrupt: 0 };
    let mut found = Vec::new();
    for row in rows {
        let schedule = known.entry(row.schedule_uid).or_insert_with(|| {
            read_schedule(row.schedule_uid, &row.spec)
                .map(Arc::new)
                .map_err(|error| found.extend(CorruptRow::of(None, &error)))
                .ok()
        });
        let Some(schedule) = schedule else {
            page.corrupt += 1;
            continue;
        };
        match scanned_child(task, row, schedule) {
            Ok(child) => page.children.push(child),
            Err(error) => {
                found.extend(CorruptRow::of(None, &error));
                page.corrupt += 1;
            }
        }
    }
    let part = ("children", format!("{} {}", task.zone, task.launch_expression));
    if checkpoint.is_none() {
        corruption.found(part, found);
    } else {
        corruption.also(part, found);
    }
    page
}

fn scanned_child(task: &Task, row: ScanRow, schedule: &Schedule) -> Result<ScannedChild, StoreError> {
    let key = || format!("schedule {}, child {}", row.schedule_uid, row.ordinal);
    let child = Child {
        zone: task.zone.clone(),
        launch_expression: task.launch_expression.clone(),
        slot: row.slot,
        rule: row.rule,
    };
    // A child that can say when it fires can be read.
    let readable = launch_times(&child, None, Window { start_us: 0, end_us: 0 });
    let readable = readable.map_err(|error| (error.column, error.to_string()));
    readable.map_err(corrupt("schedule_children", key))?;
    Ok(ScannedChild {
        ordinal: count("ordinal", row.ordinal).map_err(corrupt("schedule_children", key))?,
        shard: shard_of("shard", row.shard).map_err(corrupt("schedules", key))?,
        schedule: schedule.clone(),
        child,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_goes_on_after_its_checkpoint() {
        let uid = Uuid::from_u128(7);
        let slots = [50..=59, 0..=4, 5..=9];
        let whole = scan_ranges(&slots, None);
        let first = ScanRange { after: (0, Uuid::nil(), -1), last: 9 };
        let second = ScanRange { after: (50, Uuid::nil(), -1), last: 59 };
        assert_eq!(whole, [first, second]);
        let rest = scan_ranges(&slots, Some((6, uid, 3)));
        assert_eq!(rest, [ScanRange { after: (6, uid, 3), last: 9 }, second]);
        assert_eq!(scan_ranges(&slots, Some((59, uid, 3))), [ScanRange { after: (59, uid, 3), last: 59 }]);
        assert_eq!(scan_ranges(&slots, Some((60, uid, 0))), []);
        assert_eq!(scan_ranges(&[i32::MIN..=i32::MAX], None).len(), 1);
    }
}
