//! The connection that carried an owner's latest commit, kept back from the pool for the next one.
//!
//! The pool tests each connection that comes back, which is a round trip beside the commit's one, and lends its connections in
//! turn, so that every commit would meet a server process whose caches have grown cold. Not kept: a connection that failed, one
//! that has been idle long enough to need a test, and any where commits share their pool with others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::PgPool;
use sqlx::pool::PoolConnection;
use tokio::time::Instant;
use tollgate_clock::instant_now;

use super::open::IDLE_UNTESTED;

#[derive(Debug)]
struct Kept {
    connection: PoolConnection<sqlx::Postgres>,
    since: Instant,
}

/// At most one connection.
#[derive(Debug)]
pub(super) struct WarmConnection {
    kept: Mutex<Option<Kept>>,
    keeps: bool,
}

impl WarmConnection {
    /// `keeps`: the pool is for commits alone.
    pub(super) fn new(keeps: bool) -> Self {
        Self { kept: Mutex::default(), keeps }
    }

    /// The connection, if there is one that needs no test.
    pub(super) fn take(&self) -> Option<PoolConnection<sqlx::Postgres>> {
        let kept = self.lock().take()?;
        // Dropped, it goes back to the pool, which tests it.
        (kept.since.elapsed() < IDLE_UNTESTED).then_some(kept.connection)
    }

    /// Keeps a connection that has just been used without a failure.
    pub(super) fn keep(&self, connection: PoolConnection<sqlx::Postgres>, pool: &PgPool) {
        let mut kept = self.lock();
        // A pool that is closed waits for what it has lent.
        if self.keeps && !pool.is_closed() {
            // Another one goes back to the pool.
            *kept = Some(Kept { connection, since: instant_now() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        // Each change is one assignment, so a panic elsewhere leaves nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
