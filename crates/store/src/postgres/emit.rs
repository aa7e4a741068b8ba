//! Windows, scan tasks and the launch index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures::FutureExt as _;
use sqlx::PgConnection;
use tollgate_core::emit::{Task, Window};
use tollgate_core::model::{Run, SkipReason, Skipped};
use tollgate_core::plan::message_ids;
use uuid::Uuid;

use super::Postgres;
use crate::batch::judge_policies;
use crate::columns::{Part, Row as _};
use crate::emit::{Checkpoint, ClaimedTask, EmitStore, Frontier, ScanPage, WindowRow};
use crate::failure::Failure;
use crate::rows::{
    ClaimRow, FrontierRow, RunRow, ScanRow, SkippedRow, TaskRow, WindowRecord, Word as _, all, in_task_order,
    range_rows, run_rows, scanned, skipped_rows, task_rows, window_tasks,
};
use crate::{CorruptRow, StoreError};

#[async_trait]
impl EmitStore for Postgres {
    fn corrupt_rows(&self) -> Vec<CorruptRow> {
        self.corruption.rows()
    }

    async fn frontier(&self) -> Result<Frontier, StoreError> {
        let query = sqlx::query_as::<_, FrontierRow>(sql!("frontier"));
        let row = self.work.ask(move |connection| Box::pin(query.fetch_one(connection))).await;
        self.work.judge(row).map(Frontier::from)
    }

    async fn registry(&self, eligible: &[String]) -> Result<Vec<(String, String)>, StoreError> {
        self.work.judge(rows!(self.work, sqlx::query_as(sql!("registry_list")).bind(eligible.to_vec())))
    }

    async fn zones(&self) -> Result<Vec<String>, StoreError> {
        self.work.judge(rows!(self.work, sqlx::query_scalar(sql!("zones_list"))))
    }

    async fn announce_window(&self, window: Window, now_us: i64) -> Result<bool, StoreError> {
        self.work
            .run_tx("announce_window", move |connection| {
                let query = sqlx::query(sql!("windows_announce"))
                    .bind(window.start_us)
                    .bind(window.end_us)
                    .bind(now_us);
                async move {
                    sqlx::query(sql!("windows_lock")).execute(&mut *connection).await?;
                    Ok(query.execute(connection).await?.rows_affected() == 1)
                }
                .boxed()
            })
            .await
    }

    async fn open_window(&self, window: Window, tasks: &[Task], now_us: i64) -> Result<bool, StoreError> {
        let tasks = Arc::new(window_tasks(window, tasks)?);
        self.work
            .run_tx("open_window", move |connection| {
                let tasks = Arc::clone(&tasks);
                async move { open_window(connection, window, &tasks, now_us).await }.boxed()
            })
            .await
    }

    async fn windows(&self, complete: u32) -> Result<Vec<WindowRow>, StoreError> {
        let open = rows!(self.work, sqlx::query_as::<_, WindowRecord>(sql!("windows_open")));
        let mut rows = self.work.judge(open)?;
        let query = sqlx::query_as(sql!("windows_complete")).bind(i64::from(complete));
        rows.extend(self.work.judge(rows!(self.work, query))?);
        all(rows)
    }

    async fn claim_tasks(
        &self,
        lease_id: Uuid,
        lease_until_us: i64,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let rows = self
            .work
            .run_tx("claim_tasks", move |connection| {
                let query = sqlx::query_as::<_, ClaimRow>(sql!("tasks_claim"))
                    .bind(lease_id)
                    .bind(lease_until_us)
                    .bind(now_us)
                    .bind(i64::from(limit));
                async move { Ok(query.fetch_all(connection).await?) }.boxed()
            })
            .await?;
        let (tasks, found) = in_task_order(rows);
        self.corruption.also(("scan tasks", String::new()), found);
        Ok(tasks)
    }

    async fn renew_tasks(&self, lease_id: Uuid, until_us: i64) -> Result<(), StoreError> {
        self.work
            .run_tx("renew_tasks", move |connection| {
                let query = sqlx::query(sql!("tasks_renew")).bind(lease_id).bind(until_us);
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }

    async fn release_tasks(&self, lease_id: Uuid, now_us: i64) -> Result<(), StoreError> {
        self.work
            .run_tx("release_tasks", move |connection| {
                let query = sqlx::query(sql!("tasks_release")).bind(lease_id).bind(now_us);
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }

    async fn scan(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<ScanPage>, StoreError> {
        let ranges = range_rows(tasks);
        let query = columns!(sqlx::query_as::<_, ScanRow>(sql!("scan")), ranges;
            task zone launch_expression slot schedule_uid ordinal last);
        let rows = self.work.judge(rows!(self.work, query.bind(i64::from(limit))))?;
        let mut rows = rows.into_iter().peekable();
        let pages = (0..).zip(tasks).map(|(number, &(task, checkpoint))| {
            let of_it = std::iter::from_fn(|| rows.next_if(|row| row.task == number)).collect();
            scanned(&self.corruption, task, checkpoint, of_it, limit)
        });
        Ok(pages.collect())
    }

    async fn emit(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError> {
        let mut new = 0;
        let rows = run_rows(runs);
        // Where a transaction of several shards costs more than several transactions, each has its own.
        let by_shard = self.is_distributed.load(Ordering::Relaxed);
        for rows in rows.chunk_by(|a, b| !by_shard || a.shard_id == b.shard_id) {
            let rows: Arc<[RunRow]> = Arc::from(rows);
            let inserted = self
                .work
                .run_tx("emit", move |connection| {
                    let rows = Arc::clone(&rows);
                    async move { insert_runs(connection, &rows).await }.boxed()
                })
                .await?;
            new += u32::try_from(inserted).unwrap_or(u32::MAX);
        }
        if !skipped.is_empty() {
            let rows = Arc::new(skipped_rows(skipped));
            self.work
                .run_tx("emit_skipped", move |connection| {
                    let rows = Arc::clone(&rows);
                    async move { insert_skipped(connection, &rows).await }.boxed()
                })
                .await?;
        }
        Ok(new)
    }

    async fn emit_claimed(
        &self,
        lease_id: Uuid,
        tasks: &[ClaimedTask],
        runs: &[Run],
        skipped: &[Skipped],
    ) -> Result<Option<u32>, StoreError> {
        let tasks = Arc::new(task_rows(tasks)?);
        let (rows, skipped) = (run_rows(runs), Arc::new(skipped_rows(skipped)));
        // Where a transaction of several shards costs more than several transactions, each has its own.
        let by_shard = self.is_distributed.load(Ordering::Relaxed);
        let mut parts: Vec<Arc<[RunRow]>> =
            rows.chunk_by(|a, b| !by_shard || a.shard_id == b.shard_id).map(Arc::from).collect();
        if parts.is_empty() {
            parts.push(Arc::from([]));
        }
        let (last, mut new) = (parts.len() - 1, 0);
        for (number, rows) in parts.into_iter().enumerate() {
            let tasks = Arc::clone(&tasks);
            let skipped = if number == last { Arc::clone(&skipped) } else { Arc::default() };
            let inserted = self
                .work
                .run_tx("emit_claimed", move |connection| {
                    let (tasks, rows, skipped) =
                        (Arc::clone(&tasks), Arc::clone(&rows), Arc::clone(&skipped));
                    async move {
                        if !hold_tasks(connection, lease_id, &tasks).await? {
                            return Ok(None);
                        }
                        let new = insert_runs(connection, &rows).await?;
                        insert_skipped(connection, &skipped).await?;
                        Ok(Some(new))
                    }
                    .boxed()
                })
                .await?;
            let Some(inserted) = inserted else { return Ok(None) };
            new += u32::try_from(inserted).unwrap_or(u32::MAX);
        }
        Ok(Some(new))
    }

    async fn emit_by_hand(&self, runs: &[Run], policy: Option<(Uuid, String)>) -> Result<u32, StoreError> {
        let runs = Arc::new(run_rows(runs));
        let policy: Arc<BTreeMap<Uuid, String>> = Arc::new(policy.into_iter().collect());
        self.work
            .run_tx("emit_by_hand", move |connection| {
                let (runs, policy) = (Arc::clone(&runs), Arc::clone(&policy));
                async move {
                    if !policy.is_empty() {
                        let wanted: Vec<Uuid> = policy.keys().copied().collect();
                        let query = sqlx::query_scalar(sql!("policies_hold")).bind(wanted);
                        judge_policies(&policy, &query.fetch_all(&mut *connection).await?)?;
                    }
                    Ok(u32::try_from(insert_runs(connection, &runs).await?).unwrap_or(u32::MAX))
                }
                .boxed()
            })
            .await
    }

    async fn is_unheard(&self, schedule_uid: Uuid, shards: &[u16]) -> Result<bool, StoreError> {
        let query = sqlx::query(sql!("outbox_has")).bind(schedule_uid);
        if !self.work.judge(rows!(self.work, query))?.is_empty() {
            return Ok(true);
        }
        let ids = message_ids(schedule_uid);
        for shard in shards {
            let query =
                sqlx::query(sql!("inbox_has")).bind(i32::from(*shard)).bind(*ids.start()).bind(*ids.end());
            if !self.work.judge(rows!(self.work, query))?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn checkpoint(
        &self,
        task: &ClaimedTask,
        lease_id: Uuid,
        (slot, uid, ordinal): Checkpoint,
    ) -> Result<(), StoreError> {
        let (start_us, task) = (task.window.start_us, task.task.clone());
        self.work
            .run_tx("checkpoint", move |connection| {
                let query = sqlx::query(sql!("tasks_checkpoint"))
                    .bind(start_us)
                    .bind(task.zone.clone())
                    .bind(task.launch_expression.clone())
                    .bind(lease_id)
                    .bind(slot)
                    .bind(uid)
                    .bind(i32::try_from(ordinal).unwrap_or(i32::MAX));
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }

    async fn complete_tasks(
        &self,
        tasks: &[ClaimedTask],
        lease_id: Uuid,
        runs: u32,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let tasks = Arc::new(task_rows(tasks)?);
        self.work
            .run_tx("complete_tasks", move |connection| {
                let tasks = Arc::clone(&tasks);
                async move { complete(connection, &tasks, lease_id, runs, now_us).await }.boxed()
            })
            .await
    }

    async fn launches_with_runs(
        &self,
        schedule_uid: Uuid,
        from_us: i64,
        to_us: i64,
    ) -> Result<Vec<i64>, StoreError> {
        let query = sqlx::query_scalar(sql!("launches_list")).bind(schedule_uid).bind(from_us).bind(to_us);
        self.work.judge(rows!(self.work, query))
    }

    async fn forget_skipped(
        &self,
        schedule_uid: Uuid,
        reason: SkipReason,
        after_us: i64,
        until_us: i64,
    ) -> Result<(), StoreError> {
        self.work
            .run_tx("forget_skipped", move |connection| {
                let query = sqlx::query(sql!("skipped_forget"))
                    .bind(schedule_uid)
                    .bind(after_us)
                    .bind(until_us)
                    .bind(reason.word());
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }
}

async fn open_window(
    connection: &mut PgConnection,
    window: Window,
    tasks: &[TaskRow],
    now_us: i64,
) -> Result<bool, Failure> {
    let inserted = sqlx::query(sql!("windows_insert"))
        .bind(window.start_us)
        .bind(window.end_us)
        .bind(now_us)
        .bind(tasks.is_empty().then_some(now_us))
        .bind(i32::try_from(tasks.len()).unwrap_or(i32::MAX))
        .execute(&mut *connection)
        .await?;
    let new = inserted.rows_affected() == 1;
    if new && !tasks.is_empty() {
        let query = sqlx::query(sql!("tasks_insert")).bind(window.start_us);
        columns!(query, tasks; zone launch_expression slots).execute(connection).await?;
    }
    Ok(new)
}

async fn complete(
    connection: &mut PgConnection,
    tasks: &[TaskRow],
    lease_id: Uuid,
    runs: u32,
    now_us: i64,
) -> Result<(), Failure> {
    // In order, and before the tasks: who completes the last task of a window sees that all others are gone.
    let windows: BTreeSet<i64> = tasks.iter().map(|task| task.start_us).collect();
    for start_us in &windows {
        count(connection, *start_us, 0).await?;
    }
    let query =
        columns!(sqlx::query(sql!("tasks_delete")).bind(lease_id), tasks; start_us zone launch_expression);
    if query.execute(&mut *connection).await?.rows_affected() == 0 {
        return Ok(());
    }
    if let Some(oldest) = windows.first() {
        count(connection, *oldest, runs).await?;
    }
    for start_us in &windows {
        sqlx::query(sql!("windows_finish")).bind(start_us).bind(now_us).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn count(connection: &mut PgConnection, start_us: i64, runs: u32) -> Result<(), Failure> {
    sqlx::query(sql!("windows_count")).bind(start_us).bind(i64::from(runs)).execute(connection).await?;
    Ok(())
}

/// Whether all tasks are still claimed under the lease. They stay so until the commit.
async fn hold_tasks(
    connection: &mut PgConnection,
    lease_id: Uuid,
    tasks: &[TaskRow],
) -> Result<bool, Failure> {
    let query =
        columns!(sqlx::query(sql!("tasks_hold")).bind(lease_id), tasks; start_us zone launch_expression);
    Ok(query.fetch_all(connection).await?.len() == tasks.len())
}

/// Adds runs. Answers how many were new.
pub(super) async fn insert_runs(connection: &mut PgConnection, runs: &[RunRow]) -> Result<u64, Failure> {
    if runs.is_empty() {
        return Ok(0);
    }
    let query = RunRow::bind_arrays(sqlx::query(sql!("runs_insert")), Part::All, runs.iter());
    Ok(query.execute(connection).await?.rows_affected())
}

/// Records triggers that made no run.
pub(super) async fn insert_skipped(
    connection: &mut PgConnection,
    skipped: &[SkippedRow],
) -> Result<(), Failure> {
    if !skipped.is_empty() {
        let query = SkippedRow::bind_arrays(sqlx::query(sql!("skipped_insert")), Part::All, skipped.iter());
        query.execute(connection).await?;
    }
    Ok(())
}
