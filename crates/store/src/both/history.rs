//! What has ended, and retention.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow, UNSTARTED_EVENTS, Unstarted};
use tollgate_core::model::{Run, RunId, RunState, Skipped};
use tollgate_core::trouble::Missed;
use uuid::Uuid;

use super::items::{prune_items, prune_submissions};
use super::minutes::prune_minutes;
use super::moving::prune_moved;
use super::prune::prune_table;
use super::{Ask, Driver, Statement, Whom, sql};
use crate::StoreError;
use crate::history::{
    FailureFilter, HistoryStore, PRUNE_SPARE_US, Pruned, RetentionStore, RunFilter, prunes_specs_of,
};
use crate::layout::LayoutStore as _;
use crate::plan::REQUESTS_KEPT_US;
use crate::revision::REVISIONS_KEPT_US;
use crate::rows::{
    EndedPage, HistoryRecord, RunRow, SPAN, SkippedRow, UnstartedRow, Word as _, all, batches_from,
    batches_limit, int, sound, sound_page, tokens_of,
};

#[async_trait]
impl<D: Driver> HistoryStore for D {
    async fn list_runs(
        &self,
        namespace: &str,
        filter: &RunFilter,
        after: Option<(i64, RunId)>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let states: Vec<&str> = filter.states.iter().copied().map(RunState::word).collect();
        let start =
            if filter.rising { (i64::MIN, RunId(Uuid::nil())) } else { (i64::MAX, RunId(Uuid::max())) };
        let (after_us, after_run) = after.unwrap_or(start);
        let mut ask = Ask::new(runs_listed(filter))
            .anew()
            .bind(namespace)
            .bind(filter.from_us.unwrap_or(i64::MIN))
            .bind(filter.to_us.unwrap_or(i64::MAX))
            .bind(after_us)
            .bind(after_run.0)
            .set(&states)?
            .bind(i64::from(limit));
        ask = match (filter.schedule_uid, filter.ids) {
            (uid, _) if filter.is_open() => ask.bind(filter.policy_uid).bind(uid),
            (uid, Some(ids)) => {
                let all = match ids.shard {
                    Some(shard) => shard..shard.saturating_add(1),
                    None => 0..self.read_shards().await?,
                };
                let shards: Vec<i32> = all.map(i32::from).collect();
                ask.bind(states.is_empty())
                    .bind(uid)
                    .bind(filter.policy_uid)
                    .bind(filter.failures)
                    .set(&shards)?
                    .bind(ids.from.0)
                    .bind(ids.to.0)
            }
            (Some(uid), None) => {
                ask.bind(states.is_empty()).bind(uid).bind(filter.policy_uid).bind(filter.failures)
            }
            (None, None) => ask.bind(states.is_empty()).bind(filter.policy_uid).bind(filter.failures),
        };
        let rows: Vec<RunRow> = self.rows(Whom::People, ask).await?;
        let place = |row: &RunRow| (row.launch_us, RunId(row.run_id));
        let (mut page, found, rest) = sound_page(rows, limit, place, |row| u16::try_from(row.shard_id).ok());
        self.corruption().also(("runs", namespace.to_owned()), found);
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
        let ask = Ask::new(sql!("runs_policy_open"))
            .bind(i32::from(shard))
            .bind(policy_uid)
            .bind(before_us)
            .bind(i64::from(limit));
        let (runs, found) = sound(Some(shard), self.rows::<RunRow>(Whom::People, ask).await?);
        self.corruption().also(("runs", format!("runs_policy_open {shard}")), found);
        Ok(runs)
    }

    async fn policy_runs_ended(
        &self,
        shard: u16,
        policy_uid: Uuid,
        since_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let ask = Ask::new(sql!("runs_policy_ended"))
            .bind(i32::from(shard))
            .bind(policy_uid)
            .bind(since_us)
            .bind(i64::from(limit));
        let (runs, found) = sound(Some(shard), self.rows::<RunRow>(Whom::People, ask).await?);
        self.corruption().also(("runs", format!("runs_policy_ended {shard}")), found);
        Ok(runs)
    }

    async fn runs_not_well(&self, shard: u16, since_us: i64, limit: u32) -> Result<Vec<Run>, StoreError> {
        let ask =
            Ask::new(sql!("runs_not_well")).bind(i32::from(shard)).bind(since_us).bind(i64::from(limit));
        let (runs, found) = sound(Some(shard), self.rows::<RunRow>(Whom::People, ask).await?);
        self.corruption().also(("runs", format!("runs_not_well {shard}")), found);
        Ok(runs)
    }

    async fn runs_ended(&self, shard: u16, since_us: i64, limit: u32) -> Result<Vec<Run>, StoreError> {
        let ask = Ask::new(sql!("runs_ended")).bind(i32::from(shard)).bind(since_us).bind(i64::from(limit));
        Ok(sound(Some(shard), self.rows::<RunRow>(Whom::People, ask).await?).0)
    }

    async fn schedule_runs(
        &self,
        shard: u16,
        schedule_uid: Uuid,
        until_us: i64,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let ask = Ask::new(sql!("runs_of_schedule"))
            .anew()
            .bind(i32::from(shard))
            .bind(schedule_uid)
            .bind(until_us)
            .bind(i64::from(limit));
        Ok(sound(Some(shard), self.rows::<RunRow>(Whom::People, ask).await?).0)
    }

    async fn runs_failed(
        &self,
        namespace: &str,
        filter: &FailureFilter,
        after: Option<(i64, RunId)>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let (after_us, after_run) = after.unwrap_or((i64::MAX, RunId(Uuid::max())));
        let ask = Ask::new(sql!("runs_failed"))
            .anew()
            .bind(namespace)
            .bind(filter.from_us.unwrap_or(i64::MIN))
            .bind(filter.until_us.unwrap_or(i64::MAX))
            .bind(after_us)
            .bind(after_run.0)
            .bind(filter.schedule_uid)
            .bind(filter.policy_uid)
            .bind(filter.closed)
            .bind(i64::from(limit));
        let rows: Vec<RunRow> = self.rows(Whom::People, ask).await?;
        let place = |row: &RunRow| (row.finished_us.unwrap_or(i64::MIN), RunId(row.run_id));
        let (mut page, found, rest) = sound_page(rows, limit, place, |row| u16::try_from(row.shard_id).ok());
        self.corruption().also(("runs", format!("runs_failed {namespace}")), found);
        if let Some((last, missing)) = rest {
            page.extend(self.runs_failed(namespace, filter, Some(last), missing).await?);
        }
        Ok(page)
    }

    async fn history_failed(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        outcomes: &[Outcome],
        limit: u32,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let outcomes: Vec<&str> = outcomes.iter().copied().map(Outcome::word).collect();
        let ask = Ask::new(sql!("history_failed"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(from_index).unwrap_or(i32::MAX))
            .set(&outcomes)?
            .bind(i64::from(limit));
        all(self.rows::<HistoryRecord>(Whom::People, ask).await?)
    }

    async fn close_failures(&self, shard: u16, runs: &[(RunId, i64)]) -> Result<(), StoreError> {
        let runs = Arc::<[(RunId, i64)]>::from(runs);
        self.run_tx(Whom::People, "close_failures", move |mut tx| {
            let runs = runs.clone();
            async move {
                for (run, until_us) in runs.iter() {
                    let ask = Ask::new(sql!("closed_failures_put")).bind(i32::from(shard));
                    tx.execute(ask.bind(run.0).bind(*until_us)).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }

    async fn closed_failures(&self, shard: u16, runs: &[RunId]) -> Result<Vec<(RunId, i64)>, StoreError> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
        let ask = Ask::new(sql!("closed_failures_list")).bind(i32::from(shard)).set(&ids)?;
        let rows: Vec<(Uuid, i64)> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(|(run, until_us)| (RunId(run), until_us)).collect())
    }

    async fn list_skipped(
        &self,
        schedule_uid: Uuid,
        before_us: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Skipped>, StoreError> {
        let ask = Ask::new(sql!("skipped_list"))
            .bind(schedule_uid)
            .bind(before_us.unwrap_or(i64::MAX))
            .bind(i64::from(limit));
        all(self.rows::<SkippedRow>(Whom::People, ask).await?)
    }

    async fn missed_triggers(&self, since_us: i64, limit: u32) -> Result<Vec<Missed>, StoreError> {
        skipped_by_schedule(self, sql!("skipped_missed"), (since_us, limit)).await
    }

    async fn not_listed_triggers(&self, since_us: i64, limit: u32) -> Result<Vec<Missed>, StoreError> {
        skipped_by_schedule(self, sql!("skipped_not_listed"), (since_us, limit)).await
    }

    async fn unstarted(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<Unstarted>, StoreError> {
        let first = from_index - from_index % UNSTARTED_EVENTS;
        let ask = Ask::new(sql!("unstarted_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(first).unwrap_or(i32::MAX))
            .bind(i64::from(limit));
        all(self.rows::<UnstartedRow>(Whom::People, ask).await?)
    }

    async fn tokens(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<TokenRow>, StoreError> {
        let ask = Ask::new(sql!("batches_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(batches_from(from_index))
            .bind(batches_limit(limit));
        let batches = self.rows(Whom::People, ask).await?;
        let ask = Ask::new(sql!("tokens_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(i32::try_from(from_index).unwrap_or(i32::MAX))
            .bind(i64::from(limit));
        let own = self.rows(Whom::People, ask).await?;
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
        let from = i32::try_from(from_index).unwrap_or(i32::MAX);
        let ask = Ask::new(sql!("history_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(from)
            .bind(outcome.map(Outcome::word))
            .bind(i64::from(limit));
        let own = self.rows(Whom::People, ask).await?;
        let mut page = EndedPage::new(own, from_index, limit)?;
        if outcome.is_none_or(|outcome| outcome == Outcome::Succeeded) {
            while let Some((from, batches)) = page.wants() {
                let ask = Ask::new(sql!("ended_list")).bind(i32::from(shard)).bind(run.0).bind(from);
                let ask = ask.bind(i64::from(batches)).bind(int(SPAN));
                page.take(self.rows(Whom::People, ask).await?)?;
            }
        }
        Ok(page.rows())
    }
}

/// How many triggers of each schedule were skipped for the reason that the statement names.
async fn skipped_by_schedule<D: Driver>(
    driver: &D,
    statement: Statement,
    (since_us, limit): (i64, u32),
) -> Result<Vec<Missed>, StoreError> {
    let ask = Ask::new(statement).bind(since_us).bind(i64::from(limit));
    let rows: Vec<(String, String, String, i64, i64)> = driver.rows(Whom::People, ask).await?;
    let missed = rows.into_iter().map(|(namespace, schedule, policy, triggers, first_launch_us)| Missed {
        namespace,
        schedule,
        policy,
        triggers: u64::try_from(triggers).unwrap_or_default(),
        first_launch_us,
    });
    Ok(missed.collect())
}

#[async_trait]
impl<D: Driver> RetentionStore for D {
    async fn prune(&self, before_us: i64, now_us: i64) -> Result<Pruned, StoreError> {
        let mut pruned = Pruned { events: self.prune_days(before_us, now_us).await?, ..Pruned::default() };
        let spare_us = now_us.saturating_sub(PRUNE_SPARE_US);
        // Before items, which go with them.
        pruned.other += prune_submissions(self, now_us).await?;
        let shards = self.shards().now();
        for shard in 0..shards {
            let (events, runs) = self.prune_shard(i32::from(shard), before_us).await?;
            pruned.events += events;
            pruned.runs += runs;
            pruned.other += prune_minutes(self, shard, before_us, now_us).await?;
            pruned.other += prune_items(self, shard, before_us, now_us).await?;
            let of = Some(i32::from(shard));
            pruned.other +=
                prune_table(self.clone(), "prune_results", sql!("prune_results"), of, before_us).await?;
            pruned.other +=
                prune_table(self.clone(), "prune_closed", sql!("prune_closed"), of, before_us).await?;
            pruned.other += prune_moved(self, shard, before_us).await?;
            pruned.other +=
                prune_table(self.clone(), "prune_homes", sql!("prune_homes"), of, before_us).await?;
            if prunes_specs_of(shard, shards, now_us) {
                pruned.other += self.prune_specs(i32::from(shard), spare_us).await?;
            }
        }
        pruned.skipped =
            prune_table(self.clone(), "prune_skipped", sql!("prune_skipped"), None, before_us).await?;
        pruned.audit = prune_table(self.clone(), "prune_audit", sql!("prune_audit"), None, before_us).await?;
        let asked_us = now_us.saturating_sub(REQUESTS_KEPT_US);
        pruned.other +=
            prune_table(self.clone(), "prune_requests", sql!("prune_requests"), None, asked_us).await?;
        pruned.other +=
            prune_table(self.clone(), "prune_attempts", sql!("prune_attempts"), None, before_us).await?;
        let revised_us = now_us.saturating_sub(REVISIONS_KEPT_US);
        pruned.other +=
            prune_table(self.clone(), "prune_revisions", sql!("prune_revisions"), None, revised_us).await?;
        pruned.other += prune_table(self.clone(), "prune_keys", sql!("prune_keys"), None, before_us).await?;
        pruned.other +=
            prune_table(self.clone(), "prune_windows", sql!("prune_windows"), None, spare_us).await?;
        Ok(pruned)
    }

    async fn pruned_before_us(&self) -> Result<Option<i64>, StoreError> {
        let rows: Vec<(i64,)> = self.rows(Whom::Roles, Ask::new(sql!("pruning_read"))).await?;
        Ok(rows.first().map(|(before_us,)| *before_us))
    }

    async fn note_pruning(&self, from_us: Option<i64>, to_us: i64) -> Result<bool, StoreError> {
        self.run_tx(Whom::Roles, "note_pruning", move |mut tx| {
            let ask = Ask::new(sql!("pruning_move")).bind(from_us).bind(to_us);
            async move { Ok(tx.execute(ask).await? == 1) }.boxed()
        })
        .await
    }
}

/// The statement that has an index for what a filter selects.
fn runs_listed(filter: &RunFilter) -> Statement {
    match filter.schedule_uid {
        _ if filter.is_open() && filter.rising => sql!("runs_list_open_rising"),
        _ if filter.is_open() => sql!("runs_list_open"),
        _ if filter.ids.is_some() && filter.rising => sql!("runs_list_named_rising"),
        _ if filter.ids.is_some() => sql!("runs_list_named"),
        Some(_) if filter.rising => sql!("runs_list_schedule_rising"),
        Some(_) => sql!("runs_list_schedule"),
        None if filter.rising => sql!("runs_list_rising"),
        None => sql!("runs_list"),
    }
}
