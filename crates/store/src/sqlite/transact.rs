//! The door to transactions: `run_tx` for all, `run_read` for reads of one moment. Commits of owners stand in `line`.
//!
//! Each transaction runs in a task of its own: sqlx 0.9.0 poisons its pool when `begin` is cancelled, and a caller may be
//! dropped at any time.

use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, SqliteConnection, SqlitePool};

use super::Sqlite;
use super::turns::{Kind, Turns};
use crate::failure::{Failure, TransactionError};
use crate::slot::{Slot, Work};
use crate::{CommitError, StoreError};

impl Sqlite {
    /// Carries out a transaction. One connection writes, so that nothing is lost against another transaction.
    pub(super) async fn run_tx<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let turns = Some((self.turns.clone(), Kind::of(name)));
        let (slot, work) = Slot::of(work);
        let done = transact(self.writer.clone(), turns, "BEGIN IMMEDIATE", work).await;
        done.map_err(|ended| self.ended(name, ended))?;
        slot.result(name)
    }

    /// Carries out a read-only transaction, all of whose statements see the same moment.
    pub(super) async fn run_read<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let (slot, work) = Slot::of(work);
        let done = transact(self.readers.clone(), None, "BEGIN DEFERRED", work).await;
        done.map_err(|ended| self.ended(name, ended))?;
        slot.result(name)
    }

    /// What the end of a commit is to its owner.
    pub(super) fn judge_commit(
        &self,
        name: &'static str,
        done: Result<(), TransactionError>,
    ) -> Result<(), CommitError> {
        let Err(ended) = done else { return Ok(()) };
        match ended {
            TransactionError::RolledBack(Failure::Fenced) => Err(CommitError::Fenced),
            TransactionError::RolledBack(_) => Err(CommitError::Failed(self.ended(name, ended))),
            TransactionError::AtCommit(_) | TransactionError::Silent | TransactionError::Lost(_) => {
                Err(CommitError::Unknown(self.ended(name, ended)))
            }
        }
    }

    /// What an end is to the caller.
    fn ended(&self, name: &'static str, ended: TransactionError) -> StoreError {
        match ended {
            TransactionError::RolledBack(Failure::Store(error)) => error,
            TransactionError::RolledBack(Failure::Sql(error)) | TransactionError::AtCommit(error) => {
                self.error(error)
            }
            TransactionError::RolledBack(Failure::Fenced) => StoreError::Internal(format!("{name}: fenced")),
            TransactionError::Silent => StoreError::Unreachable(format!("{name}: no answer")),
            TransactionError::Lost(why) => {
                StoreError::Internal(format!("{name}: the transaction's task ended: {why}"))
            }
        }
    }

    /// The answer of a single statement, or what its error is to the caller.
    pub(super) fn judge<T>(&self, answer: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        answer.map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        super::open::store_error(&self.path, error)
    }
}

/// Carries out a transaction in a task of its own. `turns`: where it has to wait for its turn.
async fn transact(
    pool: SqlitePool,
    turns: Option<(Turns, Kind)>,
    begin: &'static str,
    work: Arc<Work<SqliteConnection>>,
) -> Result<(), TransactionError> {
    let task = tokio::spawn(async move {
        let _turn = match &turns {
            Some((turns, kind)) => Some(turns.turn(*kind).await),
            None => None,
        };
        carry_out(pool, begin, &*work).await
    });
    task.await.unwrap_or_else(|gone| Err(TransactionError::Lost(gone.to_string())))
}

/// Carries out a transaction on the next connection that is free.
pub(super) async fn carry_out<T, F>(
    pool: SqlitePool,
    begin: &'static str,
    work: F,
) -> Result<T, TransactionError>
where
    F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>>,
{
    let mut connection = pool.acquire().await.map_err(|error| TransactionError::RolledBack(error.into()))?;
    let (done, is_over) = within(&mut connection, begin, work).await;
    if !is_over {
        forget(connection).await;
    }
    done
}

/// SQLite ends some transactions by itself, on a full disk for one, and sqlx goes on counting them: a connection on which
/// a commit or a rollback failed would refuse every later transaction.
pub(super) async fn forget(connection: PoolConnection<sqlx::Sqlite>) {
    // Nothing hangs on how it closes.
    let _ = connection.close().await;
}

/// A transaction on this connection, and whether its end is certain.
pub(super) async fn within<T, F>(
    connection: &mut SqliteConnection,
    begin: &'static str,
    work: F,
) -> (Result<T, TransactionError>, bool)
where
    F: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Failure>>,
{
    let mut transaction = match connection.begin_with(begin).await {
        Ok(transaction) => transaction,
        Err(error) => return (Err(TransactionError::RolledBack(error.into())), false),
    };
    match work(&mut transaction).await {
        Ok(value) => {
            tollgate_fault_points::pass("store.commit.before");
            if let Err(error) = transaction.commit().await {
                return (Err(TransactionError::AtCommit(error)), false);
            }
            tollgate_fault_points::pass("store.commit.after");
            (Ok(value), true)
        }
        Err(failure) => {
            let rolled_back = transaction.rollback().await;
            if let Err(error) = &rolled_back {
                tracing::debug!(%error, "a rollback failed; closing the connection does it");
            }
            (Err(TransactionError::RolledBack(failure)), rolled_back.is_ok())
        }
    }
}
