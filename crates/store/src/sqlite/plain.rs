//! What nearly every commit of an owner consists of, for several owners in one command to the thread that has the connection.
//!
//! In: runs, batches and the done queue as they are now. Out: one text of several statements with one list of values, begin,
//! fences and commit among them; the first that does not find what it must fails, and nothing after it is carried out. Few
//! different texts are prepared: there are as many places for rows as the next size has, and NULLs in those that are left over,
//! which find and insert nothing. Not here: what an error means (`line`).

use std::sync::LazyLock;

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

use crate::columns::{Part, Row as _};
use crate::line::{Fence, Waiting};
use crate::rows::{BatchRecord, ChangeRows, EventKey, HistoryRecord, RunRow};

const BEGIN: &str = "BEGIN IMMEDIATE;";
const COMMIT: &str = "COMMIT;";
const FENCE: &str = "UPDATE queue_shards SET seq = seq + 1 WHERE shard_id = ? AND lease_id = ?;";
/// Fails, as what is no JSON has no length, unless the statement before found so many rows: one, or none for a place that is left
/// over.
const FOUND: &str = "SELECT json_array_length(CASE changes() WHEN ? THEN '[]' ELSE 'not there' END);";
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
                       SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10 \
                       FROM (VALUES ";
const HISTORY_ROW: &str = "(?,?,?,?,?,?,?,?,?,?)";
const HISTORY_END: &str =
    ") WHERE column1 IS NOT NULL ON CONFLICT (shard_id, run_id, idx, finished_us) DO NOTHING;";

static RUN: LazyLock<String> = LazyLock::new(|| {
    format!("UPDATE runs SET {} WHERE shard_id = ? AND run_id = ?;{FOUND}", RunRow::TABLE.places())
});

/// Rows of the done queue in one command.
const HISTORY_MAX: usize = 512;
/// Owners, runs, and batches of each sort in one command; what has more goes the general way.
const FEW_MAX: usize = 32;

type Command = Query<'static, Sqlite, SqliteArguments>;

/// Which ends of a transaction lie with a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) begins: bool,
    pub(super) commits: bool,
}

/// How many of these commits, from the first on, are for [`write`] together. None where the first has to go the general way.
pub(super) fn so_many(commits: &[Waiting]) -> usize {
    let mut sum = Count::default();
    let fits = commits.iter().take_while(|commit| {
        sum.add(&commit.rows);
        commit.rows.is_plain() && sum.most() <= FEW_MAX
    });
    fits.count()
}

/// Rows of each sort, other than those of the done queue.
#[derive(Default)]
struct Count([usize; 5]);

impl Count {
    fn of(commits: &[Waiting]) -> Self {
        let mut sum = Self::default();
        commits.iter().for_each(|commit| sum.add(&commit.rows));
        sum
    }

    fn add(&mut self, rows: &ChangeRows) {
        let batches = [rows.batches_gone.len(), rows.batches_changed.len(), rows.batches_new.len()];
        let more = [1, rows.runs_changed.len()].into_iter().chain(batches);
        self.0.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    fn most(&self) -> usize {
        self.0.into_iter().max().unwrap_or_default()
    }
}

/// Writes commits, of which [`so_many`] says that they go together, each behind its fence; begins the transaction, and
/// commits it, where told to.
///
/// # Errors
/// Also where a fence let nothing through, or a run is not there; the transaction is then still open.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    commits: &[Waiting],
    ends: Ends,
) -> Result<(), sqlx::Error> {
    let of = |commit: &'_ Waiting| commit.rows.history.len();
    let mut history = Vec::with_capacity(commits.iter().map(of).sum());
    for commit in commits {
        history.extend(commit.rows.history.iter().map(|row| (commit.fence.shard, row)));
    }
    let mut chunks = history.chunks(HISTORY_MAX);
    let mut chunk = chunks.next().unwrap_or_default();
    let mut is_first = true;
    loop {
        let next = chunks.next();
        let end = if ends.commits && next.is_none() { COMMIT } else { "" };
        let command = if is_first {
            let begin = if ends.begins { BEGIN } else { "" };
            command(commits, chunk, (begin, end))
        } else {
            let text = [&history_text(size(chunk.len())), end].concat();
            bind_history(sqlx::query(AssertSqlSafe(text)), chunk)
        };
        command.execute(&mut *connection).await?;
        let Some(next) = next else { return Ok(()) };
        (chunk, is_first) = (next, false);
    }
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

fn command(commits: &[Waiting], history: &[(i32, &HistoryRecord)], (begin, end): (&str, &str)) -> Command {
    let few = Count::of(commits).most().next_power_of_two().max(2);
    let text = [
        begin,
        &[FENCE, FOUND].concat().repeat(few),
        &RUN.repeat(few),
        &BATCH_GONE.repeat(few),
        &BATCH_CHANGED.repeat(few),
        &BATCH_NEW.repeat(few),
        &history_text(size(history.len())),
        end,
    ]
    .concat();
    let mut command = sqlx::query(AssertSqlSafe(text));
    command =
        bind(command, few, commits.iter().map(|commit| (commit.fence.shard, &commit.fence)), bind_fence);
    command = bind(command, few, rows(commits, |rows| &rows.runs_changed), bind_run);
    command = bind(command, few, rows(commits, |rows| &rows.batches_gone), bind_batch_gone);
    command = bind(command, few, rows(commits, |rows| &rows.batches_changed), bind_batch_changed);
    command = bind(command, few, rows(commits, |rows| &rows.batches_new), bind_batch_new);
    bind_history(command, history)
}

/// The rows of one sort, with their shards.
fn rows<'a, T: 'a>(
    commits: &'a [Waiting],
    of: impl Fn(&ChangeRows) -> &Vec<T>,
) -> impl Iterator<Item = (i32, &'a T)> {
    commits.iter().flat_map(move |commit| of(&commit.rows).iter().map(|row| (commit.fence.shard, row)))
}

/// So many places, the first of them with these rows.
fn bind<'r, T: 'r>(
    mut command: Command,
    places: usize,
    mut rows: impl Iterator<Item = (i32, &'r T)>,
    bind: impl Fn(Command, Option<(i32, &T)>) -> Command,
) -> Command {
    for _ in 0..places {
        command = bind(command, rows.next());
    }
    command
}

/// NULL for each column.
fn nothing(mut command: Command, columns: usize) -> Command {
    for _ in 0..columns {
        command = command.bind(None::<i64>);
    }
    command
}

fn bind_fence(command: Command, fence: Option<(i32, &Fence)>) -> Command {
    let Some((shard, fence)) = fence else { return nothing(command, 2).bind(0) };
    command.bind(shard).bind(fence.lease_id).bind(1)
}

fn bind_run(command: Command, run: Option<(i32, &RunRow)>) -> Command {
    let Some((shard, run)) = run else {
        return nothing(command, RunRow::TABLE.count(Part::Changing) + 2).bind(0);
    };
    run.bind_values(command, Part::Changing).bind(shard).bind(run.run_id).bind(1)
}

fn bind_batch_gone(command: Command, batch: Option<(i32, &EventKey)>) -> Command {
    match batch {
        Some((shard, batch)) => command.bind(shard).bind(batch.run_id).bind(batch.idx),
        None => nothing(command, 3),
    }
}

fn bind_batch_changed(command: Command, batch: Option<(i32, &BatchRecord)>) -> Command {
    let Some((shard, batch)) = batch else { return nothing(command, 6) };
    command
        .bind(batch.gone.clone())
        .bind(batch.held.clone())
        .bind(batch.delivered_us)
        .bind(shard)
        .bind(batch.run_id)
        .bind(batch.first_idx)
}

fn bind_batch_new(command: Command, batch: Option<(i32, &BatchRecord)>) -> Command {
    let Some((shard, batch)) = batch else { return nothing(command, 7) };
    command
        .bind(shard)
        .bind(batch.run_id)
        .bind(batch.first_idx)
        .bind(batch.events)
        .bind(batch.acquired_us)
        .bind(batch.gone.clone())
        .bind(batch.held.clone())
}

fn bind_history(mut command: Command, rows: &[(i32, &HistoryRecord)]) -> Command {
    for (shard, row) in rows {
        command = command
            .bind(*shard)
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
    nothing(command, 10 * (size(rows.len()) - rows.len()))
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
