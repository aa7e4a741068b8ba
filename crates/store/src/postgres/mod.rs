//! PostgreSQL, for installations of several processes.
//!
//! In: the calls of the four traits. Out: one transaction each, through `run_tx`, `run_fenced` or (for reads of one
//! moment) `run_read`; single reads go to the pool. Invariants: a dropped future never leaves a transaction half way; the
//! fence is the first statement of an owner's transaction; statements on hot tables obey the rules that let them be
//! distributed by shard (`tests/citus_rules.rs`); a statement that is planned once finds its rows by key whatever its
//! table held then, and one that cannot promise that is rare and planned at every call. Not here: what rows mean (`rows`), statements (`queries/`).

/// The text of a statement in `queries/`.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}

/// The rows of a single statement, outside of any transaction.
macro_rules! rows {
    ($store:expr, $query:expr) => {{
        let query = $query;
        $store.ask(move |connection| Box::pin(query.fetch_all(connection))).await
    }};
}

/// Binds rows column by column, as arrays for `unnest`.
macro_rules! columns {
    ($query:expr, $rows:expr; $($column:ident)+) => {
        $query$(.bind($rows.iter().map(|row| row.$column.to_owned()).collect::<Vec<_>>()))+
    };
}

mod commit;
mod emit;
mod handle;
mod history;
mod keys;
mod line;
mod load;
mod open;
mod partitions;
mod plan;
mod quota;
mod recent;
mod seal;
mod transact;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::PgPool;

use recent::Recent;

use crate::corrupt::Corruption;
use crate::line::Line;
use crate::{Installation, Store, StoreError};

/// Owners' commits under way at once: a second one only where the first takes long.
const LANES_MAX: usize = 2;

/// A store in PostgreSQL.
pub struct Postgres {
    pool: PgPool,
    /// For owners' commits.
    recent: Arc<Recent>,
    /// Commits take several statements: through a pooler, and where the server does not take the one.
    in_steps: AtomicBool,
    /// Those that take one look up one row at a time: the server does not take a statement for many.
    one_by_one: Arc<AtomicBool>,
    /// Owners' commits that take one.
    line: Arc<Line>,
    /// Host, port and database, for errors. Never the password.
    place: String,
    /// There is a pooler between, which lends its connections for one transaction.
    pooled: bool,
    installation: Installation,
    corruption: Corruption,
}

impl Postgres {
    /// Connects with at most `connections_max` connections, and brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a URL that is none, [`StoreError::Unreachable`], [`StoreError::WrongSchema`].
    pub async fn open(url: &str, connections_max: u32) -> Result<Self, StoreError> {
        let open::Connected { pool, place, pooled } = open::connect(url, connections_max).await?;
        let prepared = open::prepare(&pool, &place, pooled).await;
        let installation = match prepared {
            Ok(installation) => installation,
            Err(error) => {
                pool.close().await;
                return Err(error);
            }
        };
        let (recent, one_by_one, corruption) = (Arc::default(), Arc::default(), Corruption::default());
        let in_steps = AtomicBool::new(pooled);
        let line = Arc::new(Line::new(LANES_MAX));
        let store =
            Self { pool, recent, in_steps, one_by_one, line, place, pooled, installation, corruption };
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        store.make_partitions(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)).await?;
        Ok(store)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn installation(&self) -> Result<Installation, StoreError> {
        Ok(self.installation.clone())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let query = sqlx::query_scalar::<_, i64>(sql!("ping"));
        let pong = self.ask(move |connection| Box::pin(query.fetch_one(connection))).await;
        self.judge(pong).map(drop)
    }

    async fn clock_us(&self) -> Result<Option<i64>, StoreError> {
        let rows: Vec<i64> = self.judge(rows!(self, sqlx::query_scalar(sql!("clock"))))?;
        Ok(rows.into_iter().next())
    }

    async fn close(&self) {
        // From here on nothing is kept.
        let closed = self.pool.close();
        drop(self.recent.take());
        closed.await;
    }
}
