//! What one commit of a shard's owner writes.

use sqlx::SqliteConnection;
use uuid::Uuid;

use super::driver::tx;
use crate::StoreError;
use crate::both::{insert_runs, insert_skipped};
use crate::failure::Failure;
use crate::line::Fence;
use crate::rows::{ChangeRows, EventKey, json};

/// Writes all changes of a shard behind the fence. What goes, goes first, so that it may come again in the same commit.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    fence: Fence,
    rows: &ChangeRows,
) -> Result<(), Failure> {
    let Fence { shard, lease_id } = fence;
    let query = sqlx::query(sql!("fence")).bind(shard).bind(lease_id);
    if query.execute(&mut *connection).await?.rows_affected() != 1 {
        return Err(Failure::Fenced);
    }
    tollgate_fault_points::pass("store.fence.after");
    write_runs(connection, shard, rows).await?;
    write_events(connection, shard, rows).await?;
    write_plan(connection, shard, rows).await?;
    insert_skipped(&mut tx(connection), &rows.skipped).await?;
    if let Some(pause) = &rows.pause {
        sqlx::query(both_sql!("shard_pause_write")).bind(shard).bind(pause).execute(&mut *connection).await?;
    }
    delete(connection, sql!("inbox_delete"), shard, &rows.inbox_done).await
}

async fn write_runs(connection: &mut SqliteConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete(connection, sql!("runs_delete"), shard, &rows.runs_withdrawn).await?;
    insert_runs(&mut tx(connection), &rows.runs_new).await?;
    if !rows.runs_changed.is_empty() {
        // It would put a run that is missing there; in what is nothing but changes, that is an error.
        if rows.is_plain() {
            let runs: Vec<Uuid> = rows.runs_changed.iter().map(|run| run.run_id).collect();
            let query = sqlx::query(sql!("runs_by_ids")).bind(shard).bind(json(&runs)?);
            if query.fetch_all(&mut *connection).await?.len() != runs.len() {
                let why = format!("shard {shard} lacks one of the runs {runs:?}");
                return Err(StoreError::Internal(why).into());
            }
        }
        let query = sqlx::query(sql!("runs_update")).bind(json(&rows.runs_changed)?);
        query.execute(connection).await?;
    }
    Ok(())
}

async fn write_events(
    connection: &mut SqliteConnection,
    shard: i32,
    rows: &ChangeRows,
) -> Result<(), Failure> {
    delete_events(connection, sql!("batches_delete"), shard, &rows.batches_gone).await?;
    for batches in
        [&rows.batches_new, &rows.batches_changed].into_iter().filter(|batches| !batches.is_empty())
    {
        sqlx::query(sql!("batches_put")).bind(shard).bind(json(batches)?).execute(&mut *connection).await?;
    }
    delete_events(connection, sql!("tokens_delete"), shard, &rows.tokens_gone).await?;
    if !rows.tokens_put.is_empty() {
        let query = sqlx::query(sql!("tokens_put")).bind(shard).bind(json(&rows.tokens_put)?);
        query.execute(&mut *connection).await?;
    }
    delete_events(connection, sql!("history_delete"), shard, &rows.history_gone).await?;
    if !rows.history.is_empty() {
        let query = sqlx::query(sql!("history_insert")).bind(shard).bind(json(&rows.history)?);
        query.execute(connection).await?;
    }
    Ok(())
}

async fn write_plan(connection: &mut SqliteConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete(connection, sql!("shard_schedules_delete"), shard, &rows.schedules_gone).await?;
    if !rows.schedules.is_empty() {
        let query = sqlx::query(sql!("shard_schedules_put")).bind(shard).bind(json(&rows.schedules)?);
        query.execute(&mut *connection).await?;
    }
    delete(connection, sql!("shard_policies_delete"), shard, &rows.policies_gone).await?;
    if !rows.policies.is_empty() {
        let query = sqlx::query(sql!("shard_policies_put")).bind(shard).bind(json(&rows.policies)?);
        query.execute(&mut *connection).await?;
    }
    for (uid, deleted_us) in &rows.policies_deleted {
        let query = sqlx::query(both_sql!("shard_policies_end")).bind(shard).bind(uid).bind(deleted_us);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn delete(
    connection: &mut SqliteConnection,
    statement: &'static str,
    shard: i32,
    uids: &[Uuid],
) -> Result<(), Failure> {
    if !uids.is_empty() {
        sqlx::query(statement).bind(shard).bind(json(uids)?).execute(connection).await?;
    }
    Ok(())
}

async fn delete_events(
    connection: &mut SqliteConnection,
    statement: &'static str,
    shard: i32,
    events: &[EventKey],
) -> Result<(), Failure> {
    if !events.is_empty() {
        sqlx::query(statement).bind(shard).bind(json(events)?).execute(connection).await?;
    }
    Ok(())
}
