//! What the machine of a shard and its driver give each other.
//!
//! In: how it is tuned, what the store knew, what was read for a message. Out: what to write, what to do once that is
//! durable, when to come back, what to read first. Not here: what is said of it in between.

use std::sync::Arc;

use uuid::Uuid;

use super::batch::TokenBatch;
use super::change::{Changes, HistoryRow, ShardPause, ShardSchedule, TokenRow, Unstarted};
use super::release::Answer;
use crate::model::{ItemsIn, Now, Policy, Predecessor, PullTarget, Run, RunEnd, RunId, RunSpec};

/// Tuning of the machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Deliveries under way at once, per shard, where no `max_in_flight` bounds them.
    pub sends_max: u32,
    /// The most events of a run that wait for another attempt before it starts no new ones.
    pub retrying_max: u32,
    /// How long a change that nobody waits for may wait for others to be committed with it, in microseconds.
    pub lazy_us: i64,
    /// How long before its launch time a run may take its tokens at the latest, in microseconds: longer than most commits take,
    /// so that what they allow waits for the launch time and not for them. It takes them up to `lazy_us` sooner, so that
    /// several do so in one commit. Nothing is sent before its time. 0: a run takes them at its launch time.
    pub early_us: i64,
    /// In how many ranges, of neighbours of one key, events may stand that are sorted by key, in a shard: with more, no further
    /// keys are read.
    pub sorted_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { sends_max: 1024, retrying_max: 1000, lazy_us: 20_000, early_us: 8_000, sorted_max: 1_000_000 }
    }
}

impl Options {
    /// Until when (monotonic) a change of this moment may wait for others: the next tick of a grid that all shards share, so
    /// that their commits go together.
    pub(super) fn lazy_until_us(&self, now: Now) -> i64 {
        let pace_us = self.lazy_us.max(1);
        now.mono_us + pace_us - now.wall_us.rem_euclid(pace_us)
    }

    /// From when on what falls due then may take its tokens: the last tick of the same grid that is soon enough.
    pub(super) fn early_at_us(&self, due_us: i64) -> i64 {
        let pace_us = self.lazy_us.max(1);
        if self.early_us == 0 { due_us } else { (due_us - self.early_us).div_euclid(pace_us) * pace_us }
    }
}

/// What the store knew of the shard when it was taken over.
#[derive(Clone, Debug, Default)]
pub struct ShardState {
    /// Its policies.
    pub policies: Vec<Policy>,
    /// Those of them that have been deleted, and when (wall clock).
    pub policies_deleted: Vec<(Uuid, i64)>,
    /// Its schedules.
    pub schedules: Vec<ShardSchedule>,
    /// Runs in the states WAITING and RUNNING. One without its spec is passed over, and its tokens count.
    pub runs: Vec<Run>,
    /// Their tokens in batches.
    pub batches: Vec<TokenBatch>,
    /// Their other tokens.
    pub tokens: Vec<TokenRow>,
    /// Which of their events have not started, where runs start theirs key by key.
    pub unstarted: Vec<Unstarted>,
    /// How many further tokens count against each policy: those of runs that cannot be read. They are never freed.
    pub counted: Vec<(Option<Uuid>, u32)>,
    /// Those runs. What is recorded of their events waits in the inbox.
    pub left_out: Vec<RunId>,
    /// The specs of the runs that are there.
    pub specs: Vec<RunSpec>,
    /// The shard's pause.
    pub pause: ShardPause,
    /// Up to when a former owner has counted what fell due, as far as that is known.
    pub counted_until_us: Option<i64>,
}

/// One delivery to make.
#[derive(Clone, Debug)]
pub struct Send {
    /// The run.
    pub run: RunId,
    /// The queue shard that its name and those of its events have.
    pub named_shard: u16,
    /// The event's index.
    pub index: u32,
    /// The attempt, already committed.
    pub attempt: u32,
    /// How many events the run has.
    pub events: u32,
    /// The event's own launch time.
    pub launch_us: i64,
    /// How often its consumer has asked for the event to come again.
    pub checks: u32,
    /// From an earlier run of the schedule; the latest one where the event has come again.
    pub cursor: Option<String>,
    /// The run of which the end made this one.
    pub predecessor: Option<Box<Predecessor>>,
    /// Whether the consumer must release.
    pub explicit_release: bool,
    /// Schedule, target, payload.
    pub spec: Arc<RunSpec>,
    /// Where its item is: data of its own.
    pub item_in: ItemsIn,
    /// Of whose room it takes some, where workers pull it.
    pub pulled: Option<Pulled>,
}

/// A delivery for which a worker has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Stands for the queue, and what is required: see [`RoomAsk`](super::RoomAsk).
    pub pool: u128,
    /// For how long its worker may be silent until its token is taken back, or could be, in milliseconds.
    pub silence_ms: i64,
    /// For how long it may be until it is under suspicion, where its token is taken back some time.
    pub token_ttl_ms: Option<i64>,
}

/// An event that holds a token, of a target from which workers take events themselves.
#[derive(Clone, Copy, Debug)]
pub struct PulledEvent<'s> {
    /// Its namespace.
    pub namespace: &'s str,
    /// Its queue, and what it requires.
    pub target: &'s PullTarget,
    /// The queue shard that its id names.
    pub named_shard: u16,
    /// The attempt in flight.
    pub attempt: u32,
    /// For how long its worker may be silent until its token is taken back, or could be, in milliseconds.
    pub silence_ms: i64,
}

/// A page of items of which the machine needs the keys: [`Shard::keys_read`](super::Shard::keys_read) answers.
#[derive(Clone, Debug)]
pub struct KeysWanted {
    /// The run.
    pub run: RunId,
    /// An index in the page.
    pub index: u32,
    /// Its spec, which has the items where `item_in` says so.
    pub spec: Arc<RunSpec>,
    /// Where its items are.
    pub item_in: ItemsIn,
}

/// What to do once a commit is durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Deliver an event.
    Send(Send),
    /// Answer a release or heartbeat.
    Reply {
        /// The number that came with the request.
        reply: u64,
        /// The answer.
        answer: Answer,
    },
    /// Launch the run that follows the end of another one; then say so: [`Shard::followed`](super::Shard::followed).
    Follow {
        /// The message that says so.
        message: Uuid,
        /// The end.
        end: RunEnd,
    },
}

impl Effect {
    /// The event that it delivers.
    pub(super) fn delivers(&self) -> Option<(RunId, u32)> {
        match self {
            Self::Send(send) => Some((send.run, send.index)),
            Self::Reply { .. } | Self::Follow { .. } => None,
        }
    }
}

/// What to write, in one fenced transaction.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The rows.
    pub changes: Changes,
}

/// When the machine wants to be polled again, at the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline {
    /// By the wall clock.
    pub wall_us: Option<i64>,
    /// By the monotonic clock.
    pub mono_us: Option<i64>,
    /// When to ask for [`Shard::due`](super::Shard::due), by the wall clock, also while a commit is under way.
    pub due_us: Option<i64>,
}

/// What the driver must read before it hands a message over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageNeeds {
    /// Specs by schedule and generation.
    pub specs: Vec<(Uuid, i64)>,
    /// Runs by id.
    pub runs: Vec<RunId>,
    /// Dead events of a run (all where no index is named).
    pub dead: Option<(RunId, Vec<u32>)>,
}

/// The run that follows an end, for the owner of the shard in which it lives.
#[derive(Clone, Debug)]
pub struct Following {
    /// The run, as one that is handed over: EMITTED.
    pub run: Run,
    /// What it is made of.
    pub spec: RunSpec,
}

/// What has become of a [`Following`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenUp {
    /// The run is made by the next commit.
    Made,
    /// It is there already, or nobody waits for it any more.
    Known,
    /// The look that it had not been launched is too long ago: it is to be launched as any other.
    Outdated,
}

/// What the driver read for a message.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Specs that [`MessageNeeds::specs`] named, and those of the runs.
    pub specs: Vec<RunSpec>,
    /// Runs that [`MessageNeeds::runs`] named and that exist.
    pub runs: Vec<Run>,
    /// Dead events that [`MessageNeeds::dead`] named.
    pub dead: Vec<HistoryRow>,
}
