//! What one commit of a shard's owner writes.

use sqlx::postgres::{PgArguments, PgBindIterExt as _};
use sqlx::{Execute as _, PgConnection};
use uuid::Uuid;

use super::driver::tx;
use crate::both::{insert_runs, insert_skipped};
use crate::columns::{Part, Row as _};
use crate::failure::Failure;
use crate::line::Waiting;
use crate::rows::{ChangeRows, EventKey, RunRow};

/// From so many rows on that a commit looks up, a statement for all of a kind is quicker than one for each.
const MANY: usize = 16;

/// Writes all changes of a shard. What goes, goes first, so that it may come again in the same commit. `in_steps`: the server may
/// not take more than plain look-ups by key.
pub(super) async fn write(
    connection: &mut PgConnection,
    shard: i32,
    rows: &ChangeRows,
    in_steps: bool,
) -> Result<(), Failure> {
    write_runs(connection, shard, rows, in_steps).await?;
    write_events(connection, shard, rows).await?;
    write_plan(connection, shard, rows).await?;
    insert_skipped(&mut tx(connection), &rows.skipped).await?;
    if let Some(pause) = &rows.pause {
        sqlx::query(both_sql!("shard_pause_write")).bind(shard).bind(pause).execute(&mut *connection).await?;
    }
    delete(connection, sql!("inbox_delete"), shard, &rows.inbox_done).await
}

/// Whether commits look up so many rows that it is quicker to do so for all of a kind.
pub(super) fn are_many(commits: &[Waiting]) -> bool {
    commits.iter().map(|commit| 1 + commit.rows.looked_up()).sum::<usize>() >= MANY
}

/// What nearly every commit consists of, for any number of shards, and their fences with it: one statement with its arguments, all
/// or nothing.
pub(super) fn plain(commits: &[Waiting], are_many: bool) -> Result<(&'static str, PgArguments), sqlx::Error> {
    macro_rules! columns_of {
        ($query:expr, $rows:ident; $($column:ident)+) => {{
            let rows = || commits.iter().flat_map(|commit| &commit.rows.$rows);
            let shards = commits.iter().flat_map(|commit| {
                std::iter::repeat_n(commit.fence.shard, commit.rows.$rows.len())
            });
            $query.bind(shards.bind_iter())$(.bind(rows().map(|row| &row.$column).bind_iter()))+
        }};
    }
    let fences = || commits.iter().map(|commit| commit.fence);
    let text = if are_many { sql!("commit_at_once") } else { sql!("commit_one_by_one") };
    let query = sqlx::query(text)
        .bind(fences().map(|fence| fence.shard).bind_iter())
        .bind(fences().map(|fence| fence.lease_id).bind_iter());
    let runs = commits.iter().flat_map(|commit| &commit.rows.runs_changed);
    let query =
        RunRow::bind_arrays(query.bind(runs.clone().map(|run| run.shard_id).bind_iter()), Part::State, runs);
    let query = columns_of!(query, batches_gone; run_id idx);
    let query = columns_of!(query, batches_changed; run_id first_idx gone held delivered_us);
    let query = columns_of!(query, batches_new; run_id first_idx events acquired_us gone held);
    let mut query = columns_of!(query, history;
        run_id idx events outcome attempt acquired_us delivered_us finished_us message);
    let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
    Ok((text, arguments.unwrap_or_default()))
}

async fn write_runs(
    connection: &mut PgConnection,
    shard: i32,
    rows: &ChangeRows,
    in_steps: bool,
) -> Result<(), Failure> {
    delete(connection, sql!("runs_delete"), shard, &rows.runs_withdrawn).await?;
    insert_runs(&mut tx(connection), &rows.runs_new).await?;
    if !rows.runs_changed.is_empty() {
        let runs = || rows.runs_changed.iter();
        if !in_steps {
            let query = sqlx::query(sql!("runs_change")).bind(shard);
            let changed = RunRow::bind_arrays(query, Part::All, runs()).execute(&mut *connection).await?;
            if changed.rows_affected() == rows.runs_changed.len() as u64 {
                return Ok(());
            }
        }
        let query = RunRow::bind_arrays(sqlx::query(sql!("runs_update")), Part::All, runs());
        query.execute(connection).await?;
    }
    Ok(())
}

async fn write_events(connection: &mut PgConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete_events(connection, sql!("batches_delete"), shard, &rows.batches_gone).await?;
    for batches in
        [&rows.batches_new, &rows.batches_changed].into_iter().filter(|batches| !batches.is_empty())
    {
        let query = columns!(sqlx::query(sql!("batches_put")).bind(shard), batches;
            run_id first_idx events acquired_us gone held delivered_us);
        query.execute(&mut *connection).await?;
    }
    delete_events(connection, sql!("tokens_delete"), shard, &rows.tokens_gone).await?;
    if !rows.tokens_put.is_empty() {
        let query = columns!(sqlx::query(sql!("tokens_put")).bind(shard), rows.tokens_put;
            run_id idx state attempt failures checks due_us acquired_us delivered_us heartbeat_ttl_ms message);
        query.execute(&mut *connection).await?;
    }
    delete_events(connection, sql!("history_delete"), shard, &rows.history_gone).await?;
    if !rows.history.is_empty() {
        let query = columns!(sqlx::query(sql!("history_insert")).bind(shard), rows.history;
            run_id idx events outcome attempt acquired_us delivered_us finished_us message);
        query.execute(connection).await?;
    }
    Ok(())
}

async fn write_plan(connection: &mut PgConnection, shard: i32, rows: &ChangeRows) -> Result<(), Failure> {
    delete(connection, sql!("shard_schedules_delete"), shard, &rows.schedules_gone).await?;
    if !rows.schedules.is_empty() {
        let query = columns!(sqlx::query(sql!("shard_schedules_put")).bind(shard), rows.schedules;
            schedule_uid generation body);
        query.execute(&mut *connection).await?;
    }
    delete(connection, sql!("shard_policies_delete"), shard, &rows.policies_gone).await?;
    if !rows.policies.is_empty() {
        let query =
            columns!(sqlx::query(sql!("shard_policies_put")).bind(shard), rows.policies; policy_uid body);
        query.execute(&mut *connection).await?;
    }
    for (uid, deleted_us) in &rows.policies_deleted {
        let query = sqlx::query(both_sql!("shard_policies_end")).bind(shard).bind(uid).bind(deleted_us);
        query.execute(&mut *connection).await?;
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
    columns!(sqlx::query(statement).bind(shard), events; run_id idx)
        .bind(first.run_id)
        .bind(first.idx)
        .bind(last.run_id)
        .bind(last.idx)
        .execute(connection)
        .await?;
    Ok(())
}
