//! Runs and skipped triggers.

use tollgate_core::model::{Counts, Run, RunId, Skipped};
use uuid::Uuid;

use super::{Word, corrupt, count, int, json, parse, shard_of, text};
use crate::StoreError;
use crate::columns::row;

row! {
    /// A row of `runs`.
    RunRow of "runs" {
        key {
            shard_id: i32,
            run_id: Uuid,
        }
        fixed {
            schedule_uid: Uuid,
            namespace: String,
            schedule_id: String,
            launch_us: i64,
            kind: String,
            emitted_us: i64,
            units_max: i32,
            predecessor: Option<String>,
            born_shard: Option<i32>,
        }
        changing {
            generation: i64,
            policy_uid: Option<Uuid>,
            events: i32,
            priority: i32,
            state: String,
            reason: String,
            next_index: i32,
            sorted_to: Option<i32>,
            succeeded: i32,
            failed: i32,
            dead: i32,
            expired: i32,
            cancelled: i32,
            lost: i32,
            cursor_in: Option<String>,
            cursor_out: Option<String>,
            result_bytes: i32,
            result_count: i32,
            started_us: Option<i64>,
            finished_us: Option<i64>,
        }
    }
}

impl From<&Run> for RunRow {
    fn from(run: &Run) -> Self {
        // Where all have started, nothing is left to be told apart.
        let sorted_to = run.sorted_to.filter(|_| run.next_index < run.events);
        // A process that knows nothing of sorted runs must not take one up: to such a process the number is no index.
        let next_index = int(run.next_index);
        let next_index = if sorted_to.is_some() { -1 - next_index } else { next_index };
        Self {
            shard_id: i32::from(run.shard),
            born_shard: run.born_shard.map(i32::from),
            run_id: run.id.0,
            schedule_uid: run.schedule_uid,
            generation: run.generation,
            namespace: run.namespace.clone(),
            schedule_id: run.schedule_id.clone(),
            policy_uid: run.policy_uid,
            launch_us: run.launch_us,
            events: int(run.events),
            priority: i32::from(run.priority),
            kind: run.kind.word().to_owned(),
            state: run.state.word().to_owned(),
            reason: text(&run.reason),
            next_index,
            sorted_to: sorted_to.map(int),
            succeeded: int(run.counts.succeeded),
            failed: int(run.counts.failed),
            dead: int(run.counts.dead),
            expired: int(run.counts.expired),
            cancelled: int(run.counts.cancelled),
            lost: int(run.counts.lost),
            cursor_in: run.cursor_in.as_deref().map(text),
            cursor_out: run.cursor_out.as_deref().map(text),
            result_bytes: int(run.result_bytes),
            result_count: int(run.result_count),
            emitted_us: run.emitted_us,
            units_max: int(run.units_max),
            // It is made of numbers, words and an id: that cannot fail.
            predecessor: run.predecessor.as_ref().and_then(|before| json(before).ok()),
            started_us: run.started_us,
            finished_us: run.finished_us,
        }
    }
}

impl TryFrom<RunRow> for Run {
    type Error = StoreError;

    fn try_from(row: RunRow) -> Result<Self, StoreError> {
        let (shard, id) = (row.shard_id, RunId(row.run_id));
        read_run(row).map_err(corrupt("runs", || format!("shard {shard}, run {id}")))
    }
}

fn read_run(row: RunRow) -> Result<Run, (&'static str, String)> {
    let events = count("events", row.events)?;
    let sorted_to = row.sorted_to.map(|to| count("sorted_to", to)).transpose()?;
    let next_index =
        count("next_index", if sorted_to.is_some() { -1 - row.next_index } else { row.next_index })?;
    if next_index > events {
        return Err(("next_index", format!("{next_index} is beyond the run's {events} events")));
    }
    if let Some(to) = sorted_to.filter(|to| *to > events || *to < next_index) {
        return Err(("sorted_to", format!("{to} is not {next_index} to {events}")));
    }
    let priority = u8::try_from(row.priority).ok().filter(|priority| *priority <= 9);
    Ok(Run {
        shard: shard_of("shard_id", row.shard_id)?,
        born_shard: row.born_shard.map(|shard| shard_of("born_shard", shard)).transpose()?,
        id: RunId(row.run_id),
        schedule_uid: row.schedule_uid,
        generation: row.generation,
        namespace: row.namespace,
        schedule_id: row.schedule_id,
        policy_uid: row.policy_uid,
        launch_us: row.launch_us,
        events,
        priority: priority.ok_or_else(|| ("priority", format!("{} is not 0 to 9", row.priority)))?,
        kind: Word::of("kind", &row.kind)?,
        state: Word::of("state", &row.state)?,
        reason: row.reason,
        next_index,
        sorted_to,
        counts: Counts {
            succeeded: count("succeeded", row.succeeded)?,
            failed: count("failed", row.failed)?,
            dead: count("dead", row.dead)?,
            expired: count("expired", row.expired)?,
            cancelled: count("cancelled", row.cancelled)?,
            lost: count("lost", row.lost)?,
        },
        cursor_in: row.cursor_in,
        cursor_out: row.cursor_out,
        result_bytes: count("result_bytes", row.result_bytes)?,
        result_count: count("result_count", row.result_count)?,
        emitted_us: row.emitted_us,
        units_max: count("units_max", row.units_max)?,
        predecessor: row.predecessor.as_deref().map(|text| parse("predecessor", text)).transpose()?,
        started_us: row.started_us,
        finished_us: row.finished_us,
    })
}

row! {
    /// A row of `skipped_triggers`.
    SkippedRow of "skipped_triggers" {
        key {
            schedule_uid: Uuid,
            launch_us: i64,
        }
        fixed {
            reason: String,
            recorded_us: i64,
        }
        changing {}
    }
}

impl From<&Skipped> for SkippedRow {
    fn from(skipped: &Skipped) -> Self {
        Self {
            schedule_uid: skipped.schedule_uid,
            launch_us: skipped.launch_us,
            reason: skipped.reason.word().to_owned(),
            recorded_us: skipped.recorded_us,
        }
    }
}

impl TryFrom<SkippedRow> for Skipped {
    type Error = StoreError;

    fn try_from(row: SkippedRow) -> Result<Self, StoreError> {
        let key = || format!("schedule {}, launch {}", row.schedule_uid, row.launch_us);
        Ok(Self {
            schedule_uid: row.schedule_uid,
            launch_us: row.launch_us,
            reason: Word::of("reason", &row.reason).map_err(corrupt("skipped_triggers", key))?,
            recorded_us: row.recorded_us,
        })
    }
}

/// The rows of runs, in the order of their key.
pub(crate) fn run_rows<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<RunRow> {
    let mut rows: Vec<RunRow> = runs.into_iter().map(RunRow::from).collect();
    rows.sort_by_key(|row| (row.shard_id, row.run_id));
    rows
}

/// The rows of skipped triggers, in the order of their key.
pub(crate) fn skipped_rows<'a>(skipped: impl IntoIterator<Item = &'a Skipped>) -> Vec<SkippedRow> {
    let mut rows: Vec<SkippedRow> = skipped.into_iter().map(SkippedRow::from).collect();
    rows.sort_by_key(|row| (row.schedule_uid, row.launch_us));
    rows
}
