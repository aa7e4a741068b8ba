//! What nearly every commit of an owner consists of, in one command to the thread that has the connection.
//!
//! In: runs, batches and the done queue as they are now. Out: one text of several statements with one list of values, begin,
//! fence and commit among them; the first that does not find what it must fails, and nothing after it is carried out. Few
//! different texts are prepared: there are as many places for rows as the next size has, and NULLs in those that are left over,
//! which find and insert nothing. Not here: what an error means (`line`).

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

use crate::line::Fence;
use crate::rows::{BatchRecord, ChangeRows, EventKey, HistoryRecord, RunRow};

const BEGIN: &str = "BEGIN IMMEDIATE;";
const COMMIT: &str = "COMMIT;";
/// Fails, as what is no JSON has no length, unless the shard was there.
const FENCE: &str = "UPDATE queue_shards SET seq = seq + 1 WHERE shard_id = ? AND lease_id = ? AND seq = ?; \
                     SELECT json_array_length(CASE changes() WHEN 1 THEN '[]' ELSE 'fenced' END);";
/// Fails likewise unless so many of the runs are there.
const RUNS_THERE: &str = "SELECT json_array_length(CASE count(*) WHEN ? THEN '[]' ELSE 'no run' END) \
                          FROM runs WHERE shard_id = ? AND run_id IN (";
/// Schedule, namespace, launch time, kind and emission never change.
const RUN: &str = "UPDATE runs SET generation = ?, policy_uid = ?, events = ?, priority = ?, state = ?, reason = ?, \
                   next_index = ?, succeeded = ?, failed = ?, dead = ?, expired = ?, cancelled = ?, lost = ?, \
                   cursor_in = ?, cursor_out = ?, started_us = ?, finished_us = ? \
                   WHERE shard_id = ? AND run_id = ?;";
const BATCH_GONE: &str = "DELETE FROM token_batches WHERE shard_id = ? AND run_id = ? AND first_idx = ?;";
const BATCH_CHANGED: &str = "UPDATE token_batches SET gone = ?, held = ?, delivered_us = ? \
                             WHERE shard_id = ? AND run_id = ? AND first_idx = ?;";
const BATCH_NEW: &str = "INSERT INTO token_batches (shard_id, run_id, first_idx, events, acquired_us, gone, held) \
                         SELECT column1, column2, column3, column4, column5, column6, column7 \
                         FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) WHERE column2 IS NOT NULL \
                         ON CONFLICT (shard_id, run_id, first_idx) DO UPDATE SET \
                         gone = excluded.gone, held = excluded.held, delivered_us = NULL;";
const HISTORY: &str = "INSERT INTO event_history (shard_id, run_id, idx, events, outcome, attempt, acquired_us, \
                       delivered_us, finished_us, message) \
                       SELECT ?, column1, column2, column3, column4, column5, column6, column7, column8, column9 \
                       FROM (VALUES ";
const HISTORY_ROW: &str = "(?,?,?,?,?,?,?,?,?)";
const HISTORY_END: &str =
    ") WHERE column1 IS NOT NULL ON CONFLICT (shard_id, run_id, idx, finished_us) DO NOTHING;";

/// Rows of the done queue in one command.
const HISTORY_MAX: usize = 512;
/// Runs and batches of each sort; more go the general way.
const FEW_MAX: usize = 32;

type Command = Query<'static, Sqlite, SqliteArguments>;

/// Which ends of a transaction lie with a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) begins: bool,
    pub(super) commits: bool,
}

/// Whether [`write`] is for these changes.
pub(super) fn is_for(rows: &ChangeRows) -> bool {
    rows.is_plain() && most(rows) <= FEW_MAX
}

/// Writes changes for which [`is_for`] holds, behind the fence; begins the transaction, and commits it, where told to.
///
/// # Errors
/// Also where the fence let nothing through, or a run is not there; the transaction is then still open.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    fence: Fence,
    rows: &ChangeRows,
    ends: Ends,
) -> Result<(), sqlx::Error> {
    let mut chunks = rows.history.chunks(HISTORY_MAX);
    let mut chunk = chunks.next().unwrap_or_default();
    let mut is_first = true;
    loop {
        let next = chunks.next();
        let end = if ends.commits && next.is_none() { COMMIT } else { "" };
        let command = if is_first {
            let begin = if ends.begins { BEGIN } else { "" };
            command(fence, rows, chunk, (begin, end))
        } else {
            let text = [&history_text(size(chunk.len())), end].concat();
            bind_history(sqlx::query(AssertSqlSafe(text)), fence.shard, chunk)
        };
        command.execute(&mut *connection).await?;
        let Some(next) = next else { return Ok(()) };
        (chunk, is_first) = (next, false);
    }
}

/// The largest number of rows of one sort, other than those of the done queue.
fn most(rows: &ChangeRows) -> usize {
    let lengths = [
        rows.runs_changed.len(),
        rows.batches_gone.len(),
        rows.batches_changed.len(),
        rows.batches_new.len(),
    ];
    lengths.into_iter().max().unwrap_or_default()
}

/// How many places there are for so many rows of the done queue.
fn size(rows: usize) -> usize {
    match rows {
        0 => 0,
        1..=4 => 4,
        5..=128 => rows.next_multiple_of(16),
        _ => rows.next_multiple_of(128),
    }
}

fn history_text(places: usize) -> String {
    if places == 0 {
        return String::new();
    }
    [HISTORY, &vec![HISTORY_ROW; places].join(","), HISTORY_END].concat()
}

fn command(
    fence: Fence,
    rows: &ChangeRows,
    history: &[HistoryRecord],
    (begin, end): (&str, &str),
) -> Command {
    let few = most(rows).next_power_of_two().max(2);
    let text = [
        begin,
        FENCE,
        RUNS_THERE,
        &vec!["?"; few].join(","),
        ");",
        &RUN.repeat(few),
        &BATCH_GONE.repeat(few),
        &BATCH_CHANGED.repeat(few),
        &BATCH_NEW.repeat(few),
        &history_text(size(history.len())),
        end,
    ]
    .concat();
    let mut command = sqlx::query(AssertSqlSafe(text)).bind(fence.shard).bind(fence.lease_id).bind(fence.seq);
    command = command.bind(rows.runs_changed.len() as i64).bind(fence.shard);
    for place in 0..few {
        command = command.bind(rows.runs_changed.get(place).map(|run| run.run_id));
    }
    for place in 0..few {
        command = bind_run(command, fence.shard, rows.runs_changed.get(place));
    }
    for place in 0..few {
        command = bind_batch_gone(command, fence.shard, rows.batches_gone.get(place));
    }
    for place in 0..few {
        command = bind_batch_changed(command, fence.shard, rows.batches_changed.get(place));
    }
    for place in 0..few {
        command = bind_batch_new(command, fence.shard, rows.batches_new.get(place));
    }
    bind_history(command, fence.shard, history)
}

/// NULL for each column.
fn nothing(mut command: Command, columns: usize) -> Command {
    for _ in 0..columns {
        command = command.bind(None::<i64>);
    }
    command
}

fn bind_run(command: Command, shard: i32, run: Option<&RunRow>) -> Command {
    let Some(run) = run else { return nothing(command, 19) };
    command
        .bind(run.generation)
        .bind(run.policy_uid)
        .bind(run.events)
        .bind(run.priority)
        .bind(run.state.clone())
        .bind(run.reason.clone())
        .bind(run.next_index)
        .bind(run.succeeded)
        .bind(run.failed)
        .bind(run.dead)
        .bind(run.expired)
        .bind(run.cancelled)
        .bind(run.lost)
        .bind(run.cursor_in.clone())
        .bind(run.cursor_out.clone())
        .bind(run.started_us)
        .bind(run.finished_us)
        .bind(shard)
        .bind(run.run_id)
}

fn bind_batch_gone(command: Command, shard: i32, batch: Option<&EventKey>) -> Command {
    match batch {
        Some(batch) => command.bind(shard).bind(batch.run_id).bind(batch.idx),
        None => nothing(command, 3),
    }
}

fn bind_batch_changed(command: Command, shard: i32, batch: Option<&BatchRecord>) -> Command {
    let Some(batch) = batch else { return nothing(command, 6) };
    command
        .bind(batch.gone.clone())
        .bind(batch.held.clone())
        .bind(batch.delivered_us)
        .bind(shard)
        .bind(batch.run_id)
        .bind(batch.first_idx)
}

fn bind_batch_new(command: Command, shard: i32, batch: Option<&BatchRecord>) -> Command {
    let Some(batch) = batch else { return nothing(command, 7) };
    command
        .bind(shard)
        .bind(batch.run_id)
        .bind(batch.first_idx)
        .bind(batch.events)
        .bind(batch.acquired_us)
        .bind(batch.gone.clone())
        .bind(batch.held.clone())
}

fn bind_history(mut command: Command, shard: i32, rows: &[HistoryRecord]) -> Command {
    let places = size(rows.len());
    if places == 0 {
        return command;
    }
    command = command.bind(shard);
    for row in rows {
        command = command
            .bind(row.run_id)
            .bind(row.idx)
            .bind(row.events)
            .bind(row.outcome.clone())
            .bind(row.attempt)
            .bind(row.acquired_us)
            .bind(row.delivered_us)
            .bind(row.finished_us)
            .bind(row.message.clone());
    }
    nothing(command, 9 * (places - rows.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_hold_what_they_are_for_and_are_few() {
        let mut sizes: Vec<usize> = (0..=HISTORY_MAX).map(size).collect();
        assert!(sizes.iter().enumerate().all(|(rows, places)| rows <= *places && *places <= HISTORY_MAX));
        sizes.dedup();
        assert_eq!(sizes, [0, 4, 16, 32, 48, 64, 80, 96, 112, 128, 256, 384, 512]);
    }
}
