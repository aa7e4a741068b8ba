//! What PostgreSQL offers the parts of a store that are written once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::PgConnection;
use tollgate_core::emit::Task;
use uuid::Uuid;

use super::Postgres;
use super::door::PoolDoor;
use crate::StoreError;
use crate::both::{Ask, Driver, Engine as _, Readable, Tx, Whom, own_sql, prune_table};
use crate::corrupt::Corruption;
use crate::emit::Checkpoint;
use crate::failure::Failure;
use crate::history::PRUNE_AT_ONCE;
use crate::layout::ShardCount;
use crate::rows::{ScanRow, range_rows};

/// A transaction of this driver, for what is written once.
pub(super) fn tx(connection: &mut PgConnection) -> Tx<'_, sqlx::Postgres> {
    Tx(connection)
}

impl Postgres {
    fn door(&self, whom: Whom) -> &PoolDoor {
        match whom {
            Whom::People => &self.people,
            Whom::Roles => &self.work,
        }
    }
}

impl Driver for Postgres {
    type Database = sqlx::Postgres;

    async fn rows<R: Readable>(&self, whom: Whom, ask: Ask<sqlx::Postgres>) -> Result<Vec<R>, StoreError> {
        let (door, query) = (self.door(whom), ask.into_query());
        door.judge(door.ask(move |connection| sqlx::Postgres::rows(connection, query).boxed()).await)
    }

    async fn run_tx<T, F>(&self, whom: Whom, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(Tx<'c, sqlx::Postgres>) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.door(whom).run_tx(name, move |connection| work(tx(connection))).await
    }

    fn corruption(&self) -> &Corruption {
        &self.corruption
    }

    fn shards(&self) -> &ShardCount {
        &self.shards
    }

    /// Old rows stay until they are vacuumed; nothing that is done here removes them sooner.
    async fn before_secrets_go(_tx: &mut Tx<'_, sqlx::Postgres>) -> Result<(), Failure> {
        Ok(())
    }

    /// All of them by one statement.
    async fn scan_rows(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<Vec<ScanRow>>, StoreError> {
        let ranges = range_rows(tasks);
        let query = columns!(sqlx::query_as::<_, ScanRow>(sql!("scan")), ranges;
            task zone launch_expression slot schedule_uid ordinal last);
        let rows = self.work.judge(rows!(self.work, query.bind(i64::from(limit))))?;
        let mut rows = rows.into_iter().peekable();
        let of_task = |number| std::iter::from_fn(|| rows.next_if(|row| row.task == number)).collect();
        Ok((0..).take(tasks.len()).map(of_task).collect())
    }

    fn splits_by_shard(&self) -> bool {
        self.is_distributed.load(Ordering::Relaxed)
    }

    async fn prune_days(&self, before_us: i64, now_us: i64) -> Result<u64, StoreError> {
        self.make_partitions(now_us).await?;
        self.drop_partitions(before_us).await
    }

    async fn prune_shard(&self, shard: i32, before_us: i64) -> Result<(u64, u64), StoreError> {
        let shard = Some(shard);
        let mut events =
            prune_table(self.clone(), "prune_history", own_sql!("prune_history"), shard, before_us).await?;
        events += prune_table(self.clone(), "prune_ended", own_sql!("prune_ended"), shard, before_us).await?;
        let runs = prune_table(self.clone(), "prune_runs", crate::both::sql!("prune_runs"), shard, before_us)
            .await?;
        Ok((events, runs))
    }

    /// In steps: schedules are not where shards are.
    async fn prune_specs(&self, shard: i32, before_us: i64) -> Result<u64, StoreError> {
        let (mut all, mut after) = (0, (Uuid::nil(), i64::MIN));
        loop {
            let query = sqlx::query_as::<_, (Uuid, i64)>(sql!("prune_specs_old"))
                .persistent(false)
                .bind(shard)
                .bind(before_us)
                .bind(after.0)
                .bind(after.1)
                .bind(i64::from(PRUNE_AT_ONCE));
            let old = self.work.judge(rows!(self.work, query))?;
            let Some(last) = old.last() else { return Ok(all) };
            after = *last;
            let is_last = old.len() < PRUNE_AT_ONCE as usize;
            let uids: BTreeSet<Uuid> = old.iter().map(|(uid, _)| *uid).collect();
            let query = sqlx::query_as::<_, (Uuid, i64, bool)>(sql!("prune_specs_current"))
                .bind(uids.into_iter().collect::<Vec<_>>())
                .bind(before_us);
            let current = self.work.judge(rows!(self.work, query))?;
            let current: BTreeMap<Uuid, (i64, bool)> =
                current.into_iter().map(|(uid, generation, recent)| (uid, (generation, recent))).collect();
            let is_needed = |(uid, generation): &(Uuid, i64)| {
                current.get(uid).is_some_and(|(now, recent)| now == generation || *recent)
            };
            let gone: Vec<(Uuid, i64)> = old.into_iter().filter(|key| !is_needed(key)).collect();
            if let (Some(first), Some(last)) = (gone.first().copied(), gone.last().copied()) {
                let (uids, generations): (Vec<Uuid>, Vec<i64>) = gone.into_iter().unzip();
                let deleted = self.work.run_tx("prune_specs", move |connection| {
                    let query = sqlx::query(sql!("prune_specs"))
                        .persistent(false)
                        .bind(shard)
                        .bind(uids.clone())
                        .bind(generations.clone())
                        .bind(first.0)
                        .bind(first.1)
                        .bind(last.0)
                        .bind(last.1);
                    async move { Ok(query.execute(connection).await?.rows_affected()) }.boxed()
                });
                all += deleted.await?;
            }
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Autovacuum frees replaced rows; nothing that a client may say makes the server forget them at once.
    async fn scrub(&self) -> Result<bool, StoreError> {
        Ok(false)
    }
}
