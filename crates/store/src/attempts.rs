//! What became of deliveries: written by handlers beside their commits, read for people.

use async_trait::async_trait;
use tollgate_core::model::{RunId, Sent};

use crate::StoreError;

/// How many attempts of one event are kept, the latest.
pub const ATTEMPTS_KEPT: u32 = 32;

/// One delivery of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// The delivery's number, from 1.
    pub attempt: u32,
    /// When it began (wall clock).
    pub start_us: i64,
    /// How long the answer took, in microseconds.
    pub took_us: i64,
    /// What became of it.
    pub sent: Sent,
}

/// The part of a store that keeps what became of deliveries.
#[async_trait]
pub trait AttemptStore: Send + Sync {
    /// Keeps attempts; one that is there is written again. It needs no lease: nothing is decided by them.
    async fn put_attempts(&self, rows: &[AttemptRow]) -> Result<(), StoreError>;
    /// The latest attempts of an event, earliest first; at most [`ATTEMPTS_KEPT`].
    async fn attempts(&self, run: RunId, index: u32) -> Result<Vec<AttemptRow>, StoreError>;
}
