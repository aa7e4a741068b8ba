//! Commits of shards' owners, in line for the one connection that writes.
//!
//! In: the changes of any number of shards, each behind its own fence. Out: what became of each. Those that wait when the
//! connection is free go in one transaction, and onto the disk by one sync: with many policies, whose shards commit a few
//! events each, that is what counts. Where one of them cannot be written, none is, and each is tried alone: nobody pays for
//! another's fence. Not here: what is written (`commit`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::SqlitePool;
use sqlx::pool::PoolConnection;
use tokio::sync::oneshot;

use super::Sqlite;
use super::commit::{Fence, write};
use super::transact::{carry_out, forget, within};
use crate::CommitError;
use crate::failure::Ended;
use crate::rows::ChangeRows;

/// Commits in one transaction, so that the first does not wait for too many.
const TOGETHER_MAX: usize = 32;

struct Waiting {
    fence: Fence,
    rows: Arc<ChangeRows>,
    done: oneshot::Sender<Result<(), Ended>>,
}

/// Those that wait.
#[derive(Default)]
pub(super) struct Line(Mutex<Vec<Waiting>>);

impl Line {
    /// Whether it is the first, for which somebody must see to the line.
    fn join(&self, waiting: Waiting) -> bool {
        let mut line = self.lock();
        line.push(waiting);
        line.len() == 1
    }

    /// Those at the head, and whether others are left.
    fn head(&self) -> (Vec<Waiting>, bool) {
        let mut line = self.lock();
        let count = line.len().min(TOGETHER_MAX);
        (line.drain(..count).collect(), !line.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // Each change is one call, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sqlite {
    /// Commits the changes of one shard behind its fence, perhaps together with those of others.
    pub(super) async fn commit_in_line(&self, fence: Fence, rows: ChangeRows) -> Result<(), CommitError> {
        let (done, answer) = oneshot::channel();
        if self.line.join(Waiting { fence, rows: Arc::new(rows), done }) {
            // A task of its own: whoever waits here may be dropped, and others wait as well.
            tokio::spawn(see_to(self.writer.clone(), Arc::clone(&self.line)));
        }
        let done = answer.await.unwrap_or_else(|gone| Err(Ended::Lost(gone.to_string())));
        self.judge_commit("commit", done)
    }
}

fn see_to(pool: SqlitePool, line: Arc<Line>) -> BoxFuture<'static, ()> {
    async move {
        // They gather until the connection is free.
        let connection = pool.acquire().await;
        let (head, more) = line.head();
        if more {
            tokio::spawn(see_to(pool.clone(), line));
        }
        let alone = match connection {
            Ok(connection) => together(connection, head).await,
            Err(_) => head,
        };
        for Waiting { fence, rows, done } in alone {
            let ended = carry_out(pool.clone(), "BEGIN IMMEDIATE", move |connection| {
                let rows = Arc::clone(&rows);
                async move { write(connection, fence, &rows).await }.boxed()
            });
            // A caller that has gone needs no answer.
            let _gone = done.send(ended.await);
        }
    }
    .boxed()
}

/// Those that have to be tried alone.
async fn together(mut connection: PoolConnection<sqlx::Sqlite>, head: Vec<Waiting>) -> Vec<Waiting> {
    let jobs: Vec<_> = head.iter().map(|waiting| (waiting.fence, Arc::clone(&waiting.rows))).collect();
    let jobs = Arc::new(jobs);
    let (ended, is_over) = within(&mut connection, "BEGIN IMMEDIATE", move |connection| {
        let jobs = Arc::clone(&jobs);
        async move {
            for (fence, rows) in jobs.iter() {
                write(connection, *fence, rows).await?;
            }
            Ok(())
        }
        .boxed()
    })
    .await;
    if !is_over {
        forget(connection).await;
    }
    if head.len() > 1 && matches!(ended, Err(Ended::RolledBack(_))) {
        return head;
    }
    // Only one has the error itself; what it means is the same for all: nobody knows.
    let why = ended.as_ref().err().map(|ended| format!("{ended:?}"));
    let mut ended = Some(ended);
    for waiting in head {
        let ended = match (ended.take(), &why) {
            (Some(ended), _) => ended,
            (None, None) => Ok(()),
            (None, Some(why)) => Err(Ended::Lost(why.clone())),
        };
        // A caller that has gone needs no answer.
        let _gone = waiting.done.send(ended);
    }
    Vec::new()
}
