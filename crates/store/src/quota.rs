//! What quotas are measured by.

use async_trait::async_trait;

use crate::StoreError;

/// The part of a store that counts for quotas.
#[async_trait]
pub trait QuotaStore: Send + Sync {
    /// How many schedules a namespace has; stops counting at `up_to`.
    async fn schedules_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError>;
    /// How many events of a namespace's unfinished runs have not started, those included whose time has not come.
    async fn waiting_events(&self, namespace: &str) -> Result<u64, StoreError>;
}
