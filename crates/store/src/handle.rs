//! Queue shards: leases, inboxes, runs and tokens.

use std::ops::Range;

use async_trait::async_trait;
use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, HistoryRow, ShardPause, ShardSchedule, TokenRow, Unstarted};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Policy, Run, RunId, RunSpec};
pub use tollgate_core::own::{Lease, Member};
use uuid::Uuid;

use crate::attempts::AttemptStore;
use crate::items::ItemStore;
use crate::layout::LayoutStore;
use crate::listing::ListingStore;
use crate::minutes::MinuteStore;
use crate::moves::MoveStore;
use crate::{CommitError, StoreError};

/// Everything that a shard's owner keeps in memory, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct LoadedShard {
    /// Its policies.
    pub policies: Vec<Policy>,
    /// Those of them that have been deleted, and when (wall clock).
    pub policies_deleted: Vec<(Uuid, i64)>,
    /// The schedules that it knows of.
    pub schedules: Vec<ShardSchedule>,
    /// Runs in the states WAITING and RUNNING.
    pub runs: Vec<Run>,
    /// Their tokens.
    pub batches: Vec<TokenBatch>,
    /// Their tokens that are in no batch.
    pub tokens: Vec<TokenRow>,
    /// Which of their events have not started, where they start theirs key by key.
    pub unstarted: Vec<Unstarted>,
    /// How many further tokens count against each policy: those of runs that cannot be read.
    pub counted: Vec<(Option<Uuid>, u32)>,
    /// Those runs.
    pub left_out: Vec<RunId>,
    /// The specs of the runs that can.
    pub specs: Vec<RunSpec>,
    /// The shard's own pause.
    pub pause: ShardPause,
}

/// Runs that no owner has taken in, as one read finds them.
#[derive(Clone, Debug, Default)]
pub struct UntakenRuns {
    /// Those that can be read.
    pub runs: Vec<Run>,
    /// Their specs, as far as they can be.
    pub specs: Vec<RunSpec>,
    /// How many rows there were, readable or not.
    pub rows: usize,
    /// The id of the last row that has one.
    pub last: Option<RunId>,
}

/// What became of a message that was to be posted under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is in the inbox.
    New,
    /// A message of the same id was there, and stays.
    ThereAlready,
    /// Nothing was posted: the shard has changed hands, or what the message is about has moved to another one.
    ElsewhereNow,
}

/// Messages of an inbox, as one read finds them.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    /// Those that can be read.
    pub messages: Vec<Message>,
    /// The ids of the others.
    pub unreadable: Vec<Uuid>,
    /// How many rows there were, readable or not.
    pub rows: usize,
}

/// The handler's part of a store. All but [`HandleStore::post`] and the reads go through the fence.
#[async_trait]
pub trait HandleStore:
    AttemptStore + MinuteStore + ItemStore + LayoutStore + ListingStore + MoveStore + Send + Sync
{
    /// All shards' rows, in order.
    async fn leases(&self) -> Result<Vec<Lease>, StoreError>;
    /// One shard's row. Not for heartbeats, nor in their way.
    async fn lease(&self, shard: u16) -> Result<Option<Lease>, StoreError>;
    /// Takes a shard over, if its row is still as `seen`. None if it is not.
    async fn take_shard(&self, seen: &Lease, owner: &str) -> Result<Option<Lease>, StoreError>;
    /// Gives a shard up at once (owner empty), if the lease is still ours.
    async fn give_up_shard(&self, lease: &Lease) -> Result<(), StoreError>;
    /// Reads all of a shard, after a takeover. Corrupt rows are passed over, and listed by
    /// [`EmitStore::corrupt_rows`](crate::emit::EmitStore::corrupt_rows).
    async fn load_shard(&self, shard: u16) -> Result<LoadedShard, StoreError>;
    /// Commits an owner's changes behind the fence: if the lease is still in the shard's row. After any error the owner takes
    /// the shard over from itself, for a fresh lease, before it commits again.
    ///
    /// # Errors
    /// See [`CommitError`] for what the caller must do.
    async fn commit(&self, lease: &Lease, changes: &Changes) -> Result<(), CommitError>;
    /// The shards, in order, with messages in their inboxes or runs in the state EMITTED with a launch time below
    /// `until_us`.
    async fn shards_with_news(&self, until_us: i64) -> Result<Vec<u16>, StoreError>;
    /// At most `limit` runs in the state EMITTED with a launch time within `launches_us`, oldest first, and their specs. Rows
    /// that cannot be read are marked UNREADABLE, so that they are in nobody's way.
    async fn emitted_runs(
        &self,
        shard: u16,
        launches_us: Range<i64>,
        limit: u32,
    ) -> Result<UntakenRuns, StoreError>;
    /// At most `limit` runs in the state UNREADABLE with ids above `after`, in the order of their ids, and their specs.
    async fn unreadable_runs(&self, shard: u16, after: RunId, limit: u32) -> Result<UntakenRuns, StoreError>;
    /// Runs by id, in any state.
    async fn runs(&self, shard: u16, ids: &[RunId]) -> Result<Vec<Run>, StoreError>;
    /// Specs by schedule and generation.
    async fn specs(&self, shard: u16, keys: &[(Uuid, i64)]) -> Result<Vec<RunSpec>, StoreError>;
    /// At most `limit` messages of a shard's inbox, the first ones by id that are not among `except`, and the ids of those
    /// that cannot be read.
    async fn inbox_except(&self, shard: u16, except: &[Uuid], limit: u32) -> Result<Inbox, StoreError>;
    /// Messages of a shard's inbox, the first ones by id, without those that cannot be read.
    async fn inbox(&self, shard: u16, limit: u32) -> Result<Vec<Message>, StoreError> {
        Ok(self.inbox_except(shard, &[], limit).await?.messages)
    }
    /// Puts messages into a shard's inbox; one that is there already stays.
    async fn post(&self, shard: u16, messages: &[Message]) -> Result<(), StoreError>;
    /// As [`HandleStore::post`] of one message, as long as the shard has not changed hands since `lease` was read, and the runs
    /// that it is about live in it: an owner that takes the shard over later finds it, and a run that moves later takes it along.
    async fn post_under(&self, lease: &Lease, message: &Message) -> Result<Posted, StoreError>;
    /// Dead events of a run: all, or those of `indexes`.
    async fn dead_events(
        &self,
        shard: u16,
        run: RunId,
        indexes: &[u32],
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError>;
    /// Registers a process or renews its heartbeat.
    async fn heartbeat(&self, member: &Member) -> Result<(), StoreError>;
    /// All registered processes.
    async fn members(&self) -> Result<Vec<Member>, StoreError>;
    /// Removes a process that has ended.
    async fn forget_member(&self, process: &str) -> Result<(), StoreError>;
}
