//! What a shard's owner writes: one [`Changes`] is one fenced transaction.
//!
//! The state machine decides, the store performs; nothing here touches a database.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::batch::TokenBatch;
use super::control::Message;
use crate::model::{DAY_US, Pause, Policy, Run, RunId, RunKind, Skipped};

/// How many earlier generations of a schedule a shard remembers.
const EARLIER_MAX: usize = 64;
/// For how long a shard remembers where a schedule has gone: longer than dead events can be tried again by default.
const AWAY_DAYS: i64 = 60;

/// Where an acquired, unfinished event stands. It has a row as long as it is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TokenState {
    /// It holds a token; whether the consumer has it is not known.
    Acquired,
    /// It holds a token; the consumer has it.
    Held,
    /// It holds no token: it waits for its next attempt and then for a token.
    Waiting,
}

/// The row of an acquired, unfinished event that is in no batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// Where it stands.
    pub state: TokenState,
    /// The number of the latest delivery, committed before it is sent.
    pub attempt: u32,
    /// Failures that count against the retry policy's `attempts_max`.
    pub failures: u32,
    /// How often its consumer has asked to look again.
    pub checks: u32,
    /// When a waiting event may be tried again (wall clock).
    pub due_us: i64,
    /// When the token was first acquired (wall clock).
    pub acquired_us: i64,
    /// When the consumer took the latest delivery (wall clock), if it has.
    pub delivered_us: Option<i64>,
    /// Set by the first heartbeat: the silence allowed from then on, in milliseconds.
    pub heartbeat_ttl_ms: Option<i64>,
    /// The latest failure, for people.
    pub message: String,
}

impl TokenRow {
    /// Of an event that has just been acquired for its first delivery.
    pub(super) fn acquired((run, index): (RunId, u32), acquired_us: i64) -> Self {
        Self {
            run,
            index,
            state: TokenState::Acquired,
            attempt: 1,
            failures: 0,
            checks: 0,
            due_us: 0,
            acquired_us,
            delivered_us: None,
            heartbeat_ttl_ms: None,
            message: String::new(),
        }
    }
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// Its consumer, or the answer where that releases, said that the work is done.
    Succeeded,
    /// Its consumer said that the work failed and shall not be tried again.
    Failed,
    /// Out of attempts, or refused for good.
    Dead,
    /// Not started within its window.
    Expired,
    /// Cancelled.
    Cancelled,
    /// Its token was reclaimed, and it is not tried again.
    Lost,
}

/// The result of an event that has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// JSON, sealed where secrets are.
    pub body: String,
    /// When the event ended.
    pub ended_us: i64,
}

/// A row of the done queue: one event, or a range of events that ended alike without having started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The run.
    pub run: RunId,
    /// The first index.
    pub index: u32,
    /// How many events, from `index` on.
    pub count: u32,
    /// How they ended.
    pub outcome: Outcome,
    /// Deliveries; 0 where there was none.
    pub attempt: u32,
    /// When the token was first acquired.
    pub acquired_us: Option<i64>,
    /// When the consumer took the last delivery.
    pub delivered_us: Option<i64>,
    /// When it ended.
    pub finished_us: i64,
    /// The consumer's message or the last error, for people.
    pub message: String,
}

/// What the shard knows of a schedule: the fence against stale emissions, the pause, the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSchedule {
    /// The schedule.
    pub uid: Uuid,
    /// Runs of older generations that fall due after `changed_us` are stale.
    pub generation: i64,
    /// When that generation took effect.
    pub changed_us: i64,
    /// Up to here windows had been opened when it took effect.
    pub until_us: i64,
    /// The generation's launch times in (`changed_us`, `until_us`].
    pub launches_us: Vec<i64>,
    /// Events per trigger in that generation.
    pub events: u32,
    /// Priority in that generation.
    pub priority: u8,
    /// Why nothing of it may start, while it is paused.
    pub pause: Option<Pause>,
    /// It has been deleted.
    pub deleted: bool,
    /// What its consumers handed to the next run.
    pub cursor: Option<String>,
    /// When the latest cursor that has been here was left: later than the one that it follows, whatever the clocks say.
    /// It stays where the cursor has been handed on.
    #[serde(default)]
    pub cursor_us: i64,
    /// Earlier generations and when they took effect, for what was emitted before several changes and comes late.
    #[serde(default)]
    pub earlier: Vec<(i64, i64)>,
    /// The shard in which it lives, where that is another one: only runs that started here are left.
    #[serde(default)]
    pub home: Option<u16>,
    /// Until when it rests after the end of its last run; 0 where it does not.
    #[serde(default)]
    pub rest_until_us: i64,
    /// First runs of chains that go on, for the ends of which the next run waits or is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<RunId>,
}

impl ShardSchedule {
    /// Whether a run was emitted by a generation that had been replaced when it falls due.
    pub fn is_stale(&self, run: &Run) -> bool {
        run.kind == RunKind::Scheduled
            && run.launch_us <= self.until_us
            && self.replaced_us(run.generation).is_some_and(|changed_us| run.launch_us > changed_us)
    }

    /// Of a schedule of which no change is known. No fence: the message that brings one may still come.
    pub(super) fn unknown(uid: Uuid) -> Self {
        Self { uid, events: 1, ..Self::default() }
    }

    /// Of two cursors the one that was left later counts, in whatever order, and however often, they come; of two of one
    /// microsecond, the same one everywhere. True where that is this one.
    pub(super) fn take_cursor(&mut self, cursor: String, left_us: i64) -> bool {
        let is_later = left_us >= self.cursor_us;
        let is_behind = left_us == self.cursor_us && self.cursor.as_ref() > Some(&cursor);
        if is_later && !is_behind {
            (self.cursor, self.cursor_us) = (Some(cursor), left_us);
        }
        is_later && !is_behind
    }

    /// From when on a run of this generation is stale, if there is a later one.
    pub(super) fn replaced_us(&self, generation: i64) -> Option<i64> {
        let all = self.earlier.iter().copied().chain([(self.generation, self.changed_us)]);
        all.filter(|(later, _)| *later > generation).map(|(_, changed_us)| changed_us).min()
    }

    /// When nothing stale can come any more for which the row would have to be kept.
    pub(super) fn forget_us(&self) -> i64 {
        let kept_us = if self.home.is_some() { AWAY_DAYS * DAY_US } else { DAY_US };
        self.until_us.max(self.changed_us).saturating_add(kept_us)
    }

    /// Whether the shard has been told of this generation.
    pub(super) fn knows(&self, generation: i64) -> bool {
        self.generation == generation || self.earlier.iter().any(|(known, _)| *known == generation)
    }

    /// Takes over what the row of an earlier generation knew.
    pub(super) fn follow(&mut self, old: &Self) {
        (self.cursor, self.cursor_us) = (old.cursor.clone(), old.cursor_us);
        self.rest_until_us = self.rest_until_us.max(old.rest_until_us);
        self.chains.clone_from(&old.chains);
        self.earlier.clone_from(&old.earlier);
        if old.generation > 0 {
            self.earlier.push((old.generation, old.changed_us));
        }
        // Nothing is emitted so late, and a schedule that changes all the time must not grow.
        let oldest_us = self.changed_us - DAY_US;
        self.earlier.retain(|(_, changed_us)| *changed_us > oldest_us);
        let surplus = self.earlier.len().saturating_sub(EARLIER_MAX);
        self.earlier.drain(..surplus);
    }
}

/// Whether a shard is paused, and by which message: a resume is remembered, too, so that an earlier pause that comes
/// late changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardPause {
    /// The id of the message that said so; larger is later.
    pub order: Uuid,
    /// Set while paused.
    pub pause: Option<Pause>,
}

/// How many events one [`Unstarted`] tells of.
pub const UNSTARTED_EVENTS: u32 = 2_048;

/// Which events of a run that starts its events key by key have not started, among [`UNSTARTED_EVENTS`] of them. Where a run has
/// none for a stretch below its `sorted_to`, all of these have started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstarted {
    /// The run.
    pub run: RunId,
    /// The first index: a multiple of [`UNSTARTED_EVENTS`].
    pub first: u32,
    /// A bit an event that has not started, the first event in the lowest bit of the first byte. What is missing at the end is
    /// zero.
    pub bits: Vec<u8>,
}

impl Unstarted {
    /// The indexes of the events that have not started.
    pub fn indexes(&self) -> impl Iterator<Item = u32> {
        let bytes = (self.first..).step_by(8).zip(&self.bits);
        bytes.flat_map(|(first, byte)| {
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| first + bit)
        })
    }
}

/// Everything that one commit of a shard's owner writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Messages for other shards, put idempotently into their inboxes *before* this commit.
    pub forwards: Vec<(u16, Message)>,
    /// Inbox messages that this commit carries out: exactly these rows go.
    pub inbox_done: Vec<Uuid>,
    /// New messages for this shard itself, for what is to be done once this commit is durable.
    pub inbox_new: Vec<Message>,
    /// New runs; one that exists already stays as it is.
    pub runs_new: Vec<Run>,
    /// Runs as they are now (every column that can change).
    pub runs_changed: Vec<Run>,
    /// Runs that are withdrawn before they started, as if they had not been emitted.
    pub runs_withdrawn: Vec<RunId>,
    /// Batches of events that have just been acquired.
    pub batches_new: Vec<TokenBatch>,
    /// Batches as they are now.
    pub batches_changed: Vec<TokenBatch>,
    /// Batches of which nothing is left, by run and first index.
    pub batches_gone: Vec<(RunId, u32)>,
    /// Token rows of events that are in no batch (any more), new or changed.
    pub tokens_put: Vec<TokenRow>,
    /// Token rows that go.
    pub tokens_gone: Vec<(RunId, u32)>,
    /// Which events of runs have not started, where that has changed.
    pub unstarted_put: Vec<Unstarted>,
    /// Of these, by run and first index, all have.
    pub unstarted_gone: Vec<(RunId, u32)>,
    /// New rows of the done queue.
    pub history: Vec<HistoryRow>,
    /// Results of events that succeed with this commit.
    pub results: Vec<ResultRow>,
    /// Dead events that leave the done queue because they are tried again.
    pub history_gone: Vec<(RunId, u32)>,
    /// Schedules as the shard knows them now.
    pub schedules: Vec<ShardSchedule>,
    /// Schedules that the shard forgets.
    pub schedules_gone: Vec<Uuid>,
    /// Policies as the shard knows them now.
    pub policies: Vec<Policy>,
    /// Policies that have been deleted, and when (wall clock): kept for a while for what comes late.
    pub policies_deleted: Vec<(Uuid, i64)>,
    /// Policies that the shard forgets.
    pub policies_gone: Vec<Uuid>,
    /// Triggers that made no run.
    pub skipped: Vec<Skipped>,
    /// The shard's own pause, if it changes.
    pub pause: Option<ShardPause>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
