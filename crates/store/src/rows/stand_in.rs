//! What stands in for a token or a batch that cannot be read, so that no limit is passed because of it.
//!
//! In: what can be read of the row. Out: a token or a batch that a shard can work with, under the row's own key: what becomes
//! of it repairs the row or deletes it. Invariant: more may count as held than are, never fewer. Not here: a row of which
//! not even the key can be read; it is counted, and its run left alone.

use std::collections::BTreeSet;

use tollgate_core::handle::batch::{BATCH_MAX, TokenBatch};
use tollgate_core::handle::change::{TokenRow, TokenState};
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::batch::BatchRecord;
use super::handle::{HistoryRecord, TokenRecord};
use super::int;

/// A silence that does not end: a hundred years, in milliseconds.
const NEVER_MS: i64 = 100 * 366 * 86_400_000;

impl TokenRecord {
    /// A token that counts as held and waits for a release.
    pub(super) fn stands_in(&self, message: String) -> TokenRow {
        let number = |value: i32| u32::try_from(value).unwrap_or_default();
        TokenRow {
            run: RunId(self.run_id),
            // An index that cannot be read is one that no event has.
            index: self.idx.cast_unsigned(),
            state: TokenState::Held,
            attempt: number(self.attempt).max(1),
            failures: number(self.failures),
            checks: number(self.checks),
            due_us: self.due_us,
            acquired_us: self.acquired_us,
            delivered_us: self.delivered_us,
            heartbeat_ttl_ms: Some(NEVER_MS),
            message,
        }
    }
}

/// How many events a batch has; none where its column cannot be right.
pub(super) fn events_of(column: i32) -> Option<u32> {
    u32::try_from(column).ok().filter(|count| (1..=BATCH_MAX).contains(count))
}

/// A batch that cannot be read, and whose key can. Which events are left in it follows from where all others are.
#[derive(Debug)]
pub(super) struct Doubtful {
    pub(super) run: RunId,
    first: u32,
    /// As far as it can be.
    count: Option<u32>,
    acquired_us: i64,
    delivered_us: Option<i64>,
}

impl Doubtful {
    /// None where its key cannot be.
    pub(super) fn of(row: &BatchRecord) -> Option<Self> {
        Some(Self {
            run: RunId(row.run_id),
            first: u32::try_from(row.first_idx).ok()?,
            count: events_of(row.events),
            acquired_us: row.acquired_us,
            delivered_us: row.delivered_us,
        })
    }

    /// Where the done queue has those of its events that have ended: run, first index, number of rows at most.
    pub(super) fn place(&self) -> (Uuid, i32, i64) {
        // A range may begin before it.
        (self.run.0, int(self.first), 1 + i64::from(BATCH_MAX))
    }

    /// Takes in what is in that place.
    pub(super) fn ended(&self, rows: &[HistoryRecord], elsewhere: &mut BTreeSet<(RunId, u32)>) {
        let (first, end) = (self.first, self.first.saturating_add(BATCH_MAX));
        for row in rows {
            let (Ok(from), Ok(count)) = (u32::try_from(row.idx), u32::try_from(row.events)) else { continue };
            let indexes = from.max(first)..from.saturating_add(count).min(end);
            elsewhere.extend(indexes.map(|index| (self.run, index)));
        }
    }

    /// The batch, as far as its events are not `elsewhere` and have been acquired, which none from `acquired_to` on has.
    pub(super) fn stand_in(
        &self,
        acquired_to: Option<u32>,
        elsewhere: &BTreeSet<(RunId, u32)>,
    ) -> TokenBatch {
        let acquired = acquired_to.unwrap_or(u32::MAX);
        TokenBatch::held_unless(
            (self.run, self.first, self.count.unwrap_or(BATCH_MAX)),
            (self.acquired_us, self.delivered_us),
            |index| index >= acquired || elsewhere.contains(&(self.run, index)),
        )
    }
}
