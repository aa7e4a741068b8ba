//! What holds secrets, row by row: for bringing all of it under another key.
//!
//! A row is replaced only as long as it is as it was read, so that this goes on beside everything else: who changes a
//! schedule meanwhile seals it under its own first key, and the row is read again. Not here: keys.

use async_trait::async_trait;
use tollgate_core::model::{Payload, RunId, Target};
use uuid::Uuid;

use crate::StoreError;
use crate::rows::{self, read_schedule, read_spec, stored_items, take_payload, with_payload};

/// A schedule as it stands in its row.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSchedule {
    /// Its key.
    pub uid: Uuid,
    pub(crate) spec: String,
    pub(crate) payload: String,
    pub(crate) items: String,
}

/// A run spec as it stands in its row.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSpec {
    /// The queue shard.
    pub shard: u16,
    /// The schedule.
    pub schedule_uid: Uuid,
    /// The schedule's generation.
    pub generation: i64,
    pub(crate) body: String,
}

/// What all events of a submitted run carry, as it stands in its row.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredItemRun {
    /// The run.
    pub run: RunId,
    /// Its schedule.
    pub schedule_uid: Uuid,
    /// The text; may be empty.
    pub payload: String,
}

/// The result of an event as it stands in its row.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// The text.
    pub body: String,
}

impl StoredSchedule {
    /// The same row after `change` of its secret parts.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a row that cannot be read.
    pub fn with<T>(
        &self,
        change: impl FnOnce(&mut Target, &mut Payload) -> T,
    ) -> Result<(Self, T), StoreError> {
        let schedule = read_schedule(self.uid, &self.spec)?;
        let mut schedule = with_payload(schedule, self.payload.clone(), &self.items);
        let done = change(&mut schedule.target, &mut schedule.payload);
        let items = stored_items(schedule.generation, &schedule.payload);
        let payload = take_payload(&mut schedule).json;
        Ok((Self { uid: self.uid, spec: rows::json(&schedule)?, payload, items }, done))
    }
}

impl StoredSpec {
    /// The same row after `change` of its secret parts.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a row that cannot be read.
    pub fn with<T>(
        &self,
        change: impl FnOnce(&mut Target, &mut Payload) -> T,
    ) -> Result<(Self, T), StoreError> {
        let mut spec = read_spec(self.schedule_uid, self.generation, &self.body)?;
        let done = change(&mut spec.target, &mut spec.payload);
        Ok((Self { body: rows::json(&spec)?, ..self.clone() }, done))
    }
}

/// The part of a store that holds secrets.
#[async_trait]
pub trait SealStore: Send + Sync {
    /// Schedules of all namespaces in the order of their uids, from after `after` on.
    async fn stored_schedules(
        &self,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<StoredSchedule>, StoreError>;
    /// Run specs of a shard in the order of their keys, from after `after` on.
    async fn stored_specs(
        &self,
        shard: u16,
        after: Option<(Uuid, i64)>,
        limit: u32,
    ) -> Result<Vec<StoredSpec>, StoreError>;
    /// Replaces rows that are as the first of each pair says, in one transaction; answers how many were.
    async fn replace_schedules(&self, rows: Vec<(StoredSchedule, StoredSchedule)>)
    -> Result<u64, StoreError>;
    /// As [`SealStore::replace_schedules`], for rows of one shard.
    async fn replace_specs(&self, shard: u16, rows: Vec<(StoredSpec, StoredSpec)>)
    -> Result<u64, StoreError>;
    /// Runs with items of a shard in the order of their ids, from after `after` on.
    async fn stored_item_runs(
        &self,
        shard: u16,
        after: RunId,
        limit: u32,
    ) -> Result<Vec<StoredItemRun>, StoreError>;
    /// The texts of a run's pages as they stand, each with its first index, from after `after` on.
    async fn stored_item_pages(
        &self,
        shard: u16,
        run: RunId,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, StoreError>;
    /// Replaces what a run carries, where it is as the first text of each says: the text of the page that begins with an
    /// index, or what all its events have in common. Answers how much was replaced.
    async fn replace_items(
        &self,
        shard: u16,
        run: RunId,
        texts: Vec<(Option<u32>, String, String)>,
    ) -> Result<u64, StoreError>;
    /// Results of a shard as they stand, in the order of their keys, from after `after` on.
    async fn stored_results(
        &self,
        shard: u16,
        after: Option<(RunId, u32)>,
        limit: u32,
    ) -> Result<Vec<StoredResult>, StoreError>;
    /// Replaces results whose texts are as the first of each pair says, of one shard; answers how many were.
    async fn replace_results(&self, shard: u16, rows: Vec<(StoredResult, String)>)
    -> Result<u64, StoreError>;
    /// The installation's id, and its secret as it is stored now.
    async fn stored_installation(&self) -> Result<(Uuid, Vec<u8>), StoreError>;
    /// Replaces the installation's secret as it is stored, which is as `old` says; answers whether it was.
    async fn replace_installation_secret(&self, old: &[u8], new: &[u8]) -> Result<bool, StoreError>;
    /// Has the database let go of what was replaced, as far as it can, and answers whether nothing of it is left: SQLite
    /// rewrites its file, unless another process has it open.
    async fn scrub(&self) -> Result<bool, StoreError>;
}
