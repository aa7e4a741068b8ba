//! What the Event Handler answers people from, beside its queue shards: what has ended, and names.
//!
//! Invariant: there is no schedule to be had here, only its uid; so a role that holds a store as [`LookUpStore`],
//! or an owner, who holds it as [`HandleStore`], cannot read one.

use async_trait::async_trait;
use tollgate_core::model::Policy;
use uuid::Uuid;

use crate::alert::AlertStore;
use crate::emit::EmitStore;
use crate::handle::HandleStore;
use crate::history::HistoryStore;
use crate::plan::{Audit, PlanStore, PlanWrite};
use crate::{CorruptRow, StoreError};

/// The part of a store for the handler's answers to people, and to consumers whose releases go past an owner.
#[async_trait]
pub trait LookUpStore: HandleStore + HistoryStore + AlertStore {
    /// The uid of a schedule, by namespace and id.
    async fn schedule_uid(&self, namespace: &str, id: &str) -> Result<Option<Uuid>, StoreError>;
    /// A policy by namespace and id.
    async fn policy_by_name(&self, namespace: &str, id: &str) -> Result<Option<Policy>, StoreError>;
    /// Adds an entry to the audit log.
    async fn note(&self, entry: Audit) -> Result<(), StoreError>;
    /// Up to where everything that falls due has been emitted; none before the first window.
    async fn emitted_until_us(&self) -> Result<Option<i64>, StoreError>;
    /// As [`EmitStore::corrupt_rows`].
    fn rows_passed_over(&self) -> Vec<CorruptRow>;
}

#[async_trait]
impl<S: HandleStore + HistoryStore + AlertStore + PlanStore + EmitStore> LookUpStore for S {
    async fn schedule_uid(&self, namespace: &str, id: &str) -> Result<Option<Uuid>, StoreError> {
        Ok(self.schedule(namespace, id).await?.map(|schedule| schedule.uid))
    }

    async fn policy_by_name(&self, namespace: &str, id: &str) -> Result<Option<Policy>, StoreError> {
        self.policy(namespace, id).await
    }

    async fn note(&self, entry: Audit) -> Result<(), StoreError> {
        self.write_plan(vec![PlanWrite::Note { audit: entry }]).await
    }

    async fn emitted_until_us(&self) -> Result<Option<i64>, StoreError> {
        match self.frontier().await?.completed_until_us {
            Some(until_us) => Ok(Some(until_us)),
            // Nothing before the first window is due to anybody.
            None => Ok(self.windows(0).await?.first().map(|row| row.window.start_us)),
        }
    }

    fn rows_passed_over(&self) -> Vec<CorruptRow> {
        self.corrupt_rows()
    }
}
