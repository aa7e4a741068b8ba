//! Queue shards: leases, inboxes, commits behind the fence.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow as _, Row as _};
use tollgate_core::handle::change::{Changes, HistoryRow};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Run, RunId, RunSpec};
use uuid::Uuid;

use super::Sqlite;
use super::driver::tx;
use super::load::decoded;
use crate::both::{insert_messages, post_under};
use crate::corrupt::CorruptRow;
use crate::handle::{HandleStore, Inbox, Lease, LoadedShard, Member, Posted, UntakenRuns};
use crate::line::Fence;
use crate::rows::{
    BodyRow, ChangeRows, HistoryRecord, LeaseRow, MemberRow, MessageRow, RunRow, SpecRecord, Untaken, all,
    group_by_shard, json, message_rows, read_inbox, sound,
};
use crate::{CommitError, StoreError};

#[async_trait]
impl HandleStore for Sqlite {
    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let rows = self.judge(sqlx::query(both_sql!("leases")).fetch_all(&self.readers).await)?;
        let (rows, mut found) = decoded::<LeaseRow>("queue_shards", -1, &rows);
        let (leases, corrupt) = sound(None, rows);
        found.extend(corrupt);
        self.corruption.found(("leases", String::new()), found);
        let count = sqlx::query_as(both_sql!("layout_read")).fetch_all(&self.readers).await;
        self.shards.learn(&self.judge(count)?);
        Ok(leases)
    }

    async fn lease(&self, shard: u16) -> Result<Option<Lease>, StoreError> {
        let query = sqlx::query_as::<_, LeaseRow>(both_sql!("lease")).bind(i32::from(shard));
        Ok(all(self.judge(query.fetch_all(&self.readers).await)?)?.into_iter().next())
    }

    async fn shards_with_news(&self, until_us: i64) -> Result<Vec<u16>, StoreError> {
        let query = sqlx::query_scalar::<_, i32>(sql!("news")).bind(until_us);
        let shards = self.judge(query.fetch_all(&self.readers).await)?;
        Ok(shards.into_iter().filter_map(|shard| u16::try_from(shard).ok()).collect())
    }

    async fn take_shard(&self, seen: &Lease, owner: &str) -> Result<Option<Lease>, StoreError> {
        let lease_id = Uuid::new_v4();
        let (old, name) = (seen.clone(), owner.to_owned());
        let taken = self
            .run_tx("take_shard", move |connection| {
                let query = sqlx::query(both_sql!("shard_take"))
                    .bind(i32::from(old.shard))
                    .bind(old.lease_id)
                    .bind(old.epoch)
                    .bind(name.clone())
                    .bind(lease_id);
                async move { Ok(query.execute(connection).await?.rows_affected() == 1) }.boxed()
            })
            .await?;
        let lease = Lease { owner: owner.to_owned(), lease_id, epoch: seen.epoch + 1, ..seen.clone() };
        Ok(taken.then_some(lease))
    }

    async fn give_up_shard(&self, lease: &Lease) -> Result<(), StoreError> {
        let (shard, lease_id, fresh) = (i32::from(lease.shard), lease.lease_id, Uuid::new_v4());
        self.run_tx("give_up_shard", move |connection| {
            let query = sqlx::query(both_sql!("shard_give_up")).bind(shard).bind(lease_id).bind(fresh);
            async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
        })
        .await
    }

    async fn load_shard(&self, shard: u16) -> Result<LoadedShard, StoreError> {
        let shard = i32::from(shard);
        let read =
            self.run_read("load_shard", move |connection| super::load::load(connection, shard).boxed()).await;
        let (loaded, found) = read?;
        self.corruption.found(("load", shard.to_string()), found);
        Ok(loaded)
    }

    async fn commit(&self, lease: &Lease, changes: &Changes) -> Result<(), CommitError> {
        let rows = ChangeRows::of(changes).map_err(CommitError::Failed)?;
        let forwards = changes.forwards.iter().map(|(shard, message)| (*shard, message));
        for (shard, messages) in group_by_shard(forwards) {
            let messages = message_rows(messages).map_err(CommitError::Failed)?;
            self.post_rows(shard, messages).await.map_err(CommitError::Failed)?;
        }
        let fence = Fence { shard: i32::from(lease.shard), lease_id: lease.lease_id };
        self.commit_in_line(fence, rows).await
    }

    async fn emitted_runs(
        &self,
        shard: u16,
        launches_us: Range<i64>,
        limit: u32,
    ) -> Result<UntakenRuns, StoreError> {
        let id = i32::from(shard);
        let query = sqlx::query(both_sql!("runs_emitted"))
            .bind(id)
            .bind(launches_us.end)
            .bind(i64::from(limit))
            .bind(launches_us.start);
        let untaken = untaken(shard, &self.judge(query.fetch_all(&self.readers).await)?);
        if !untaken.unfit.is_empty() {
            let ids = json(&untaken.unfit)?;
            self.run_tx("pass_over", move |connection| {
                let query = sqlx::query(both_sql!("runs_pass_over")).bind(id).bind(ids.clone());
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await?;
        }
        let (read, found) = self.with_specs(untaken).await?;
        self.corruption.also(("unreadable runs", shard.to_string()), found);
        Ok(read)
    }

    async fn unreadable_runs(&self, shard: u16, after: RunId, limit: u32) -> Result<UntakenRuns, StoreError> {
        let query = sqlx::query(both_sql!("runs_unreadable")).bind(i32::from(shard)).bind(after.0);
        let rows = query.bind(i64::from(limit)).fetch_all(&self.readers).await;
        let (read, found) = self.with_specs(untaken(shard, &self.judge(rows)?)).await?;
        let (first, last) = (after == RunId::default(), read.rows < limit as usize);
        self.corruption.page(("unreadable runs", shard.to_string()), found, first, last);
        Ok(read)
    }

    async fn runs(&self, shard: u16, ids: &[RunId]) -> Result<Vec<Run>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|run| run.0).collect();
        let query = sqlx::query_as::<_, RunRow>(sql!("runs_by_ids")).bind(i32::from(shard)).bind(json(&ids)?);
        all(self.judge(query.fetch_all(&self.readers).await)?)
    }

    async fn specs(&self, shard: u16, keys: &[(Uuid, i64)]) -> Result<Vec<RunSpec>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let query = super::load::specs_query(i32::from(shard), keys)?;
        let rows = self.judge(query.fetch_all(&self.readers).await)?;
        rows.iter().map(|row| self.judge(SpecRecord::from_row(row)).and_then(RunSpec::try_from)).collect()
    }

    async fn inbox_except(&self, shard: u16, except: &[Uuid], limit: u32) -> Result<Inbox, StoreError> {
        let id = i32::from(shard);
        let query = sqlx::query(sql!("inbox_list")).bind(id).bind(json(except)?).bind(i64::from(limit));
        let rows = self.judge(query.fetch_all(&self.readers).await)?;
        let (sound, mut found) = decoded::<BodyRow>("shard_inbox", id, &rows);
        let (mut read, corrupt) = read_inbox(shard, sound);
        let broken = rows.iter().filter(|row| BodyRow::from_row(*row).is_err());
        read.unreadable.extend(broken.filter_map(|row| row.try_get::<Uuid, _>("uid").ok()));
        found.extend(corrupt);
        let last = read.rows < limit as usize;
        self.corruption.page(("inbox", shard.to_string()), found, except.is_empty(), last);
        Ok(read)
    }

    async fn post(&self, shard: u16, messages: &[Message]) -> Result<(), StoreError> {
        self.post_rows(shard, message_rows(messages)?).await
    }

    async fn post_under(&self, lease: &Lease, message: &Message) -> Result<Posted, StoreError> {
        let under = (i32::from(lease.shard), lease.lease_id);
        let runs = Arc::new(message.control.runs());
        let messages = Arc::new(message_rows(std::slice::from_ref(message))?);
        self.run_tx("post_under", move |connection| {
            let (runs, messages) = (Arc::clone(&runs), Arc::clone(&messages));
            async move { post_under(&mut tx(connection), under, &runs, &messages).await }.boxed()
        })
        .await
    }

    async fn dead_events(
        &self,
        shard: u16,
        run: RunId,
        indexes: &[u32],
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let statement =
            if indexes.is_empty() { both_sql!("history_dead") } else { both_sql!("history_dead_some") };
        let query = sqlx::query_as::<_, HistoryRecord>(statement)
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i64::from(limit));
        let indexes: Vec<i32> = indexes.iter().filter_map(|index| i32::try_from(*index).ok()).collect();
        let query = if statement == both_sql!("history_dead") { query } else { query.bind(json(&indexes)?) };
        all(self.judge(query.fetch_all(&self.readers).await)?)
    }

    async fn heartbeat(&self, member: &Member) -> Result<(), StoreError> {
        let member = member.clone();
        self.run_tx("heartbeat", move |connection| {
            let query = sqlx::query(both_sql!("members_put"))
                .bind(member.process.clone())
                .bind(member.roles.clone())
                .bind(member.address.clone())
                .bind(member.heartbeat);
            async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
        })
        .await
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let rows = sqlx::query_as::<_, MemberRow>(both_sql!("members_list")).fetch_all(&self.readers).await;
        Ok(self.judge(rows)?.into_iter().map(Member::from).collect())
    }

    async fn forget_member(&self, process: &str) -> Result<(), StoreError> {
        let process = process.to_owned();
        self.run_tx("forget_member", move |connection| {
            let query = sqlx::query(both_sql!("members_delete")).bind(process.clone());
            async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
        })
        .await
    }
}

/// Runs as they are read, with the ids of those that cannot be taken apart.
fn untaken(shard: u16, rows: &[SqliteRow]) -> Untaken {
    let (sound, found) = decoded::<RunRow>("runs", i32::from(shard), rows);
    let broken = rows.iter().filter(|row| RunRow::from_row(*row).is_err());
    let ids = broken.filter_map(|row| row.try_get("run_id").ok()).collect();
    let mut untaken = Untaken::new(shard);
    untaken.undecodable(found, ids);
    untaken.runs(sound);
    untaken
}

impl Sqlite {
    async fn with_specs(&self, mut untaken: Untaken) -> Result<(UntakenRuns, Vec<CorruptRow>), StoreError> {
        let (id, keys) = (untaken.shard_id(), untaken.spec_keys());
        if !keys.is_empty() {
            let rows = self.judge(super::load::specs_query(id, &keys)?.fetch_all(&self.readers).await)?;
            let (specs, undecodable) = decoded("run_specs", id, &rows);
            untaken.specs(specs, undecodable);
        }
        Ok(untaken.finish())
    }

    async fn post_rows(&self, shard: u16, messages: Vec<MessageRow>) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let messages = Arc::new(messages);
        self.run_tx("post", move |connection| {
            let messages = Arc::clone(&messages);
            async move { insert_messages(&mut tx(connection), i32::from(shard), &messages).await.map(drop) }
                .boxed()
        })
        .await
    }
}
