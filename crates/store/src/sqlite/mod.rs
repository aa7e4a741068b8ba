//! SQLite, embedded: one process with all roles.
//!
//! In: the calls of the four traits. Out: one transaction each, through `run_tx`, the line of commits or (for reads of one
//! moment) `run_read`. Invariants: one connection writes, and a lock file keeps other processes out; a dropped future
//! never leaves a transaction half way; what is committed is on the disk (`synchronous = FULL`). Not here: what rows mean
//! (`rows`), statements (`queries/`).

/// The final text of a statement in `queries/`.
macro_rules! sql {
    ($name:literal) => {
        composed!(include_str!(concat!("queries/", $name, ".sql")))
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
            LazyLock::new(|| $crate::columns::compose($text, $crate::columns::Dialect::Sqlite));
        let text: &'static str = &COMPOSED;
        text
    }};
}

mod commit;
mod driver;
mod handle;
mod line;
mod load;
mod open;
mod plain;
mod transact;
mod turns;

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use sqlx::SqlitePool;

use turns::Turns;

use crate::corrupt::Corruption;
use crate::layout::ShardCount;
use crate::line::Line;
use crate::{Asker, Installation, Store, StoreError};

/// A store in a file of its own. Clones share everything but the readers that they go by.
#[derive(Clone)]
pub struct Sqlite {
    /// The one connection that writes.
    writer: SqlitePool,
    /// Whose turn it is to write.
    turns: Turns,
    /// Connections that only read.
    readers: SqlitePool,
    /// Those that read for people, who may ask for much.
    people: SqlitePool,
    /// Held as long as the store is open; none beside a process that holds it.
    lock: Arc<Mutex<Option<File>>>,
    /// Commits of owners that wait for it.
    line: Arc<Line>,
    path: PathBuf,
    installation: Installation,
    shards: ShardCount,
    corruption: Arc<Corruption>,
}

impl Sqlite {
    /// Opens a database file, makes it if there is none, brings its schema up to date, and locks it for this process by
    /// `<path>.lock`. `:memory:` is a database in memory, which goes with the store.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::WrongSchema`], [`StoreError::Unreachable`] for a path that cannot be opened.
    pub async fn open(path: &str) -> Result<Self, StoreError> {
        let path = open::place(path);
        let lock = open::lock_file(&path)?;
        let writer = open::connect_writer(&path).await?;
        let prepared = match open::prepare(&writer, &path).await {
            Ok(prepared) => prepared,
            Err(error) => {
                writer.close().await;
                return Err(error);
            }
        };
        Self::prepared(path, writer, lock, prepared).await
    }

    /// Opens a database file that another process may have open: for what that process reads anew by itself. Its schema is
    /// changed only where nobody else has it.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub async fn open_beside(path: &str) -> Result<Self, StoreError> {
        open::in_a_file(&open::place(path))?;
        match Self::open(path).await {
            Err(StoreError::Locked { .. }) => {}
            opened => return opened,
        }
        let path = open::place(path);
        let writer = open::connect_writer(&path).await?;
        match open::prepared(&writer, &path).await {
            Ok(prepared) => Self::prepared(path, writer, None, prepared).await,
            Err(error) => {
                writer.close().await;
                Err(error)
            }
        }
    }

    async fn prepared(
        path: PathBuf,
        writer: SqlitePool,
        lock: Option<File>,
        (installation, shards): (Installation, ShardCount),
    ) -> Result<Self, StoreError> {
        let readers = open::connect_readers(&path, open::READERS).await?;
        let people = open::connect_readers(&path, open::PEOPLE).await?;
        let (lock, corruption) = (Arc::new(Mutex::new(lock)), Arc::default());
        let line = Arc::new(Line::new(1));
        let turns = Turns::default();
        Ok(Self { writer, turns, readers, people, lock, line, path, installation, shards, corruption })
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn installation(&self) -> Result<Installation, StoreError> {
        Ok(self.installation.clone())
    }

    fn on_behalf_of(&self, asker: Asker) -> Arc<dyn Store> {
        let pool = match asker {
            Asker::People => &self.people,
            Asker::Consumers => &self.readers,
        };
        Arc::new(Self { readers: pool.clone(), people: pool.clone(), ..self.clone() })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let pong = sqlx::query_scalar::<_, i64>(sql!("ping")).fetch_one(&self.readers).await;
        self.judge(pong).map(drop)
    }

    async fn clock_us(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    async fn close(&self) {
        self.readers.close().await;
        self.people.close().await;
        self.writer.close().await;
        // Dropping the file unlocks it.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
