//! How many queue shards there are, and more of them.

use async_trait::async_trait;
use futures::FutureExt as _;
use serde_json::json;
use tollgate_core::handle::change::ShardPause;
use uuid::Uuid;

use super::{Ask, Driver, Engine, Tx, Whom, insert_messages, own_sql, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::layout::{LayoutStore, ShardCount, ShardFill, WITH_LAYOUT, judge_count};
use crate::plan::Audit;
use crate::rows::{self, AuditRow, MessageRow, pause};

#[async_trait]
impl<D: Driver> LayoutStore for D {
    fn shard_count(&self) -> ShardCount {
        self.shards().clone()
    }

    async fn read_shards(&self) -> Result<u16, StoreError> {
        let rows: Vec<(i32, i32)> = self.rows(Whom::Roles, Ask::new(sql!("layout_read"))).await?;
        Ok(self.shards().learn(&rows))
    }

    async fn settled_shards(&self) -> Result<u16, StoreError> {
        let rows: Vec<(i32, i32)> = self.rows(Whom::Roles, Ask::new(sql!("layout_share"))).await?;
        Ok(self.shards().learn(&rows))
    }

    async fn use_shards(&self, to: u16, audit: Audit) -> Result<u16, StoreError> {
        let before = self
            .run_tx(Whom::People, "use_shards", move |mut tx| {
                let audit = audit.clone();
                async move { change(&mut tx, to, audit).await }.boxed()
            })
            .await?;
        self.read_shards().await?;
        Ok(before)
    }

    async fn shard_fill(&self) -> Result<Vec<ShardFill>, StoreError> {
        let shards: Vec<i32> = (0..i32::from(self.read_shards().await?)).collect();
        let mut all = vec![ShardFill::default(); shards.len()];
        let policies = Ask::new(sql!("fill_policies")).anew();
        let schedules = Ask::new(sql!("fill_schedules")).anew();
        let runs = Ask::new(sql!("fill_runs")).anew().set(&shards)?;
        fill(&mut all, self.rows(Whom::People, policies).await?, |of| &mut of.policies);
        fill(&mut all, self.rows(Whom::People, schedules).await?, |of| &mut of.schedules);
        fill(&mut all, self.rows(Whom::People, runs).await?, |of| &mut of.runs);
        Ok(all)
    }
}

fn fill(all: &mut [ShardFill], rows: Vec<(i32, i64)>, of: fn(&mut ShardFill) -> &mut u64) {
    for (shard, number) in rows {
        if let Some(shard) = usize::try_from(shard).ok().and_then(|shard| all.get_mut(shard)) {
            *of(shard) = u64::try_from(number).unwrap_or_default();
        }
    }
}

async fn change<DB: Engine>(tx: &mut Tx<'_, DB>, to: u16, audit: Audit) -> Result<u16, Failure> {
    judge_count(to)?;
    let rows: Vec<(i32, i32)> = tx.rows(Ask::new(sql!("layout_hold"))).await?;
    let before = rows
        .first()
        .and_then(|(shards, used)| Some((u16::try_from(*shards).ok()?, u16::try_from(*used).ok()?)));
    let (shards, before) = before.ok_or_else(|| StoreError::Corrupt {
        table: "shard_layout",
        key: "1".to_owned(),
        column: "shards",
        message: "1 to 65535 shards are expected".to_owned(),
    })?;
    if to == before {
        return Ok(before);
    }
    if to > shards {
        add(tx, shards, to).await?;
    }
    let write = Ask::new(sql!("layout_write")).bind(i32::from(shards.max(to))).bind(i32::from(to));
    tx.execute(write.bind(audit.at_us)).await?;
    let difference = json!({"shards": {"old": before, "new": to}});
    let audit = AuditRow::new(&Audit { difference, ..audit })?;
    tx.execute(Ask::new(sql!("audit_insert")).set(&[audit])?).await?;
    Ok(before)
}

/// Adds shards to those that there are.
async fn add<DB: Engine>(tx: &mut Tx<'_, DB>, shards: u16, to: u16) -> Result<(), Failure> {
    let paused = latest_pause(tx, shards).await?;
    let new: Vec<i32> = (i32::from(shards)..i32::from(to)).collect();
    let insert = Ask::new(own_sql!("shards_insert")).bind(Uuid::nil()).bind(paused).set(&new)?;
    tx.execute(insert).await?;
    let waiting: Vec<MessageRow> = tx.rows(Ask::new(sql!("inbox_pauses")).bind(0)).await?;
    for shard in new.iter().filter(|_| !waiting.is_empty()) {
        insert_messages(tx, *shard, &waiting).await?;
    }
    tx.execute(Ask::new(sql!("schema_raise")).bind(WITH_LAYOUT)).await?;
    Ok(())
}

/// What the latest order to pause or resume everything says that any shard has carried out. All of them are held until the
/// commit: an order that comes to one after this is from somebody who looks how many shards there are once more. One that no
/// shard has carried out waits in the inbox of the first, which every order reaches first.
async fn latest_pause<DB: Engine>(tx: &mut Tx<'_, DB>, shards: u16) -> Result<Option<String>, Failure> {
    let mut latest = ShardPause::default();
    for shard in (0..shards).map(i32::from) {
        let rows: Vec<(Option<String>,)> = tx.rows(Ask::new(sql!("shard_pause_hold")).bind(shard)).await?;
        // One that cannot be read is told as a corrupt row by its owner.
        let of = rows.into_iter().next().and_then(|(column,)| pause(shard, column).ok()).unwrap_or_default();
        if (of.order, of.pause.is_some()) > (latest.order, latest.pause.is_some()) {
            latest = of;
        }
    }
    Ok((latest != ShardPause::default()).then(|| rows::json(&latest)).transpose()?)
}
