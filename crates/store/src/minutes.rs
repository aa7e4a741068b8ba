//! What became of events by the minute: written by owners, read for people.

use std::ops::Range;

use async_trait::async_trait;
use tollgate_core::model::{DAY_US, MinuteCounts, MinuteRow};
use uuid::Uuid;

use crate::StoreError;

/// Minutes that began so long ago become hours.
pub const HOURS_AFTER_US: i64 = 2 * DAY_US;

/// Whose minutes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Of a policy.
    Policy(Uuid),
    /// Of a namespace, with what has no policy.
    Namespace(String),
    /// All.
    All,
}

/// The part of a store that keeps what became of events by the minute.
#[async_trait]
pub trait MinuteStore: Send + Sync {
    /// Keeps what owners have counted: a row that is there becomes what it is now. It needs no lease: each owner counts
    /// in rows of its own, and only what is durable.
    async fn put_minutes(&self, rows: &[MinuteRow]) -> Result<(), StoreError>;
    /// Up to when what fell due in a shard has been counted, where that is after `since_us`.
    async fn minutes_until_us(&self, shard: u16, since_us: i64) -> Result<Option<i64>, StoreError>;
    /// The counts of minutes that begin within `range_us`, added up by steps, which begin at multiples of `step_us`.
    /// Steps of which there is nothing are left out. Hours ([`HOURS_AFTER_US`]) count where they begin.
    async fn minutes(
        &self,
        whose: &Whose,
        range_us: Range<i64>,
        step_us: i64,
    ) -> Result<Vec<(i64, MinuteCounts)>, StoreError>;
}
