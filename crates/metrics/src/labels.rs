//! The labels of the instruments, each a small closed set, and counters by them.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::handle::change::Outcome;
use tollgate_core::model::{Sent, SkipReason, Target};
use tollgate_store::CommitError;

/// A closed set of label values.
pub(crate) trait Label: Copy + PartialEq + 'static {
    /// All of them, each with its text.
    const ALL: &'static [(Self, &'static str)];

    /// Its text.
    fn text(self) -> &'static str {
        Self::ALL.iter().find(|(label, _)| *label == self).map_or("", |(_, text)| text)
    }
}

/// A counter for each value of a label.
#[derive(Debug)]
pub(crate) struct Counters<L: Label> {
    counts: Box<[AtomicU64]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Default for Counters<L> {
    fn default() -> Self {
        Self { counts: L::ALL.iter().map(|_| AtomicU64::new(0)).collect(), label: PhantomData }
    }
}

impl<L: Label> Counters<L> {
    /// Adds, and says what it was before.
    pub(crate) fn add(&self, label: L, more: u64) -> u64 {
        let place = L::ALL.iter().position(|(other, _)| *other == label);
        let count = place.and_then(|place| self.counts.get(place));
        count.map_or(0, |count| count.fetch_add(more, Ordering::Relaxed))
    }

    /// Every label's text and count.
    pub(crate) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        L::ALL.iter().zip(&self.counts).map(|((_, text), count)| (*text, count.load(Ordering::Relaxed)))
    }
}

/// Gives an enum its texts.
macro_rules! labels {
    ($name:ty: $($value:ident = $text:literal),+ $(,)?) => {
        impl Label for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$value, $text)),+];
        }
    };
}

/// What a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The Schedule Master.
    Master,
    /// The Event Emitter.
    Emitter,
    /// The Event Handler.
    Handler,
}

/// Where a delivery goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// HTTP.
    Http,
    /// SQS.
    Sqs,
    /// Kafka.
    Kafka,
    /// Workers that pull.
    Pull,
}

impl TargetKind {
    pub(crate) fn of(target: &Target) -> Self {
        match target {
            Target::Http { .. } => Self::Http,
            Target::Sqs { .. } => Self::Sqs,
            Target::Kafka { .. } => Self::Kafka,
            Target::Pull { .. } => Self::Pull,
        }
    }
}

/// What a consumer was told of its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// The token is free.
    Released,
    /// The token is free, and the event comes again.
    ComesAgain,
    /// It had been released before.
    AlreadyReleased,
    /// It holds no token under this attempt.
    Late,
    /// There is no such event.
    Unknown,
    /// The request makes no sense.
    Invalid,
    /// Nobody can tell; the consumer tries again.
    Failed,
}

/// Whose a queue shard was before this process took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenFrom {
    /// Nobody's: it had been given up, or never been owned.
    Nobody,
    /// Another process's, which has died.
    Dead,
    /// Its own.
    Itself,
}

/// Which bound kept somebody out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// All connections of the port.
    Connections,
    /// The connections of one address.
    AddressConnections,
    /// The bytes of one caller's requests, and of all, at once.
    Bodies,
    /// Streams of reflection, of one address and in all.
    Reflection,
    /// What a namespace may have and write.
    Quota,
    /// Changes of one namespace that queue shards have not been told yet.
    Outbox,
    /// Pages of the console that are told what happens now.
    Pages,
    /// Streams of items, of one namespace and in all.
    Submissions,
    /// Workers of one namespace and of one queue, and messages that a worker does not read.
    Workers,
}

/// What became of an attempt to deliver a message of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertMessage {
    /// Its receiver has taken it.
    Sent,
    /// It is tried again.
    Failed,
    /// Nobody took it in time: it is not tried again.
    Dropped,
}

/// What became of an attempt to fetch the list of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFetched {
    /// All of its items are there.
    Fetched,
    /// It is tried again, or given up.
    Failed,
    /// It was given up: no attempt, but its end.
    GivenUp,
}

/// What became of the end of a run that another one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepLaunched {
    /// The next run has been made.
    Launched,
    /// Its schedule was paused, or it was missed in an outage.
    Skipped,
    /// Its schedule does not exist any more, or cannot be read.
    Missing,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Accepted,
    Refused,
    Unclear,
    NotSent,
}

impl Delivered {
    pub(crate) fn of(sent: &Sent) -> Self {
        match sent {
            Sent::Accepted => Self::Accepted,
            Sent::Refused { .. } | Sent::RefusedAlone { .. } => Self::Refused,
            Sent::Unclear { .. } => Self::Unclear,
            Sent::NotSent { .. } => Self::NotSent,
        }
    }
}

/// Why a commit was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFailure {
    Fenced,
    Failed,
    Unknown,
}

impl CommitFailure {
    pub(crate) fn of(error: &CommitError) -> Self {
        match error {
            CommitError::Fenced => Self::Fenced,
            CommitError::Failed(_) => Self::Failed,
            CommitError::Unknown(_) => Self::Unknown,
        }
    }
}

labels!(Role: Master = "master", Emitter = "emitter", Handler = "handler");
labels!(TargetKind: Http = "http", Sqs = "sqs", Kafka = "kafka", Pull = "pull");
labels!(ReleaseAnswer: Released = "released", ComesAgain = "comes_again", AlreadyReleased = "already_released",
    Late = "late", Unknown = "unknown", Invalid = "invalid", Failed = "failed");
labels!(TakenFrom: Nobody = "nobody", Dead = "dead", Itself = "itself");
labels!(Bound: Connections = "connections", AddressConnections = "connections_of_address", Bodies = "bodies",
    Reflection = "reflection", Quota = "quota", Outbox = "outbox", Pages = "pages",
    Submissions = "submissions", Workers = "workers");
labels!(Delivered: Accepted = "accepted", Refused = "refused", Unclear = "unclear", NotSent = "not_sent");
labels!(StepLaunched: Launched = "launched", Skipped = "skipped", Missing = "missing");
labels!(ListFetched: Fetched = "fetched", Failed = "failed", GivenUp = "given_up");
labels!(AlertMessage: Sent = "sent", Failed = "failed", Dropped = "dropped");
labels!(CommitFailure: Fenced = "fenced", Failed = "failed", Unknown = "unknown");
labels!(Outcome: Succeeded = "succeeded", Failed = "failed", Dead = "dead", Expired = "expired",
    Cancelled = "cancelled", Lost = "lost");
labels!(SkipReason: Missed = "missed", Paused = "paused", Overlap = "overlap", NotListed = "not_listed");
