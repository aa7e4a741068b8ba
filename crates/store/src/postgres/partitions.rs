//! Daily partitions of the done queue: made ahead, dropped as a whole.
//!
//! The default partition takes what falls on a day that has no partition, so that an insert never fails for lack of one.
//! Partition work never waits in front of commits: a partition is made as a plain table and attached, which lets
//! inserts go on; what needs a lock that somebody holds (a dump, a reader in the middle of a transaction) is given up
//! after a tenth of a second, and tried again in the next round. Partitions are made two days ahead, so that there is time.

use std::sync::Arc;

use futures::FutureExt as _;
use sqlx::AssertSqlSafe;
use tollgate_core::model::DAY_US;
use tollgate_core::plan::civil_from_days;

use super::Postgres;
use crate::StoreError;

/// The tables of the done queue. The names of their daily partitions begin with theirs; eight digits of the date follow.
const TABLES: [&str; 2] = ["event_history", "ended_batches"];
/// After this many days that are in use, the others are not tried: each try makes other transactions wait for a moment.
const BUSY_MAX: u32 = 3;

impl Postgres {
    /// Makes the partitions of yesterday to the day after tomorrow.
    pub(super) async fn make_partitions(&self, now_us: i64) -> Result<(), StoreError> {
        let today = now_us.div_euclid(DAY_US);
        let there = self.partitions().await?;
        for (table, day) in
            TABLES.iter().flat_map(|table| (today - 1..=today + 2).map(move |day| (*table, day)))
        {
            let name = partition_name(table, day);
            if !there.contains(&name) {
                self.make_partition(table, name, day).await?;
            }
        }
        Ok(())
    }

    async fn make_partition(&self, table: &str, name: String, day: i64) -> Result<(), StoreError> {
        let of_the_day = |statement: &str| {
            statement
                .replace("{table}", table)
                .replace("{name}", &name)
                .replace("{from_us}", &(day * DAY_US).to_string())
                .replace("{to_us}", &((day + 1) * DAY_US).to_string())
        };
        let steps = [sql!("partition_create"), sql!("partition_attach")].map(of_the_day);
        match self.partition_work("make_partition", steps.to_vec()).await {
            Ok(Done::Yes | Done::ByAnother) => Ok(()),
            Ok(Done::Busy) => {
                tracing::info!(
                    partition = name,
                    "somebody reads the history; the day's partition is made later"
                );
                Ok(())
            }
            // Rows of that day are in the default partition already; they stay there, and others of that day follow.
            Err(StoreError::Internal(why) | StoreError::Unreachable(why) | StoreError::Full(why)) => {
                tracing::warn!(
                    partition = name,
                    why,
                    "no partition for this day; its events go to the default one"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Drops the partitions of days that ended by `before_us`. Answers how many. One that is in use stays until the next time.
    pub(super) async fn drop_partitions(&self, before_us: i64) -> Result<u64, StoreError> {
        let (mut dropped, mut busy) = (0, 0);
        let limit = date_of(before_us.div_euclid(DAY_US));
        for name in self.partitions().await? {
            if daily(&name).is_none_or(|date| *date >= *limit) {
                continue;
            }
            if busy == BUSY_MAX {
                break;
            }
            let statement = sql!("partition_drop").replace("{name}", &name);
            match self.partition_work("drop_partition", vec![statement]).await? {
                Done::Yes | Done::ByAnother => dropped += 1,
                Done::Busy => {
                    busy += 1;
                    tracing::info!(partition = name, "somebody reads the history; the day is dropped later");
                }
            }
        }
        Ok(dropped)
    }

    /// All statements or none, and no long wait for a lock.
    async fn partition_work(&self, name: &'static str, statements: Vec<String>) -> Result<Done, StoreError> {
        let statements = Arc::new(statements);
        let worked = self.work.run_tx(name, move |connection| {
            let statements = Arc::clone(&statements);
            async move {
                sqlx::query(sql!("partition_hurry")).execute(&mut *connection).await?;
                for statement in statements.iter() {
                    // Made of a constant, a name that was checked, and numbers.
                    let query = sqlx::query(AssertSqlSafe(statement.clone())).persistent(false);
                    match query.execute(&mut *connection).await {
                        // What was begun is rolled back: the transaction has failed.
                        Err(error) if another_was_first(&error) => return Ok(Done::ByAnother),
                        Err(error) if is_busy(&error) => return Ok(Done::Busy),
                        done => {
                            done?;
                        }
                    }
                }
                Ok(Done::Yes)
            }
            .boxed()
        });
        worked.await
    }

    async fn partitions(&self) -> Result<Vec<String>, StoreError> {
        let names: Vec<String> =
            self.work.judge(rows!(self.work, sqlx::query_scalar(sql!("partitions_list"))))?;
        Ok(names.into_iter().filter(|name| daily(name).is_some()).collect())
    }
}

/// What became of work on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Yes,
    /// Another process did the same at the same moment.
    ByAnother,
    /// Somebody holds a lock.
    Busy,
}

/// Whether another process made the same table at the same moment.
fn another_was_first(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // duplicate_table, unique_violation in the catalogue, and wrong_object_type: it is a partition already.
    matches!(code.as_deref(), Some("42P07" | "23505" | "42809"))
}

/// Whether a lock was not to be had in time.
fn is_busy(error: &sqlx::Error) -> bool {
    // lock_not_available.
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("55P03"))
}

/// The date in the name of a daily partition. Dates sort as texts.
fn daily(name: &str) -> Option<&str> {
    let dated = TABLES.iter().find_map(|table| name.strip_prefix(table))?;
    let date = dated.strip_prefix('_')?;
    (date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit())).then_some(date)
}

/// A day as names of partitions have it; days count from the epoch.
fn date_of(day: i64) -> String {
    let (year, month, day) = civil_from_days(day);
    format!("{year:04}{month:02}{day:02}")
}

/// The name of a day's partition.
fn partition_name(table: &str, day: i64) -> String {
    format!("{table}_{}", date_of(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_after_their_day() {
        for (day, date) in [(0, "19700101"), (11_016, "20000229"), (20_778, "20261121"), (-1, "19691231")] {
            for table in TABLES {
                let name = partition_name(table, day);
                assert_eq!(name, format!("{table}_{date}"));
                assert_eq!(daily(&name), Some(date));
            }
        }
        for other in
            ["event_history_default", "event_history_2020010", "event_history20200101", "runs_20200101"]
        {
            assert_eq!(daily(other), None, "{other}");
        }
    }
}
