//! Runs whose items are fetched before they are handed to their owners.
//!
//! Invariants: whatever is written of such a run is written under the lease of its shard, so that of two processes one writes;
//! what changes its state does so only where it still waits for its items, in the generation that the caller has seen; its owner
//! takes it in with all of its items, or not at all.

use async_trait::async_trait;
use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::Message;
use tollgate_core::items::ItemPage;
use tollgate_core::model::{Run, Skipped};
use tollgate_core::own::Lease;
use uuid::Uuid;

use crate::StoreError;
use crate::items::ItemRun;

/// What became of a write that holds only under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written.
    Done,
    /// Nothing is written: the run does not wait for its items any more, or is of another generation by now.
    NotWaiting,
    /// Nothing is written: the shard has changed hands.
    ElsewhereNow,
}

/// Which runs are looked for.
#[derive(Clone, Debug)]
pub struct ListingFilter {
    /// Of these shards.
    pub shards: Vec<u16>,
    /// With a launch time up to here.
    pub until_us: i64,
    /// Not these.
    pub except: Vec<Uuid>,
    /// So many of a namespace at most.
    pub each_max: u32,
    /// So many in all.
    pub limit: u32,
}

/// The part of a store for runs whose items are fetched.
#[async_trait]
pub trait ListingStore: Send + Sync {
    /// Runs that wait for their items: the next of each schedule first. Those that cannot be read are passed over.
    async fn listing_runs(&self, filter: ListingFilter) -> Result<Vec<Run>, StoreError>;
    /// What a shard knows of a schedule.
    async fn shard_schedule(&self, shard: u16, uid: Uuid) -> Result<Option<ShardSchedule>, StoreError>;
    /// Removes whatever has been fetched for a run, in parts, and notes what all of its events will carry.
    async fn begin_list(
        &self,
        lease: &Lease,
        run: &Run,
        carries: ItemRun,
        now_us: i64,
    ) -> Result<Written, StoreError>;
    /// Adds pages whose texts are as they are to be stored.
    async fn add_list_pages(
        &self,
        lease: &Lease,
        run: &Run,
        pages: Vec<ItemPage>,
    ) -> Result<Written, StoreError>;
    /// Hands a run over to its owner with so many events, whose items are all in pages, and with the most units that one of these
    /// says; with none it is for the owner to judge whether it is a run.
    async fn hand_over_listed(
        &self,
        lease: &Lease,
        run: &Run,
        events: u32,
        units_max: u32,
    ) -> Result<Written, StoreError>;
    /// Notes why its items could not be fetched as yet.
    async fn list_failed(&self, lease: &Lease, run: &Run, reason: &str) -> Result<Written, StoreError>;
    /// Its items are not fetched any more: the run ends, and the trigger is recorded as skipped; what is to be done about the end
    /// waits in the inbox of its shard.
    async fn give_up_list(
        &self,
        lease: &Lease,
        run: &Run,
        skipped: &Skipped,
        reason: &str,
        end: Option<Message>,
    ) -> Result<Written, StoreError>;
    /// Removes what has been fetched for a run that has ended without it.
    async fn drop_list(&self, lease: &Lease, run: &Run) -> Result<Written, StoreError>;
}
