//! The state that troubles are decided from.

use super::drift::Drift;
use crate::expected_end::Expected;
use crate::model::{Pause, RunId, Sent};

/// What a queue shard shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sight {
    /// Why nothing starts.
    pub pause: Option<Pause>,
    /// Policies whose tokens are held, or that events wait for.
    pub buckets: Vec<Bucket>,
    /// Events that are due and hold no token, of the whole shard.
    pub waiting: u64,
    /// The launch time of the oldest of them.
    pub oldest_launch_us: Option<i64>,
    /// Schedules of which something is not well.
    pub sufferers: Vec<Sufferer>,
    /// Schedules of which something waits that no worker is able to do.
    pub unserved: Vec<Unserved>,
    /// There was more than is looked at: some may be missing.
    pub incomplete: bool,
    /// Its owner is new, and has not heard of all events of which the one before may have known that they are in trouble.
    pub settling: bool,
}

/// A policy's bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// The namespace's id.
    pub namespace: String,
    /// The policy's id.
    pub policy: String,
    /// Set while it is paused.
    pub pause: Option<Pause>,
    /// The most tokens that may be held.
    pub limit: Option<u32>,
    /// Events that are due and hold no token.
    pub waiting: u64,
    /// The launch time of the oldest of them.
    pub oldest_launch_us: Option<i64>,
    /// Tokens whose consumers are silent.
    pub silent: Option<Silent>,
}

/// Tokens whose consumers have been silent for too long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Silent {
    /// How many.
    pub tokens: u32,
    /// When the first of them was last heard of, as far as was looked (wall clock).
    pub since_us: Option<i64>,
    /// The schedule of that one.
    pub schedule: String,
}

/// A schedule of which something is not well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sufferer {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none.
    pub policy: String,
    /// Scheme, host and port, or the queue's URL.
    pub target: String,
    /// Events that are due and hold no token.
    pub waiting: u64,
    /// The launch time of the oldest of them.
    pub oldest_launch_us: Option<i64>,
    /// Events that its consumers have at the moment, of those that were looked at.
    pub at_consumer: u64,
    /// Events whose deliveries fail, by what was said of the latest.
    pub failing: Vec<Failing>,
    /// What has ended badly of runs that go on.
    pub ended: Option<Ended>,
    /// What is not expected to start in time.
    pub at_risk: Option<AtRisk>,
}

/// A schedule of which something waits that no worker is able to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none.
    pub policy: String,
    /// The queue, with what is required.
    pub target: String,
    /// Stands for the queue of the namespace, and what is required.
    pub pool: u128,
    /// Events that are due and hold no token.
    pub waiting: u64,
    /// The launch time of the oldest of them.
    pub oldest_launch_us: Option<i64>,
    /// Events that hold their tokens and are to be given to another worker.
    pub again: u64,
    /// Since when nobody is able to do them (wall clock).
    pub since_us: Option<i64>,
    /// What the workers lack that are there.
    pub words: String,
}

/// Events of a schedule that are not expected to start in time.
#[derive(Clone, Debug, PartialEq)]
pub struct AtRisk {
    /// By when the first of them must have started (wall clock).
    pub deadline_us: i64,
    /// How many.
    pub events: u64,
    /// Of how many runs.
    pub runs: u64,
    /// When the last of them is expected to start.
    pub last_start: Expected,
}

impl AtRisk {
    /// Of several runs: where one never starts, that is told; else the latest.
    pub(crate) fn joined(self, other: Self) -> Self {
        let last_start = match (self.last_start, other.last_start) {
            (never @ Expected::Never(_), _) | (_, never @ Expected::Never(_)) => never,
            (a, b) => {
                if a.at_us() >= b.at_us() {
                    a
                } else {
                    b
                }
            }
        };
        Self {
            deadline_us: self.deadline_us.min(other.deadline_us),
            events: self.events + other.events,
            runs: self.runs + other.runs,
            last_start,
        }
    }
}

/// What was said of an event's latest delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    /// The target did not take it, or could not be reached.
    Refused,
    /// Nobody knows whether the target took it.
    Unclear,
    /// It did not leave.
    NotSent,
    /// The target took it; its consumer gave it back, or was given up.
    GivenBack,
}

impl Said {
    /// What a target's answer says, unless it took the event.
    pub fn of(sent: &Sent) -> Option<Self> {
        match sent {
            Sent::Accepted => None,
            Sent::Refused { .. } | Sent::RefusedAlone { .. } => Some(Self::Refused),
            Sent::Unclear { .. } => Some(Self::Unclear),
            Sent::NotSent { .. } => Some(Self::NotSent),
        }
    }
}

/// Events whose latest deliveries failed in the same way, and that are to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// In which way.
    pub said: Said,
    /// How many of those that were looked at.
    pub events: u64,
    /// When the first of them was acquired (wall clock).
    pub since_us: i64,
    /// The most failures that one of them has had.
    pub failures: u32,
    /// What was said of that one.
    pub words: String,
    /// That one: its run and its index.
    pub event: (RunId, u32),
}

/// How many events of a schedule ended badly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none, or where that is not known.
    pub policy: String,
    /// Failed, dead or lost.
    pub failed: u64,
    /// Not started in time.
    pub expired: u64,
    /// How many runs they are of.
    pub runs: u64,
    /// When the first of those runs ended, or fell due where it goes on (wall clock).
    pub since_us: i64,
    /// What was said of one of the failed ones; may be empty.
    pub words: String,
}

/// Triggers of a schedule that fell due in an outage, and that the catch-up rule left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none.
    pub policy: String,
    /// How many.
    pub triggers: u64,
    /// The launch time of the first of them.
    pub first_launch_us: i64,
}

/// A run whose items cannot be fetched as yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none.
    pub policy: String,
    /// Scheme, host and port of the list.
    pub address: String,
    /// When the run falls due, or did.
    pub launch_us: i64,
    /// Since when it cannot be fetched (wall clock).
    pub since_us: i64,
    /// Why, and what happens next.
    pub words: String,
}

/// A schedule whose runs take longer than they did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drifting {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub schedule: String,
    /// Its policy's id; empty where it has none, or where that is not known.
    pub policy: String,
    /// When the last of those runs ended (wall clock).
    pub ended_us: i64,
    /// How.
    pub drift: Drift,
}

/// Commits of a process's queue shards in the last minute or so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// The process's id.
    pub process: String,
    /// How many there were.
    pub all: u64,
    /// How many of them took longer than a second.
    pub slow: u64,
}

/// What is known of the whole installation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Installation {
    /// Queue shards without an owner.
    pub shards_without_owner: u64,
    /// Up to where everything that falls due has been emitted; none before the first window.
    pub emitted_until_us: Option<i64>,
}
