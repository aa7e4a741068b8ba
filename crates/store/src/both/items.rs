//! Items and submissions.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use tollgate_core::items::{ItemPage, ItemsDigest};
use tollgate_core::model::RunId;
use uuid::Uuid;

use super::prune::prune_table;
use super::{Ask, Driver, Engine, Statement, Tx, Whom, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::items::{ItemRun, ItemStore, StoredSubmission, SubmissionStore};
use crate::rows::{ItemPageRow, SubmissionRow, all, results};

/// How many pages one transaction removes.
pub(super) const PAGES_AT_ONCE: i64 = 64;
/// How many runs are looked for at once whose items nobody needs.
const RUNS_AT_ONCE: i64 = 100;
/// What nobody has added to for so long is given up.
const OPEN_US: i64 = 3_600 * tollgate_core::model::SECOND_US;
/// For so long a submission is remembered after its run was made.
const MADE_US: i64 = 7 * tollgate_core::model::DAY_US;

#[async_trait]
impl<D: Driver> SubmissionStore for D {
    async fn submission(
        &self,
        schedule_uid: Uuid,
        request_id: &str,
    ) -> Result<Option<StoredSubmission>, StoreError> {
        let ask = Ask::new(sql!("submissions_get")).bind(schedule_uid).bind(request_id.to_owned());
        let found = self.rows::<SubmissionRow>(Whom::People, ask).await?;
        found.into_iter().next().map(StoredSubmission::try_from).transpose()
    }

    async fn begin_submission(&self, begun: &StoredSubmission, payload: &str) -> Result<bool, StoreError> {
        let (begun, payload) = (Arc::new(begun.clone()), Arc::<str>::from(payload));
        self.run_tx(Whom::People, "begin_submission", move |mut tx| {
            let (begun, payload) = (Arc::clone(&begun), payload.to_string());
            async move {
                let ask = Ask::new(sql!("submissions_insert"))
                    .bind(begun.schedule_uid)
                    .bind(begun.request_id.clone())
                    .bind(i32::from(begun.shard))
                    .bind(begun.run.0)
                    .bind(begun.launch_us)
                    .bind(begun.asked.clone())
                    .bind(begun.created_us)
                    .bind(begun.digest.to_vec());
                if tx.execute(ask).await? == 0 {
                    return Ok(false);
                }
                let ask = Ask::new(sql!("item_runs_insert"))
                    .bind(i32::from(begun.shard))
                    .bind(begun.run.0)
                    .bind(begun.schedule_uid)
                    .bind(begun.created_us)
                    .bind(payload);
                Ok(tx.execute(ask).await? == 1)
            }
            .boxed()
        })
        .await
    }

    async fn add_item_pages(
        &self,
        seen: &StoredSubmission,
        pages: Vec<ItemPage>,
        to: (u32, ItemsDigest, u32),
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let (seen, pages) = (Arc::new(seen.clone()), Arc::new(pages));
        self.run_tx(Whom::People, "add_item_pages", move |mut tx| {
            let (seen, pages) = (Arc::clone(&seen), Arc::clone(&pages));
            async move {
                let moved = Ask::new(sql!("submissions_move"))
                    .bind(seen.schedule_uid)
                    .bind(seen.request_id.clone())
                    .bind(index(to.0))
                    .bind(to.1.to_vec())
                    .bind(now_us)
                    .bind(index(seen.items))
                    .bind(seen.digest.to_vec())
                    .bind(index(to.2));
                if tx.execute(moved).await? == 0 {
                    return Ok(false);
                }
                insert_pages(&mut tx, (seen.shard, seen.run), &pages).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    async fn submission_made(&self, made: &StoredSubmission, now_us: i64) -> Result<(), StoreError> {
        let made = Arc::new(made.clone());
        self.run_tx(Whom::People, "submission_made", move |mut tx| {
            let made = Arc::clone(&made);
            async move {
                let ask = Ask::new(sql!("submissions_made"));
                tx.execute(ask.bind(made.schedule_uid).bind(made.request_id.clone()).bind(now_us)).await?;
                let ask = Ask::new(sql!("item_runs_made"));
                tx.execute(ask.bind(i32::from(made.shard)).bind(made.run.0)).await.map(drop)
            }
            .boxed()
        })
        .await
    }
}

#[async_trait]
impl<D: Driver> ItemStore for D {
    async fn item_run(&self, shard: u16, run: RunId) -> Result<Option<ItemRun>, StoreError> {
        let ask = Ask::new(sql!("item_runs_get")).bind(i32::from(shard)).bind(run.0);
        let rows: Vec<(Uuid, String)> = self.rows(Whom::Roles, ask).await?;
        Ok(rows.into_iter().next().map(|(schedule_uid, payload)| ItemRun { schedule_uid, payload }))
    }

    async fn item_page(&self, shard: u16, run: RunId, index: u32) -> Result<Option<ItemPage>, StoreError> {
        let ask = Ask::new(sql!("item_page_at")).bind(i32::from(shard)).bind(run.0).bind(self::index(index));
        let pages: Vec<ItemPage> = all(self.rows::<ItemPageRow>(Whom::Roles, ask).await?)?;
        Ok(pages.into_iter().find(|page| index - page.first_index < page.events))
    }

    async fn item_page_keys(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<ItemPage>, StoreError> {
        let ask = Ask::new(sql!("item_pages_keys"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(index(from_index))
            .bind(i64::from(limit));
        all(self.rows::<ItemPageRow>(Whom::People, ask).await?)
    }

    async fn results(
        &self,
        shard: u16,
        run: RunId,
        from_index: u32,
        limit: u32,
    ) -> Result<Vec<(u32, String)>, StoreError> {
        let ask = Ask::new(sql!("results_list"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(index(from_index))
            .bind(i64::from(limit));
        results(run, self.rows(Whom::People, ask).await?)
    }
}

/// Adds pages of a run.
pub(super) async fn insert_pages<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (shard, run): (u16, RunId),
    pages: &[ItemPage],
) -> Result<(), Failure> {
    for page in pages {
        let ask = Ask::new(sql!("item_pages_insert"))
            .bind(i32::from(shard))
            .bind(run.0)
            .bind(index(page.first_index))
            .bind(index(page.events))
            .bind(page.keys.clone())
            .bind(page.body.clone());
        tx.execute(ask).await?;
    }
    Ok(())
}

/// Removes what belongs to no run and no submission any more: items of a shard whose run was pruned, or was never made. Answers
/// how many rows that were.
pub(super) async fn prune_items<D: Driver>(
    driver: &D,
    shard: u16,
    before_us: i64,
    now_us: i64,
) -> Result<u64, StoreError> {
    let mut gone = 0;
    for (made, age_us) in [(false, now_us.saturating_sub(OPEN_US)), (true, before_us)] {
        let ask = Ask::new(sql!("item_runs_left"))
            .bind(i32::from(shard))
            .bind(made)
            .bind(age_us)
            .bind(RUNS_AT_ONCE);
        let left: Vec<(Uuid, Uuid)> = driver.rows(Whom::Roles, ask).await?;
        for (run, schedule_uid) in left {
            let ask = Ask::new(sql!("submissions_of_run")).bind(schedule_uid).bind(run);
            let open: Vec<(i32,)> = if made { Vec::new() } else { driver.rows(Whom::Roles, ask).await? };
            if open.is_empty() {
                gone += drop_items(driver, shard, run).await?;
            }
        }
    }
    Ok(gone)
}

/// Pages first: what is broken off is gone on with.
async fn drop_items<D: Driver>(driver: &D, shard: u16, run: Uuid) -> Result<u64, StoreError> {
    let delete = |name, statement: Statement, limit: Option<i64>| {
        driver.run_tx(Whom::Roles, name, move |mut tx| {
            async move { delete_of_run(&mut tx, statement, (shard, run), limit).await }.boxed()
        })
    };
    let mut all = 0;
    loop {
        let gone = delete("prune_item_pages", sql!("item_pages_delete"), Some(PAGES_AT_ONCE)).await?;
        all += gone;
        if gone == 0 {
            return Ok(all + delete("prune_item_runs", sql!("item_runs_delete"), None).await?);
        }
    }
}

pub(super) async fn delete_of_run<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    statement: Statement,
    (shard, run): (u16, Uuid),
    limit: Option<i64>,
) -> Result<u64, Failure> {
    let ask = Ask::new(statement).bind(i32::from(shard)).bind(run);
    tx.execute(if let Some(limit) = limit { ask.bind(limit) } else { ask }).await
}

/// Forgets submissions that nobody has gone on with, or whose runs were made long ago.
pub(super) async fn prune_submissions<D: Driver>(driver: &D, now_us: i64) -> Result<u64, StoreError> {
    let (open_us, made_us) = (now_us.saturating_sub(OPEN_US), now_us.saturating_sub(MADE_US));
    let (open, made) = (sql!("prune_submissions_open"), sql!("prune_submissions"));
    Ok(prune_table(driver.clone(), "prune_submissions_open", open, None, open_us).await?
        + prune_table(driver.clone(), "prune_submissions", made, None, made_us).await?)
}

/// Indexes and counts end at ten million.
pub(super) fn index(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}
