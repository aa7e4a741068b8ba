//! Connecting, the schema, the installation; what an error of the database is to the caller.

use std::str::FromStr as _;
use std::time::Duration;

use futures::FutureExt as _;
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool};
use uuid::Uuid;

use crate::{Installation, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// What each connection asks of the server, so that a process that is frozen does not block its successor, and that
/// joins are look-ups by key even where a table was small when the statement was planned.
const SETTINGS: [(&str, &str); 10] = [
    ("idle_in_transaction_session_timeout", "10s"),
    ("lock_timeout", "10s"),
    ("statement_timeout", "60s"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be idle and be used without a test.
const IDLE_UNTESTED: Duration = Duration::from_secs(1);

/// Connects. Answers with the pool and the name of the place for errors.
pub(super) async fn connect(url: &str, connections_max: u32) -> Result<(PgPool, String), StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(|error| StoreError::Invalid {
        field: "database URL".to_owned(),
        message: format!("{error}; postgres://user:password@host:port/database is expected"),
    })?;
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    let place = format!("{}:{}/{database}", options.get_host(), options.get_port());
    let options = options.application_name("tollgate").options(SETTINGS);
    let pool = PgPoolOptions::new()
        .max_connections(connections_max.max(2))
        .acquire_timeout(CONNECT_TIMEOUT)
        // A connection that has just been used needs no test, which would cost every transaction a round trip.
        .test_before_acquire(false)
        .before_acquire(|connection, used| {
            async move {
                if used.idle_for >= IDLE_UNTESTED {
                    connection.ping().await?;
                }
                Ok(true)
            }
            .boxed()
        })
        .connect_with(options)
        .await
        .map_err(|error| store_error(&place, error))?;
    Ok((pool, place))
}

/// Brings the schema up to date, and makes what every installation has: its identity and the queue shards.
pub(super) async fn prepare(pool: &PgPool, place: &str) -> Result<Installation, StoreError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let found = schema(pool).await.map_err(|error| store_error(place, error))?;
    if let Some(found) = found.filter(|found| *found > known) {
        return Err(StoreError::WrongSchema { found, known });
    }
    if found != Some(known) {
        MIGRATIONS.run(pool).await.map_err(|error| migrate_error(place, known, error))?;
    }
    identify(pool).await.map_err(|error| store_error(place, error))?.ok_or_else(|| StoreError::Corrupt {
        table: "installation",
        key: "1".to_owned(),
        column: "secret",
        message: "32 bytes of secret and 1 to 65535 shards are expected".to_owned(),
    })
}

async fn schema(pool: &PgPool) -> Result<Option<i64>, sqlx::Error> {
    if !sqlx::query_scalar::<_, bool>(sql!("schema_exists")).fetch_one(pool).await? {
        return Ok(None);
    }
    sqlx::query_scalar(sql!("schema_version")).fetch_one(pool).await
}

/// Reads the installation, and makes it first if it is new. Of several processes that try, the first one's stays.
async fn identify(pool: &PgPool) -> Result<Option<Installation>, sqlx::Error> {
    let fresh = Installation::fresh();
    sqlx::query(sql!("installation_insert"))
        .bind(fresh.id)
        .bind(fresh.secret.to_vec())
        .bind(i32::from(fresh.shards))
        .execute(pool)
        .await?;
    let (id, secret, shards): (Uuid, Vec<u8>, i32) =
        sqlx::query_as(sql!("installation_read")).fetch_one(pool).await?;
    let shard_ids: Vec<i32> = (0..shards).collect();
    sqlx::query(sql!("shards_insert")).bind(Uuid::nil()).bind(shard_ids).execute(pool).await?;
    Ok(Installation::read(id, &secret, shards))
}

fn migrate_error(place: &str, known: i64, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) | MigrateError::VersionTooNew(found, _) => {
            StoreError::WrongSchema { found, known }
        }
        MigrateError::Execute(error) => store_error(place, error),
        error => StoreError::Internal(error.to_string()),
    }
}

/// What an error of the database is to the caller.
pub(super) fn store_error(place: &str, error: sqlx::Error) -> StoreError {
    use sqlx::Error::{BeginFailed, Database, Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
    match error {
        Database(ref database)
            if ends_the_connection(database.as_ref()) || is_a_standby(database.as_ref()) =>
        {
            StoreError::Unreachable(format!("{place}: {database}"))
        }
        Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | PoolClosed | WorkerCrashed | BeginFailed => {
            StoreError::Unreachable(format!("{place}: {error}"))
        }
        error => StoreError::Internal(error.to_string()),
    }
}

/// Connection exceptions, shutdowns and too many connections: the server speaks, and does nothing more.
pub(super) fn ends_the_connection(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P") || code == "53300")
}

/// A server that only reads: the one that writes is another by now.
fn is_a_standby(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| code == "25006")
}
