//! What has ended, and retention.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow};
use tollgate_core::model::{Run, RunId, RunState, Skipped};
use uuid::Uuid;

use super::Postgres;
use crate::StoreError;
use crate::history::{
    HistoryStore, PRUNE_AT_ONCE, PRUNE_SPARE_US, Pruned, RetentionStore, RunFilter, prunes_specs_of,
};
use crate::rows::{
    BatchRecord, HistoryRecord, RunRow, SkippedRow, TokenRecord, Word as _, all, batches_from, batches_limit,
    sound, sound_page, tokens_of,
};

#[async_trait]
impl HistoryStore for Postgres {
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
            .persistent(false)
            .bind(namespace.to_owned())
            .bind(filter.from_us.unwrap_or(i64::MIN))
            .bind(filter.to_us.unwrap_or(i64::MAX))
            .bind(after_us)
            .bind(after_run.0)
            .bind(states)
            .bind(i64::from(limit));
        query = match filter.schedule_uid {
            uid if filter.is_open() => query.bind(filter.policy_uid).bind(uid),
            Some(uid) => query.bind(uid).bind(filter.policy_uid),
            None => query.bind(filter.policy_uid),
        };
        let rows = self.people.judge(rows!(self.people, query))?;
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
        let (runs, found) = sound(Some(shard), self.people.judge(rows!(self.people, query))?);
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
        let (runs, found) = sound(Some(shard), self.people.judge(rows!(self.people, query))?);
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
        all(self.people.judge(rows!(self.people, query))?)
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
        let batches = self.people.judge(rows!(self.people, query))?;
        let query = sqlx::query_as::<_, TokenRecord>(sql!("tokens_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(from_index).unwrap_or(i32::MAX))
            .bind(i64::from(limit));
        let own = self.people.judge(rows!(self.people, query))?;
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
        all(self.people.judge(rows!(self.people, query))?)
    }
}

#[async_trait]
impl RetentionStore for Postgres {
    async fn prune(&self, before_us: i64, now_us: i64) -> Result<Pruned, StoreError> {
        self.make_partitions(now_us).await?;
        let mut pruned = Pruned { events: self.drop_partitions(before_us).await?, ..Pruned::default() };
        let spare_us = now_us.saturating_sub(PRUNE_SPARE_US);
        let shards = self.installation.shards;
        for shard in 0..shards {
            let key = Some(i32::from(shard));
            pruned.events += self.prune_table("prune_history", sql!("prune_history"), key, before_us).await?;
            pruned.runs += self.prune_table("prune_runs", sql!("prune_runs"), key, before_us).await?;
            if prunes_specs_of(shard, shards, now_us) {
                pruned.other += self.prune_specs(i32::from(shard), spare_us).await?;
            }
        }
        pruned.skipped = self.prune_table("prune_skipped", sql!("prune_skipped"), None, before_us).await?;
        pruned.audit = self.prune_table("prune_audit", sql!("prune_audit"), None, before_us).await?;
        pruned.other += self.prune_table("prune_keys", sql!("prune_keys"), None, before_us).await?;
        pruned.other += self.prune_table("prune_windows", sql!("prune_windows"), None, spare_us).await?;
        Ok(pruned)
    }

    async fn pruned_before_us(&self) -> Result<Option<i64>, StoreError> {
        let rows: Vec<i64> = self.work.judge(rows!(self.work, sqlx::query_scalar(sql!("pruning_read"))))?;
        Ok(rows.into_iter().next())
    }

    async fn note_pruning(&self, from_us: Option<i64>, to_us: i64) -> Result<bool, StoreError> {
        self.work
            .run_tx("note_pruning", move |connection| {
                let query = sqlx::query(sql!("pruning_move")).bind(from_us).bind(to_us);
                async move { Ok(query.execute(connection).await?.rows_affected() == 1) }.boxed()
            })
            .await
    }
}

impl Postgres {
    /// Deletes run specs of a shard that nothing needs: no run, neither the schedule as it is nor as it was a while ago, nor the
    /// shard. In steps: schedules are not where shards are.
    async fn prune_specs(&self, shard: i32, before_us: i64) -> Result<u64, StoreError> {
        let (mut all, mut after) = (0, (Uuid::nil(), i64::MIN));
        loop {
            let query = sqlx::query_as::<_, (Uuid, i64)>(sql!("prune_specs_old"))
                .persistent(false)
                .bind(shard)
                .bind(before_us)
                .bind(after.0)
                .bind(after.1)
                .bind(i64::from(PRUNE_AT_ONCE));
            let old = self.work.judge(rows!(self.work, query))?;
            let Some(last) = old.last() else { return Ok(all) };
            after = *last;
            let is_last = old.len() < PRUNE_AT_ONCE as usize;
            let uids: BTreeSet<Uuid> = old.iter().map(|(uid, _)| *uid).collect();
            let query = sqlx::query_as::<_, (Uuid, i64, bool)>(sql!("prune_specs_current"))
                .bind(uids.into_iter().collect::<Vec<_>>())
                .bind(before_us);
            let current = self.work.judge(rows!(self.work, query))?;
            let current: BTreeMap<Uuid, (i64, bool)> =
                current.into_iter().map(|(uid, generation, recent)| (uid, (generation, recent))).collect();
            let is_needed = |(uid, generation): &(Uuid, i64)| {
                current.get(uid).is_some_and(|(now, recent)| now == generation || *recent)
            };
            let gone: Vec<(Uuid, i64)> = old.into_iter().filter(|key| !is_needed(key)).collect();
            if let (Some(first), Some(last)) = (gone.first().copied(), gone.last().copied()) {
                let (uids, generations): (Vec<Uuid>, Vec<i64>) = gone.into_iter().unzip();
                let deleted = self.work.run_tx("prune_specs", move |connection| {
                    let query = sqlx::query(sql!("prune_specs"))
                        .persistent(false)
                        .bind(shard)
                        .bind(uids.clone())
                        .bind(generations.clone())
                        .bind(first.0)
                        .bind(first.1)
                        .bind(last.0)
                        .bind(last.1);
                    async move { Ok(query.execute(connection).await?.rows_affected()) }.boxed()
                });
                all += deleted.await?;
            }
            if is_last {
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
                .work
                .run_tx(name, move |connection| {
                    let query = sqlx::query(statement).persistent(false);
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
