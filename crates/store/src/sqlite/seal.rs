//! Rows that hold secrets.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use futures::FutureExt as _;
use uuid::Uuid;

use super::Sqlite;
use crate::StoreError;
use crate::seal::{SealStore, StoredSchedule, StoredSpec};

#[async_trait]
impl SealStore for Sqlite {
    async fn stored_schedules(
        &self,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<StoredSchedule>, StoreError> {
        let query = sqlx::query_as::<_, (Uuid, String, String)>(sql!("schedules_stored"))
            .bind(after.unwrap_or_default())
            .bind(i64::from(limit));
        let rows = self.judge(query.fetch_all(&self.people).await)?;
        Ok(rows.into_iter().map(|(uid, spec, payload)| StoredSchedule { uid, spec, payload }).collect())
    }

    async fn stored_specs(
        &self,
        shard: u16,
        after: Option<(Uuid, i64)>,
        limit: u32,
    ) -> Result<Vec<StoredSpec>, StoreError> {
        let (uid, generation) = after.unwrap_or_default();
        let query = sqlx::query_as::<_, (Uuid, i64, String)>(sql!("specs_stored"))
            .bind(i32::from(shard))
            .bind(uid)
            .bind(generation)
            .bind(i64::from(limit));
        let rows = self.judge(query.fetch_all(&self.people).await)?;
        let stored = |(schedule_uid, generation, body)| StoredSpec { shard, schedule_uid, generation, body };
        Ok(rows.into_iter().map(stored).collect())
    }

    async fn replace_schedules(
        &self,
        rows: Vec<(StoredSchedule, StoredSchedule)>,
    ) -> Result<u64, StoreError> {
        let rows = Arc::new(rows);
        self.run_tx("replace_schedules", move |connection| {
            let rows = Arc::clone(&rows);
            async move {
                // What is replaced is overwritten, not only given up.
                sqlx::query("PRAGMA secure_delete = ON").execute(&mut *connection).await?;
                let mut replaced = 0;
                for (old, new) in rows.iter() {
                    let query = sqlx::query(sql!("schedules_replace"))
                        .bind(old.uid)
                        .bind(&new.spec)
                        .bind(&new.payload)
                        .bind(&old.spec)
                        .bind(&old.payload);
                    replaced += query.execute(&mut *connection).await?.rows_affected();
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn replace_specs(
        &self,
        shard: u16,
        rows: Vec<(StoredSpec, StoredSpec)>,
    ) -> Result<u64, StoreError> {
        let rows = Arc::new(rows);
        self.run_tx("replace_specs", move |connection| {
            let rows = Arc::clone(&rows);
            async move {
                // What is replaced is overwritten, not only given up.
                sqlx::query("PRAGMA secure_delete = ON").execute(&mut *connection).await?;
                let mut replaced = 0;
                for (old, new) in rows.iter() {
                    let query = sqlx::query(sql!("specs_replace"))
                        .bind(i32::from(shard))
                        .bind(old.schedule_uid)
                        .bind(old.generation)
                        .bind(&new.body)
                        .bind(&old.body);
                    replaced += query.execute(&mut *connection).await?.rows_affected();
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn stored_installation(&self) -> Result<(Uuid, Vec<u8>), StoreError> {
        let row = sqlx::query_as::<_, (Uuid, Vec<u8>, i32)>(sql!("installation_read"));
        self.judge(row.fetch_one(&self.readers).await).map(|(id, secret, _)| (id, secret))
    }

    async fn replace_installation_secret(&self, old: &[u8], new: &[u8]) -> Result<bool, StoreError> {
        let (old, new) = (old.to_vec(), new.to_vec());
        self.run_tx("replace_installation_secret", move |connection| {
            let query = sqlx::query(sql!("installation_seal")).bind(old.clone()).bind(new.clone());
            async move {
                // What is replaced is overwritten, not only given up.
                sqlx::query("PRAGMA secure_delete = ON").execute(&mut *connection).await?;
                Ok(query.execute(connection).await?.rows_affected() == 1)
            }
            .boxed()
        })
        .await
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
