//! Runs whose items are fetched.
//!
//! What is large goes by people's connections, as what they submit does: it keeps no role waiting.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::Message;
use tollgate_core::items::ItemPage;
use tollgate_core::model::{Run, Skipped};
use tollgate_core::own::Lease;
use uuid::Uuid;

use super::items::{PAGES_AT_ONCE, delete_of_run, index, insert_pages};
use super::{Ask, Driver, Engine, Exists, Tx, Whom, insert_messages, insert_skipped, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::items::ItemRun;
use crate::listing::{ListingFilter, ListingStore, Written};
use crate::rows::{RunRow, ScheduleBody, message_rows, skipped_rows, sound, text};

#[async_trait]
impl<D: Driver> ListingStore for D {
    async fn listing_runs(&self, filter: ListingFilter) -> Result<Vec<Run>, StoreError> {
        let ListingFilter { shards, until_us, except, each_max, limit } = filter;
        let shards: Vec<i32> = shards.into_iter().map(i32::from).collect();
        let ask = Ask::new(sql!("runs_listing"))
            .set(&shards)?
            .bind(until_us)
            .set(&except)?
            .bind(i64::from(each_max))
            .bind(i64::from(limit));
        let (runs, found) = sound(None, self.rows::<RunRow>(Whom::Roles, ask).await?);
        self.corruption().found(("runs that wait for items", String::new()), found);
        Ok(runs)
    }

    async fn shard_schedule(&self, shard: u16, uid: Uuid) -> Result<Option<ShardSchedule>, StoreError> {
        let ask = Ask::new(sql!("shard_schedule_get")).bind(i32::from(shard)).bind(uid);
        let rows = self.rows::<ScheduleBody>(Whom::Roles, ask).await?;
        rows.into_iter().next().map(ShardSchedule::try_from).transpose()
    }

    async fn begin_list(
        &self,
        lease: &Lease,
        run: &Run,
        carries: ItemRun,
        now_us: i64,
    ) -> Result<Written, StoreError> {
        let dropped = self.drop_list(lease, run).await?;
        if dropped != Written::Done {
            return Ok(dropped);
        }
        let carries = Arc::new(carries);
        under(self, (Whom::People, "begin_list"), lease, run, move |tx, run| {
            let (carries, shard, id) = (Arc::clone(&carries), i32::from(run.shard), run.id.0);
            async move {
                let ask = Ask::new(sql!("item_runs_insert"))
                    .bind(shard)
                    .bind(id)
                    .bind(carries.schedule_uid)
                    .bind(now_us)
                    .bind(carries.payload.clone());
                tx.execute(ask).await
            }
            .boxed()
        })
        .await
    }

    async fn add_list_pages(
        &self,
        lease: &Lease,
        run: &Run,
        pages: Vec<ItemPage>,
    ) -> Result<Written, StoreError> {
        let pages = Arc::new(pages);
        under(self, (Whom::People, "add_list_pages"), lease, run, move |tx, run| {
            let (pages, at) = (Arc::clone(&pages), (run.shard, run.id));
            async move {
                insert_pages(tx, at, &pages).await?;
                Ok(1)
            }
            .boxed()
        })
        .await
    }

    async fn hand_over_listed(
        &self,
        lease: &Lease,
        run: &Run,
        events: u32,
        units_max: u32,
    ) -> Result<Written, StoreError> {
        under(self, (Whom::Roles, "hand_over_listed"), lease, run, move |tx, run| {
            let (listed, shard, id) = (of_run(Ask::new(sql!("runs_listed")), &run), run.shard, run.id.0);
            async move {
                if events > 0 {
                    let made = Ask::new(sql!("item_runs_made")).bind(i32::from(shard)).bind(id);
                    tx.execute(made).await?;
                }
                tx.execute(listed.bind(index(events)).bind(index(units_max))).await
            }
            .boxed()
        })
        .await
    }

    async fn list_failed(&self, lease: &Lease, run: &Run, reason: &str) -> Result<Written, StoreError> {
        let reason = Arc::<str>::from(text(reason));
        under(self, (Whom::Roles, "list_failed"), lease, run, move |tx, run| {
            let ask = of_run(Ask::new(sql!("runs_list_failed")), &run).bind(reason.to_string());
            tx.execute(ask).boxed()
        })
        .await
    }

    async fn give_up_list(
        &self,
        lease: &Lease,
        run: &Run,
        skipped: &Skipped,
        reason: &str,
        end: Option<Message>,
    ) -> Result<Written, StoreError> {
        let (reason, at_us) = (Arc::<str>::from(text(reason)), skipped.recorded_us);
        let end = Arc::new(message_rows(&end)?);
        let skipped = Arc::new(skipped_rows(std::slice::from_ref(skipped)));
        under(self, (Whom::Roles, "give_up_list"), lease, run, move |tx, run| {
            let (skipped, end, shard) = (Arc::clone(&skipped), Arc::clone(&end), i32::from(run.shard));
            let ask = of_run(Ask::new(sql!("runs_not_listed")), &run).bind(reason.to_string()).bind(at_us);
            async move {
                let ended = tx.execute(ask).await?;
                if ended > 0 {
                    insert_skipped(tx, &skipped).await?;
                }
                if ended > 0 && !end.is_empty() {
                    insert_messages(tx, shard, &end).await?;
                }
                Ok(ended)
            }
            .boxed()
        })
        .await
    }

    async fn drop_list(&self, lease: &Lease, run: &Run) -> Result<Written, StoreError> {
        loop {
            let written = under(self, (Whom::People, "drop_list"), lease, run, move |tx, run| {
                let at = (run.shard, run.id.0);
                async move {
                    let pages = delete_of_run(tx, sql!("item_pages_delete"), at, Some(PAGES_AT_ONCE)).await?;
                    if pages == 0 {
                        delete_of_run(tx, sql!("item_runs_delete"), at, None).await?;
                    }
                    // The last part changes nothing that counts.
                    Ok(pages)
                }
                .boxed()
            });
            match written.await? {
                Written::Done => {}
                Written::NotWaiting => return Ok(Written::Done),
                Written::ElsewhereNow => return Ok(Written::ElsewhereNow),
            }
        }
    }
}

fn of_run<DB: Engine>(ask: Ask<DB>, run: &Run) -> Ask<DB> {
    ask.bind(i32::from(run.shard)).bind(run.id.0).bind(run.generation)
}

/// A transaction for a run, as long as its shard has not changed hands since the lease was read. `work` says how many rows it
/// changed that had to be as they were seen.
async fn under<D, F>(
    driver: &D,
    (whom, name): (Whom, &'static str),
    lease: &Lease,
    run: &Run,
    work: F,
) -> Result<Written, StoreError>
where
    D: Driver,
    F: for<'t, 'c> Fn(&'t mut Tx<'c, D::Database>, Arc<Run>) -> BoxFuture<'t, Result<u64, Failure>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let (shard, lease_id, run) = (i32::from(lease.shard), lease.lease_id, Arc::new(run.clone()));
    driver
        .run_tx(whom, name, move |mut tx| {
            let (run, work) = (Arc::clone(&run), work.clone());
            async move {
                let share = Ask::new(sql!("shard_share")).bind(shard).bind(lease_id);
                if tx.rows::<Exists>(share).await?.is_empty() {
                    return Ok(Written::ElsewhereNow);
                }
                Ok(if work(&mut tx, run).await? > 0 { Written::Done } else { Written::NotWaiting })
            }
            .boxed()
        })
        .await
}
