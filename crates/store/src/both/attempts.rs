//! What became of deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::model::RunId;

use super::{Ask, Driver, Whom, sql};
use crate::StoreError;
use crate::attempts::{ATTEMPTS_KEPT, AttemptRow, AttemptStore};
use crate::rows::{AttemptRecord, int};

#[async_trait]
impl<D: Driver> AttemptStore for D {
    async fn put_attempts(&self, rows: &[AttemptRow]) -> Result<(), StoreError> {
        // A statement writes each row once: of several in one place the latest.
        let mut latest: BTreeMap<_, &AttemptRow> = BTreeMap::new();
        for row in rows {
            let kept = latest.entry((row.run, row.index, row.attempt % ATTEMPTS_KEPT)).or_insert(row);
            if kept.attempt <= row.attempt {
                *kept = row;
            }
        }
        if latest.is_empty() {
            return Ok(());
        }
        let records: Result<Vec<_>, _> = latest.into_values().map(AttemptRecord::try_from).collect();
        let records = Arc::new(records?);
        self.run_tx(Whom::Roles, "put_attempts", move |mut tx| {
            let records = Arc::clone(&records);
            async move { tx.execute(Ask::new(sql!("attempts_put")).set(&records)?).await.map(drop) }.boxed()
        })
        .await
    }

    async fn attempts(&self, run: RunId, index: u32) -> Result<Vec<AttemptRow>, StoreError> {
        let ask = Ask::new(sql!("attempts_list")).bind(run.0).bind(int(index));
        let rows: Vec<AttemptRecord> = self.rows(Whom::People, ask).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }
}
