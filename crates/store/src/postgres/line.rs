//! Commits of shards' owners, many in one statement.
//!
//! In: those whose turn it is. Out: what became of each. Where one of them cannot be written, none is, and each is tried alone:
//! nobody pays for another's fence. Not here: who goes together (`crate::line`), what is written (`commit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use sqlx::pool::PoolConnection;

use super::Postgres;
use super::commit::{are_many, plain};
use super::door::{Door, NotDone};
use super::open::{ends_the_connection, is_a_standby};
use super::recent::Recent;
use super::transact::QUICK_SILENT_AFTER;
use crate::failure::{Ended, Failure};
use crate::line::{Fence, Lane, Waiting, tell_all};
use crate::rows::ChangeRows;

/// SQLSTATE `feature_not_supported`.
const NOT_SUPPORTED: &str = "0A000";
/// What `commit_one_by_one` and `commit_at_once` answer where a fence lets nothing through.
const FENCED: &str = "TG001";

/// Where the connections come from, and what the server takes.
struct Writer {
    door: Door,
    recent: Arc<Recent>,
    one_by_one: Arc<AtomicBool>,
}

impl Postgres {
    /// Commits the changes of one shard behind its fence, perhaps together with those of others.
    pub(super) async fn commit_in_line(&self, fence: Fence, rows: Arc<ChangeRows>) -> Result<(), Ended> {
        let (waiting, answer) = Waiting::new(fence, rows);
        if let Some(lane) = self.line.join(waiting) {
            let (recent, one_by_one) = (Arc::clone(&self.recent), Arc::clone(&self.one_by_one));
            let writer = Writer { door: self.commits.clone(), recent, one_by_one };
            // A task of its own: whoever waits here may be dropped, and others wait as well.
            tokio::spawn(writer.see_to(lane));
        }
        answer.await.unwrap_or_else(|gone| Err(Ended::Lost(gone.to_string())))
    }
}

impl Writer {
    async fn see_to(self, mut lane: Lane) {
        while let Some(head) = lane.next() {
            match self.connection().await {
                Ok(connection) => self.carry_out(connection, head).await,
                Err(error) => tell_all(head, Err(Ended::RolledBack(error.into()))),
            }
        }
    }

    async fn connection(&self) -> Result<PoolConnection<sqlx::Postgres>, sqlx::Error> {
        match self.recent.take() {
            Some(connection) => Ok(connection),
            None => self.door.pool.acquire().await,
        }
    }

    async fn carry_out(&self, connection: PoolConnection<sqlx::Postgres>, commits: Vec<Waiting>) {
        let (ended, mut connection) = self.write(connection, &commits).await;
        if !matches!(ended, Err(Ended::RolledBack(_))) || commits.len() == 1 {
            tell_all(commits, ended);
        } else {
            for waiting in commits {
                let Some(usable) = connection.take() else {
                    waiting.tell(Err(Ended::Lost("the connection failed before its turn came".to_owned())));
                    continue;
                };
                let ended;
                (ended, connection) = self.write(usable, std::slice::from_ref(&waiting)).await;
                waiting.tell(ended);
            }
        }
        if let Some(connection) = connection {
            self.recent.keep(connection, &self.door.pool);
        }
    }

    /// All of them, or none. The connection comes back where it can be used again.
    async fn write(
        &self,
        connection: PoolConnection<sqlx::Postgres>,
        commits: &[Waiting],
    ) -> (Result<(), Ended>, Option<PoolConnection<sqlx::Postgres>>) {
        let are_many = are_many(commits) && !self.one_by_one.load(Ordering::Relaxed);
        let (ended, connection) = write(&self.door, connection, commits, are_many).await;
        match connection {
            Some(connection) if are_many && is_not_supported(&ended) => {
                if !self.one_by_one.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "commits look rows up one by one: the server does not do it for many at once"
                    );
                }
                write(&self.door, connection, commits, false).await
            }
            connection => (ended, connection),
        }
    }
}

/// Whether the server refused the statement as such. It has rolled back then.
pub(super) fn is_not_supported(ended: &Result<(), Ended>) -> bool {
    let Err(Ended::RolledBack(Failure::Sql(sqlx::Error::Database(error)))) = ended else { return false };
    error.code().as_deref() == Some(NOT_SUPPORTED)
}

async fn write(
    door: &Door,
    connection: PoolConnection<sqlx::Postgres>,
    commits: &[Waiting],
    are_many: bool,
) -> (Result<(), Ended>, Option<PoolConnection<sqlx::Postgres>>) {
    tollgate_fault_points::pass("store.fence.before");
    tollgate_fault_points::pass("store.commit.before");
    let (text, arguments) = match plain(commits, are_many) {
        Ok(plain) => plain,
        Err(error) => return (Err(Ended::RolledBack(error.into())), Some(connection)),
    };
    let written = door.work_on(QUICK_SILENT_AFTER, connection, move |connection, _given_up| {
        async move {
            let done = sqlx::query_with(text, arguments).execute(connection).await.map(drop);
            let goes_on = match &done {
                Ok(()) => true,
                // The server said no: it has rolled back.
                Err(sqlx::Error::Database(error)) => {
                    !ends_the_connection(error.as_ref()) && !is_a_standby(error.as_ref())
                }
                Err(_) => false,
            };
            (done, !goes_on)
        }
        .boxed()
    });
    let (done, connection) = written.await;
    let ended = match done {
        Ok(Ok(())) => {
            tollgate_fault_points::pass("store.commit.after");
            Ok(())
        }
        Ok(Err(sqlx::Error::Database(error))) if !ends_the_connection(error.as_ref()) => {
            let is_fenced = error.code().as_deref() == Some(FENCED);
            let failure = if is_fenced { Failure::Fenced } else { sqlx::Error::Database(error).into() };
            Err(Ended::RolledBack(failure))
        }
        Ok(Err(error)) | Err(NotDone::NoConnection(error)) => Err(Ended::AtCommit(error)),
        Err(NotDone::Silent) => Err(Ended::Silent),
        Err(NotDone::Lost(why)) => Err(Ended::Lost(why)),
    };
    (ended, connection)
}
