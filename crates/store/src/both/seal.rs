//! Rows that hold secrets.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::items::index;
use super::{Ask, Driver, Whom, only, sql};
use crate::StoreError;
use crate::seal::{SealStore, StoredItemRun, StoredResult, StoredSchedule, StoredSpec};

#[async_trait]
impl<D: Driver> SealStore for D {
    async fn stored_schedules(
        &self,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<StoredSchedule>, StoreError> {
        let ask = Ask::new(sql!("schedules_stored")).bind(after.unwrap_or_default()).bind(i64::from(limit));
        let rows: Vec<(Uuid, String, String, String)> = self.rows(Whom::People, ask).await?;
        let stored = |(uid, spec, payload, items)| StoredSchedule { uid, spec, payload, items };
        Ok(rows.into_iter().map(stored).collect())
    }

    async fn stored_specs(
        &self,
        shard: u16,
        after: Option<(Uuid, i64)>,
        limit: u32,
    ) -> Result<Vec<StoredSpec>, StoreError> {
        let (uid, generation) = after.unwrap_or_default();
        let ask = Ask::new(sql!("specs_stored"))
            .bind(i32::from(shard))
            .bind(uid)
            .bind(generation)
            .bind(i64::from(limit));
        let rows: Vec<(Uuid, i64, String)> = self.rows(Whom::People, ask).await?;
        let stored = |(schedule_uid, generation, body)| StoredSpec { shard, schedule_uid, generation, body };
        Ok(rows.into_iter().map(stored).collect())
    }

    async fn replace_schedules(
        &self,
        rows: Vec<(StoredSchedule, StoredSchedule)>,
    ) -> Result<u64, StoreError> {
        let rows = Arc::new(rows);
        self.run_tx(Whom::People, "replace_schedules", move |mut tx| {
            let rows = Arc::clone(&rows);
            async move {
                D::before_secrets_go(&mut tx).await?;
                let mut replaced = 0;
                for (old, new) in rows.iter() {
                    let ask = Ask::new(sql!("schedules_replace"))
                        .bind(old.uid)
                        .bind(&*new.spec)
                        .bind(&*new.payload)
                        .bind(&*new.items)
                        .bind(&*old.spec)
                        .bind(&*old.payload)
                        .bind(&*old.items);
                    replaced += tx.execute(ask).await?;
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn replace_specs(
        &self,
        shard: u16,
        rows: Vec<(StoredSpec, StoredSpec)>,
    ) -> Result<u64, StoreError> {
        let rows = Arc::new(rows);
        self.run_tx(Whom::People, "replace_specs", move |mut tx| {
            let rows = Arc::clone(&rows);
            async move {
                D::before_secrets_go(&mut tx).await?;
                let mut replaced = 0;
                for (old, new) in rows.iter() {
                    let ask = Ask::new(sql!("specs_replace"))
                        .bind(i32::from(shard))
                        .bind(old.schedule_uid)
                        .bind(old.generation)
                        .bind(&*new.body)
                        .bind(&*old.body);
                    replaced += tx.execute(ask).await?;
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn stored_item_runs(
        &self,
        shard: u16,
        after: RunId,
        limit: u32,
    ) -> Result<Vec<StoredItemRun>, StoreError> {
        let ask = Ask::new(sql!("item_runs_stored")).bind(i32::from(shard)).bind(after.0);
        let rows: Vec<(Uuid, Uuid, String)> = self.rows(Whom::People, ask.bind(i64::from(limit))).await?;
        let stored = |(run, schedule_uid, payload)| StoredItemRun { run: RunId(run), schedule_uid, payload };
        Ok(rows.into_iter().map(stored).collect())
    }

    async fn stored_item_pages(
        &self,
        shard: u16,
        run: RunId,
        after: Option<u32>,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, StoreError> {
        let after = after.map_or(-1, |after| i32::try_from(after).unwrap_or(i32::MAX));
        let ask = Ask::new(sql!("item_pages_stored")).bind(i32::from(shard)).bind(run.0).bind(after);
        let rows: Vec<(i32, String)> = self.rows(Whom::People, ask.bind(i64::from(limit))).await?;
        Ok(rows.into_iter().filter_map(|(first, body)| Some((u32::try_from(first).ok()?, body))).collect())
    }

    async fn replace_items(
        &self,
        shard: u16,
        run: RunId,
        texts: Vec<(Option<u32>, String, String)>,
    ) -> Result<u64, StoreError> {
        let texts = Arc::new(texts);
        self.run_tx(Whom::People, "replace_items", move |mut tx| {
            let texts = Arc::clone(&texts);
            async move {
                D::before_secrets_go(&mut tx).await?;
                let mut replaced = 0;
                for (first, old, new) in texts.iter() {
                    let ask = match first {
                        Some(first) => Ask::new(sql!("item_pages_replace"))
                            .bind(i32::from(shard))
                            .bind(run.0)
                            .bind(i32::try_from(*first).unwrap_or(i32::MAX)),
                        None => Ask::new(sql!("item_runs_replace")).bind(i32::from(shard)).bind(run.0),
                    };
                    replaced += tx.execute(ask.bind(new.clone()).bind(old.clone())).await?;
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn stored_results(
        &self,
        shard: u16,
        after: Option<(RunId, u32)>,
        limit: u32,
    ) -> Result<Vec<StoredResult>, StoreError> {
        let (run, index) = after.map_or((RunId::default(), -1), |(run, index)| (run, self::index(index)));
        let ask = Ask::new(sql!("results_stored")).bind(i32::from(shard)).bind(run.0).bind(index);
        let rows: Vec<(Uuid, i32, String)> = self.rows(Whom::People, ask.bind(i64::from(limit))).await?;
        let stored = |(run, index, body)| {
            Some(StoredResult { run: RunId(run), index: u32::try_from(index).ok()?, body })
        };
        Ok(rows.into_iter().filter_map(stored).collect())
    }

    async fn replace_results(
        &self,
        shard: u16,
        rows: Vec<(StoredResult, String)>,
    ) -> Result<u64, StoreError> {
        let rows = Arc::new(rows);
        self.run_tx(Whom::People, "replace_results", move |mut tx| {
            let rows = Arc::clone(&rows);
            async move {
                D::before_secrets_go(&mut tx).await?;
                let mut replaced = 0;
                for (old, new) in rows.iter() {
                    let ask = Ask::new(sql!("results_replace"))
                        .bind(i32::from(shard))
                        .bind(old.run.0)
                        .bind(index(old.index));
                    replaced += tx.execute(ask.bind(new.clone()).bind(old.body.clone())).await?;
                }
                Ok(replaced)
            }
            .boxed()
        })
        .await
    }

    async fn stored_installation(&self) -> Result<(Uuid, Vec<u8>), StoreError> {
        let (id, secret, _shards): (Uuid, Vec<u8>, i32) =
            only(self.rows(Whom::Roles, Ask::new(sql!("installation_read"))).await?)?;
        Ok((id, secret))
    }

    async fn replace_installation_secret(&self, old: &[u8], new: &[u8]) -> Result<bool, StoreError> {
        let (old, new) = (old.to_vec(), new.to_vec());
        self.run_tx(Whom::Roles, "replace_installation_secret", move |mut tx| {
            let ask = Ask::new(sql!("installation_seal")).bind(&*old).bind(&*new);
            async move {
                D::before_secrets_go(&mut tx).await?;
                Ok(tx.execute(ask).await? == 1)
            }
            .boxed()
        })
        .await
    }

    async fn scrub(&self) -> Result<bool, StoreError> {
        Driver::scrub(self).await
    }
}
