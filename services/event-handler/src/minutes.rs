//! Writes what the owners of this process count by the minute.
//!
//! In: rows from owners, when they are asked, and when they end. Out: the same rows in the store. Invariants: a row
//! that could not be written is kept and written later, or a later form of it; so is what an owner leaves that has lost
//! its shard, as it counted nothing that is not durable. What a process that dies takes with it is what has happened
//! since [`EVERY`]. Not here: what is counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tollgate_core::model::{MinuteRow, SECOND_US};
use tollgate_metrics::Role;
use uuid::Uuid;

use crate::Shared;
use crate::routes::{Input, Question};

/// How often owners are asked. Of the minute before, they are asked at once when it has ended.
const EVERY: Duration = Duration::from_secs(20);
/// How long after the end of a minute: what was under way may be durable then.
const AFTER_US: i64 = SECOND_US / 2;
/// How many rows are kept while the store does not take them; the oldest go. They take some 30 MB.
const KEPT_MAX: usize = 200_000;
/// How long an owner that ends waits for its last rows to be written; else they are written by the others.
const LAST_MAX: Duration = Duration::from_secs(1);

/// The minute, queue shard, policy, namespace and lease of a row.
type Key = (i64, u16, Option<Uuid>, String, i64);

/// Rows that are to be written. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct MinuteBook(Arc<Mutex<BTreeMap<Key, MinuteRow>>>);

impl MinuteBook {
    /// What an owner has counted takes the place of what it had counted before.
    pub(crate) fn put(&self, rows: Vec<MinuteRow>) {
        self.change(|book| book.extend(rows.into_iter().map(|row| (key(&row), row))));
    }

    /// Rows that could not be written: they come back, where there is nothing later.
    fn put_back(&self, rows: Vec<MinuteRow>) {
        self.change(|book| {
            for row in rows {
                book.entry(key(&row)).or_insert(row);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Key, MinuteRow>)) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut book);
        while book.len() > KEPT_MAX {
            book.pop_first();
        }
    }

    /// All rows, or those of one queue shard.
    fn take(&self, shard: Option<u16>) -> Vec<MinuteRow> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.extract_if(.., |_, row| shard.is_none_or(|shard| row.shard == shard))
            .map(|(_, row)| row)
            .collect()
    }
}

fn key(row: &MinuteRow) -> Key {
    (row.minute_us, row.shard, row.policy_uid, row.namespace.clone(), row.epoch)
}

/// Has everything written that is counted, until told to stop.
pub(crate) async fn keep(shared: Shared, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(pause(shared.clock.wall_us()))).await.is_some() {
        // Those that do not answer are loading their shards, or end, and leave what they have counted.
        shared.ask_owners(|reply| Input::Ask(Question::CountMinutes { reply })).await;
        shared.write_minutes(None).await;
    }
}

/// How long until owners are asked next.
fn pause(wall_us: i64) -> Duration {
    let every_us = i64::try_from(EVERY.as_micros()).unwrap_or(SECOND_US);
    let left_us = every_us - (wall_us - AFTER_US).rem_euclid(every_us);
    Duration::from_micros(u64::try_from(left_us).unwrap_or_default())
}

impl Shared {
    /// Writes the rows that are there, or those of one queue shard.
    pub(crate) async fn write_minutes(&self, shard: Option<u16>) {
        let rows = self.minutes.take(shard);
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.store.put_minutes(&rows).await {
            self.options.metrics.store_failed(Role::Handler);
            tracing::debug!(%error, rows = rows.len(), "counts of minutes cannot be written; they are kept");
            self.minutes.put_back(rows);
        }
    }

    /// As [`Shared::write_minutes`], for an owner that is about to give its shard up.
    pub(crate) async fn write_last_minutes(&self, shard: u16) {
        let shared = self.clone();
        // A task of its own: what it has taken is not lost where it takes too long.
        let written = tokio::spawn(async move { shared.write_minutes(Some(shard)).await });
        if tokio::time::timeout(LAST_MAX, written).await.is_err() {
            tracing::debug!(shard, "the last counts of the shard are written later");
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{MINUTE_US, MinuteCounts};

    use super::*;

    fn row(minute: i64, shard: u16, due: u64) -> MinuteRow {
        MinuteRow {
            shard,
            policy_uid: None,
            namespace: "default".to_owned(),
            minute_us: minute * MINUTE_US,
            epoch: 1,
            until_us: 0,
            counts: MinuteCounts { due, ..MinuteCounts::default() },
        }
    }

    #[test]
    fn what_could_not_be_written_comes_back_and_never_in_the_place_of_what_is_later() {
        let book = MinuteBook::default();
        book.put(vec![row(1, 5, 1), row(2, 5, 1), row(2, 6, 1)]);
        let taken = book.take(Some(5));
        assert_eq!(taken, [row(1, 5, 1), row(2, 5, 1)]);
        book.put(vec![row(2, 5, 3)]);
        book.put_back(taken);
        assert_eq!(book.take(None), [row(1, 5, 1), row(2, 5, 3), row(2, 6, 1)]);
        assert_eq!(book.take(None), []);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let book = MinuteBook::default();
        let shards = u16::try_from(KEPT_MAX / 100).unwrap_or(u16::MAX);
        for minute in 0..=100 {
            book.put((0..shards).map(|shard| row(minute, shard, 1)).collect());
        }
        let kept = book.take(None);
        assert_eq!((kept.len(), kept.first().map(|row| row.minute_us)), (KEPT_MAX, Some(MINUTE_US)));
    }

    #[test]
    fn owners_are_asked_just_after_each_minute() {
        let at = |us: i64| pause(us).as_micros();
        assert_eq!(
            (at(0), at(500_000), at(20_400_000), at(59_000_000)),
            (500_000, 20_000_000, 100_000, 1_500_000)
        );
    }
}
