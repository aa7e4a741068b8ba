//! What nearly every commit of an owner consists of, for several owners in one command to the thread that has the connection.
//!
//! In: runs, batches, the done queue, and which events have not started, as they are now. Out: one text of several statements
//! with one list of values, begin, fences and commit among them; the first that does not find what it must fails, and nothing
//! after it is carried out. Few different texts are prepared: there are as many places for rows as the next size has, and
//! NULLs in those that are left over, which find and insert nothing. More rows than a command has room for go by several. Not
//! here: what is rarer (`commit`), what becomes of the others when one fails (`line`).

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::columns::{Part, Row, SqliteQuery};
use crate::failure::Failure;
use crate::line::{Fence, FencedCommit, no_such_run};
use crate::rows::{BatchRecord, ChangeRows, EndedRecord, EventKey, HistoryRecord, RunRow, UnstartedRow};

const BEGIN: &str = "BEGIN IMMEDIATE;";
const COMMIT: &str = "COMMIT;";
const ANOTHER_OWNER: &str = "another owner";
const NO_SUCH_RUN: &str = "no such run";

/// Fails with this text in the error, as it is no path in JSON, unless this number of rows is the one that is bound here: one, or
/// none for a place that is left over.
fn found_or(rows: &str, text: &str) -> String {
    format!("SELECT json_extract('[]', CASE {rows} WHEN ? THEN '$' ELSE '{text}' END);")
}

static FENCE: LazyLock<String> = LazyLock::new(|| {
    let fences = "(SELECT count(*) FROM queue_shards WHERE shard_id = ? AND lease_id = ?)";
    found_or(fences, ANOTHER_OWNER)
});
static RUN: LazyLock<String> = LazyLock::new(|| {
    let set = RunRow::TABLE.places();
    let found = found_or("changes()", NO_SUCH_RUN);
    format!("UPDATE runs SET {set} WHERE shard_id = ? AND run_id = ?;{found}")
});
const BATCH_GONE: &str = "DELETE FROM token_batches WHERE shard_id = ? AND run_id = ? AND first_idx = ?;";
static BATCH_CHANGED: LazyLock<String> = LazyLock::new(|| {
    let set = BatchRecord::TABLE.places();
    format!("UPDATE token_batches SET {set} WHERE shard_id = ? AND run_id = ? AND first_idx = ?;")
});
static BATCH_NEW: LazyLock<String> = LazyLock::new(|| {
    let set = BatchRecord::TABLE.set("excluded");
    insert::<BatchRecord>(1, &format!("(shard_id, run_id, first_idx) DO UPDATE SET {set}"))
});

const UNSTARTED_GONE: &str =
    "DELETE FROM unstarted_events WHERE shard_id = ? AND run_id = ? AND first_idx = ?;";
static UNSTARTED_PUT: LazyLock<String> = LazyLock::new(|| {
    let set = UnstartedRow::TABLE.set("excluded");
    insert::<UnstartedRow>(1, &format!("(shard_id, run_id, first_idx) DO UPDATE SET {set}"))
});

/// Inserts `places` rows of a shard.
fn insert<R: Row>(places: usize, on_conflict: &str) -> String {
    let (table, names, width) = (R::TABLE.name, R::TABLE.names(), width::<R>(Part::All));
    let columns: Vec<String> = (1..=width).map(|number| format!("column{number}")).collect();
    let row = format!("({})", vec!["?"; width].join(","));
    format!(
        "INSERT INTO {table} (shard_id, {names}) SELECT {} FROM (VALUES {}) WHERE column1 IS NOT NULL \
         ON CONFLICT {on_conflict};",
        columns.join(", "),
        vec![row; places].join(",")
    )
}

/// The columns of a part, and the shard's.
fn width<R: Row>(part: Part) -> usize {
    1 + R::TABLE.count(part)
}

/// Rows of the done queue in one command.
const HISTORY_MAX: usize = 512;
/// Owners, runs, and batches of each sort in one command.
const FEW_MAX: usize = 32;

/// Begins a transaction with the fences of these commits, no more than [`FEW_MAX`].
pub(super) async fn begin(
    connection: &mut SqliteConnection,
    commits: &[FencedCommit],
) -> Result<(), Failure> {
    let (places, mut text) = (size_of_few(commits.len()), BEGIN.to_owned());
    text.push_str(&FENCE.repeat(places));
    let command = bind_fences(sqlx::query(AssertSqlSafe(text)), places, commits);
    let done = command.execute(connection).await;
    done.map(drop).map_err(|error| judged(error, commits))
}

/// Writes commits and commits the transaction. Unless [`begin`] has done so, it begins with their fences.
///
/// # Errors
/// Also where a fence let nothing through, or a run is not there; the transaction is then still open.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    commits: &[FencedCommit],
    has_begun: bool,
) -> Result<(), Failure> {
    let (runs, gone) = (rows(commits, |rows| &rows.runs_changed), rows(commits, |rows| &rows.batches_gone));
    let changed = rows(commits, |rows| &rows.batches_changed);
    let new = rows(commits, |rows| &rows.batches_new);
    let unstarted_gone = rows(commits, |rows| &rows.unstarted_gone);
    let unstarted_put = rows(commits, |rows| &rows.unstarted_put);
    let ended = rows(commits, |rows| &rows.ended);
    let history = rows(commits, |rows| &rows.history);
    let mut left = Rows {
        fences: if has_begun { &[] } else { commits },
        runs: &runs,
        gone: &gone,
        changed: &changed,
        new: &new,
        unstarted_gone: &unstarted_gone,
        unstarted_put: &unstarted_put,
        ended: &ended,
        history: &history,
    };
    loop {
        let these = left.next();
        let is_last = left.count() == 0;
        let done = these.command(is_last).execute(&mut *connection).await;
        done.map_err(|error| judged(error, commits))?;
        if is_last {
            return Ok(());
        }
    }
}

/// What an error says.
fn judged(error: sqlx::Error, commits: &[FencedCommit]) -> Failure {
    let says = |text| error.as_database_error().is_some_and(|error| error.message().contains(text));
    if says(ANOTHER_OWNER) {
        Failure::Fenced
    } else if says(NO_SUCH_RUN) {
        no_such_run(commits).into()
    } else {
        error.into()
    }
}

/// The rows of one sort, with their shards.
fn rows<T>(commits: &[FencedCommit], of: impl Fn(&ChangeRows) -> &Vec<T>) -> Vec<(i32, &T)> {
    let mut all = Vec::with_capacity(commits.iter().map(|commit| of(&commit.rows).len()).sum());
    for commit in commits {
        all.extend(of(&commit.rows).iter().map(|row| (commit.fence.shard, row)));
    }
    all
}

/// Rows of each sort, in the order in which they are written.
struct Rows<'a> {
    fences: &'a [FencedCommit],
    runs: &'a [(i32, &'a RunRow)],
    gone: &'a [(i32, &'a EventKey)],
    changed: &'a [(i32, &'a BatchRecord)],
    new: &'a [(i32, &'a BatchRecord)],
    unstarted_gone: &'a [(i32, &'a EventKey)],
    unstarted_put: &'a [(i32, &'a UnstartedRow)],
    ended: &'a [(i32, &'a EndedRecord)],
    history: &'a [(i32, &'a HistoryRecord)],
}

impl Rows<'_> {
    /// The next ones, as many as a command has room for; of a sort none, while one before it is not done.
    fn next(&mut self) -> Self {
        let mut goes_on = true;
        Self {
            fences: take(&mut self.fences, FEW_MAX, &mut goes_on),
            runs: take(&mut self.runs, FEW_MAX, &mut goes_on),
            gone: take(&mut self.gone, FEW_MAX, &mut goes_on),
            changed: take(&mut self.changed, FEW_MAX, &mut goes_on),
            new: take(&mut self.new, FEW_MAX, &mut goes_on),
            unstarted_gone: take(&mut self.unstarted_gone, FEW_MAX, &mut goes_on),
            unstarted_put: take(&mut self.unstarted_put, FEW_MAX, &mut goes_on),
            ended: take(&mut self.ended, HISTORY_MAX, &mut goes_on),
            history: take(&mut self.history, HISTORY_MAX, &mut goes_on),
        }
    }

    fn few(&self) -> [usize; 5] {
        [self.fences.len(), self.runs.len(), self.gone.len(), self.changed.len(), self.new.len()]
    }

    /// How many places there are for stretches of events: most commits have none.
    fn stretches(&self) -> usize {
        match self.unstarted_gone.len().max(self.unstarted_put.len()) {
            0 => 0,
            rows => size_of_few(rows),
        }
    }

    fn count(&self) -> usize {
        let stretches = self.unstarted_gone.len() + self.unstarted_put.len();
        self.few().iter().sum::<usize>() + stretches + self.ended.len() + self.history.len()
    }

    fn command(&self, commits: bool) -> SqliteQuery {
        let few = size_of_few(self.few().into_iter().max().unwrap_or_default());
        let fences = if self.fences.is_empty() { 0 } else { few };
        let stretches = self.stretches();
        let (ended, otherwise) = (size(self.ended.len()), size(self.history.len()));
        let text = [
            if fences > 0 { BEGIN } else { "" },
            &FENCE.repeat(fences),
            &RUN.repeat(few),
            &BATCH_GONE.repeat(few),
            &BATCH_CHANGED.repeat(few),
            &BATCH_NEW.repeat(few),
            &UNSTARTED_GONE.repeat(stretches),
            &UNSTARTED_PUT.repeat(stretches),
            &insert_ended::<EndedRecord>(ended, "first_idx"),
            &insert_ended::<HistoryRecord>(otherwise, "idx"),
            if commits { COMMIT } else { "" },
        ]
        .concat();
        let mut command = bind_fences(sqlx::query(AssertSqlSafe(text)), fences, self.fences);
        command = bind(command, few, self.runs, (Part::Changing, Part::Key), Some(1));
        command = bind(command, few, self.gone, (Part::None, Part::All), None);
        command = bind(command, few, self.changed, (Part::Changing, Part::Key), None);
        command = bind(command, few, self.new, (Part::None, Part::All), None);
        command = bind(command, stretches, self.unstarted_gone, (Part::None, Part::All), None);
        command = bind(command, stretches, self.unstarted_put, (Part::None, Part::All), None);
        command = bind(command, ended, self.ended, (Part::None, Part::All), None);
        bind(command, otherwise, self.history, (Part::None, Part::All), None)
    }
}

/// The first ones of a sort, if it goes on so far.
fn take<'a, T>(left: &mut &'a [T], most: usize, goes_on: &mut bool) -> &'a [T] {
    let (these, others) = left.split_at(if *goes_on { left.len().min(most) } else { 0 });
    *left = others;
    *goes_on &= others.is_empty();
    these
}

/// How many places there are for `rows` owners, runs, or batches.
fn size_of_few(rows: usize) -> usize {
    rows.next_power_of_two().max(2)
}

/// How many places there are for `rows` rows of the done queue.
fn size(rows: usize) -> usize {
    match rows {
        0 => 0,
        1..=4 => 4,
        5..=128 => rows.next_multiple_of(16),
        _ => rows.next_multiple_of(128),
    }
}

/// Inserts rows of the done queue that have an index in this column.
fn insert_ended<R: Row>(places: usize, index: &str) -> String {
    if places == 0 {
        return String::new();
    }
    insert::<R>(places, &format!("(shard_id, run_id, {index}, finished_us) DO NOTHING"))
}

fn bind_fences(mut command: SqliteQuery, places: usize, commits: &[FencedCommit]) -> SqliteQuery {
    for place in 0..places {
        command = match commits.get(place) {
            Some(FencedCommit { fence: Fence { shard, lease_id }, .. }) => {
                command.bind(*shard).bind(*lease_id).bind(1)
            }
            None => nothing(command, 2).bind(0),
        };
    }
    command
}

/// Binds `places` places, the first of them with these rows: a part of each, its shard, another part, and how many rows the
/// statement must find.
fn bind<R: Row>(
    mut command: SqliteQuery,
    places: usize,
    rows: &[(i32, &R)],
    (before, after): (Part, Part),
    found: Option<i32>,
) -> SqliteQuery {
    for place in 0..places {
        command = match rows.get(place) {
            Some((shard, row)) => row.bind_values(row.bind_values(command, before).bind(*shard), after),
            None => nothing(command, R::TABLE.count(before) + width::<R>(after)),
        };
        if let Some(found) = found {
            command = command.bind(if place < rows.len() { found } else { 0 });
        }
    }
    command
}

/// NULL for each column.
fn nothing(mut command: SqliteQuery, columns: usize) -> SqliteQuery {
    for _ in 0..columns {
        command = command.bind(None::<i64>);
    }
    command
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

    #[test]
    fn what_has_no_room_goes_by_the_next_command_and_what_comes_after_it_too() {
        let key = EventKey { run_id: uuid::Uuid::nil(), idx: 0 };
        let gone = vec![(0, &key); FEW_MAX + 1];
        let mut left = Rows {
            fences: &[],
            runs: &[],
            gone: &gone,
            changed: &[],
            new: &[],
            unstarted_gone: &gone,
            unstarted_put: &[],
            ended: &[],
            history: &[],
        };
        let lens = |rows: Rows<'_>| (rows.gone.len(), rows.unstarted_gone.len());
        assert_eq!((lens(left.next()), left.count()), ((FEW_MAX, 0), FEW_MAX + 2));
        assert_eq!((lens(left.next()), left.count()), ((1, FEW_MAX), 1));
        assert_eq!((lens(left.next()), left.count()), ((0, 1), 0));
        let (mut first, mut second, mut goes_on) = (&[1, 2, 3][..], &[4][..], true);
        assert_eq!(take(&mut first, 2, &mut goes_on), [1, 2]);
        assert!(take(&mut second, 2, &mut goes_on).is_empty() && second == [4]);
    }
}
