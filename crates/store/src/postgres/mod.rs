//! PostgreSQL, for installations of several processes.
//!
//! In: the calls of the four traits. Out: one transaction each, through `run_tx`, the line of commits or (for reads of one
//! moment) `run_read`, or a single read, each by the door of its kind (`door`): people, who may ask for much, wait for people
//! alone. Invariants: a dropped future never leaves a transaction half way; the fence is the first statement of an owner's
//! transaction; statements on hot tables obey the rules that let them be distributed by shard (`tests/citus_rules.rs`); a
//! statement that is planned once finds its rows by key, no matter what its table held then, and one that cannot promise that
//! is rare and planned at every call. Not here: what rows mean (`rows`), statements (`queries/`).

/// The text of a statement in `queries/`, as it stands there.
macro_rules! text_of_sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}

/// The final text of a statement in `queries/`.
macro_rules! sql {
    ($name:literal) => {
        composed!(text_of_sql!($name))
    };
}

/// The final text of a statement in `src/queries/`, which is the same for both databases.
macro_rules! both_sql {
    ($name:literal) => {
        composed!(both_text!($name))
    };
}

/// A statement's final text, composed at its first use.
macro_rules! composed {
    ($text:expr) => {{
        use std::{borrow::Cow, sync::LazyLock};
        static COMPOSED: LazyLock<Cow<'static, str>> =
            LazyLock::new(|| $crate::columns::compose($text, $crate::columns::Dialect::Postgres));
        let text: &'static str = &COMPOSED;
        text
    }};
}

/// The rows of a single statement, outside of any transaction.
macro_rules! rows {
    ($door:expr, $query:expr) => {{
        let query = $query;
        $door.ask(move |connection| Box::pin(query.fetch_all(connection))).await
    }};
}

/// Binds rows column by column, as arrays for `unnest`.
macro_rules! columns {
    ($query:expr, $rows:expr; $($column:ident)+) => {
        $query$(.bind($rows.iter().map(|row| row.$column.to_owned()).collect::<Vec<_>>()))+
    };
}

mod backlog;
mod commit;
mod door;
mod driver;
mod handle;
mod line;
mod load;
mod open;
mod partitions;
mod refusal;
mod transact;
mod warm;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use backlog::Backlog;
use door::PoolDoor;
use tollgate_clock::Clock;
use warm::WarmConnection;

use crate::corrupt::Corruption;
use crate::layout::ShardCount;
use crate::line::Line;
use crate::{Asker, Installation, Store, StoreError};

/// Owners' commits under way at once: a second one only where the first takes long.
const WORKERS_MAX: usize = 2;

/// A store in PostgreSQL. Clones share everything but the doors that they go by.
#[derive(Clone)]
pub struct Postgres {
    /// Heartbeats, and the look at others.
    pulse: PoolDoor,
    /// Owners' commits.
    commits: PoolDoor,
    /// What the roles read and write besides.
    work: PoolDoor,
    /// What people ask and change.
    people: PoolDoor,
    /// For owners' commits.
    warm: Arc<WarmConnection>,
    backlog: Arc<Backlog>,
    /// The server refuses statements that name several shards, as Citus does: each shard has its own.
    is_distributed: Arc<AtomicBool>,
    /// Owners' commits that wait.
    line: Arc<Line>,
    installation: Installation,
    shards: ShardCount,
    corruption: Arc<Corruption>,
}

impl Postgres {
    /// Connects with at most `connections_max` connections, and brings the schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a URL that is none, [`StoreError::Unreachable`], [`StoreError::WrongSchema`].
    pub async fn open(url: &str, connections_max: u32) -> Result<Self, StoreError> {
        let open::Connected { pulse, commits, work, people, has_own_commits } =
            open::connect(url, connections_max).await?;
        let prepared = open::prepare(&work.pool, &work.place, work.pooled).await;
        let (installation, shards) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                work.pool.close().await;
                return Err(error);
            }
        };
        let (is_distributed, corruption) = (Arc::default(), Arc::default());
        let warm = Arc::new(WarmConnection::new(has_own_commits));
        let backlog = Arc::default();
        let line = Arc::new(Line::new(WORKERS_MAX));
        let store = Self {
            pulse,
            commits,
            work,
            people,
            warm,
            backlog,
            is_distributed,
            line,
            installation,
            shards,
            corruption,
        };
        store.make_partitions(Clock::system().wall_us()).await?;
        Ok(store)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn installation(&self) -> Result<Installation, StoreError> {
        Ok(self.installation.clone())
    }

    fn on_behalf_of(&self, asker: Asker) -> Arc<dyn Store> {
        let door = match asker {
            Asker::People => &self.people,
            Asker::Consumers => &self.work,
        };
        let (pulse, work, people) = (door.clone(), door.clone(), door.clone());
        Arc::new(Self { pulse, work, people, ..self.clone() })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let query = sqlx::query_scalar::<_, bool>(sql!("ping"));
        let pong = self.pulse.ask(move |connection| Box::pin(query.fetch_one(connection))).await;
        if self.pulse.judge(pong)? {
            return Err(StoreError::Unreachable(format!("{}: the server only reads", self.pulse.place)));
        }
        Ok(())
    }

    async fn clock_us(&self) -> Result<Option<i64>, StoreError> {
        let rows: Vec<i64> = self.work.judge(rows!(self.work, sqlx::query_scalar(sql!("clock"))))?;
        Ok(rows.into_iter().next())
    }

    async fn close(&self) {
        // From here on nothing is kept.
        let pools = [&self.pulse, &self.commits, &self.work, &self.people].map(|door| door.pool.close());
        drop(self.warm.take());
        futures::future::join_all(pools).await;
    }
}
