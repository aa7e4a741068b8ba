//! What commits of shards' owners write, in one transaction.
//!
//! In: commits, each with its fence, and whether the server takes [`write_at_once`]. Out: all of them written, or an
//! error: nothing of them may be committed then. Runs, batches, what has not started, the done queue and messages, of which
//! nearly every commit consists, go by one statement for all; what is rarer goes before it, a statement for each kind of row. A
//! distributed server gets that for everything. Not here: who goes together (`crate::line`), how a transaction begins
//! and ends (`line`).

use std::sync::OnceLock;

use sqlx::postgres::PgBindIterExt as _;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::driver::tx;
use crate::both::{insert_messages, insert_runs, insert_skipped};
use crate::columns::{Dialect, Part, PostgresQuery, Row, compose, with_parts};
use crate::failure::Failure;
use crate::line::{Fence, FencedCommit, no_such_run};
use crate::rows::{ChangeRows, EventKey, RunRow};

/// Writes commits behind their fences. What goes, goes first, so that it may come again in the same commit.
pub(super) async fn write(
    connection: &mut PgConnection,
    commits: &[FencedCommit],
    is_distributed: bool,
) -> Result<(), Failure> {
    for commit in commits {
        behind(connection, commit.fence).await?;
    }
    for commit in commits {
        write_rest(connection, commit.fence.shard, &commit.rows).await?;
    }
    if !is_distributed {
        return write_at_once(connection, commits).await;
    }
    for commit in commits {
        write_by_kind(connection, commit.fence.shard, &commit.rows).await?;
    }
    Ok(())
}

/// The fence, the first statement of an owner's transaction. It locks the shard's row until the end of the transaction, and asks
/// for nothing but the lease's id ([`Fence`] says why that is enough).
async fn behind(connection: &mut PgConnection, Fence { shard, lease_id }: Fence) -> Result<(), Failure> {
    let query = sqlx::query(sql!("fence")).bind(shard).bind(lease_id);
    if query.execute(connection).await?.rows_affected() != 1 {
        return Err(Failure::Fenced);
    }
    tollgate_fault_points::pass("store.fence.after");
    Ok(())
}

/// Writes what nearly every commit consists of, for any number of shards, and looks at their fences, by one statement: all or
/// nothing.
pub(super) async fn write_at_once(
    connection: &mut PgConnection,
    commits: &[FencedCommit],
) -> Result<(), Failure> {
    let fences = || commits.iter().map(|commit| commit.fence);
    let runs: usize = commits.iter().map(|commit| commit.rows.older_runs_changed().len()).sum();
    let query = sqlx::query(at_once(commits))
        .bind(fences().map(|fence| fence.shard).bind_iter())
        .bind(fences().map(|fence| fence.lease_id).bind_iter())
        .bind(i64::try_from(runs).unwrap_or(i64::MAX));
    let query = with_shards(query, commits, Part::State, ChangeRows::older_runs_changed);
    let query = with_part(query, commits, Part::All, |rows| &rows.batches_gone);
    let query = with_part(query, commits, Part::State, |rows| &rows.batches_changed);
    let query = with_part(query, commits, Part::All, |rows| &rows.batches_new);
    let query = with_part(query, commits, Part::All, |rows| &rows.unstarted_gone);
    let query = with_part(query, commits, Part::All, |rows| &rows.unstarted_put);
    let query = with_part(query, commits, Part::All, |rows| &rows.ended);
    let query = with_new_runs(query, commits);
    let query = with_part(query, commits, Part::All, |rows| &rows.inbox_new);
    let query = with_messages_done(query, commits);
    let query = with_part(query, commits, Part::All, |rows| &rows.history);
    // All of the answer: what fails at the very end comes after the row.
    let rows = query.fetch_all(connection).await?;
    let Some(row) = rows.first() else { return Err(Failure::Fenced) };
    match (row.try_get("is_mine")?, row.try_get("has_runs")?) {
        (true, true) => Ok(()),
        (true, false) => Err(no_such_run(commits).into()),
        (false, _) => Err(Failure::Fenced),
    }
}

/// A part of `commit.sql`, and whether a commit has rows for it.
type StatementPart = (&'static str, fn(&ChangeRows) -> bool);

/// The parts that not every commit has.
const PARTS: [StatementPart; 10] = [
    ("batches_gone", |rows| !rows.batches_gone.is_empty()),
    ("batches_changed", |rows| !rows.batches_changed.is_empty()),
    ("batches_new", |rows| !rows.batches_new.is_empty()),
    ("unstarted_gone", |rows| !rows.unstarted_gone.is_empty()),
    ("unstarted_put", |rows| !rows.unstarted_put.is_empty()),
    ("ended", |rows| !rows.ended.is_empty()),
    ("runs_new", |rows| !rows.runs_new.is_empty()),
    ("inbox_new", |rows| !rows.inbox_new.is_empty()),
    ("inbox_done", |rows| !rows.inbox_done.is_empty()),
    ("history", |rows| !rows.history.is_empty()),
];

/// The statement with the parts that these commits have rows for. Each is composed once.
fn at_once(commits: &[FencedCommit]) -> &'static str {
    static COMPOSED: [OnceLock<String>; 1 << PARTS.len()] = [const { OnceLock::new() }; 1 << PARTS.len()];
    let has = |(_, is_there): &StatementPart| commits.iter().any(|commit| is_there(&commit.rows));
    let there = PARTS.iter().fold(0, |there, part| 2 * there + usize::from(has(part)));
    COMPOSED[there].get_or_init(|| {
        let is_there = |name: &str| PARTS.iter().any(|part| part.0 == name && has(part));
        compose(&with_parts(text_of_sql!("commit"), is_there), Dialect::Postgres).into_owned()
    })
}

/// Binds the rows of a part, where there are any.
fn with_part<R: Row>(
    query: PostgresQuery,
    commits: &[FencedCommit],
    part: Part,
    of: impl Fn(&ChangeRows) -> &[R] + Copy,
) -> PostgresQuery {
    let has_rows = commits.iter().any(|commit| !of(&commit.rows).is_empty());
    if has_rows { with_shards(query, commits, part, of) } else { query }
}

/// Binds new runs, whose rows have their shards.
fn with_new_runs(query: PostgresQuery, commits: &[FencedCommit]) -> PostgresQuery {
    let rows = commits.iter().flat_map(|commit| &commit.rows.runs_new);
    if rows.clone().next().is_none() { query } else { RunRow::bind_arrays(query, Part::All, rows) }
}

/// Binds messages that have been carried out, by their shards and ids.
fn with_messages_done(query: PostgresQuery, commits: &[FencedCommit]) -> PostgresQuery {
    let done = commits
        .iter()
        .flat_map(|commit| commit.rows.inbox_done.iter().map(|message| (commit.fence.shard, *message)));
    let Some(_) = done.clone().next() else { return query };
    query
        .bind(done.clone().map(|(shard, _)| shard).bind_iter())
        .bind(done.map(|(_, message)| message).bind_iter())
}

/// Binds rows of one kind, an array for their shards and one for each column.
fn with_shards<R: Row>(
    query: PostgresQuery,
    commits: &[FencedCommit],
    part: Part,
    of: impl Fn(&ChangeRows) -> &[R] + Copy,
) -> PostgresQuery {
    let shards =
        commits.iter().flat_map(|commit| std::iter::repeat_n(commit.fence.shard, of(&commit.rows).len()));
    let query = query.bind(shards.bind_iter());
    R::bind_arrays(query, part, commits.iter().flat_map(|commit| of(&commit.rows)))
}

/// What commits seldom have.
async fn write_rest(connection: &mut PgConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete(connection, sql!("runs_delete"), shard, &rows.runs_withdrawn).await?;
    delete_events(connection, sql!("tokens_delete"), shard, &rows.tokens_gone).await?;
    put(connection, sql!("tokens_put"), shard, &rows.tokens_put).await?;
    delete_events(connection, sql!("history_delete"), shard, &rows.history_gone).await?;
    put(connection, sql!("results_put"), shard, &rows.results).await?;
    write_plan(connection, shard, rows).await?;
    insert_skipped(&mut tx(connection), &rows.skipped).await?;
    if let Some(pause) = &rows.pause {
        sqlx::query(both_sql!("shard_pause_write")).bind(shard).bind(pause).execute(&mut *connection).await?;
    }
    Ok(())
}

/// What [`write_at_once`] writes, by plain look-ups by key; what is inserted may be there already.
async fn write_by_kind(connection: &mut PgConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    insert_runs(&mut tx(connection), &rows.runs_new).await?;
    if !rows.runs_changed.is_empty() {
        let query = sqlx::query(sql!("runs_update"));
        let query = RunRow::bind_arrays(query, Part::All, rows.runs_changed.iter());
        query.execute(&mut *connection).await?;
    }
    delete_events(connection, sql!("batches_delete"), shard, &rows.batches_gone).await?;
    put(connection, sql!("batches_put"), shard, &rows.batches_new).await?;
    put(connection, sql!("batches_put"), shard, &rows.batches_changed).await?;
    delete_events(connection, sql!("unstarted_delete"), shard, &rows.unstarted_gone).await?;
    put(connection, sql!("unstarted_put"), shard, &rows.unstarted_put).await?;
    put(connection, sql!("ended_insert"), shard, &rows.ended).await?;
    put(connection, sql!("history_insert"), shard, &rows.history).await?;
    if !rows.inbox_new.is_empty() {
        insert_messages(&mut tx(connection), shard, &rows.inbox_new).await?;
    }
    delete(connection, sql!("inbox_delete"), shard, &rows.inbox_done).await
}

async fn write_plan(connection: &mut PgConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete(connection, sql!("shard_schedules_delete"), shard, &rows.schedules_gone).await?;
    put(connection, sql!("shard_schedules_put"), shard, &rows.schedules).await?;
    delete(connection, sql!("shard_policies_delete"), shard, &rows.policies_gone).await?;
    put(connection, sql!("shard_policies_put"), shard, &rows.policies).await?;
    for (uid, deleted_us) in &rows.policies_deleted {
        let query = sqlx::query(both_sql!("shard_policies_end")).bind(shard).bind(uid).bind(deleted_us);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Writes rows of a shard by a statement that takes the shard and then all columns.
async fn put<R: Row>(
    connection: &mut PgConnection,
    statement: &'static str,
    shard: i32,
    rows: &[R],
) -> Result<(), Failure> {
    if !rows.is_empty() {
        let query = R::bind_arrays(sqlx::query(statement).bind(shard), Part::All, rows.iter());
        query.execute(connection).await?;
    }
    Ok(())
}

async fn delete(
    connection: &mut PgConnection,
    statement: &'static str,
    shard: i32,
    uids: &[Uuid],
) -> Result<(), Failure> {
    let (Some(first), Some(last)) = (uids.iter().min(), uids.iter().max()) else { return Ok(()) };
    sqlx::query(statement).bind(shard).bind(uids).bind(first).bind(last).execute(connection).await?;
    Ok(())
}

/// Deletes events, which are in the order of their key.
async fn delete_events(
    connection: &mut PgConnection,
    statement: &'static str,
    shard: i32,
    events: &[EventKey],
) -> Result<(), Failure> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
    EventKey::bind_arrays(sqlx::query(statement).bind(shard), Part::All, events.iter())
        .bind(first.run_id)
        .bind(first.idx)
        .bind(last.run_id)
        .bind(last.idx)
        .execute(connection)
        .await?;
    Ok(())
}
