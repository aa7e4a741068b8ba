//! Commits of shards' owners, many in one transaction of the one connection that writes.
//!
//! In: commits whose turn it is when the connection is free. Out: the result of each. Where one of them cannot be written, none
//! is, and each is tried alone: nobody pays for another's fence. Not here: who goes together (`crate::line`), what is written
//! (`commit`).

use std::sync::Arc;

use sqlx::SqlitePool;
use sqlx::pool::PoolConnection;

use super::Sqlite;
use super::commit::write;
use super::transact::forget;
use super::turns::{Kind, Turns};
use crate::CommitError;
use crate::failure::{Failure, TransactionError};
use crate::line::{Fence, FencedCommit, LineWorker, WaitingCommit, tell_all};
use crate::rows::ChangeRows;

impl Sqlite {
    /// Commits the changes of one shard behind its fence, perhaps together with those of others.
    pub(super) async fn commit_in_line(&self, fence: Fence, rows: ChangeRows) -> Result<(), CommitError> {
        let (waiting, answer) = WaitingCommit::new(FencedCommit { fence, rows: Arc::new(rows) });
        if let Some(worker) = self.line.join(waiting) {
            // A task of its own: the caller that waits here may be dropped, and others wait as well.
            tokio::spawn(see_to(self.writer.clone(), self.turns.clone(), worker));
        }
        let done = answer.await.unwrap_or_else(|gone| Err(TransactionError::Lost(gone.to_string())));
        self.judge_commit("commit", done)
    }
}

async fn see_to(pool: SqlitePool, turns: Turns, mut worker: LineWorker) {
    loop {
        // They gather until the connection is free.
        let _turn = turns.turn(Kind::Hot).await;
        let connection = pool.acquire().await;
        let Some(mut alone) = worker.next() else { return };
        let ended = transact(connection, &alone).await;
        if alone.len() == 1 || !matches!(ended, Err(TransactionError::RolledBack(_))) {
            tell_all(std::mem::take(&mut alone), ended);
        }
        for waiting in alone {
            let ended = transact(pool.acquire().await, std::slice::from_ref(&waiting)).await;
            waiting.tell(ended);
        }
    }
}

/// All of them, or none.
async fn transact(
    connection: Result<PoolConnection<sqlx::Sqlite>, sqlx::Error>,
    waiting: &[WaitingCommit],
) -> Result<(), TransactionError> {
    let mut connection = connection.map_err(|error| TransactionError::RolledBack(error.into()))?;
    let commits: Vec<FencedCommit> = waiting.iter().map(|waiting| waiting.commit.clone()).collect();
    let Err(failure) = write(&mut connection, &commits).await else { return Ok(()) };
    // What can be rolled back has not been committed.
    if sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.is_ok() {
        return Err(TransactionError::RolledBack(failure));
    }
    forget(connection).await;
    Err(match failure {
        Failure::Sql(error) => TransactionError::AtCommit(error),
        failure => TransactionError::Lost(format!("{failure:?}")),
    })
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

    type Answers = Vec<oneshot::Receiver<Result<(), TransactionError>>>;

    /// Commits of shards 0 to 3, of which those from `stale` on have lost their leases. The first `general` are not for
    /// one command.
    async fn commits(store: &Sqlite, stale: usize, general: usize) -> (Vec<WaitingCommit>, Answers) {
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
            let rows = Arc::new(ChangeRows::of(&changes).unwrap());
            let (waiting, answer) = WaitingCommit::new(FencedCommit { fence, rows });
            commits.0.push(waiting);
            commits.1.push(answer);
        }
        commits
    }

    /// How many events of each of the shards have ended.
    async fn numbers(store: &Sqlite) -> Vec<i64> {
        let query = "SELECT (SELECT count(*) FROM ended_events AS event WHERE event.shard_id = queue_shards.shard_id) \
                     FROM queue_shards ORDER BY shard_id LIMIT 4";
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
                assert_eq!(head.iter().filter(|waiting| waiting.commit.rows.has_rest()).count(), general);
                let ended = transact(store.writer.acquire().await, &head).await;
                assert!(matches!(ended, Err(TransactionError::RolledBack(Failure::Fenced))), "{ended:?}");
                assert_eq!(numbers(&store).await, before, "nothing of the others is left");
                assert!(answers.into_iter().all(|mut answer| answer.try_recv().is_err()), "nobody was told");
            }
            let (head, _answers) = commits(&store, 4, general).await;
            transact(store.writer.acquire().await, &head).await.unwrap();
            assert_eq!(numbers(&store).await, before.iter().map(|ended| ended + 600).collect::<Vec<_>>());
        }
    }
}
