//! Alerts, and what is remembered of them.
//!
//! Alerts are written with everything else that is planned ([`crate::plan`]); what is remembered of them is written by whoever
//! decides for them, and by nobody who has read an older version of it. Schedules are not to be had here: only which of some have
//! certain labels.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::alert::State;
use tollgate_core::model::{Alert, Run, RunId};
use uuid::Uuid;

use crate::StoreError;
use crate::plan::Filter;

/// What is remembered of an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// The alert's uid.
    pub alert: Uuid,
    /// Grows by one with each write; 0 before the first.
    pub version: i64,
    /// All of it.
    pub state: State,
}

/// The part of a store for alerts.
#[async_trait]
pub trait AlertStore: Send + Sync {
    /// One alert by namespace and id.
    async fn alert(&self, namespace: &str, id: &str) -> Result<Option<Alert>, StoreError>;
    /// Many alerts of a namespace by id; those that do not exist are left out.
    async fn alerts(&self, namespace: &str, ids: &[String]) -> Result<Vec<Alert>, StoreError>;
    /// Alerts in the order of their ids, from after `after_id` on. Those that are paused are those that are disabled.
    async fn list_alerts(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Alert>, StoreError>;
    /// How many alerts a namespace has; stops counting at `up_to`.
    async fn alerts_count(&self, namespace: &str, up_to: u64) -> Result<u64, StoreError>;
    /// Alerts of all namespaces in the order of their uids, from after `after` on; those that cannot be read are left out, and
    /// the last uid is that of the last row, read or not; none where nothing follows.
    async fn every_alert(
        &self,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<(Vec<Alert>, Option<Uuid>), StoreError>;
    /// A number that grows with each change of any alert.
    async fn alerts_mark(&self) -> Result<i64, StoreError>;
    /// Replaces an alert that is as `old` says; answers whether it was. Only how its secrets are stored may differ.
    async fn replace_alert(&self, old: &Alert, new: &Alert) -> Result<bool, StoreError>;
    /// What is remembered of these alerts; of those that are not among the answers, nothing. What cannot be read
    /// begins anew, from
    /// the version that is stored, and says so as its error.
    async fn alert_states(&self, alerts: &[Uuid]) -> Result<Vec<Remembered>, StoreError>;
    /// Writes what is to be remembered of an alert, in place of the version that was read. Answers false, and writes nothing,
    /// where somebody has written meanwhile, or the alert has gone.
    async fn write_alert_state(&self, remembered: &Remembered) -> Result<bool, StoreError>;
    /// Of these schedules (ids) of a namespace those that have all these labels.
    async fn schedules_labelled(
        &self,
        namespace: &str,
        ids: &[String],
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, StoreError>;
    /// Runs of a shard, and of these namespaces, that have finished at or after `since_us`, earliest first, after run `after` of
    /// that very moment. A run that cannot be read is left out; the place is that of the last row, read or not, and none where
    /// nothing follows.
    async fn runs_finished(
        &self,
        shard: u16,
        namespaces: &[String],
        since: (i64, Option<RunId>),
        limit: u32,
    ) -> Result<FinishedPage, StoreError>;
}

/// Runs that have finished, and the place from after which more of them follow.
pub type FinishedPage = (Vec<Run>, Option<(i64, RunId)>);
