//! What an owner says is to be done, and what it says to others.

use uuid::Uuid;

use super::DeliveryKey;
use super::news::{Ask, News};
use crate::handle::change::Changes;
use crate::handle::release::Answer;
use crate::handle::{Effect, RoomAsk};

/// What is to be done next.
#[expect(clippy::large_enum_variant, reason = "a commit is moved once, which costs less than an allocation")]
#[derive(Debug)]
pub enum Next {
    /// These deliveries fall due. They do not wait for the next commit.
    Perform(Vec<Effect>),
    /// Write these changes; then say what came of it: [`super::Owner::committed`] or [`super::Owner::commit_failed`].
    Commit(Changes),
    /// Look for this room at workers, and say what there is: [`super::Owner::room_given`].
    Room(Vec<RoomAsk>),
    /// Read this; then hand it over: [`super::Owner::news`] or [`super::Owner::read_failed`].
    Read(Ask),
    /// Nobody is sent to this owner any more, and it takes no input.
    Close,
    /// This owner is at its end.
    Leave(Left),
}

/// How the life of an owner's machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The shard can be handed over, with a [`super::Owner::note`] of the deliveries under way.
    Drained,
    /// Somebody else has the shard.
    Lost,
    /// The last changes cannot be committed: the shard is left to its lease.
    Stuck,
    /// The shard could not be read: load it again.
    Unread,
    /// The machine may not be what the store says: take the shard over from oneself, and load it anew.
    Reload(Why),
}

/// Why a shard is loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The lease was not to be trusted for a while.
    Lapsed,
    /// A commit failed, or nobody knows.
    CommitFailed,
    /// A commit outlived the lease; what it allows is not done.
    CommitOutlived,
    /// Runs can be read that were left out.
    Mended,
}

/// What a caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerAnswer {
    /// The machine's answer.
    Answer(Answer),
    /// The answer comes with a commit.
    Later,
    /// Somebody else may have the shard by now, and know better.
    AskAgain,
}

/// What a durable commit allows.
#[derive(Debug)]
pub struct Durable<C> {
    /// To be performed.
    pub effects: Vec<Effect>,
    /// Callers of [`super::Owner::sync`] to be answered.
    pub synced: Vec<C>,
}

/// What follows from news.
#[derive(Debug)]
pub struct TakenIn<C> {
    /// Deliveries that are not to go out, should they still wait for their turn.
    pub revoked: Vec<DeliveryKey>,
    /// Callers of [`super::Owner::sync`] to be answered.
    pub synced: Vec<C>,
    /// The same news are to come again with these specs.
    pub wants: Option<(News, Vec<(Uuid, i64)>)>,
}

/// When to poll again, if nothing comes before (monotonic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollTime {
    /// As exactly as can be: something launches.
    pub sharp_us: Option<i64>,
    /// To the millisecond.
    pub about_us: i64,
}
