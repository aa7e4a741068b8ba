//! The door to transactions: `run_tx` for all, `run_fenced` for a shard's owner, `run_read` for reads of one moment.
//!
//! Each transaction runs in a task of its own: sqlx 0.9.0 poisons its pool when `begin` is cancelled, and a caller may be
//! dropped at any time. For the same reason a connection on which the server has fallen silent is closed, never returned.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::Postgres;
use super::line::is_not_supported;
use super::open::{BEGIN_POOLED, READ_POOLED};
use crate::failure::{Ended, Failure};
use crate::line::Fence;
use crate::rows::ChangeRows;
use crate::{CommitError, StoreError};

/// How often a transaction is tried that lost against another.
const TRIES_MAX: u32 = 5;

/// A server that says nothing for so long is given up, with the connection: it, or the way to it, has gone without a
/// word. Longer than a statement may take.
const SILENT_AFTER: Duration = Duration::from_secs(65);
/// The same for owners' commits, heartbeats and single statements. Longer than the wait for a lock.
pub(super) const QUICK_SILENT_AFTER: Duration = Duration::from_secs(12);

impl Postgres {
    /// Carries out a transaction; again if it lost against another one. `work` may run more than once.
    pub(super) async fn run_tx<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.run_within(SILENT_AFTER, name, work).await
    }

    /// As [`Postgres::run_tx`], for what is either quick or useless.
    pub(super) async fn run_quick<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        self.run_within(QUICK_SILENT_AFTER, name, work).await
    }

    async fn run_within<T, F>(&self, within: Duration, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let mut tries = 1;
        loop {
            match self.transact(within, self.begin(), None, work.clone()).await {
                Ok(value) => return Ok(value),
                Err(ended) if tries < TRIES_MAX && lost_a_race(&ended) => {
                    tracing::debug!(name, tries, "the transaction lost against another and is tried again");
                    tries += 1;
                }
                Err(ended) => return Err(self.ended(name, ended)),
            }
        }
    }

    /// Carries out a read-only transaction, all of whose statements see the same moment.
    pub(super) async fn run_read<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let begin = if self.pooled { READ_POOLED } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" };
        let done = self.transact(SILENT_AFTER, begin, None, work).await;
        done.map_err(|ended| self.ended(name, ended))
    }

    /// Carries out an owner's transaction behind the fence.
    pub(super) async fn run_fenced<F>(
        &self,
        name: &'static str,
        fence: Fence,
        work: F,
    ) -> Result<(), CommitError>
    where
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<(), Failure>> + Send + Sync + 'static,
    {
        let done = self.transact(QUICK_SILENT_AFTER, self.begin(), Some(fence), work).await;
        self.judge_commit(name, done)
    }

    /// Writes a commit by one statement with the fence in it. Not through a pooler, for which a statement must be prepared in
    /// the transaction that carries it out.
    ///
    /// The answer is false, and nothing was written, where a row was there that is inserted, and where the server does not
    /// do this at all: on Citus, it may not plan the function's statements.
    pub(super) async fn commit_plain(
        &self,
        fence: Fence,
        rows: Arc<ChangeRows>,
    ) -> Result<bool, CommitError> {
        let done = self.commit_in_line(fence, rows).await;
        if is_not_supported(&done) {
            // Those that were written together learn it one by one.
            if !self.in_steps.swap(true, Ordering::Relaxed) {
                tracing::warn!(?done, "commits take several statements: the server does not do it in one");
            }
            return Ok(false);
        }
        if let Err(Ended::RolledBack(Failure::Sql(sqlx::Error::Database(error)))) = &done
            && error.is_unique_violation()
        {
            return Ok(false);
        }
        self.judge_commit("commit", done).map(|()| true)
    }

    fn judge_commit(&self, name: &'static str, done: Result<(), Ended>) -> Result<(), CommitError> {
        let Err(ended) = done else { return Ok(()) };
        match ended {
            Ended::RolledBack(Failure::Fenced) => Err(CommitError::Fenced),
            Ended::RolledBack(_) => Err(CommitError::Failed(self.ended(name, ended))),
            // The server said no: it has rolled back.
            Ended::AtCommit(sqlx::Error::Database(ref error))
                if !super::open::ends_the_connection(error.as_ref()) =>
            {
                Err(CommitError::Failed(self.ended(name, ended)))
            }
            Ended::AtCommit(_) | Ended::Silent | Ended::Lost(_) => {
                Err(CommitError::Unknown(self.ended(name, ended)))
            }
        }
    }

    async fn transact<T, F>(
        &self,
        within: Duration,
        begin: &'static str,
        fence: Option<Fence>,
        work: F,
    ) -> Result<T, Ended>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let task = tokio::spawn(carry_out(self.pool.clone(), within, begin, fence, work));
        task.await.unwrap_or_else(|gone| Err(Ended::Lost(gone.to_string())))
    }

    /// What an end is to the caller.
    fn ended(&self, name: &'static str, ended: Ended) -> StoreError {
        match ended {
            Ended::RolledBack(Failure::Store(error)) => error,
            Ended::RolledBack(Failure::Sql(error)) | Ended::AtCommit(error) => self.error(error),
            Ended::RolledBack(Failure::Fenced) => StoreError::Internal(format!("{name}: fenced")),
            Ended::Silent => self.silent(),
            Ended::Lost(why) => StoreError::Internal(format!("{name}: the transaction's task ended: {why}")),
        }
    }

    fn begin(&self) -> &'static str {
        super::open::begin(self.pooled)
    }

    fn silent(&self) -> StoreError {
        StoreError::Unreachable(format!("{}: no answer", self.place))
    }

    /// Carries out a single statement, outside of any transaction.
    pub(super) async fn ask<T, F>(&self, work: F) -> Result<T, sqlx::Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let (pool, pooled) = (self.pool.clone(), self.pooled);
        // A task of its own: a connection that is dropped while it waits for an answer may wait for ever.
        let task = tokio::spawn(async move {
            let mut connection = pool.acquire().await?;
            let statement = async {
                if !pooled {
                    return work(&mut connection).await;
                }
                // A statement is prepared and carried out, and both must happen in one loan.
                let mut transaction = connection.begin_with(BEGIN_POOLED).await?;
                let done = work(&mut transaction).await?;
                transaction.commit().await?;
                Ok(done)
            };
            match tokio::time::timeout(QUICK_SILENT_AFTER, statement).await {
                Ok(done) => done,
                Err(_) => {
                    connection.close_on_drop();
                    Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
                }
            }
        });
        task.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// The answer of a single statement, or what its error is to the caller.
    pub(super) fn judge<T>(&self, answer: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        answer.map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        super::open::store_error(&self.place, error)
    }
}

async fn carry_out<T, F>(
    pool: PgPool,
    within: Duration,
    begin: &'static str,
    fence: Option<Fence>,
    work: F,
) -> Result<T, Ended>
where
    F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>,
{
    let rolled_back = |error: sqlx::Error| Ended::RolledBack(error.into());
    let mut connection = pool.acquire().await.map_err(rolled_back)?;
    match tokio::time::timeout(within, on(&mut connection, begin, fence, work)).await {
        Ok(done) => done,
        Err(_) => {
            // The pool must not have it back: it would wait for the same answer.
            connection.close_on_drop();
            Err(Ended::Silent)
        }
    }
}

async fn on<T, F>(
    connection: &mut PgConnection,
    begin: &'static str,
    fence: Option<Fence>,
    work: F,
) -> Result<T, Ended>
where
    F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>,
{
    let begun = connection.begin_with(begin).await;
    let mut transaction = begun.map_err(|error| Ended::RolledBack(error.into()))?;
    let done = match behind(&mut transaction, fence).await {
        Ok(()) => work(&mut transaction).await.map_err(Ended::RolledBack),
        Err(ended) => Err(ended),
    };
    match done {
        Ok(value) => {
            tollgate_fault_points::pass("store.commit.before");
            transaction.commit().await.map_err(Ended::AtCommit)?;
            tollgate_fault_points::pass("store.commit.after");
            Ok(value)
        }
        Err(ended) => {
            if let Err(error) = transaction.rollback().await {
                tracing::debug!(%error, "a rollback failed; the server does it when the connection ends");
            }
            Err(ended)
        }
    }
}

/// The fence, written once: the first statement of an owner's transaction.
async fn behind(connection: &mut PgConnection, fence: Option<Fence>) -> Result<(), Ended> {
    let Some(Fence { shard, lease_id, seq }) = fence else { return Ok(()) };
    tollgate_fault_points::pass("store.fence.before");
    let query = sqlx::query(sql!("fence")).bind(shard).bind(lease_id).bind(seq);
    match query.execute(connection).await {
        Ok(done) if done.rows_affected() == 1 => {
            tollgate_fault_points::pass("store.fence.after");
            Ok(())
        }
        Ok(_) => Err(Ended::RolledBack(Failure::Fenced)),
        Err(error) => Err(Ended::RolledBack(error.into())),
    }
}

/// Serialisation failures and deadlocks.
fn lost_a_race(ended: &Ended) -> bool {
    let (Ended::RolledBack(Failure::Sql(error)) | Ended::AtCommit(error)) = ended else { return false };
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}
