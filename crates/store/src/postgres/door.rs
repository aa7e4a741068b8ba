//! Doors to the server: connections of their own for those that must not wait for each other.
//!
//! In: work on a connection. Out: what came of it, or that no answer came in time. Invariant: the backends of
//! connections on which the server has fallen silent are counted until they have ended. While there are as many as
//! places, the next silent connection keeps its place: a caller that gives up and comes again, however often, never
//! has more than two backends for each place. Not here: transactions (`transact`), how a connection is made (`open`).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};
use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot};

use crate::failure::TransactionError;

/// How often a place that is kept for a silent backend is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the look itself may take.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Behind a pooler backends have no names: a place is kept for this time. The pooler bounds them.
const POOLED_MAX: Duration = Duration::from_secs(60);

/// How the places of a process are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSizes {
    /// For heartbeats and the look at others. None: they share the work's.
    pub(super) pulse: u32,
    /// For owners' commits. None: they share the work's.
    pub(super) commits: u32,
    /// For what the roles read and write besides.
    pub(super) work: u32,
    /// For what people ask and change.
    pub(super) people: u32,
}

impl PoolSizes {
    /// `all` places, but two at least.
    pub(super) fn of(all: u32) -> Self {
        let all = all.max(2);
        let people = (all / 4).max(1);
        let rest = all - people;
        if rest < 4 {
            return Self { pulse: 0, commits: 0, work: rest, people };
        }
        let commits = (((rest - 1) * 2 + 2) / 5).max(2);
        Self { pulse: 1, commits, work: rest - 1 - commits, people }
    }
}

/// A share of the places.
#[derive(Clone, Debug)]
pub(super) struct PoolDoor {
    pub(super) pool: PgPool,
    /// Host, port and database, for errors. Never the password.
    pub(super) place: Arc<str>,
    /// There is a pooler between, which lends its connections for one transaction.
    pub(super) pooled: bool,
    /// Single statements have little time, which the server sees to.
    pub(super) for_people: bool,
    pub(super) backends: Arc<Backends>,
}

/// Why nothing came of it.
#[derive(Debug)]
pub(super) enum NotDone {
    /// There was no connection.
    NoConnection(sqlx::Error),
    /// No answer came.
    Silent,
    /// The task is gone.
    Lost(String),
}

impl From<NotDone> for TransactionError {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::NoConnection(error) => Self::RolledBack(error.into()),
            NotDone::Silent => Self::Silent,
            NotDone::Lost(why) => Self::Lost(why),
        }
    }
}

/// That nobody waits any more: what is under way is not to be committed.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    pub(super) fn holds(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What `work` hands back: its result, and whether the connection must be closed.
pub(super) type Worked<T> = (T, bool);

impl PoolDoor {
    /// Works on the pool's next connection; see [`PoolDoor::work_on`].
    pub(super) async fn lend<T, F>(&self, within: Duration, work: F) -> Result<T, NotDone>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection, GivenUp) -> BoxFuture<'c, Worked<T>> + Send + 'static,
    {
        let door = self.clone();
        // A task of its own: a caller may be dropped at any time.
        let task = tokio::spawn(async move {
            let connection = door.pool.acquire().await.map_err(NotDone::NoConnection)?;
            door.work_on(within, connection, work).await.0
        });
        task.await.unwrap_or_else(|gone| Err(NotDone::Lost(gone.to_string())))
    }

    /// Works on a connection, in a task of its own: sqlx 0.9.0 poisons its pool when `begin` is cancelled. Waits for an answer no
    /// longer than `within`. The connection comes back where it can be used again.
    pub(super) async fn work_on<T, F>(
        &self,
        within: Duration,
        mut connection: PoolConnection<sqlx::Postgres>,
        work: F,
    ) -> (Result<T, NotDone>, Option<PoolConnection<sqlx::Postgres>>)
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut PgConnection, GivenUp) -> BoxFuture<'c, Worked<T>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (pooled, backends) = (self.pooled, Arc::clone(&self.backends));
        tokio::spawn(async move {
            let given_up = GivenUp::default();
            let mut answer = Some(answer);
            let mut tell = |told| {
                // A caller that has gone needs no answer.
                let _gone = answer.take().map(|answer| answer.send(told));
            };
            let ended = {
                let mut working = pin!(work(&mut connection, given_up.clone()));
                match tokio::time::timeout(within, working.as_mut()).await {
                    Ok(worked) => Ok(worked),
                    Err(_) => {
                        given_up.0.store(true, Ordering::SeqCst);
                        tell((Err(NotDone::Silent), None));
                        if backends.leave_one(pooled) {
                            Err(None)
                        } else {
                            tokio::select! {
                                _ = working.as_mut() => Err(None),
                                turn = backends.one_is_gone(pooled) => Err(turn),
                            }
                        }
                    }
                }
            };
            match ended {
                Ok((done, false)) => tell((Ok(done), Some(connection))),
                Ok((done, true)) => {
                    drop(connection.detach());
                    tell((Ok(done), None));
                }
                Err(turn) => {
                    drop(connection.detach());
                    // The next one counts without it.
                    drop(turn);
                }
            }
        });
        answered.await.unwrap_or_else(|gone| (Err(NotDone::Lost(gone.to_string())), None))
    }
}

/// The backends of this process's connections.
#[derive(Debug)]
pub(super) struct Backends {
    options: PgConnectOptions,
    /// Those that were there when it was last looked, and newer ones.
    ids: Mutex<BTreeSet<i32>>,
    /// All pools that they belong to.
    pools: OnceLock<Vec<PgPool>>,
    /// One for each backend that may be left behind.
    leaves: Arc<Semaphore>,
    leaves_max: usize,
    /// Whose place is decided on.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Backends {
    /// As many as `places` may be left behind.
    pub(super) fn new(options: PgConnectOptions, places: u32) -> Self {
        let (ids, pools, turn) = (Mutex::default(), OnceLock::new(), Arc::default());
        let leaves_max = places as usize;
        Self { options, ids, pools, leaves: Arc::new(Semaphore::new(leaves_max)), leaves_max, turn }
    }

    /// The pools whose places are counted. Only the first call counts.
    pub(super) fn are_of(&self, pools: Vec<PgPool>) {
        let _first = self.pools.set(pools);
    }

    pub(super) fn opened(&self, id: i32) {
        self.ids().insert(id);
    }

    /// Whether a silent backend may be left behind, and its place be another's at once. It counts until it has ended.
    fn leave_one(self: &Arc<Self>, pooled: bool) -> bool {
        let Ok(leave) = Arc::clone(&self.leaves).try_acquire_owned() else { return false };
        let backends = Arc::clone(self);
        tokio::spawn(async move {
            let turn = backends.one_is_gone(pooled).await;
            drop(leave);
            drop(turn);
        });
        true
    }

    /// Waits until there are fewer backends than are counted: one of those that were silent has ended. The caller that keeps
    /// the turn until its place is free is the only one that was told so.
    async fn one_is_gone(&self, pooled: bool) -> Option<OwnedMutexGuard<()>> {
        if pooled {
            tokio::time::sleep(POOLED_MAX).await;
            return None;
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let turn = Arc::clone(&self.turn).lock_owned().await;
            match tokio::time::timeout(LOOK_MAX, self.living()).await {
                Ok(Ok(living)) if living < self.counted() => return Some(turn),
                Ok(Ok(_)) => {}
                // A server that nobody reaches takes no new connections either.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "whether silent connections have ended is not known")
                }
                Err(_) => tracing::debug!("whether silent connections have ended is not known: no answer"),
            }
        }
    }

    /// Places that are taken, and backends that were left behind.
    fn counted(&self) -> usize {
        let taken: usize = self.pools.get().into_iter().flatten().map(|pool| pool.size() as usize).sum();
        taken + self.leaves_max.saturating_sub(self.leaves.available_permits())
    }

    /// How many of them the server has, which may be another one by now.
    async fn living(&self) -> Result<usize, sqlx::Error> {
        let asked: Vec<i32> = self.ids().iter().copied().collect();
        let mut connection = self.options.connect().await?;
        let query = sqlx::query_scalar::<_, i32>(sql!("backends_living")).bind(asked.clone());
        let living: BTreeSet<i32> = query.fetch_all(&mut connection).await?.into_iter().collect();
        connection.close().await?;
        let mut ids = self.ids();
        asked.iter().filter(|id| !living.contains(id)).for_each(|id| {
            ids.remove(id);
        });
        Ok(ids.len())
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        // Nothing between two changes can panic.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_never_have_all_places_and_nobody_has_more_than_there_are() {
        for all in 0..200 {
            let PoolSizes { pulse, commits, work, people } = PoolSizes::of(all);
            assert_eq!(pulse + commits + work + people, all.max(2));
            assert!(people >= 1 && work >= 1, "{all}");
            assert!(all < 5 || (pulse == 1 && commits >= 2), "{all}");
            assert!(people <= all.max(4) / 4, "{all}");
        }
        assert_eq!(PoolSizes::of(8), PoolSizes { pulse: 1, commits: 2, work: 3, people: 2 });
    }
}
