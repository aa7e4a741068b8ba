//! Rows of minutes.

use sqlx::FromRow;
use tollgate_core::model::{MinuteCounts, MinuteRow};
use uuid::Uuid;

use crate::columns::row;

/// How long a row's time is that an owner has written.
pub(crate) const MINUTE_S: i32 = 60;
/// The same where minutes have been put together.
pub(crate) const HOUR_S: i32 = 3_600;

row! {
    /// A row of `minute_counts`.
    MinuteRecord of "minute_counts" {
        key {
            policy_uid: Uuid,
            shard_id: i32,
            minute_us: i64,
            seconds: i32,
            namespace: String,
            epoch: i64,
        }
        fixed {}
        changing {
            until_us: i64,
            due: i64,
            started: i64,
            retried: i64,
            succeeded: i64,
            failed: i64,
            dead: i64,
            expired: i64,
            cancelled: i64,
            lost: i64,
            waiting: i64,
            held: i64,
        }
    }
}

impl From<&MinuteRow> for MinuteRecord {
    fn from(row: &MinuteRow) -> Self {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = &row.counts;
        Self {
            policy_uid: row.policy_uid.unwrap_or(Uuid::nil()),
            shard_id: i32::from(row.shard),
            minute_us: row.minute_us,
            seconds: MINUTE_S,
            namespace: row.namespace.clone(),
            epoch: row.epoch,
            until_us: row.until_us,
            due: count(counts.due),
            started: count(counts.started),
            retried: count(counts.retried),
            succeeded: count(counts.succeeded),
            failed: count(counts.failed),
            dead: count(counts.dead),
            expired: count(counts.expired),
            cancelled: count(counts.cancelled),
            lost: count(counts.lost),
            waiting: count(counts.waiting),
            held: count(counts.held),
        }
    }
}

impl MinuteRecord {
    /// The hour that begins then, with this minute in it.
    pub(crate) fn of_hour(self, hour_us: i64) -> Self {
        Self { minute_us: hour_us, seconds: HOUR_S, epoch: 0, ..self }
    }

    /// Takes another part of the same hour in.
    pub(crate) fn add(&mut self, other: &Self) {
        self.until_us = self.until_us.max(other.until_us);
        self.due += other.due;
        self.started += other.started;
        self.retried += other.retried;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.dead += other.dead;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
        self.waiting = self.waiting.max(other.waiting);
        self.held = self.held.max(other.held);
    }
}

/// The counts of one step.
#[derive(Debug, FromRow)]
pub(crate) struct StepRow {
    pub(crate) at_us: i64,
    due: i64,
    started: i64,
    retried: i64,
    succeeded: i64,
    failed: i64,
    dead: i64,
    expired: i64,
    cancelled: i64,
    lost: i64,
    waiting: i64,
    held: i64,
}

impl From<StepRow> for (i64, MinuteCounts) {
    fn from(row: StepRow) -> Self {
        let count = |count: i64| u64::try_from(count).unwrap_or_default();
        let counts = MinuteCounts {
            due: count(row.due),
            started: count(row.started),
            retried: count(row.retried),
            succeeded: count(row.succeeded),
            failed: count(row.failed),
            dead: count(row.dead),
            expired: count(row.expired),
            cancelled: count(row.cancelled),
            lost: count(row.lost),
            waiting: count(row.waiting),
            held: count(row.held),
        };
        (row.at_us, counts)
    }
}
