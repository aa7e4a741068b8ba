//! What is wrong, for somebody who is woken at night: decided from the state that is there, worst first.
//!
//! In: what each queue shard shows ([`Sight`]), what ended badly ([`Ended`]), triggers that were missed ([`Missed`]), lists
//! that cannot be fetched ([`Unlisted`]), schedules whose runs take longer than they did ([`Drifting`]), how a process's commits
//! went ([`Commits`]), what is known of the whole installation ([`Installation`]), and the time.
//! Out: [`Trouble`]s, each with a sentence, and what to do. However the shards are split over processes, each of which
//! decides for its own, [`worst_first`] makes the same list of it. Not here: where that state comes from, what a time or
//! a resource name looks like.

mod decide;
pub mod drift;
mod order;
mod sight;
mod text;

use serde::{Deserialize, Serialize};

pub(crate) use decide::lasts;
pub use decide::{
    of_commits, of_drifting, of_ended, of_installation, of_missed, of_not_listed, of_shard, of_unlisted,
};
pub use order::worst_first;
pub use sight::{
    AtRisk, Bucket, Commits, Drifting, Ended, Failing, Installation, Missed, Said, Sight, Silent, Sufferer,
    Unlisted, Unserved,
};

/// What sort of trouble it is; of the same severity, the first here is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A process gets no answer from the database.
    StoreFails,
    /// Queue shards have no owner: nothing of their policies fires.
    ShardsWithoutOwner,
    /// A process owns queue shards and does not answer.
    HandlerSilent,
    /// Owners cannot load their queue shards.
    ShardsNotLoaded,
    /// The clock of a process's machine is wrong.
    ClockWrong,
    /// Rows cannot be read; what they describe waits.
    CorruptRows,
    /// Schedules fire late.
    EmitterBehind,
    /// Nothing starts anywhere, and work waits.
    DispatchPaused,
    /// A target refuses deliveries, or cannot be reached.
    TargetRefuses,
    /// A target does not answer, or breaks off.
    TargetSilent,
    /// Deliveries do not leave, for a reason that is not the target's.
    NotSent,
    /// No worker is there that is able to do what waits.
    NoWorker,
    /// Tokens are held by silent consumers.
    TokensSilent,
    /// Consumers take events and give them back, or are given up.
    ConsumerFails,
    /// The items of a schedule's next run cannot be fetched.
    ListFails,
    /// A policy is paused, and work waits.
    PolicyPaused,
    /// Events are not expected to start in time.
    DeadlineAtRisk,
    /// Events did not start in time.
    EventsExpired,
    /// Events ended as failed, dead or lost.
    EventsFailed,
    /// Triggers fell due in an outage and made no run.
    TriggersMissed,
    /// Triggers made no events, as their items could not be fetched.
    NotListed,
    /// Runs take longer than they did.
    Slower,
    /// The database is slow to commit.
    StoreSlow,
}

impl Kind {
    /// All of them, the worst first.
    pub const ALL: [Self; 23] = [
        Self::StoreFails,
        Self::ShardsWithoutOwner,
        Self::HandlerSilent,
        Self::ShardsNotLoaded,
        Self::ClockWrong,
        Self::CorruptRows,
        Self::EmitterBehind,
        Self::DispatchPaused,
        Self::TargetRefuses,
        Self::TargetSilent,
        Self::NotSent,
        Self::NoWorker,
        Self::TokensSilent,
        Self::ConsumerFails,
        Self::ListFails,
        Self::PolicyPaused,
        Self::DeadlineAtRisk,
        Self::EventsExpired,
        Self::EventsFailed,
        Self::TriggersMissed,
        Self::NotListed,
        Self::Slower,
        Self::StoreSlow,
    ];

    /// Its name, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::StoreFails => "store_fails",
            Self::ShardsWithoutOwner => "shards_without_owner",
            Self::HandlerSilent => "handler_silent",
            Self::ShardsNotLoaded => "shards_not_loaded",
            Self::ClockWrong => "clock_wrong",
            Self::CorruptRows => "corrupt_rows",
            Self::EmitterBehind => "emitter_behind",
            Self::DispatchPaused => "dispatch_paused",
            Self::TargetRefuses => "target_refuses",
            Self::TargetSilent => "target_silent",
            Self::NotSent => "not_sent",
            Self::NoWorker => "no_worker",
            Self::TokensSilent => "tokens_silent",
            Self::ConsumerFails => "consumer_fails",
            Self::ListFails => "list_fails",
            Self::PolicyPaused => "policy_paused",
            Self::DeadlineAtRisk => "deadline_at_risk",
            Self::EventsExpired => "events_expired",
            Self::EventsFailed => "events_failed",
            Self::TriggersMissed => "triggers_missed",
            Self::NotListed => "not_listed",
            Self::Slower => "slower",
            Self::StoreSlow => "store_slow",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// Work stands still, or will not be done.
    Critical,
    /// Something is not well, and the rest goes on.
    Warning,
}

/// What is in trouble; what does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// The namespace's id; empty where the whole installation is.
    pub namespace: String,
    /// The policy's id.
    pub policy: String,
    /// The schedule's id.
    pub schedule: String,
    /// Scheme, host and port, the queue's URL, or the queue that workers pull from with what is required of them.
    pub target: String,
    /// The process's id.
    pub process: String,
}

/// One trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What sort.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// What is in trouble.
    pub subject: Subject,
    /// Since when, as far as is known (wall clock).
    pub since_us: Option<i64>,
    /// Events that are due and hold no token.
    pub waiting: u64,
    /// The launch time of the oldest of them.
    pub oldest_launch_us: Option<i64>,
    /// How many events, tokens, triggers, commits, rows or queue shards are in trouble themselves.
    pub count: u64,
    /// How many runs these are of, where that is known.
    pub runs: u64,
    /// In the words of the target, the consumer, or the operator who paused. May be empty.
    pub words: String,
}

impl Trouble {
    /// A warning about this, with nothing counted.
    pub fn new(kind: Kind, subject: Subject) -> Self {
        Self {
            kind,
            severity: Severity::Warning,
            subject,
            since_us: None,
            waiting: 0,
            oldest_launch_us: None,
            count: 0,
            runs: 0,
            words: String::new(),
        }
    }

    /// One sentence for people.
    pub fn summary(&self) -> String {
        text::summary(self)
    }

    /// What to do, for people.
    pub fn what_to_do(&self) -> String {
        text::what_to_do(self)
    }
}

/// The smaller of two that may be unknown.
fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}
