//! Counts for quotas.

use async_trait::async_trait;

use super::Postgres;
use crate::StoreError;
use crate::quota::QuotaStore;

#[async_trait]
impl QuotaStore for Postgres {
    async fn schedules_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar::<_, i64>(sql!("schedules_count"))
            .bind(namespace.to_owned())
            .bind(i64::try_from(up_to).unwrap_or(i64::MAX));
        let count = self.people.ask(move |connection| Box::pin(query.fetch_one(connection))).await;
        Ok(u64::try_from(self.people.judge(count)?).unwrap_or_default())
    }

    async fn waiting_events(&self, namespace: &str) -> Result<u64, StoreError> {
        let shards: Vec<i32> = (0..i32::from(self.installation.shards)).collect();
        // Planned at every call: an index that begins with the shard is right only for few unfinished runs.
        let query = sqlx::query_scalar::<_, i64>(sql!("runs_waiting"))
            .persistent(false)
            .bind(namespace.to_owned())
            .bind(shards);
        let count = self.people.ask(move |connection| Box::pin(query.fetch_one(connection))).await;
        Ok(u64::try_from(self.people.judge(count)?).unwrap_or_default())
    }
}
