//! What SQLite offers the parts of a store that are written once.

use std::sync::PoisonError;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::SqliteConnection;
use tollgate_core::emit::Task;

use super::Sqlite;
use crate::StoreError;
use crate::both::{Ask, Driver, Readable, Tx, Whom, own_sql, prune_table};
use crate::corrupt::Corruption;
use crate::emit::Checkpoint;
use crate::failure::Failure;
use crate::history::PRUNE_AT_ONCE;
use crate::layout::ShardCount;
use crate::rows::{ScanRow, scan_ranges};

/// A transaction of this driver, for what is written once.
pub(super) fn tx(connection: &mut SqliteConnection) -> Tx<'_, sqlx::Sqlite> {
    Tx(connection)
}

impl Driver for Sqlite {
    type Database = sqlx::Sqlite;

    async fn rows<R: Readable>(&self, whom: Whom, ask: Ask<sqlx::Sqlite>) -> Result<Vec<R>, StoreError> {
        let pool = match whom {
            Whom::People => &self.people,
            Whom::Roles => &self.readers,
        };
        let rows = ask.into_query().fetch_all(pool).await;
        self.judge(rows.and_then(|rows| rows.iter().map(R::from_row).collect()))
    }

    /// One connection writes, for everybody.
    async fn run_tx<T, F>(&self, _whom: Whom, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(Tx<'c, sqlx::Sqlite>) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self::run_tx(self, name, move |connection| work(tx(connection))).await
    }

    fn corruption(&self) -> &Corruption {
        &self.corruption
    }

    fn shards(&self) -> &ShardCount {
        &self.shards
    }

    /// What is replaced is overwritten, not only given up.
    async fn before_secrets_go(tx: &mut Tx<'_, sqlx::Sqlite>) -> Result<(), Failure> {
        sqlx::query("PRAGMA secure_delete = ON").execute(&mut *tx.0).await?;
        Ok(())
    }

    async fn scan_rows(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> Result<Vec<Vec<ScanRow>>, StoreError> {
        let mut all = Vec::with_capacity(tasks.len());
        for &(task, checkpoint) in tasks {
            let mut rows: Vec<ScanRow> = Vec::new();
            for range in scan_ranges(&task.slots, checkpoint) {
                let left = (limit as usize).saturating_sub(rows.len());
                if left == 0 {
                    break;
                }
                let (slot, uid, ordinal) = range.after;
                let query = sqlx::query_as(sql!("scan"))
                    .bind(&task.zone)
                    .bind(&task.launch_expression)
                    .bind(slot)
                    .bind(uid)
                    .bind(ordinal)
                    .bind(range.last)
                    .bind(left as i64);
                rows.extend(self.judge(query.fetch_all(&self.readers).await)?);
            }
            all.push(rows);
        }
        Ok(all)
    }

    fn splits_by_shard(&self) -> bool {
        false
    }

    /// The done queue is kept with its runs.
    async fn prune_days(&self, _before_us: i64, _now_us: i64) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Each run goes after what the done queue has of it, some of either a transaction.
    async fn prune_shard(&self, shard: i32, before_us: i64) -> Result<(u64, u64), StoreError> {
        let at_once = u64::from(PRUNE_AT_ONCE);
        let mut all = (0, 0);
        loop {
            let prune = Self::run_tx(self, "prune_runs", move |connection| {
                let some = move |statement| {
                    sqlx::query(statement).bind(shard).bind(before_us).bind(i64::from(PRUNE_AT_ONCE))
                };
                async move {
                    let mut events = 0;
                    for statement in [sql!("prune_history"), sql!("prune_ended")] {
                        let gone = some(statement).execute(&mut *connection).await?.rows_affected();
                        events += gone;
                        if gone == at_once {
                            return Ok((events, 0));
                        }
                    }
                    Ok((events, some(both_sql!("prune_runs")).execute(connection).await?.rows_affected()))
                }
                .boxed()
            });
            let (events, runs) = prune.await?;
            all = (all.0 + events, all.1 + runs);
            if events < at_once && runs < at_once {
                return Ok(all);
            }
        }
    }

    async fn prune_specs(&self, shard: i32, before_us: i64) -> Result<u64, StoreError> {
        prune_table(self.clone(), "prune_specs", own_sql!("prune_specs"), Some(shard), before_us).await
    }

    async fn scrub(&self) -> Result<bool, StoreError> {
        let alone = self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if alone {
            self.judge(sqlx::query(sql!("scrub")).execute(&self.writer).await)?;
        }
        // The journal holds the old pages as well.
        let emptied = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&self.writer).await;
        self.judge(emptied).map(|_| alone)
    }
}
