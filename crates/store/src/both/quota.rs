//! Counts for quotas.

use async_trait::async_trait;

use super::{Ask, Driver, Whom, only, sql};
use crate::StoreError;
use crate::layout::LayoutStore as _;
use crate::quota::QuotaStore;

#[async_trait]
impl<D: Driver> QuotaStore for D {
    async fn schedules_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError> {
        let ask =
            Ask::new(sql!("schedules_count")).bind(namespace).bind(i64::try_from(up_to).unwrap_or(i64::MAX));
        let (count,): (i64,) = only(self.rows(Whom::People, ask).await?)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    async fn waiting_events(&self, namespace: &str) -> Result<u64, StoreError> {
        let shards: Vec<i32> = (0..i32::from(self.read_shards().await?)).collect();
        // Planned at every call: an index that begins with the shard is right only for few unfinished runs.
        let ask = Ask::new(sql!("runs_waiting")).anew().bind(namespace).set(&shards)?;
        let (count,): (i64,) = only(self.rows(Whom::People, ask).await?)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }
}
