//! The door to transactions: `run_tx` for all, `run_fenced` for a shard's owner, `run_read` for reads of one moment.
//!
//! Each transaction runs in a task of its own: sqlx 0.9.0 poisons its pool when `begin` is cancelled, and a caller may be
//! dropped at any time.

use futures::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::Postgres;
use crate::failure::{Ended, Failure};
use crate::{CommitError, StoreError};

/// How often a transaction is tried that lost against another.
const TRIES_MAX: u32 = 5;

/// Who an owner claims to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) shard: i32,
    pub(super) lease_id: Uuid,
    pub(super) seq: i64,
}

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
        let mut tries = 1;
        loop {
            match self.transact("BEGIN", None, work.clone()).await {
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
        let done = self.transact("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", None, work).await;
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
        let Err(ended) = self.transact("BEGIN", Some(fence), work).await else { return Ok(()) };
        match ended {
            Ended::Fenced => Err(CommitError::Fenced),
            Ended::RolledBack(_) => Err(CommitError::Failed(self.ended(name, ended))),
            // The server said no: it has rolled back.
            Ended::AtCommit(sqlx::Error::Database(ref error))
                if !super::open::ends_the_connection(error.as_ref()) =>
            {
                Err(CommitError::Failed(self.ended(name, ended)))
            }
            Ended::AtCommit(_) | Ended::Lost(_) => Err(CommitError::Unknown(self.ended(name, ended))),
        }
    }

    async fn transact<T, F>(&self, begin: &'static str, fence: Option<Fence>, work: F) -> Result<T, Ended>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>> + Send + Sync + 'static,
    {
        let task = tokio::spawn(carry_out(self.pool.clone(), begin, fence, work));
        task.await.unwrap_or_else(|gone| Err(Ended::Lost(gone.to_string())))
    }

    /// What an end is to the caller.
    fn ended(&self, name: &'static str, ended: Ended) -> StoreError {
        match ended {
            Ended::RolledBack(Failure::Store(error)) => error,
            Ended::RolledBack(Failure::Sql(error)) | Ended::AtCommit(error) => self.error(error),
            Ended::Fenced => StoreError::Internal(format!("{name}: fenced")),
            Ended::Lost(why) => StoreError::Internal(format!("{name}: the transaction's task ended: {why}")),
        }
    }

    /// The answer of a single statement, or what its error is to the caller.
    pub(super) fn judge<T>(&self, answer: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        answer.map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: sqlx::Error) -> StoreError {
        super::open::store_error(&self.place, error)
    }
}

async fn carry_out<T, F>(pool: PgPool, begin: &'static str, fence: Option<Fence>, work: F) -> Result<T, Ended>
where
    F: for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, Failure>>,
{
    let mut transaction = pool.begin_with(begin).await.map_err(|error| Ended::RolledBack(error.into()))?;
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
        Ok(_) => Err(Ended::Fenced),
        Err(error) => Err(Ended::RolledBack(error.into())),
    }
}

/// Serialisation failures and deadlocks.
fn lost_a_race(ended: &Ended) -> bool {
    let (Ended::RolledBack(Failure::Sql(error)) | Ended::AtCommit(error)) = ended else { return false };
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}
