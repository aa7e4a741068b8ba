//! Windows, scan tasks and the launch index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::emit::{Task, Window, is_in_doubt};
use tollgate_core::model::{Run, SkipReason, Skipped};
use tollgate_core::plan::message_ids;
use uuid::Uuid;

use super::{Ask, Driver, Engine, Exists, Tx, Whom, forget_skipped, insert_runs, insert_skipped, only, sql};
use crate::emit::{Checkpoint, ClaimedTask, EmitStore, Frontier, ScanPage, WindowRow};
use crate::failure::Failure;
use crate::rows::{
    ClaimRow, FrontierRow, RunRow, SkippedRow, TaskKey, TaskRow, WindowRecord, all, in_task_order, run_rows,
    scanned, skipped_rows, task_keys, window_tasks,
};
use crate::{CorruptRow, StoreError};

#[async_trait]
impl<D: Driver> EmitStore for D {
    fn corrupt_rows(&self) -> Vec<CorruptRow> {
        self.corruption().rows()
    }

    async fn frontier(&self) -> Result<Frontier, StoreError> {
        let rows: Vec<FrontierRow> = self.rows(Whom::Roles, Ask::new(sql!("frontier"))).await?;
        only(rows).map(Frontier::from)
    }

    async fn registry(&self, eligible: &[String]) -> Result<Vec<(String, String)>, StoreError> {
        self.rows(Whom::Roles, Ask::new(sql!("registry_list")).set(eligible)?).await
    }

    async fn zones(&self) -> Result<Vec<String>, StoreError> {
        let rows: Vec<(String,)> = self.rows(Whom::Roles, Ask::new(sql!("zones_list"))).await?;
        Ok(rows.into_iter().map(|(zone,)| zone).collect())
    }

    async fn announce_window(&self, window: Window, now_us: i64) -> Result<bool, StoreError> {
        self.run_tx(Whom::Roles, "announce_window", move |mut tx| {
            let ask =
                Ask::new(sql!("windows_announce")).bind(window.start_us).bind(window.end_us).bind(now_us);
            async move {
                tx.execute(Ask::new(sql!("windows_lock"))).await?;
                Ok(tx.execute(ask).await? == 1)
            }
            .boxed()
        })
        .await
    }

    async fn open_window(&self, window: Window, tasks: &[Task], now_us: i64) -> Result<bool, StoreError> {
        let tasks = Arc::new(window_tasks(window, tasks)?);
        self.run_tx(Whom::Roles, "open_window", move |mut tx| {
            let tasks = Arc::clone(&tasks);
            async move { open_window(&mut tx, window, &tasks, now_us).await }.boxed()
        })
        .await
    }

    async fn windows(&self, complete: u32) -> Result<Vec<WindowRow>, StoreError> {
        let mut rows: Vec<WindowRecord> = self.rows(Whom::Roles, Ask::new(sql!("windows_open"))).await?;
        let ask = Ask::new(sql!("windows_complete")).bind(i64::from(complete));
        rows.extend(self.rows(Whom::Roles, ask).await?);
        all(rows)
    }

    async fn claim_tasks(
        &self,
        lease_id: Uuid,
        lease_until_us: i64,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        let claim = self.run_tx(Whom::Roles, "claim_tasks", move |mut tx| {
            let ask = Ask::new(sql!("tasks_claim"))
                .bind(lease_id)
                .bind(lease_until_us)
                .bind(now_us)
                .bind(i64::from(limit));
            async move { tx.rows::<ClaimRow>(ask).await }.boxed()
        });
        let (tasks, found) = in_task_order(claim.await?);
        self.corruption().also(("scan tasks", String::new()), found);
        Ok(tasks)
    }

    async fn renew_tasks(&self, lease_id: Uuid, until_us: i64) -> Result<(), StoreError> {
        self.run_tx(Whom::Roles, "renew_tasks", move |mut tx| {
            let ask = Ask::new(sql!("tasks_renew")).bind(lease_id).bind(until_us);
            async move { tx.execute(ask).await.map(drop) }.boxed()
        })
        .await
    }

    async fn release_tasks(&self, lease_id: Uuid, now_us: i64) -> Result<(), StoreError> {
        self.run_tx(Whom::Roles, "release_tasks", move |mut tx| {
            let ask = Ask::new(sql!("tasks_release")).bind(lease_id).bind(now_us);
            async move { tx.execute(ask).await.map(drop) }.boxed()
        })
        .await
    }

    async fn scan(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<ScanPage>, StoreError> {
        let rows = self.scan_rows(tasks, limit).await?;
        let pages = tasks.iter().zip(rows);
        Ok(pages
            .map(|(&(task, checkpoint), rows)| scanned(self.corruption(), task, checkpoint, rows, limit))
            .collect())
    }

    async fn emit(&self, runs: &[Run], skipped: &[Skipped]) -> Result<u32, StoreError> {
        let skipped = Arc::new(skipped_rows(skipped));
        let mut new = 0;
        for (rows, skipped) in parts(run_rows(runs), &skipped, self.splits_by_shard()) {
            let inserted = self
                .run_tx(Whom::Roles, "emit", move |mut tx| {
                    let (rows, skipped) = (Arc::clone(&rows), Arc::clone(&skipped));
                    async move {
                        let new = insert_runs(&mut tx, &rows).await?;
                        insert_skipped(&mut tx, &skipped).await?;
                        Ok(new)
                    }
                    .boxed()
                })
                .await?;
            new += u32::try_from(inserted).unwrap_or(u32::MAX);
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
        let (tasks, skipped) = (Arc::new(task_keys(tasks)), Arc::new(skipped_rows(skipped)));
        let mut new = 0;
        for (rows, skipped) in parts(run_rows(runs), &skipped, self.splits_by_shard()) {
            let tasks = Arc::clone(&tasks);
            let inserted = self
                .run_tx(Whom::Roles, "emit_claimed", move |mut tx| {
                    let (tasks, rows, skipped) =
                        (Arc::clone(&tasks), Arc::clone(&rows), Arc::clone(&skipped));
                    async move {
                        if !hold_tasks(&mut tx, lease_id, &tasks).await? {
                            return Ok(None);
                        }
                        let rest = without_made(&mut tx, &rows).await?;
                        let new = insert_runs(&mut tx, rest.as_deref().unwrap_or(&rows)).await?;
                        insert_skipped(&mut tx, &skipped).await?;
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

    async fn is_unheard(&self, schedule_uid: Uuid, shards: &[u16]) -> Result<bool, StoreError> {
        let ask = Ask::new(sql!("outbox_has")).bind(schedule_uid);
        if !self.rows::<Exists>(Whom::Roles, ask).await?.is_empty() {
            return Ok(true);
        }
        let ids = message_ids(schedule_uid);
        for shard in shards {
            let ask = Ask::new(sql!("inbox_has")).bind(i32::from(*shard)).bind(*ids.start()).bind(*ids.end());
            if !self.rows::<Exists>(Whom::Roles, ask).await?.is_empty() {
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
        self.run_tx(Whom::Roles, "checkpoint", move |mut tx| {
            let ask = Ask::new(sql!("tasks_checkpoint"))
                .bind(start_us)
                .bind(&*task.zone)
                .bind(&*task.launch_expression)
                .bind(lease_id)
                .bind(slot)
                .bind(uid)
                .bind(i32::try_from(ordinal).unwrap_or(i32::MAX));
            async move { tx.execute(ask).await.map(drop) }.boxed()
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
        let tasks = Arc::new(task_keys(tasks));
        self.run_tx(Whom::Roles, "complete_tasks", move |mut tx| {
            let tasks = Arc::clone(&tasks);
            async move { complete(&mut tx, &tasks, lease_id, runs, now_us).await }.boxed()
        })
        .await
    }

    async fn launches_with_runs(
        &self,
        schedule_uid: Uuid,
        from_us: i64,
        to_us: i64,
    ) -> Result<Vec<i64>, StoreError> {
        let ask = Ask::new(sql!("launches_list")).bind(schedule_uid).bind(from_us).bind(to_us);
        let rows: Vec<(i64,)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().map(|(launch_us,)| launch_us).collect())
    }

    async fn forget_skipped(
        &self,
        schedule_uid: Uuid,
        reason: SkipReason,
        after_us: i64,
        until_us: i64,
    ) -> Result<(), StoreError> {
        self.run_tx(Whom::Roles, "forget_skipped", move |mut tx| {
            async move { forget_skipped(&mut tx, schedule_uid, reason, (after_us, until_us)).await }.boxed()
        })
        .await
    }
}

/// What one transaction of an emission writes: runs, and what was skipped.
type Emission = (Arc<[RunRow]>, Arc<Vec<SkippedRow>>);

/// The transactions of an emission: one, or one for each shard. The last has what was skipped.
fn parts(runs: Vec<RunRow>, skipped: &Arc<Vec<SkippedRow>>, by_shard: bool) -> Vec<Emission> {
    let mut parts: Vec<Emission> = runs
        .chunk_by(|a, b| !by_shard || a.shard_id == b.shard_id)
        .map(|rows| (Arc::from(rows), Arc::default()))
        .collect();
    match parts.last_mut() {
        Some(last) => last.1 = Arc::clone(skipped),
        None => parts.push((Arc::default(), Arc::clone(skipped))),
    }
    parts
}

async fn open_window<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    window: Window,
    tasks: &[TaskRow],
    now_us: i64,
) -> Result<bool, Failure> {
    let ask = Ask::new(sql!("windows_insert"))
        .bind(window.start_us)
        .bind(window.end_us)
        .bind(now_us)
        .bind(tasks.is_empty().then_some(now_us))
        .bind(i32::try_from(tasks.len()).unwrap_or(i32::MAX));
    let new = tx.execute(ask).await? == 1;
    if new && !tasks.is_empty() {
        tx.execute(Ask::new(sql!("tasks_insert")).set(tasks)?).await?;
    }
    Ok(new)
}

async fn complete<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    tasks: &[TaskKey],
    lease_id: Uuid,
    runs: u32,
    now_us: i64,
) -> Result<(), Failure> {
    // In order, and before the tasks: who completes the last task of a window sees that all others are gone.
    let windows: BTreeSet<i64> = tasks.iter().map(|task| task.start_us).collect();
    for start_us in &windows {
        count(tx, *start_us, 0).await?;
    }
    if tx.execute(Ask::new(sql!("tasks_delete")).bind(lease_id).set(tasks)?).await? == 0 {
        return Ok(());
    }
    if let Some(oldest) = windows.first() {
        count(tx, *oldest, runs).await?;
    }
    for start_us in &windows {
        tx.execute(Ask::new(sql!("windows_finish")).bind(*start_us).bind(now_us)).await?;
    }
    Ok(())
}

async fn count<DB: Engine>(tx: &mut Tx<'_, DB>, start_us: i64, runs: u32) -> Result<(), Failure> {
    tx.execute(Ask::new(sql!("windows_count")).bind(start_us).bind(i64::from(runs))).await.map(drop)
}

/// Whether all tasks are still claimed under the lease. They stay so until the commit.
async fn hold_tasks<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    lease_id: Uuid,
    tasks: &[TaskKey],
) -> Result<bool, Failure> {
    let held: Vec<Exists> = tx.rows(Ask::new(sql!("tasks_hold")).bind(lease_id).set(tasks)?).await?;
    Ok(held.len() == tasks.len())
}

/// The runs without those of launches that have one in another shard by now, as their schedules have moved: see
/// [`is_in_doubt`]. Of two of one launch, the one of the later generation stays. None where all stay.
async fn without_made<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    runs: &[RunRow],
) -> Result<Option<Vec<RunRow>>, Failure> {
    let mut by_schedule: BTreeMap<Uuid, Vec<&RunRow>> = BTreeMap::new();
    for run in runs {
        by_schedule.entry(run.schedule_uid).or_default().push(run);
    }
    if by_schedule.is_empty() {
        return Ok(None);
    }
    let uids: Vec<Uuid> = by_schedule.keys().copied().collect();
    let moved: Vec<(Uuid, i64, i64)> = tx.rows(Ask::new(sql!("schedules_moved")).set(&uids)?).await?;
    let mut made: BTreeSet<(Uuid, i32)> = BTreeSet::new();
    for (uid, generation, updated_us) in moved {
        let of = by_schedule.get(&uid).into_iter().flatten();
        let doubtful: Vec<&RunRow> = of
            .copied()
            .filter(|run| is_in_doubt(run.launch_us, run.generation, (generation, updated_us)))
            .collect();
        let launches = || doubtful.iter().map(|run| run.launch_us);
        let (Some(first_us), Some(last_us)) = (launches().min(), launches().max()) else { continue };
        let ask = Ask::new(sql!("launches_homes")).bind(uid).bind(first_us).bind(last_us);
        let homes: Vec<(Uuid, i32)> = tx.rows(ask).await?;
        for run in doubtful {
            let is_elsewhere = homes.iter().any(|home| home.0 == run.run_id && home.1 != run.shard_id);
            let is_later = |other: &RunRow| {
                other.run_id == run.run_id
                    && other.shard_id != run.shard_id
                    && other.generation > run.generation
            };
            if is_elsewhere || runs.iter().any(is_later) {
                made.insert((run.run_id, run.shard_id));
            }
        }
    }
    let is_wanted = |run: &&RunRow| !made.contains(&(run.run_id, run.shard_id));
    Ok((!made.is_empty()).then(|| runs.iter().filter(is_wanted).cloned().collect()))
}
