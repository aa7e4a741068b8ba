//! Counts for quotas.

use async_trait::async_trait;

use super::Sqlite;
use crate::StoreError;
use crate::quota::QuotaStore;
use crate::rows::json;

#[async_trait]
impl QuotaStore for Sqlite {
    async fn schedules_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar::<_, i64>(sql!("schedules_count"))
            .bind(namespace)
            .bind(i64::try_from(up_to).unwrap_or(i64::MAX));
        let count = self.judge(query.fetch_one(&self.people).await)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    async fn waiting_events(&self, namespace: &str) -> Result<u64, StoreError> {
        let shards: Vec<i32> = (0..i32::from(self.installation.shards)).collect();
        let query = sqlx::query_scalar::<_, i64>(sql!("runs_waiting")).bind(namespace).bind(json(&shards)?);
        let count = self.judge(query.fetch_one(&self.people).await)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }
}
