//! Calendars, and which schedules go by them: what the Schedule Master reads of them. It writes them by
//! [`PlanStore::write_plan`](crate::plan::PlanStore::write_plan).

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::model::{Calendar, Schedule};
use uuid::Uuid;

use crate::StoreError;
use crate::plan::{Audit, Filter};

/// A schedule that gets the new dates of a calendar. Nothing else of it changes, its children neither: they know no dates.
#[derive(Clone, Debug)]
pub struct CalendarUser {
    /// As it shall be; its generation is the new one.
    pub schedule: Box<Schedule>,
    /// The generation that it replaces.
    pub expected_generation: i64,
    /// The queue shard that owns its runs: gets the new generation's run spec.
    pub shard: u16,
    /// Who changed what.
    pub audit: Audit,
}

/// The part of a store for calendars.
#[async_trait]
pub trait CalendarStore: Send + Sync {
    /// One calendar by namespace and id.
    async fn calendar(&self, namespace: &str, id: &str) -> Result<Option<Calendar>, StoreError>;
    /// Many calendars of a namespace by id; those that do not exist are left out.
    async fn calendars(&self, namespace: &str, ids: &[String]) -> Result<Vec<Calendar>, StoreError>;
    /// Calendars in the order of their ids, from after `after_id` on.
    async fn list_calendars(
        &self,
        namespace: &str,
        filter: &Filter,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Calendar>, StoreError>;
    /// How many schedules go by each of these calendars; one that none goes by has no entry.
    async fn calendars_used(&self, calendars: &[Uuid]) -> Result<BTreeMap<Uuid, u64>, StoreError>;
    /// The ids of schedules that go by a calendar, in their order, from after `after_id` on.
    async fn calendar_users(
        &self,
        calendar: Uuid,
        after_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<String>, StoreError>;
}
