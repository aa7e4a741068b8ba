//! What has ended, and retention.

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow};
use tollgate_core::model::{Run, RunId, RunState, Skipped};
use uuid::Uuid;

use super::Sqlite;
use crate::StoreError;
use crate::history::{
    HistoryStore, PRUNE_AT_ONCE, PRUNE_SPARE_US, Pruned, RetentionStore, RunFilter, prunes_specs_of,
};
use crate::rows::{
    BatchRecord, HistoryRecord, RunRow, SkippedRow, TokenRecord, Word as _, all, batches_from, batches_limit,
    json, sound, sound_page, tokens_of,
};

#[async_trait]
impl HistoryStore for Sqlite {
    async fn list_runs(
        &self,
        namespace: &str,
        filter: &RunFilter,
        after: Option<(i64, RunId)>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let statement = match filter.schedule_uid {
            _ if filter.is_open() => sql!("runs_list_open"),
            Some(_) => sql!("runs_list_schedule"),
            None => sql!("runs_list"),
        };
        let states: Vec<&str> = filter.states.iter().copied().map(RunState::word).collect();
        let (after_us, after_run) = after.unwrap_or((i64::MAX, RunId(Uuid::max())));
        let mut query = sqlx::query_as::<_, RunRow>(statement)
            .bind(namespace)
            .bind(filter.from_us.unwrap_or(i64::MIN))
            .bind(filter.to_us.unwrap_or(i64::MAX))
            .bind(after_us)
            .bind(after_run.0)
            .bind(json(&states)?)
            .bind(i64::from(limit));
        query = match filter.schedule_uid {
            uid if filter.is_open() => query.bind(filter.policy_uid).bind(uid),
            Some(uid) => query.bind(uid).bind(filter.policy_uid),
            None => query.bind(filter.policy_uid),
        };
        let rows = self.judge(query.fetch_all(&self.people).await)?;
        let place = |row: &RunRow| (row.launch_us, RunId(row.run_id));
        let (mut page, found, rest) = sound_page(rows, limit, place, |row| u16::try_from(row.shard_id).ok());
        self.corruption.also(("runs", namespace.to_owned()), found);
        if let Some((last, missing)) = rest {
            page.extend(self.list_runs(namespace, filter, Some(last), missing).await?);
        }
        Ok(page)
    }

    async fn policy_runs_open(
        &self,
        shard: u16,
        policy_uid: Uuid,
        before_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let query = sqlx::query_as::<_, RunRow>(sql!("runs_policy_open"))
            .bind(i32::from(shard))
            .bind(policy_uid)
            .bind(before_us)
            .bind(i64::from(limit));
        let (runs, found) = sound(Some(shard), self.judge(query.fetch_all(&self.people).await)?);
        self.corruption.also(("runs", format!("runs_policy_open {shard}")), found);
        Ok(runs)
    }

    async fn policy_runs_ended(
        &self,
        shard: u16,
        policy_uid: Uuid,
        since_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let query = sqlx::query_as::<_, RunRow>(sql!("runs_policy_ended"))
            .bind(i32::from(shard))
            .bind(policy_uid)
            .bind(since_us)
            .bind(i64::from(limit));
        let (runs, found) = sound(Some(shard), self.judge(query.fetch_all(&self.people).await)?);
        self.corruption.also(("runs", format!("runs_policy_ended {shard}")), found);
        Ok(runs)
    }

    async fn list_skipped(
        &self,
        schedule_uid: Uuid,
        before_us: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Skipped>, StoreError> {
        let query = sqlx::query_as::<_, SkippedRow>(sql!("skipped_list"))
            .bind(schedule_uid)
            .bind(before_us.unwrap_or(i64::MAX))
            .bind(i64::from(limit));
        all(self.judge(query.fetch_all(&self.people).await)?)
    }

    async fn tokens(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<TokenRow>, StoreError> {
        let query = sqlx::query_as::<_, BatchRecord>(sql!("batches_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(batches_from(from_index))
            .bind(batches_limit(limit));
        let batches = self.judge(query.fetch_all(&self.people).await)?;
        let query = sqlx::query_as::<_, TokenRecord>(sql!("tokens_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(from_index).unwrap_or(i32::MAX))
            .bind(i64::from(limit));
        let own = self.judge(query.fetch_all(&self.people).await)?;
        tokens_of(batches, own, from_index, limit)
    }

    async fn history(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        outcome: Option<Outcome>,
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let query = sqlx::query_as::<_, HistoryRecord>(sql!("history_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(from_index).unwrap_or(i32::MAX))
            .bind(outcome.map(Outcome::word))
            .bind(i64::from(limit));
        all(self.judge(query.fetch_all(&self.people).await)?)
    }
}

#[async_trait]
impl RetentionStore for Sqlite {
    async fn prune(&self, before_us: i64, now_us: i64) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned::default();
        let spare_us = now_us.saturating_sub(PRUNE_SPARE_US);
        let shards = self.installation.shards;
        for shard in 0..shards {
            let key = i32::from(shard);
            let (events, runs) = self.prune_runs(key, before_us).await?;
            pruned.events += events;
            pruned.runs += runs;
            if prunes_specs_of(shard, shards, now_us) {
                pruned.other +=
                    self.prune_table("prune_specs", sql!("prune_specs"), Some(key), spare_us).await?;
            }
        }
        pruned.skipped = self.prune_table("prune_skipped", sql!("prune_skipped"), None, before_us).await?;
        pruned.audit = self.prune_table("prune_audit", sql!("prune_audit"), None, before_us).await?;
        pruned.other += self.prune_table("prune_keys", sql!("prune_keys"), None, before_us).await?;
        pruned.other += self.prune_table("prune_windows", sql!("prune_windows"), None, spare_us).await?;
        Ok(pruned)
    }

    async fn pruned_before_us(&self) -> Result<Option<i64>, StoreError> {
        self.judge(sqlx::query_scalar(sql!("pruning_read")).fetch_optional(&self.readers).await)
    }

    async fn note_pruning(&self, from_us: Option<i64>, to_us: i64) -> Result<bool, StoreError> {
        self.run_tx("note_pruning", move |connection| {
            let query = sqlx::query(sql!("pruning_move")).bind(from_us).bind(to_us);
            async move { Ok(query.execute(connection).await?.rows_affected() == 1) }.boxed()
        })
        .await
    }
}

impl Sqlite {
    /// Deletes a shard's runs that ended before `before_us`, each after what the done queue has of it, some of either a
    /// transaction. Answers how many rows of the done queue went, and how many runs.
    async fn prune_runs(&self, shard: i32, before_us: i64) -> Result<(u64, u64), StoreError> {
        let at_once = u64::from(PRUNE_AT_ONCE);
        let mut all = (0, 0);
        loop {
            let (events, runs) = self
                .run_tx("prune_runs", move |connection| {
                    let some = move |statement| {
                        sqlx::query(statement).bind(shard).bind(before_us).bind(i64::from(PRUNE_AT_ONCE))
                    };
                    async move {
                        let events =
                            some(sql!("prune_history")).execute(&mut *connection).await?.rows_affected();
                        if events == at_once {
                            return Ok((events, 0));
                        }
                        Ok((events, some(sql!("prune_runs")).execute(connection).await?.rows_affected()))
                    }
                    .boxed()
                })
                .await?;
            all = (all.0 + events, all.1 + runs);
            if events < at_once && runs < at_once {
                return Ok(all);
            }
        }
    }

    /// Deletes what is older than `before_us`, of one shard or (tables without shards) of all, a batch a transaction.
    async fn prune_table(
        &self,
        name: &'static str,
        statement: &'static str,
        shard: Option<i32>,
        before_us: i64,
    ) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let gone = self
                .run_tx(name, move |connection| {
                    let query = sqlx::query(statement);
                    let query = if let Some(shard) = shard { query.bind(shard) } else { query };
                    let query = query.bind(before_us).bind(i64::from(PRUNE_AT_ONCE));
                    async move { Ok(query.execute(connection).await?.rows_affected()) }.boxed()
                })
                .await?;
            all += gone;
            if gone < u64::from(PRUNE_AT_ONCE) {
                return Ok(all);
            }
        }
    }
}
