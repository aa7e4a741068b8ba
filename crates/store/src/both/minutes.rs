//! What became of events by the minute.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::model::{MINUTE_US, MinuteCounts, MinuteRow};
use uuid::Uuid;

use super::{Ask, Driver, Whom, sql};
use crate::StoreError;
use crate::minutes::{HOURS_AFTER_US, MinuteStore, Whose};
use crate::rows::{MinuteRecord, StepRow};

const HOUR_US: i64 = 60 * MINUTE_US;
/// How many rows one transaction writes at most.
const ROWS_AT_ONCE: usize = 5_000;

#[async_trait]
impl<D: Driver> MinuteStore for D {
    async fn put_minutes(&self, rows: &[MinuteRow]) -> Result<(), StoreError> {
        for rows in rows.chunks(ROWS_AT_ONCE) {
            let records: Arc<Vec<MinuteRecord>> = Arc::new(rows.iter().map(MinuteRecord::from).collect());
            self.run_tx(Whom::Roles, "put_minutes", move |mut tx| {
                let records = Arc::clone(&records);
                async move { tx.execute(Ask::new(sql!("minutes_put")).set(&records)?).await.map(drop) }
                    .boxed()
            })
            .await?;
        }
        Ok(())
    }

    async fn minutes_until_us(&self, shard: u16, since_us: i64) -> Result<Option<i64>, StoreError> {
        let ask = Ask::new(sql!("minutes_until")).bind(Uuid::nil()).bind(i32::from(shard)).bind(since_us);
        let rows: Vec<(i64,)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.first().map(|(until_us,)| *until_us))
    }

    async fn minutes(
        &self,
        whose: &Whose,
        range_us: Range<i64>,
        step_us: i64,
    ) -> Result<Vec<(i64, MinuteCounts)>, StoreError> {
        let (policy, namespace) = match whose {
            Whose::Policy(uid) => (*uid, None),
            Whose::Namespace(namespace) => (Uuid::nil(), Some(namespace.clone())),
            Whose::All => (Uuid::nil(), None),
        };
        let shards: Vec<i32> = (0..i32::from(self.shards().now())).collect();
        let ask = Ask::new(sql!("minutes_list"))
            .anew()
            .bind(policy)
            .set(&shards)?
            .bind(range_us.start)
            .bind(range_us.end)
            .bind(namespace)
            .bind(step_us.max(1))
            .bind(i32::from(matches!(whose, Whose::Policy(_))));
        let rows: Vec<StepRow> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }
}

/// Puts a shard's minutes together that are old enough, an hour a transaction, and removes what began before
/// `before_us`. Answers how many rows are fewer than before. Several processes may do so at once: each minute goes
/// once, and into its hour with that.
pub(super) async fn prune_minutes<D: Driver>(
    driver: &D,
    shard: u16,
    before_us: i64,
    now_us: i64,
) -> Result<u64, StoreError> {
    let until_us = now_us - HOURS_AFTER_US;
    let until_us = until_us - until_us.rem_euclid(HOUR_US);
    let shard = i32::from(shard);
    let mut gone = driver
        .run_tx(Whom::Roles, "prune_minutes", move |mut tx| {
            let ask = Ask::new(sql!("prune_minutes")).bind(shard).bind(before_us);
            async move { tx.execute(ask).await }.boxed()
        })
        .await?;
    loop {
        let ask = Ask::new(sql!("minutes_oldest")).bind(shard).bind(until_us);
        let oldest: Vec<(i64,)> = driver.rows(Whom::Roles, ask).await?;
        let Some((oldest_us,)) = oldest.first().copied() else { return Ok(gone) };
        gone += put_together(driver, shard, oldest_us - oldest_us.rem_euclid(HOUR_US)).await?;
    }
}

async fn put_together<D: Driver>(driver: &D, shard: i32, hour_us: i64) -> Result<u64, StoreError> {
    driver
        .run_tx(Whom::Roles, "minutes_to_hours", move |mut tx| {
            async move {
                let take = Ask::new(sql!("minutes_take")).bind(shard).bind(hour_us).bind(hour_us + HOUR_US);
                let minutes: Vec<MinuteRecord> = tx.rows(take).await?;
                let taken = minutes.len();
                let mut hours: BTreeMap<(Uuid, String), MinuteRecord> = BTreeMap::new();
                for minute in minutes {
                    let minute = minute.of_hour(hour_us);
                    match hours.get_mut(&(minute.policy_uid, minute.namespace.clone())) {
                        Some(hour) => hour.add(&minute),
                        None => {
                            hours.insert((minute.policy_uid, minute.namespace.clone()), minute);
                        }
                    }
                }
                let hours: Vec<MinuteRecord> = hours.into_values().collect();
                if !hours.is_empty() {
                    tx.execute(Ask::new(sql!("minutes_add")).set(&hours)?).await?;
                }
                Ok(taken.saturating_sub(hours.len()) as u64)
            }
            .boxed()
        })
        .await
}
