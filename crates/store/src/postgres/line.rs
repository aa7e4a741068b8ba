//! Commits of shards' owners, many in one transaction.
//!
//! In: commits whose turn it is. Out: the result of each. Where one of them cannot be written, none is, and each is tried alone:
//! nobody pays for another's fence. What one statement carries needs no other to begin and to commit, but behind a pooler, for
//! which a statement must be prepared in the transaction that carries it out. Not here: who goes together (`crate::line`), what
//! is written (`commit`).

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::PgConnection;
use sqlx::pool::PoolConnection;

use super::Postgres;
use super::commit::{write, write_at_once};
use super::door::PoolDoor;
use super::open::{BEGIN_DISTRIBUTED, ends_the_connection};
use super::transact::{QUICK_SILENT_AFTER, is_of_no_use, on};
use super::warm::WarmConnection;
use crate::failure::{Failure, TransactionError};
use crate::line::{Fence, FencedCommit, LineWorker, PATIENCE, WaitingCommit, tell_all};
use crate::rows::ChangeRows;
use crate::slot::for_any_connection;

/// SQLSTATE `feature_not_supported`.
const NOT_SUPPORTED: &str = "0A000";
/// SQLSTATE `unique_violation`.
const UNIQUE_VIOLATION: &str = "23505";

/// Where the connections come from, and what the server takes.
#[derive(Clone)]
struct Writer {
    door: PoolDoor,
    warm: Arc<WarmConnection>,
    is_distributed: Arc<AtomicBool>,
}

type Connection = PoolConnection<sqlx::Postgres>;

impl Postgres {
    /// Commits the changes of one shard behind its fence, perhaps together with those of others.
    pub(super) async fn commit_in_line(
        &self,
        fence: Fence,
        rows: Arc<ChangeRows>,
    ) -> Result<(), TransactionError> {
        let (waiting, answer) = WaitingCommit::new(FencedCommit { fence, rows });
        if let Some(worker) = self.line.join(waiting) {
            let (warm, is_distributed) = (Arc::clone(&self.warm), Arc::clone(&self.is_distributed));
            let writer = Writer { door: self.commits.clone(), warm, is_distributed };
            // A task of its own: the caller that waits here may be dropped, and others wait as well.
            tokio::spawn(writer.see_to(worker));
        }
        answer.await.unwrap_or_else(|gone| Err(TransactionError::Lost(gone.to_string())))
    }
}

impl Writer {
    /// Carries out what waits. Where one transaction takes long, those who joined meanwhile go beside it.
    fn see_to(self, mut worker: LineWorker) -> BoxFuture<'static, ()> {
        async move {
            while let Some(head) = worker.next() {
                let mut work = pin!(self.begin(head));
                while tokio::time::timeout(PATIENCE, &mut work).await.is_err() {
                    if let Some(beside) = worker.beside() {
                        tokio::spawn(self.clone().see_to(beside));
                    }
                }
            }
        }
        .boxed()
    }

    async fn begin(&self, head: Vec<WaitingCommit>) {
        match self.connection().await {
            Ok(connection) => self.carry_out(connection, head).await,
            Err(error) => tell_all(head, Err(TransactionError::RolledBack(error.into()))),
        }
    }

    async fn connection(&self) -> Result<Connection, sqlx::Error> {
        match self.warm.take() {
            Some(connection) => Ok(connection),
            None => self.door.pool.acquire().await,
        }
    }

    fn is_distributed(&self) -> bool {
        self.is_distributed.load(Ordering::Relaxed)
    }

    async fn carry_out(&self, connection: Connection, waiting: Vec<WaitingCommit>) {
        let (mut connection, mut alone) = (Some(connection), waiting);
        // A transaction of several shards costs a distributed server more than several transactions.
        if alone.len() > 1 && !self.is_distributed() {
            let ended = self.write(&mut connection, &alone).await;
            if !matches!(ended, Err(TransactionError::RolledBack(_))) {
                tell_all(std::mem::take(&mut alone), ended);
            }
        }
        let mut alone = alone.into_iter();
        while let Some(waiting) = alone.next() {
            // The one before may have taken it along; that says nothing of this one.
            if connection.is_none() {
                match self.connection().await {
                    Ok(another) => connection = Some(another),
                    Err(error) => {
                        let rest = std::iter::once(waiting).chain(alone).collect();
                        return tell_all(rest, Err(TransactionError::RolledBack(error.into())));
                    }
                }
            }
            let ended = self.write(&mut connection, std::slice::from_ref(&waiting)).await;
            waiting.tell(ended);
        }
        if let Some(connection) = connection {
            self.warm.keep(connection, &self.door.pool);
        }
    }

    /// All of them, or none. The connection is left there if it can be used again.
    async fn write(
        &self,
        connection: &mut Option<Connection>,
        waiting: &[WaitingCommit],
    ) -> Result<(), TransactionError> {
        let commits: Arc<[FencedCommit]> = waiting.iter().map(|waiting| waiting.commit.clone()).collect();
        let is_distributed = self.is_distributed();
        let ended = self.transact(connection, &commits, is_distributed).await;
        let code = refusal(&ended).filter(|_| !is_distributed);
        if code.as_deref() == Some(NOT_SUPPORTED) && !self.is_distributed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?ended,
                "a commit takes a statement for each kind of row: the server does not do it in one"
            );
        }
        // A row that is there already is left, or written anew, by the statements for one kind of row.
        let takes_others = [NOT_SUPPORTED, UNIQUE_VIOLATION].map(Some).contains(&code.as_deref());
        if takes_others && commits.len() == 1 {
            return self.transact(connection, &commits, true).await;
        }
        ended
    }

    async fn transact(
        &self,
        connection: &mut Option<Connection>,
        commits: &Arc<[FencedCommit]>,
        is_distributed: bool,
    ) -> Result<(), TransactionError> {
        let Some(usable) = connection.take() else {
            return Err(TransactionError::Lost("the connection failed before its turn came".to_owned()));
        };
        tollgate_fault_points::pass("store.fence.before");
        let is_one = !is_distributed && !commits.iter().any(|commit| commit.rows.has_rest());
        let begin = match (self.door.pooled, is_distributed) {
            (false, true) => Some(BEGIN_DISTRIBUTED),
            (false, false) if is_one => None,
            _ => Some(self.door.begin()),
        };
        let commits = Arc::clone(commits);
        let worked = self.door.work_on(QUICK_SILENT_AFTER, usable, move |connection, given_up| {
            async move {
                let done = match begin {
                    None => one_statement(connection, &commits).await,
                    Some(begin) => {
                        let work = for_any_connection(move |connection| {
                            let commits = Arc::clone(&commits);
                            async move { write(connection, &commits, is_distributed).await }.boxed()
                        });
                        on(connection, begin, &work, &given_up).await
                    }
                };
                let is_of_no_use = done.as_ref().is_err_and(is_of_no_use);
                (done, is_of_no_use)
            }
            .boxed()
        });
        let (done, usable) = worked.await;
        *connection = usable;
        done.unwrap_or_else(|not_done| Err(not_done.into()))
    }
}

/// Commits by the one statement, which is a transaction of its own.
async fn one_statement(
    connection: &mut PgConnection,
    commits: &[FencedCommit],
) -> Result<(), TransactionError> {
    tollgate_fault_points::pass("store.commit.before");
    match write_at_once(connection, commits).await {
        Ok(()) => {
            tollgate_fault_points::pass("store.commit.after");
            Ok(())
        }
        // Where the server did not say no, nobody knows.
        Err(Failure::Sql(error)) if !has_refused(&error) => Err(TransactionError::AtCommit(error)),
        Err(failure) => Err(TransactionError::RolledBack(failure)),
    }
}

/// SQLSTATE of what the server refused. It has rolled back then.
fn refusal(ended: &Result<(), TransactionError>) -> Option<String> {
    let Err(TransactionError::RolledBack(Failure::Sql(sqlx::Error::Database(error)))) = ended else {
        return None;
    };
    error.code().map(Cow::into_owned)
}

/// Whether the server said no: it has rolled back.
fn has_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| !ends_the_connection(error))
}
