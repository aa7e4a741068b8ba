//! What the events of submitted runs carry, and the submissions that bring it.
//!
//! Pages come before their run, and nothing reads them until it has been made. Invariants: of two who add to one submission, one
//! does; what belongs to no run and no submission any more is removed.

use async_trait::async_trait;
use tollgate_core::items::{ItemPage, ItemsDigest};
use tollgate_core::model::RunId;
use uuid::Uuid;

use crate::StoreError;

/// A submission as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSubmission {
    /// The schedule.
    pub schedule_uid: Uuid,
    /// Unique within the schedule.
    pub request_id: String,
    /// Where its run is, or will be.
    pub shard: u16,
    /// Its run, made or not.
    pub run: RunId,
    /// When that falls due.
    pub launch_us: i64,
    /// What was asked for, as JSON.
    pub asked: String,
    /// When it began.
    pub created_us: i64,
    /// How many items are in pages.
    pub items: u32,
    /// Of those pages.
    pub digest: ItemsDigest,
    /// The most units that one of those items says.
    pub units_max: u32,
    /// When its run was made.
    pub made_us: Option<i64>,
}

/// What all events of a submitted run have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRun {
    /// The schedule: what is sealed is bound to it.
    pub schedule_uid: Uuid,
    /// JSON, or an envelope; may be empty.
    pub payload: String,
}

/// A submission's part of the store.
#[async_trait]
pub trait SubmissionStore: Send + Sync {
    /// A submission by its request id.
    async fn submission(
        &self,
        schedule_uid: Uuid,
        request_id: &str,
    ) -> Result<Option<StoredSubmission>, StoreError>;
    /// Begins a submission without items, whose run carries this payload. Answers false, and writes nothing, where there is one
    /// of this request id, or of this run.
    async fn begin_submission(&self, begun: &StoredSubmission, payload: &str) -> Result<bool, StoreError>;
    /// Adds pages whose texts are as they are to be stored. `to`: how many items there are with these, their digest, and the most
    /// units that one of them says. Answers false, and writes nothing, where the submission is not as `seen` any more.
    async fn add_item_pages(
        &self,
        seen: &StoredSubmission,
        pages: Vec<ItemPage>,
        to: (u32, ItemsDigest, u32),
        now_us: i64,
    ) -> Result<bool, StoreError>;
    /// Its run has been made.
    async fn submission_made(&self, made: &StoredSubmission, now_us: i64) -> Result<(), StoreError>;
}

/// What events carry, for those who deliver and show it.
#[async_trait]
pub trait ItemStore: Send + Sync {
    /// What all events of a run have in common; none where it has no items.
    async fn item_run(&self, shard: u16, run: RunId) -> Result<Option<ItemRun>, StoreError>;
    /// The page that holds an index, its text as it is stored.
    async fn item_page(&self, shard: u16, run: RunId, index: u32) -> Result<Option<ItemPage>, StoreError>;
    /// Pages of a run, without their texts, from the one that holds an index on.
    async fn item_page_keys(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<ItemPage>, StoreError>;
    /// Results of a run from an index on, as they are stored, by ascending index.
    async fn results(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, StoreError>;
}
