//! What lives in one queue shard and belongs into another one, since their number was changed: which that is, its move, and where
//! it is afterwards.
//!
//! In: a shard's lease, and what is to go. Out: one transaction that holds both shards, and moves a tree of policies, or a
//! schedule without a policy, with its runs, their tokens, items and history. Invariants: what has gone leaves word in the shard
//! that it left, as long as history is kept; a run that has ended stays where it is; nothing goes of which some is still on its
//! way to its shard.
//! Not here: who asks for it, and what an owner does before and after (the Event Handler).

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use tollgate_core::handle::control::{Message, UnderWay};
use tollgate_core::model::RunId;
use uuid::Uuid;

use crate::StoreError;
use crate::handle::Lease;

/// The migration of the first version that knows that something may have moved.
pub(crate) const WITH_MOVES: i64 = 35;

/// A run of which more events have ended stays where it is until it has ended, and is not tried again elsewhere: their history
/// would go with it, and policies would wait.
pub const ENDED_MAX: u32 = 20_000;

/// What moves as a whole: a tree of policies with its schedules, or one schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resident {
    /// Where it belongs.
    pub to: u16,
    /// Of the policy at its top, or of the schedule.
    pub uid: Uuid,
    /// What it is.
    pub kind: ResidentKind,
}

/// What a [`Resident`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResidentKind {
    /// A tree of policies, with all schedules under them.
    Tree,
    /// A schedule without a policy.
    Free,
    /// A schedule whose policy has moved, and that somebody has written meanwhile who did not know.
    LeftBehind,
}

/// What has moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many residents.
    pub residents: usize,
    /// Their runs that had not ended, and where they are.
    pub runs: BTreeMap<RunId, u16>,
    /// The shards that have got something.
    pub to: Vec<u16>,
}

/// What has come to a shard for something that has gone from it.
#[derive(Clone, Debug, Default)]
pub struct Stray {
    /// Runs.
    pub runs: Vec<RunId>,
    /// The schedules of which these and the messages are.
    pub schedules: BTreeSet<Uuid>,
    /// Messages, as the other shard is to have them.
    pub messages: Vec<Message>,
    /// Parts of messages that stay.
    pub parts: Vec<Message>,
}

impl Stray {
    /// A run of a schedule is handed on.
    pub fn add(&mut self, run: RunId, schedule: Uuid) {
        self.runs.push(run);
        self.schedules.insert(schedule);
    }
}

/// The part of a store that moves what lives in one queue shard to another one.
#[async_trait]
pub trait MoveStore: Send + Sync {
    /// What belongs into another shard, by the shard in which it lives: of each at most `limit`. Nothing as long as nobody has
    /// said how many shards are used.
    async fn residents_to_move(&self, limit: usize) -> Result<BTreeMap<u16, Vec<Resident>>, StoreError>;
    /// Moves these residents, as far as they still live in the lease's shard and may go now, by a transaction for each shard to
    /// which some go. `under_way`: deliveries whose answers are waited for; those of runs that move are told to the shard that
    /// gets them. None where the lease is another one by now, once that has been found.
    async fn move_residents(
        &self,
        lease: &Lease,
        residents: &[Resident],
        under_way: &[UnderWay],
        now_us: i64,
    ) -> Result<Option<Moved>, StoreError>;
    /// Which policies and schedules have gone from a shard, and where.
    async fn moved_homes(&self, shard: u16) -> Result<BTreeMap<Uuid, u16>, StoreError>;
    /// Where those of some runs are that have gone from a shard.
    async fn moved_runs(&self, shard: u16, runs: &[RunId]) -> Result<BTreeMap<RunId, u16>, StoreError>;
    /// Hands on to another shard what has come to the lease's for what has gone, in one transaction: the messages go from the
    /// inbox. Nothing is done where the lease is another one by now.
    async fn hand_on(&self, lease: &Lease, to: u16, stray: Stray, now_us: i64) -> Result<(), StoreError>;
}
