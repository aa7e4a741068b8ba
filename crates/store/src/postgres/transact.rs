//! Transactions: `run_tx` for all, `run_read` for reads of one moment. Commits of owners stand in `line`.
//!
//! Each has a door's connection, in a task of its own (`door`). One whose caller has given up does not commit.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::{Connection as _, PgConnection};

use super::Postgres;
use super::door::{GivenUp, NotDone, PoolDoor};
use super::open::{
    BEGIN_PEOPLE, BEGIN_POOLED, BEGIN_POOLED_PEOPLE, READ_POOLED, ends_the_connection, is_a_standby,
};
use crate::failure::{Failure, TransactionError};
use crate::slot::{Slot, Work};
use crate::{CommitError, StoreError};

/// How often a transaction is tried that lost against another.
const TRIES_MAX: u32 = 5;

/// A server that says nothing for this time is given up: it, or the way to it, has gone without a word. Longer than a statement
/// may take.
const SILENT_AFTER: Duration = Duration::from_secs(65);
/// The same for owners' commits, heartbeats and single statements. Longer than the wait for a lock.
pub(super) const QUICK_SILENT_AFTER: Duration = Duration::from_secs(12);

/// A statement, whose result is in its slot.
type Statement = Box<StatementOf>;
type StatementOf = dyn for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> + Send;

/// Tells the compiler what a closure is for.
fn once_for_any_connection<F>(work: F) -> F
where
    F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<(), sqlx::Error>>,
{
    work
}

impl PoolDoor {
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

    /// As [`PoolDoor::run_tx`], for what is either quick or useless.
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
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let (slot, work) = Slot::of(work);
        self.try_within(within, name, work).await?;
        slot.result(name)
    }

    async fn try_within(
        &self,
        within: Duration,
        name: &'static str,
        work: Arc<Work<PgConnection>>,
    ) -> Result<(), StoreError> {
        let mut tries = 1;
        loop {
            match self.transact(within, self.begin(), Arc::clone(&work)).await {
                Ok(()) => return Ok(()),
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
        let (slot, work) = Slot::of(work);
        let done = self.transact(SILENT_AFTER, begin, work).await;
        done.map_err(|ended| self.ended(name, ended))?;
        slot.result(name)
    }

    async fn transact(
        &self,
        within: Duration,
        begin: &'static str,
        work: Arc<Work<PgConnection>>,
    ) -> Result<(), TransactionError> {
        let worked = self.lend(within, move |connection, given_up| {
            async move {
                let done = on(connection, begin, &*work, &given_up).await;
                let is_of_no_use = done.as_ref().is_err_and(is_of_no_use);
                (done, is_of_no_use)
            }
            .boxed()
        });
        worked.await.unwrap_or_else(|not_done| Err(not_done.into()))
    }

    /// What an end is to the caller.
    pub(super) fn ended(&self, name: &'static str, ended: TransactionError) -> StoreError {
        match ended {
            TransactionError::RolledBack(Failure::Store(error)) => error,
            TransactionError::RolledBack(Failure::Sql(error)) | TransactionError::AtCommit(error) => {
                self.error(error)
            }
            TransactionError::RolledBack(Failure::Fenced) => StoreError::Internal(format!("{name}: fenced")),
            TransactionError::Silent => StoreError::Unreachable(format!("{}: no answer", self.place)),
            TransactionError::Lost(why) => {
                StoreError::Internal(format!("{name}: the transaction's task ended: {why}"))
            }
        }
    }

    pub(super) fn begin(&self) -> &'static str {
        match (self.pooled, self.for_people) {
            (true, _) => BEGIN_POOLED,
            (false, true) => BEGIN_PEOPLE,
            (false, false) => "BEGIN",
        }
    }

    /// Carries out a single statement, outside of any transaction.
    pub(super) async fn ask<T, F>(&self, work: F) -> Result<T, sqlx::Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        let slot = Slot::new();
        let put = slot.clone();
        let work = once_for_any_connection(move |connection| {
            let done = work(connection);
            async move {
                put.put(done.await?);
                Ok(())
            }
            .boxed()
        });
        self.ask_once(Box::new(work)).await?;
        slot.take().ok_or(sqlx::Error::WorkerCrashed)
    }

    async fn ask_once(&self, work: Statement) -> Result<(), sqlx::Error> {
        let begin = match (self.pooled, self.for_people) {
            (true, true) => Some(BEGIN_POOLED_PEOPLE),
            (true, false) => Some(BEGIN_POOLED),
            (false, _) => None,
        };
        let worked = self.lend(QUICK_SILENT_AFTER, move |connection, _given_up| {
            async move {
                let done = single(connection, begin, work).await;
                let is_of_no_use = done.as_ref().is_err_and(ends_its_connection);
                (done, is_of_no_use)
            }
            .boxed()
        });
        worked.await.unwrap_or_else(|not_done| {
            Err(match not_done {
                NotDone::NoConnection(error) => error,
                NotDone::Silent => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
                NotDone::Lost(_) => sqlx::Error::WorkerCrashed,
            })
        })
    }

    /// The answer of a single statement, or what its error is to the caller.
    pub(super) fn judge<T>(&self, answer: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        answer.map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        super::open::store_error(&self.place, error)
    }
}

impl Postgres {
    /// What the end of a commit is to its owner.
    pub(super) fn judge_commit(
        &self,
        name: &'static str,
        done: Result<(), TransactionError>,
    ) -> Result<(), CommitError> {
        let Err(ended) = done else { return Ok(()) };
        match ended {
            TransactionError::RolledBack(Failure::Fenced) => Err(CommitError::Fenced),
            TransactionError::RolledBack(_) => Err(CommitError::Failed(self.commits.ended(name, ended))),
            // The server said no: it has rolled back.
            TransactionError::AtCommit(sqlx::Error::Database(ref error))
                if !ends_the_connection(error.as_ref()) =>
            {
                Err(CommitError::Failed(self.commits.ended(name, ended)))
            }
            TransactionError::AtCommit(_) | TransactionError::Silent | TransactionError::Lost(_) => {
                Err(CommitError::Unknown(self.commits.ended(name, ended)))
            }
        }
    }
}

/// A statement, where a pooler is between in a transaction: it is prepared and carried out, and both must happen in one loan.
async fn single(
    connection: &mut PgConnection,
    begin: Option<&'static str>,
    work: Statement,
) -> Result<(), sqlx::Error> {
    let Some(begin) = begin else { return work(connection).await };
    let mut transaction = connection.begin_with(begin).await?;
    work(&mut transaction).await?;
    transaction.commit().await
}

/// A transaction on this connection.
pub(super) async fn on<T, F>(
    connection: &mut PgConnection,
    begin: &'static str,
    work: &F,
    given_up: &GivenUp,
) -> Result<T, TransactionError>
where
    F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>> + ?Sized,
{
    let begun = connection.begin_with(begin).await;
    let mut transaction = begun.map_err(|error| TransactionError::RolledBack(error.into()))?;
    let done = work(&mut transaction).await.map_err(TransactionError::RolledBack);
    let done = if given_up.holds() { Err(TransactionError::Silent) } else { done };
    match done {
        Ok(value) => {
            tollgate_fault_points::pass("store.commit.before");
            transaction.commit().await.map_err(TransactionError::AtCommit)?;
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

/// Whether the connection has ended with this, or leads to a server that only reads.
pub(super) fn is_of_no_use(ended: &TransactionError) -> bool {
    let (TransactionError::RolledBack(Failure::Sql(error)) | TransactionError::AtCommit(error)) = ended
    else {
        return false;
    };
    ends_its_connection(error)
}

/// As [`is_of_no_use`], of a statement's error.
pub(super) fn ends_its_connection(error: &sqlx::Error) -> bool {
    use sqlx::Error::{BeginFailed, Io, Protocol, Tls, WorkerCrashed};
    match error {
        sqlx::Error::Database(error) => ends_the_connection(error.as_ref()) || is_a_standby(error.as_ref()),
        Io(_) | Tls(_) | Protocol(_) | BeginFailed | WorkerCrashed => true,
        _ => false,
    }
}

/// Serialisation failures and deadlocks.
fn lost_a_race(ended: &TransactionError) -> bool {
    let (TransactionError::RolledBack(Failure::Sql(error)) | TransactionError::AtCommit(error)) = ended
    else {
        return false;
    };
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}
