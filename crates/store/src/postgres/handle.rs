//! Queue shards: leases, inboxes, commits behind the fence.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::change::{Changes, HistoryRow};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Run, RunId, RunSpec};
use uuid::Uuid;

use super::Postgres;
use super::backlog::BacklogLook;
use super::driver::tx;
use crate::both::{insert_messages, post_under};
use crate::corrupt::CorruptRow;
use crate::handle::{HandleStore, Inbox, Lease, LoadedShard, Member, Posted, UntakenRuns};
use crate::line::Fence;
use crate::rows::{
    BodyRow, ChangeRows, HistoryRecord, LeaseRow, MemberRow, MessageRow, RunRow, Untaken, all,
    group_by_shard, message_rows, read_inbox, sound,
};
use crate::{CommitError, StoreError};

#[async_trait]
impl HandleStore for Postgres {
    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let rows = rows!(self.pulse, sqlx::query_as::<_, LeaseRow>(both_sql!("leases")));
        let rows = self.work.judge(rows)?;
        let (leases, found) = sound(None, rows);
        self.corruption.found(("leases", String::new()), found);
        let count = rows!(self.pulse, sqlx::query_as::<_, (i32, i32)>(both_sql!("layout_read")));
        self.shards.learn(&self.work.judge(count)?);
        Ok(leases)
    }

    async fn lease(&self, shard: u16) -> Result<Option<Lease>, StoreError> {
        let query = sqlx::query_as::<_, LeaseRow>(both_sql!("lease")).bind(i32::from(shard));
        Ok(all(self.work.judge(rows!(self.work, query))?)?.into_iter().next())
    }

    async fn shards_with_news(&self, until_us: i64) -> Result<Vec<u16>, StoreError> {
        let look = self.backlog.look(None, until_us);
        let query = sqlx::query_scalar::<_, i32>(sql!("news")).bind(until_us).bind(look.first_us());
        let shards = self.work.judge(rows!(self.work, query));
        look.took();
        Ok(shards?.into_iter().filter_map(|shard| u16::try_from(shard).ok()).collect())
    }

    async fn take_shard(&self, seen: &Lease, owner: &str) -> Result<Option<Lease>, StoreError> {
        let lease_id = Uuid::new_v4();
        let (old, name) = (seen.clone(), owner.to_owned());
        let taken = self
            .work
            .run_quick("take_shard", move |connection| {
                let lock = sqlx::query(sql!("shard_lock")).bind(i32::from(old.shard));
                let query = sqlx::query(both_sql!("shard_take"))
                    .bind(i32::from(old.shard))
                    .bind(old.lease_id)
                    .bind(old.epoch)
                    .bind(name.clone())
                    .bind(lease_id);
                async move {
                    lock.execute(&mut *connection).await?;
                    Ok(query.execute(connection).await?.rows_affected() == 1)
                }
                .boxed()
            })
            .await?;
        let lease = Lease { owner: owner.to_owned(), lease_id, epoch: seen.epoch + 1, ..seen.clone() };
        Ok(taken.then_some(lease))
    }

    async fn give_up_shard(&self, lease: &Lease) -> Result<(), StoreError> {
        let (shard, lease_id, fresh) = (i32::from(lease.shard), lease.lease_id, Uuid::new_v4());
        self.work
            .run_quick("give_up_shard", move |connection| {
                let query = sqlx::query(both_sql!("shard_give_up")).bind(shard).bind(lease_id).bind(fresh);
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }

    async fn load_shard(&self, shard: u16) -> Result<LoadedShard, StoreError> {
        let shard = i32::from(shard);
        let read = self
            .work
            .run_read("load_shard", move |connection| super::load::load(connection, shard).boxed())
            .await;
        let (loaded, found) = read?;
        self.corruption.found(("load", shard.to_string()), found);
        Ok(loaded)
    }

    async fn commit(&self, lease: &Lease, changes: &Changes) -> Result<(), CommitError> {
        let rows = Arc::new(ChangeRows::of(changes).map_err(CommitError::Failed)?);
        let forwards = changes.forwards.iter().map(|(shard, message)| (*shard, message));
        for (shard, messages) in group_by_shard(forwards) {
            let messages = message_rows(messages).map_err(CommitError::Failed)?;
            self.post_rows(shard, messages).await.map_err(CommitError::Failed)?;
        }
        let fence = Fence { shard: i32::from(lease.shard), lease_id: lease.lease_id };
        self.judge_commit("commit", self.commit_in_line(fence, rows).await)
    }

    async fn emitted_runs(
        &self,
        shard: u16,
        launches_us: Range<i64>,
        limit: u32,
    ) -> Result<UntakenRuns, StoreError> {
        let until_us = launches_us.end;
        // A look at a part says nothing of how long one at all takes.
        let look = (launches_us.start == i64::MIN).then(|| self.backlog.look(Some(shard), until_us));
        let from_us = look.as_ref().map_or(launches_us.start, BacklogLook::first_us);
        let query = sqlx::query_as::<_, RunRow>(both_sql!("runs_emitted"))
            .bind(i32::from(shard))
            .bind(until_us)
            .bind(i64::from(limit))
            .bind(from_us);
        let records = self.work.judge(rows!(self.work, query));
        if let Some(look) = look {
            look.took();
        }
        let mut untaken = Untaken::new(shard);
        untaken.runs(records?);
        if !untaken.unfit.is_empty() {
            let (shard, ids) = (i32::from(shard), untaken.unfit.clone());
            self.work
                .run_quick("pass_over", move |connection| {
                    let query = sqlx::query(both_sql!("runs_pass_over")).bind(shard).bind(ids.clone());
                    async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
                })
                .await?;
        }
        let (read, found) = self.with_specs(untaken).await?;
        self.corruption.also(("unreadable runs", shard.to_string()), found);
        Ok(read)
    }

    async fn unreadable_runs(&self, shard: u16, after: RunId, limit: u32) -> Result<UntakenRuns, StoreError> {
        let query = sqlx::query_as::<_, RunRow>(both_sql!("runs_unreadable"))
            .bind(i32::from(shard))
            .bind(after.0)
            .bind(i64::from(limit));
        let mut untaken = Untaken::new(shard);
        untaken.runs(self.work.judge(rows!(self.work, query))?);
        let (read, found) = self.with_specs(untaken).await?;
        let (first, last) = (after == RunId::default(), read.rows < limit as usize);
        self.corruption.page(("unreadable runs", shard.to_string()), found, first, last);
        Ok(read)
    }

    async fn runs(&self, shard: u16, ids: &[RunId]) -> Result<Vec<Run>, StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|run| run.0).collect();
        let query = super::load::runs_query(i32::from(shard), &ids);
        all(self.work.judge(rows!(self.work, query))?)
    }

    async fn specs(&self, shard: u16, keys: &[(Uuid, i64)]) -> Result<Vec<RunSpec>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let query = super::load::specs_query(i32::from(shard), keys);
        all(self.work.judge(rows!(self.work, query))?)
    }

    async fn inbox_except(&self, shard: u16, except: &[Uuid], limit: u32) -> Result<Inbox, StoreError> {
        let query = sqlx::query_as::<_, BodyRow>(sql!("inbox_list"))
            .bind(i32::from(shard))
            .bind(except.to_vec())
            .bind(i64::from(limit));
        let rows = self.work.judge(rows!(self.work, query))?;
        let (read, found) = read_inbox(shard, rows);
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
        self.work
            .run_quick("post_under", move |connection| {
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
        let query = if statement == both_sql!("history_dead") { query } else { query.bind(indexes) };
        all(self.work.judge(rows!(self.work, query))?)
    }

    async fn heartbeat(&self, member: &Member) -> Result<(), StoreError> {
        let member = member.clone();
        self.pulse
            .run_quick("heartbeat", move |connection| {
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
        let rows = rows!(self.pulse, sqlx::query_as::<_, MemberRow>(both_sql!("members_list")));
        Ok(self.work.judge(rows)?.into_iter().map(Member::from).collect())
    }

    async fn forget_member(&self, process: &str) -> Result<(), StoreError> {
        let process = process.to_owned();
        self.pulse
            .run_quick("forget_member", move |connection| {
                let query = sqlx::query(both_sql!("members_delete")).bind(process.clone());
                async move { Ok(query.execute(connection).await.map(drop)?) }.boxed()
            })
            .await
    }
}

impl Postgres {
    async fn with_specs(&self, mut untaken: Untaken) -> Result<(UntakenRuns, Vec<CorruptRow>), StoreError> {
        let keys = untaken.spec_keys();
        if !keys.is_empty() {
            let query = super::load::specs_query(untaken.shard_id(), &keys);
            untaken.specs(self.work.judge(rows!(self.work, query))?, Vec::new());
        }
        Ok(untaken.finish())
    }

    async fn post_rows(&self, shard: u16, messages: Vec<MessageRow>) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let messages = Arc::new(messages);
        self.work
            .run_quick("post", move |connection| {
                let messages = Arc::clone(&messages);
                async move { insert_messages(&mut tx(connection), i32::from(shard), &messages).await.map(drop) }
                    .boxed()
            })
            .await
    }
}
