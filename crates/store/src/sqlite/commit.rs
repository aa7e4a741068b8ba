//! What commits of shards' owners write, in one transaction.
//!
//! In: commits, each with its fence. Out: all of them written and committed, or an error, and a transaction that may be open.
//! Runs that change, batches, the done queue, and which events of a run have not started, of which nearly every commit consists,
//! go by one command for all (`plain`); what is rarer goes before it, a statement for each kind of row. Not here: what becomes of
//! the others when one fails (`line`).

use serde::Serialize;
use sqlx::SqliteConnection;

use super::driver::tx;
use super::plain;
use crate::both::{insert_messages, insert_runs, insert_skipped};
use crate::failure::Failure;
use crate::line::FencedCommit;
use crate::rows::{ChangeRows, json};

/// Writes commits behind their fences, in a transaction. What goes, goes first, so that it may come again in the same commit.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    commits: &[FencedCommit],
) -> Result<(), Failure> {
    tollgate_fault_points::pass("store.fence.before");
    let has_rest = commits.iter().any(|commit| commit.rows.has_rest() || commit.rows.has_orders());
    if has_rest {
        plain::begin(connection, commits).await?;
        tollgate_fault_points::pass("store.fence.after");
        for commit in commits {
            write_rest(connection, commit.fence.shard, &commit.rows).await?;
        }
    }
    tollgate_fault_points::pass("store.commit.before");
    plain::write(connection, commits, has_rest).await?;
    tollgate_fault_points::pass("store.commit.after");
    Ok(())
}

/// What commits seldom have.
async fn write_rest(connection: &mut SqliteConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    carry_out(connection, sql!("runs_delete"), shard, &rows.runs_withdrawn).await?;
    insert_runs(&mut tx(connection), &rows.runs_new).await?;
    carry_out(connection, sql!("tokens_delete"), shard, &rows.tokens_gone).await?;
    carry_out(connection, sql!("tokens_put"), shard, &rows.tokens_put).await?;
    carry_out(connection, sql!("history_delete"), shard, &rows.history_gone).await?;
    carry_out(connection, sql!("results_put"), shard, &rows.results).await?;
    write_plan(connection, shard, rows).await?;
    insert_skipped(&mut tx(connection), &rows.skipped).await?;
    if let Some(pause) = &rows.pause {
        sqlx::query(both_sql!("shard_pause_write")).bind(shard).bind(pause).execute(&mut *connection).await?;
    }
    if !rows.inbox_new.is_empty() {
        insert_messages(&mut tx(connection), shard, &rows.inbox_new).await?;
    }
    carry_out(connection, sql!("inbox_delete"), shard, &rows.inbox_done).await
}

async fn write_plan(connection: &mut SqliteConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    carry_out(connection, sql!("shard_schedules_delete"), shard, &rows.schedules_gone).await?;
    carry_out(connection, sql!("shard_schedules_put"), shard, &rows.schedules).await?;
    carry_out(connection, sql!("shard_policies_delete"), shard, &rows.policies_gone).await?;
    carry_out(connection, sql!("shard_policies_put"), shard, &rows.policies).await?;
    for (uid, deleted_us) in &rows.policies_deleted {
        let query = sqlx::query(both_sql!("shard_policies_end")).bind(shard).bind(uid).bind(deleted_us);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Carries out a statement that takes the shard, and rows or keys as JSON, where there are any.
async fn carry_out<R: Serialize>(
    connection: &mut SqliteConnection,
    statement: &'static str,
    shard: i32,
    rows: &[R],
) -> Result<(), Failure> {
    if !rows.is_empty() {
        sqlx::query(statement).bind(shard).bind(json(rows)?).execute(connection).await?;
    }
    Ok(())
}
