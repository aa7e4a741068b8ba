//! The lock, the connections, the schema, the installation; what an error of the database is to the caller.

use std::ffi::OsString;
#[cfg(unix)]
use std::fs::Permissions;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use uuid::Uuid;

use crate::layout::ShardCount;
use crate::rows::json;
use crate::{Installation, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// How many connections read for the roles.
pub(super) const READERS: u32 = 4;
/// How many read for people, who wait for people alone.
pub(super) const PEOPLE: u32 = 2;

/// Bytes of a page of a new database. A commit writes each page that it touches: of small ones that is half as many bytes as of
/// SQLite's usual 4,096.
const PAGE_BYTES: u32 = 1_024;
/// Pages in the log before they are put where they belong: 4 MiB.
const LOG_PAGES: &str = "4000";

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How a database in memory is called: it is there as long as the process has it open, and nobody else can have it.
const MEMORY: &str = ":memory:";

/// The file of a path that a caller gives. Each database in memory gets a name of its own, by which all connections find it.
pub(super) fn place(path: &str) -> PathBuf {
    // `sqlite://PATH` is usual as well.
    match path.strip_prefix("//").unwrap_or(path) {
        MEMORY => PathBuf::from(format!("{MEMORY}/{}", Uuid::new_v4())),
        path => PathBuf::from(path),
    }
}

/// The name of a database in memory; none of one in a file.
fn in_memory(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(MEMORY)
}

/// Locks a database for this process; one in memory needs no lock.
pub(super) fn lock_file(path: &Path) -> Result<Option<File>, StoreError> {
    if in_memory(path).is_some() { Ok(None) } else { lock(path).map(Some) }
}

/// Refuses a database that nobody can have beside the process that made it.
pub(super) fn in_a_file(path: &Path) -> Result<(), StoreError> {
    if in_memory(path).is_none() {
        return Ok(());
    }
    Err(StoreError::Invalid {
        field: "store".to_owned(),
        message: "sqlite::memory: is in the memory of the process that serves it, and cannot be opened beside it; use \
                  sqlite:PATH"
            .to_owned(),
    })
}

/// Why a file cannot be made or opened, with what to do.
fn refused(path: &Path, error: &std::io::Error) -> StoreError {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let why = match (folder, error.kind()) {
        (Some(folder), std::io::ErrorKind::NotFound) if !folder.is_dir() => {
            format!(
                "the folder {} does not exist; make it with mkdir -p, or name another file",
                folder.display()
            )
        }
        (_, std::io::ErrorKind::PermissionDenied) => {
            format!("{text}; the process must be allowed to write the file and its folder")
        }
        (_, std::io::ErrorKind::IsADirectory) => {
            "it is a folder; name a file in it, such as tollgate.db".to_owned()
        }
        _ => text.to_owned(),
    };
    StoreError::CannotOpen { place: path.display().to_string(), why }
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = private().open(&name).map_err(|error| refused(path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(refused(&name, &error)),
    }
}

/// Opens a file that may be there, and that its owner alone may read where it is made.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Keeps a database from all who are neither its owner nor of its group: what is in it releases events. It is made for its
/// owner alone, and the files beside it get its mode; one that is there already keeps what its group may do.
fn keep_private(path: &Path) -> Result<(), StoreError> {
    if in_memory(path).is_some() {
        return Ok(());
    }
    drop(private().open(path).map_err(|error| refused(path, &error))?);
    for end in ["", "-wal", "-shm"] {
        let mut name = OsString::from(path);
        name.push(end);
        close_to_others(Path::new(&name));
    }
    Ok(())
}

#[cfg(unix)]
fn close_to_others(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = std::fs::metadata(file) else { return };
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o007 == 0 || !metadata.is_file() {
        return;
    }
    let closed = Permissions::from_mode(mode & !0o007);
    match std::fs::set_permissions(file, closed) {
        Ok(()) => tracing::info!("{} is no longer open to everybody on this machine", file.display()),
        Err(error) => {
            tracing::warn!("everybody on this machine may read {}: {error}", file.display());
        }
    }
}

#[cfg(not(unix))]
fn close_to_others(_: &Path) {}

fn options(path: &Path) -> SqliteConnectOptions {
    let options = match in_memory(path) {
        // A name that begins with a slash is one database for all connections of the process.
        Some(name) => {
            SqliteConnectOptions::new().filename(name).vfs("memdb").journal_mode(SqliteJournalMode::Memory)
        }
        None => SqliteConnectOptions::new().filename(path).journal_mode(SqliteJournalMode::Wal),
    };
    options
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .statement_cache_capacity(200)
        .page_size(PAGE_BYTES)
        .pragma("wal_autocheckpoint", LOG_PAGES)
        .pragma("cache_size", "-4096")
        .pragma("temp_store", "memory")
}

/// Opens the connection that writes, and makes the file if there is none.
pub(super) async fn connect_writer(path: &Path) -> Result<SqlitePool, StoreError> {
    keep_private(path)?;
    connect(path, 1, options(path).create_if_missing(true)).await
}

/// Opens connections that read.
pub(super) async fn connect_readers(path: &Path, connections: u32) -> Result<SqlitePool, StoreError> {
    connect(path, connections, options(path).pragma("query_only", "on")).await
}

async fn connect(
    path: &Path,
    connections: u32,
    options: SqliteConnectOptions,
) -> Result<SqlitePool, StoreError> {
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT_TIMEOUT)
        // A connection is kept: its statements are prepared and its pages cached.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await;
    pool.map_err(|error| cannot_open(path, error))
}

/// Why the database cannot be opened, with what to do.
fn cannot_open(path: &Path, error: sqlx::Error) -> StoreError {
    let place = path.display().to_string();
    // SQLITE_NOTADB.
    let is_other = error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("26"));
    let why = if is_other {
        "it is a file of another kind, and no SQLite database; name another file".to_owned()
    } else {
        error.to_string()
    };
    StoreError::CannotOpen { place, why }
}

/// Brings the schema up to date, and makes what every installation has: its identity and the queue shards.
pub(super) async fn prepare(
    pool: &SqlitePool,
    path: &Path,
) -> Result<(Installation, ShardCount), StoreError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let found = schema(pool).await.map_err(|error| store_error(path, error))?;
    if let Some(found) = found.filter(|found| *found > known) {
        // A newer version has been here. It says whether this one can work beside it.
        let oldest = sqlx::query_scalar::<_, i64>(both_sql!("schema_oldest")).fetch_one(pool).await;
        if oldest.map_err(|error| store_error(path, error))? > known {
            return Err(StoreError::WrongSchema { found, known });
        }
    } else if found != Some(known) {
        MIGRATIONS.run(pool).await.map_err(|error| migrate_error(path, known, error))?;
    }
    let shard_ids = json(&(0..Installation::fresh().shards).collect::<Vec<_>>())?;
    identify(pool, shard_ids).await.map_err(|error| store_error(path, error))?.ok_or_else(|| {
        StoreError::Corrupt {
            table: "installation",
            key: "1".to_owned(),
            column: "secret",
            message: "32 bytes of secret, or a sealed one, and 1 to 65535 shards are expected".to_owned(),
        }
    })
}

/// The installation of a database that another process has open and has brought up to date.
pub(super) async fn prepared(
    pool: &SqlitePool,
    path: &Path,
) -> Result<(Installation, ShardCount), StoreError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let found = schema(pool).await.map_err(|error| store_error(path, error))?;
    if found.is_none_or(|found| found < known) {
        return Err(StoreError::Locked { path: path.display().to_string() });
    }
    prepare(pool, path).await
}

async fn schema(pool: &SqlitePool) -> Result<Option<i64>, sqlx::Error> {
    if !sqlx::query_scalar::<_, bool>(sql!("schema_exists")).fetch_one(pool).await? {
        return Ok(None);
    }
    sqlx::query_scalar(both_sql!("schema_version")).fetch_one(pool).await
}

/// Reads the installation, and makes it first if it is new.
async fn identify(
    pool: &SqlitePool,
    shard_ids: String,
) -> Result<Option<(Installation, ShardCount)>, sqlx::Error> {
    let fresh = Installation::fresh();
    sqlx::query(both_sql!("installation_insert"))
        .bind(fresh.id)
        .bind(fresh.secret)
        .bind(i32::from(fresh.shards))
        .execute(pool)
        .await?;
    let insert = sqlx::query(sql!("shards_insert")).bind(Uuid::nil()).bind(None::<String>).bind(shard_ids);
    insert.execute(pool).await?;
    sqlx::query(both_sql!("layout_insert")).execute(pool).await?;
    let (id, secret, shards): (Uuid, Vec<u8>, i32) =
        sqlx::query_as(both_sql!("installation_read")).fetch_one(pool).await?;
    let now: Vec<(i32, i32)> = sqlx::query_as(both_sql!("layout_read")).fetch_all(pool).await?;
    Ok(Installation::with_count(id, secret, shards, &now))
}

fn migrate_error(path: &Path, known: i64, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) | MigrateError::VersionTooNew(found, _) => {
            StoreError::WrongSchema { found, known }
        }
        MigrateError::Execute(error) => store_error(path, error),
        error => StoreError::Internal(error.to_string()),
    }
}

/// The result code of <https://sqlite.org/rescode.html#full>.
const SQLITE_FULL: &str = "13";

/// What an error of the database is to the caller.
pub(super) fn store_error(path: &Path, error: sqlx::Error) -> StoreError {
    use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, WorkerCrashed};
    match error {
        Io(_) | PoolTimedOut | PoolClosed | WorkerCrashed => {
            StoreError::Unreachable(format!("{}: {error}", path.display()))
        }
        Database(ref database) if database.code().as_deref() == Some(SQLITE_FULL) => {
            StoreError::Full(format!("{}: {database}", path.display()))
        }
        error => StoreError::Internal(error.to_string()),
    }
}
