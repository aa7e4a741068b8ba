//! The parts of a store that are written once for both databases: all but queue shards.
//!
//! In: the calls of the traits for plan, emit, attempts, history, keys, quotas and secrets. Out: statements, each at the door of
//! those for whom it is. A driver offers what [`Driver`] says, and its database what [`Engine`] says; no part asks
//! which one it has. Statements that are the same for both stand in `src/queries/`, those that differ in `queries/` of
//! each driver. Not here: queue shards (`handle`), in which the drivers differ by design.

mod alert;
mod ask;
mod attempts;
mod by_hand;
mod calendar;
mod emit;
mod follow;
mod history;
mod items;
mod keys;
mod layout;
mod listing;
mod minutes;
mod moves;
mod moving;
mod plan;
mod prune;
mod quota;
mod revision;
mod seal;
mod tree;

pub(crate) use ask::{Ask, Engine, Statement, TextPair, Tx, own_sql, sql, statement};
pub(crate) use prune::prune_table;

use futures::future::BoxFuture;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};
use tollgate_core::emit::Task;
use tollgate_core::model::{RunId, SkipReason};
use uuid::Uuid;

use crate::StoreError;
use crate::corrupt::Corruption;
use crate::emit::Checkpoint;
use crate::failure::Failure;
use crate::handle::Posted;
use crate::layout::ShardCount;
use crate::plan::Filter;
use crate::rows::{MessageRow, RunRow, ScanRow, SkippedRow, Word as _, id_range};

/// For whom something is done: whose connections it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// People, who may ask for much, and wait for people alone.
    People,
    /// The roles of this process.
    Roles,
}

/// What either database reads.
pub(crate) trait Readable:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static
{
}

impl<T> Readable for T where
    T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static
{
}

/// A row of which only that it is there matters.
pub(crate) struct Exists;

impl<'r, R: Row> FromRow<'r, R> for Exists {
    fn from_row(_row: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self)
    }
}

/// What a driver offers the parts that are written once.
pub(crate) trait Driver: Clone + Send + Sync + 'static {
    /// Its database.
    type Database: Engine;

    /// The rows of a single statement, outside of any transaction.
    fn rows<R: Readable>(
        &self,
        whom: Whom,
        ask: Ask<Self::Database>,
    ) -> impl Future<Output = Result<Vec<R>, StoreError>> + Send;

    /// Carries out a transaction; `work` may run more than once.
    fn run_tx<T, F>(
        &self,
        whom: Whom,
        name: &'static str,
        work: F,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send + 'static,
        F: for<'c> Fn(Tx<'c, Self::Database>) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static;

    /// Rows that were passed over.
    fn corruption(&self) -> &Corruption;

    /// How many queue shards there are.
    fn shards(&self) -> &ShardCount;

    /// Before rows that held secrets are replaced.
    fn before_secrets_go(tx: &mut Tx<'_, Self::Database>)
    -> impl Future<Output = Result<(), Failure>> + Send;

    /// The rows of scans: for each task those that lie after its checkpoint, in order, of each range at most `limit`.
    fn scan_rows(
        &self,
        tasks: &[(&Task, Option<Checkpoint>)],
        limit: u32,
    ) -> impl Future<Output = Result<Vec<Vec<ScanRow>>, StoreError>> + Send;

    /// Whether a transaction of several shards costs more than several transactions.
    fn splits_by_shard(&self) -> bool;

    /// Makes room for the days to come, and removes the done queue's days that ended before `before_us`, where it is
    /// kept by days. Answers how many went.
    fn prune_days(&self, before_us: i64, now_us: i64)
    -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Deletes of a shard what of the done queue, and which finished runs, are too old. Answers how many rows and runs went.
    fn prune_shard(
        &self,
        shard: i32,
        before_us: i64,
    ) -> impl Future<Output = Result<(u64, u64), StoreError>> + Send;

    /// Deletes run specs of a shard that nothing needs: no run, neither the schedule as it is nor as it was a while ago, nor the
    /// shard. Answers how many.
    fn prune_specs(&self, shard: i32, before_us: i64)
    -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// What [`crate::seal::SealStore::scrub`] says.
    fn scrub(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// The only row of a statement that answers with one.
pub(crate) fn only<R>(rows: Vec<R>) -> Result<R, StoreError> {
    rows.into_iter()
        .next()
        .ok_or_else(|| StoreError::Internal("a statement answered without a row".to_owned()))
}

/// Which of these policies exist. None of them goes before the commit.
pub(crate) async fn hold_policies<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    wanted: &[Uuid],
) -> Result<Vec<Uuid>, Failure> {
    let rows: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("policies_hold")).set(wanted)?).await?;
    Ok(rows.into_iter().map(|(uid,)| uid).collect())
}

/// Adds messages to a shard's inbox. Answers how many were new.
pub(crate) async fn insert_messages<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    shard: i32,
    messages: &[MessageRow],
) -> Result<u64, Failure> {
    tx.execute(Ask::new(sql!("inbox_insert")).bind(shard).set(messages)?).await
}

/// Adds messages to the inbox of a shard, as long as it has not changed hands, and the runs that they are about live in it. Both
/// stay so until the commit: whoever moves a run later takes its messages along, and a run that has moved is found missing.
pub(crate) async fn post_under<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    (shard, lease_id): (i32, Uuid),
    runs: &[RunId],
    messages: &[MessageRow],
) -> Result<Posted, Failure> {
    let share = Ask::new(sql!("shard_share")).bind(shard).bind(lease_id);
    if tx.rows::<Exists>(share).await?.is_empty() {
        return Ok(Posted::ElsewhereNow);
    }
    for run in runs {
        let share = Ask::new(sql!("runs_share")).anew().bind(shard).bind(run.0);
        if tx.rows::<Exists>(share).await?.is_empty() {
            return Ok(Posted::ElsewhereNow);
        }
    }
    let new = insert_messages(tx, shard, messages).await?;
    Ok(if new == 0 { Posted::ThereAlready } else { Posted::New })
}

/// Adds runs. Answers how many were new.
pub(crate) async fn insert_runs<DB: Engine>(tx: &mut Tx<'_, DB>, runs: &[RunRow]) -> Result<u64, Failure> {
    if runs.is_empty() {
        return Ok(0);
    }
    tx.execute(Ask::new(sql!("runs_insert")).set(runs)?).await
}

/// Records triggers that made no run.
pub(crate) async fn insert_skipped<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    skipped: &[SkippedRow],
) -> Result<(), Failure> {
    if !skipped.is_empty() {
        tx.execute(Ask::new(sql!("skipped_insert")).set(skipped)?).await?;
    }
    Ok(())
}

/// Takes back what was skipped for a reason after the first of these moments, and up to the second.
pub(crate) async fn forget_skipped<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    schedule_uid: Uuid,
    reason: SkipReason,
    (after_us, until_us): (i64, i64),
) -> Result<(), Failure> {
    let ask =
        Ask::new(sql!("skipped_forget")).bind(schedule_uid).bind(after_us).bind(until_us).bind(reason.word());
    tx.execute(ask).await.map(drop)
}

/// What lists of schedules, of policies and of alerts have in common.
fn listed<DB: Engine>(
    ask: Ask<DB>,
    namespace: &str,
    filter: &Filter,
    after_id: Option<&str>,
    limit: u32,
) -> Result<Ask<DB>, StoreError> {
    let (from, to) = id_range(filter.id_prefix.as_deref());
    Ok(ask
        .anew()
        .bind(namespace)
        .bind(from)
        .bind(to)
        .bind(filter.paused)
        .bind(filter.labels_json()?)
        .bind(after_id.map(str::to_owned))
        .bind(i64::from(limit))
        .bind(filter.id_part.clone()))
}
