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

use crate::rows::{json, shard_keys};
use crate::{Installation, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// How many connections read for the roles.
pub(super) const READERS: u32 = 4;
/// How many read for people, who wait for people alone.
pub(super) const PEOPLE: u32 = 2;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Locks a database for this process.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let name = PathBuf::from(name);
    let refused = |error: std::io::Error| StoreError::Unreachable(format!("{}: {error}", name.display()));
    let file = private().open(&name).map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(refused(error)),
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
    // Names such as `:memory:` stand for no file.
    if path.to_string_lossy().starts_with(':') {
        return Ok(());
    }
    let refused = |error: std::io::Error| StoreError::Unreachable(format!("{}: {error}", path.display()));
    drop(private().open(path).map_err(refused)?);
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
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .statement_cache_capacity(200)
        .pragma("cache_size", "-16384")
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
    pool.map_err(|error| StoreError::Unreachable(format!("{}: {error}", path.display())))
}

/// Brings the schema up to date, and makes what every installation has: its identity and the queue shards.
pub(super) async fn prepare(pool: &SqlitePool, path: &Path) -> Result<Installation, StoreError> {
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
    let shard_ids = json(&shard_keys(Installation::fresh().shards))?;
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
pub(super) async fn prepared(pool: &SqlitePool, path: &Path) -> Result<Installation, StoreError> {
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
async fn identify(pool: &SqlitePool, shard_ids: String) -> Result<Option<Installation>, sqlx::Error> {
    let fresh = Installation::fresh();
    sqlx::query(both_sql!("installation_insert"))
        .bind(fresh.id)
        .bind(fresh.secret)
        .bind(i32::from(fresh.shards))
        .execute(pool)
        .await?;
    sqlx::query(sql!("shards_insert")).bind(Uuid::nil()).bind(shard_ids).execute(pool).await?;
    let (id, secret, shards): (Uuid, Vec<u8>, i32) =
        sqlx::query_as(both_sql!("installation_read")).fetch_one(pool).await?;
    Ok(Installation::read(id, secret, shards))
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

/// What an error of the database is to the caller.
pub(super) fn store_error(path: &Path, error: sqlx::Error) -> StoreError {
    use sqlx::Error::{Io, PoolClosed, PoolTimedOut, WorkerCrashed};
    match error {
        Io(_) | PoolTimedOut | PoolClosed | WorkerCrashed => {
            StoreError::Unreachable(format!("{}: {error}", path.display()))
        }
        error => StoreError::Internal(error.to_string()),
    }
}
