//! What became of events within a minute, as the stores keep it.

use std::ops::AddAssign;

use uuid::Uuid;

/// Counts of one minute, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteCounts {
    /// Fell due.
    pub due: u64,
    /// Were acquired for the first time.
    pub started: u64,
    /// Attempts that failed, of events that are tried again.
    pub retried: u64,
    /// Ended as SUCCEEDED.
    pub succeeded: u64,
    /// Ended as FAILED.
    pub failed: u64,
    /// Ended as DEAD.
    pub dead: u64,
    /// Ended as EXPIRED.
    pub expired: u64,
    /// Ended as CANCELLED.
    pub cancelled: u64,
    /// Ended as LOST.
    pub lost: u64,
    /// Were due and held no token when it was looked last.
    pub waiting: u64,
    /// Held a token then.
    pub held: u64,
}

impl AddAssign for MinuteCounts {
    fn add_assign(&mut self, more: Self) {
        self.due += more.due;
        self.started += more.started;
        self.retried += more.retried;
        self.succeeded += more.succeeded;
        self.failed += more.failed;
        self.dead += more.dead;
        self.expired += more.expired;
        self.cancelled += more.cancelled;
        self.lost += more.lost;
        self.waiting += more.waiting;
        self.held += more.held;
    }
}

impl MinuteCounts {
    /// Whether there is nothing to tell.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What one owner counted of one policy, or of a whole namespace, in one minute. Written again it is the same row, with
/// what has come to it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinuteRow {
    /// The queue shard.
    pub shard: u16,
    /// The policy; none for the whole of the namespace in this shard, with what has no policy.
    pub policy_uid: Option<Uuid>,
    /// The namespace.
    pub namespace: String,
    /// When the minute began.
    pub minute_us: i64,
    /// Of the lease under which it was counted: another owner, or the same one later, counts in a row of its own.
    pub epoch: i64,
    /// Up to when what fell due is counted.
    pub until_us: i64,
    /// The counts.
    pub counts: MinuteCounts,
}
