//! Commits of shards' owners, many in one transaction of the one connection that writes.
//!
//! In: those whose turn it is when the connection is free. Out: what became of each. Where one of them cannot be written, none
//! is, and each is tried alone: nobody pays for another's fence. Not here: who goes together (`crate::line`), what is written
//! (`plain`, or `commit` for what is not plain).

use std::sync::Arc;

use futures::FutureExt as _;
use sqlx::pool::PoolConnection;
use sqlx::{SqliteConnection, SqlitePool};

use super::Sqlite;
use super::commit::write;
use super::plain::{self, Ends};
use super::transact::{carry_out, forget};
use super::turns::{Kind, Turns};
use crate::CommitError;
use crate::failure::{Ended, Failure};
use crate::line::{Fence, Lane, Waiting, tell_all};
use crate::rows::ChangeRows;

impl Sqlite {
    /// Commits the changes of one shard behind its fence, perhaps together with those of others.
    pub(super) async fn commit_in_line(&self, fence: Fence, rows: ChangeRows) -> Result<(), CommitError> {
        let (waiting, answer) = Waiting::new(fence, Arc::new(rows));
        if let Some(lane) = self.line.join(waiting) {
            // A task of its own: whoever waits here may be dropped, and others wait as well.
            tokio::spawn(see_to(self.writer.clone(), self.turns.clone(), lane));
        }
        let done = answer.await.unwrap_or_else(|gone| Err(Ended::Lost(gone.to_string())));
        self.judge_commit("commit", done)
    }
}

async fn see_to(pool: SqlitePool, turns: Turns, mut lane: Lane) {
    loop {
        // They gather until the connection is free.
        let _turn = turns.turn(Kind::Hot).await;
        let connection = pool.acquire().await;
        let Some(head) = lane.next() else { return };
        let alone = match connection {
            Ok(connection) => together(connection, head).await,
            Err(_) => head,
        };
        for waiting in alone {
            let (fence, rows) = (waiting.fence, Arc::clone(&waiting.rows));
            let ended = carry_out(pool.clone(), "BEGIN IMMEDIATE", move |connection| {
                let rows = Arc::clone(&rows);
                async move { write(connection, fence, &rows).await }.boxed()
            });
            waiting.tell(ended.await);
        }
    }
}

/// Those that have to be tried alone.
async fn together(mut connection: PoolConnection<sqlx::Sqlite>, head: Vec<Waiting>) -> Vec<Waiting> {
    let written = write_all(&mut connection, &head).await;
    let ended = match written {
        Ok(()) => Ok(()),
        // What can be rolled back has not been committed.
        Err(_) if sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.is_ok() => return head,
        Err(failure) => {
            forget(connection).await;
            Err(match failure {
                Failure::Sql(error) => Ended::AtCommit(error),
                failure => Ended::Lost(format!("{failure:?}")),
            })
        }
    };
    tell_all(head, ended);
    Vec::new()
}

/// One transaction, begun and committed by the commands that write.
async fn write_all(connection: &mut SqliteConnection, head: &[Waiting]) -> Result<(), Failure> {
    let mut left = head;
    while let Some(first) = left.first() {
        let so_many = plain::so_many(left);
        let (these, others) = left.split_at(so_many.max(1));
        let ends = Ends { begins: left.len() == head.len(), commits: others.is_empty() };
        left = others;
        tollgate_fault_points::pass("store.fence.before");
        if so_many > 0 {
            tollgate_fault_points::pass("store.commit.before");
            plain::write(connection, these, ends).await?;
            continue;
        }
        if ends.begins {
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        }
        write(connection, first.fence, &first.rows).await?;
        if ends.commits {
            tollgate_fault_points::pass("store.commit.before");
            sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        }
    }
    tollgate_fault_points::pass("store.commit.after");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::sync::oneshot;
    use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, ShardPause};
    use tollgate_core::model::RunId;
    use uuid::Uuid;

    use super::*;
    use crate::handle::HandleStore as _;

    type Answers = Vec<oneshot::Receiver<Result<(), Ended>>>;

    /// Commits of shards 0 to 3, of which those from `stale` on have lost their leases. The first `general` are not for one command.
    async fn commits(store: &Sqlite, stale: usize, general: usize) -> (Vec<Waiting>, Answers) {
        let mut commits = (Vec::new(), Vec::new());
        for (at, seen) in store.leases().await.unwrap().into_iter().take(4).enumerate() {
            let lease = store.take_shard(&seen, "me").await.unwrap().unwrap();
            let lease_id = if at < stale { lease.lease_id } else { Uuid::nil() };
            let pause = (at < general).then(ShardPause::default);
            let history = (0..600).map(|index| HistoryRow {
                run: RunId(Uuid::nil()),
                index,
                count: 1,
                outcome: Outcome::Succeeded,
                attempt: 1,
                acquired_us: None,
                delivered_us: None,
                finished_us: lease.epoch,
                message: String::new(),
            });
            let changes = Changes { pause, history: history.collect(), ..Changes::default() };
            let fence = Fence { shard: i32::from(lease.shard), lease_id };
            let (waiting, answer) = Waiting::new(fence, Arc::new(ChangeRows::of(&changes).unwrap()));
            commits.0.push(waiting);
            commits.1.push(answer);
        }
        commits
    }

    async fn numbers(store: &Sqlite) -> Vec<i64> {
        let query = "SELECT seq FROM queue_shards ORDER BY shard_id LIMIT 4";
        sqlx::query_scalar(query).fetch_all(&store.readers).await.unwrap()
    }

    #[tokio::test]
    async fn all_go_together_or_are_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("t.db").to_str().unwrap()).await.unwrap();
        for general in 0..=4 {
            let before = numbers(&store).await;
            for stale in 0..4 {
                let (head, answers) = commits(&store, stale, general).await;
                assert_eq!(head.iter().filter(|waiting| !waiting.rows.is_plain()).count(), general);
                let alone = together(store.writer.acquire().await.unwrap(), head).await;
                assert_eq!(alone.len(), 4, "one of them is fenced");
                assert_eq!(numbers(&store).await, before, "nothing of the others is left");
                assert!(answers.into_iter().all(|mut answer| answer.try_recv().is_err()), "nobody was told");
            }
            let (head, answers) = commits(&store, 4, general).await;
            assert!(together(store.writer.acquire().await.unwrap(), head).await.is_empty());
            assert!(answers.into_iter().all(|mut answer| answer.try_recv().unwrap().is_ok()));
            assert_eq!(numbers(&store).await, before.iter().map(|seq| seq + 1).collect::<Vec<_>>());
        }
    }
}
