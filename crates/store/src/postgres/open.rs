//! Connecting, the schema, the installation; what an error of the database is to the caller.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use sqlx::error::DatabaseError;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, Row as _};
use uuid::Uuid;

use super::door::{Backends, PoolDoor, PoolSizes};
use super::refusal::at_start;
use crate::handle::Member;
use crate::layout::ShardCount;
use crate::rows::MemberRow;
use crate::{Installation, StoreError};

/// What a transaction does for itself: it removes the statements that others have prepared on the connection, whose names
/// may be those that it will give, and makes the settings.
macro_rules! pooled_settings {
    () => {
        "DEALLOCATE ALL; SET LOCAL idle_in_transaction_session_timeout = '4s'; SET LOCAL lock_timeout = '6s';
         SET LOCAL statement_timeout = '60s'; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;
         SET LOCAL enable_mergejoin = off; SET LOCAL jit = off"
    };
}

/// The oldest schema whose processes can work beside this version's. As `oldest` of the newest migration.
const BESIDE: i64 = 8;
/// Within this a process that is alive has written a heartbeat, if its lease is not far longer than the default.
const LOOK: Duration = Duration::from_secs(3);

/// The migration that made the table of processes.
const WITH_MEMBERS: i64 = 3;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/postgres");

/// What each connection asks of the server, so that a process that is frozen does not block its successor, and that
/// joins are look-ups by key even where a table was small when the statement was planned.
const SETTINGS: [(&str, &str); 11] = [
    ("idle_in_transaction_session_timeout", "4s"),
    ("lock_timeout", "6s"),
    ("statement_timeout", "60s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "10s"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

/// How a transaction begins behind a pooler that lends connections for one transaction: what each of our own connections
/// has asked for once, each transaction asks for.
pub(super) const BEGIN_POOLED: &str = concat!("BEGIN;", pooled_settings!());
/// As [`BEGIN_POOLED`], for a single statement of people.
pub(super) const BEGIN_POOLED_PEOPLE: &str =
    concat!("BEGIN;", pooled_settings!(), "; SET LOCAL statement_timeout = '10s'");
/// How a transaction of people begins: it may take as long as others, where a single statement may not.
pub(super) const BEGIN_PEOPLE: &str = "BEGIN; SET LOCAL statement_timeout = '60s'";
/// As [`BEGIN_POOLED`], to read.
pub(super) const READ_POOLED: &str =
    concat!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;", pooled_settings!());

/// What a single statement of people may take: the server ends it before it is given up here.
const PEOPLE: [(&str, &str); 1] = [("statement_timeout", "10s")];

/// How a transaction begins on a server that cannot plan for any values at once what goes to its nodes.
pub(super) const BEGIN_DISTRIBUTED: &str = "BEGIN; SET LOCAL plan_cache_mode = auto";

/// What connections for commits ask for: one plan for any values, as they carry few statements again and again.
const COMMITS: [(&str, &str); 1] = [("plan_cache_mode", "force_generic_plan")];

/// In a URL: what stands between the service and the server.
const POOLER: &str = "pooler";

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may be idle and be used without a test.
pub(super) const IDLE_UNTESTED: Duration = Duration::from_secs(1);

/// What a connection string leads to.
pub(super) struct Connected {
    pub(super) pulse: PoolDoor,
    pub(super) commits: PoolDoor,
    pub(super) work: PoolDoor,
    pub(super) people: PoolDoor,
    /// Commits share their connections with nobody.
    pub(super) has_own_commits: bool,
}

/// Takes `pooler=transaction` out of a URL. It must not reach the server.
fn without_pooler(url: &str) -> Result<(String, bool), StoreError> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), false)) };
    let is_pooler = |part: &&str| part.split('=').next() == Some(POOLER);
    let (pooler, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_pooler);
    if let Some(wrong) = pooler.iter().find(|part| **part != "pooler=transaction") {
        let message = format!("{wrong:?}; pooler=transaction or nothing is expected");
        return Err(StoreError::Invalid { field: "database URL".to_owned(), message });
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{base}{mark}{}", rest.join("&")), !pooler.is_empty()))
}

/// Connects.
pub(super) async fn connect(url: &str, connections_max: u32) -> Result<Connected, StoreError> {
    let (url, pooled) = without_pooler(url)?;
    let options = PgConnectOptions::from_str(&url).map_err(|error| StoreError::Invalid {
        field: "database URL".to_owned(),
        message: format!("{error}; postgres://user:password@host:port/database is expected"),
    })?;
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    let place: Arc<str> = Arc::from(format!("{}:{}/{database}", options.get_host(), options.get_port()));
    let options = options.application_name("tollgate");
    let people = if pooled { None } else { Some(options.clone().options(SETTINGS).options(PEOPLE)) };
    let options = if pooled {
        // Neither settings of the connection nor its prepared statements outlive the loan.
        options.extra_float_digits(None).statement_cache_capacity(0)
    } else {
        options.options(SETTINGS)
    };
    can_write(&options).await.map_err(|error| start_error(&place, options.get_username(), error))?;
    let backends = Arc::new(Backends::new(options.clone(), connections_max.max(2)));
    let places = PoolSizes::of(connections_max);
    let door = |places: u32, options: &PgConnectOptions, for_people: bool| {
        let pool = pool(places, options.clone(), Arc::clone(&backends));
        PoolDoor { pool, place: Arc::clone(&place), pooled, for_people, backends: Arc::clone(&backends) }
    };
    let work = door(places.work, &options, false);
    let own = |places: u32, options| if places > 0 { door(places, options, false) } else { work.clone() };
    let for_commits = if pooled { options.clone() } else { options.clone().options(COMMITS) };
    let (pulse, commits) = (own(places.pulse, &options), own(places.commits, &for_commits));
    let people = door(places.people, people.as_ref().unwrap_or(&options), true);
    let mut pools = vec![work.pool.clone(), people.pool.clone()];
    if places.pulse > 0 {
        pools.extend([pulse.pool.clone(), commits.pool.clone()]);
    }
    backends.are_of(pools);
    Ok(Connected { pulse, commits, work, people, has_own_commits: places.commits > 0 })
}

/// Whether there is a server that can be written to.
async fn can_write(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let connecting = async {
        let mut connection = options.connect().await?;
        session(&mut connection).await?;
        connection.close().await
    };
    tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// The backend of a new connection. An error where it cannot write: another server does, or this one will, and the keeper of the
/// connection would not notice.
async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    // In one message, for poolers.
    let row = sqlx::raw_sql(sql!("session")).fetch_one(connection).await?;
    if row.try_get(1)? {
        return Err(sqlx::Error::Io(std::io::Error::other("the server only reads")));
    }
    row.try_get(0)
}

/// A pool that opens connections when they are needed.
fn pool(places: u32, options: PgConnectOptions, backends: Arc<Backends>) -> PgPool {
    PgPoolOptions::new()
        .max_connections(places)
        .acquire_timeout(CONNECT_TIMEOUT)
        .after_connect(move |connection, _new| {
            let backends = Arc::clone(&backends);
            async move {
                backends.opened(session(connection).await?);
                Ok(())
            }
            .boxed()
        })
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
        .connect_lazy_with(options)
}

/// Brings the schema up to date, and makes what every installation has: its identity and the queue shards.
pub(super) async fn prepare(
    pool: &PgPool,
    place: &str,
    pooled: bool,
) -> Result<(Installation, ShardCount), StoreError> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let (found, oldest) = schema(pool, pooled).await.map_err(|error| store_error(place, error))?;
    if let Some(found) = found.filter(|found| *found > known) {
        // A newer version has been here. It says whether this one can work beside it.
        if oldest.is_none_or(|oldest| oldest > known) {
            return Err(StoreError::WrongSchema { found, known });
        }
    } else if found != Some(known) {
        if pooled {
            return Err(StoreError::Invalid {
                field: "database URL".to_owned(),
                message:
                    "the schema is not up to date, and a pooler in transaction mode cannot change it; start \
                          once with a URL that leads to the server itself, without pooler=transaction"
                        .to_owned(),
            });
        }
        // One that has no members yet is being made by another process at this moment.
        if found.is_some_and(|found| (WITH_MEMBERS..BESIDE).contains(&found)) {
            nobody_is_at_work(pool).await.map_err(|error| store_error(place, error))??;
        }
        let user = pool.connect_options().get_username().to_owned();
        migrate(pool).await.map_err(|error| migrate_error(place, &user, known, error))?;
    }
    identify(pool, pooled).await.map_err(|error| store_error(place, error))?.ok_or_else(|| {
        StoreError::Corrupt {
            table: "installation",
            key: "1".to_owned(),
            column: "secret",
            message: "32 bytes of secret, or a sealed one, and 1 to 65535 shards are expected".to_owned(),
        }
    })
}

/// Versions that do not know batches would go on counting tokens without them: they must have ended.
async fn nobody_is_at_work(pool: &PgPool) -> Result<Result<(), StoreError>, sqlx::Error> {
    let members = async || sqlx::query_as::<_, MemberRow>(both_sql!("members_list")).fetch_all(pool).await;
    let before: Vec<Member> = members().await?.into_iter().map(Member::from).collect();
    if before.is_empty() {
        return Ok(Ok(()));
    }
    tokio::time::sleep(LOOK).await;
    let now: Vec<Member> = members().await?.into_iter().map(Member::from).collect();
    let at_work: Vec<String> =
        now.into_iter().filter(|member| !before.contains(member)).map(|member| member.process).collect();
    if at_work.is_empty() {
        return Ok(Ok(()));
    }
    let what = format!(
        "processes of an older version are at work, which cannot live beside this one: stop them first: {}",
        at_work.join(", ")
    );
    Ok(Err(StoreError::InUse { what }))
}

/// The first process locks the others out. A large table may take its time, and so may another process.
async fn migrate(pool: &PgPool) -> Result<(), MigrateError> {
    let options = pool.connect_options().as_ref().clone();
    let options = options.options([("statement_timeout", "0"), ("lock_timeout", "0")]);
    let mut connection = options.connect().await?;
    let done = MIGRATIONS.run(&mut connection).await;
    connection.close().await?;
    done
}

/// The newest migration that the database has had, and that of the oldest version that can work on it.
async fn schema(pool: &PgPool, pooled: bool) -> Result<(Option<i64>, Option<i64>), sqlx::Error> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let mut transaction = pool.begin_with(begin(pooled)).await?;
    if !sqlx::query_scalar::<_, bool>(sql!("schema_exists")).fetch_one(&mut *transaction).await? {
        return Ok((None, None));
    }
    let found: Option<i64> =
        sqlx::query_scalar(both_sql!("schema_version")).fetch_one(&mut *transaction).await?;
    let oldest = match found {
        Some(found) if found > known => {
            Some(sqlx::query_scalar(both_sql!("schema_oldest")).fetch_one(&mut *transaction).await?)
        }
        _ => None,
    };
    transaction.commit().await?;
    Ok((found, oldest))
}

/// How a transaction begins.
pub(super) fn begin(pooled: bool) -> &'static str {
    if pooled { BEGIN_POOLED } else { "BEGIN" }
}

/// Reads the installation, and makes it first if it is new. Of several processes that try, the first one's stays.
async fn identify(pool: &PgPool, pooled: bool) -> Result<Option<(Installation, ShardCount)>, sqlx::Error> {
    let fresh = Installation::fresh();
    let mut transaction = pool.begin_with(begin(pooled)).await?;
    sqlx::query(both_sql!("installation_insert"))
        .bind(fresh.id)
        .bind(fresh.secret)
        .bind(i32::from(fresh.shards))
        .execute(&mut *transaction)
        .await?;
    let (id, secret, shards): (Uuid, Vec<u8>, i32) =
        sqlx::query_as(both_sql!("installation_read")).fetch_one(&mut *transaction).await?;
    let shard_ids: Vec<i32> = (0..shards).collect();
    let insert = sqlx::query(sql!("shards_insert")).bind(Uuid::nil()).bind(None::<String>).bind(shard_ids);
    insert.execute(&mut *transaction).await?;
    sqlx::query(both_sql!("layout_insert")).execute(&mut *transaction).await?;
    let now: Vec<(i32, i32)> = sqlx::query_as(both_sql!("layout_read")).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Installation::with_count(id, secret, shards, &now))
}

/// What an error at the start is to whoever starts it.
fn start_error(place: &str, user: &str, error: sqlx::Error) -> StoreError {
    at_start(place, user, &error).unwrap_or_else(|| store_error(place, error))
}

fn migrate_error(place: &str, user: &str, known: i64, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) | MigrateError::VersionTooNew(found, _) => {
            StoreError::WrongSchema { found, known }
        }
        MigrateError::Execute(error) => start_error(place, user, error),
        error => StoreError::Internal(error.to_string()),
    }
}

/// The class of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
const DISK_FULL: &str = "53100";

/// What an error of the database is to the caller.
pub(super) fn store_error(place: &str, error: sqlx::Error) -> StoreError {
    use sqlx::Error::{BeginFailed, Database, Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
    match error {
        Database(ref database)
            if ends_the_connection(database.as_ref())
                || is_a_standby(database.as_ref())
                || is_held_up(database.as_ref()) =>
        {
            StoreError::Unreachable(format!("{place}: {database}"))
        }
        Database(ref database) if database.code().as_deref() == Some(DISK_FULL) => {
            StoreError::Full(format!("{place}: {database}"))
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

/// Somebody else has what is needed for too long, or the server lacks room: later it may go.
fn is_held_up(error: &dyn DatabaseError) -> bool {
    // Lock and statement time-outs, deadlocks and races lost again and again; no memory, no disk.
    let held_up = ["55P03", "57014", "40P01", "40001"];
    error.code().is_some_and(|code| held_up.contains(&code.as_ref()) || code.starts_with("53"))
}

/// A server that only reads: the one that writes is another by now.
pub(super) fn is_a_standby(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| code == "25006")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_cannot_live_beside_this_one_are_those_that_the_migrations_name() {
        let mut raises = MIGRATIONS.iter().filter_map(|migration| {
            let sql = migration.sql.as_str();
            let (_, value) = sql.rsplit_once("UPDATE schema_compatibility SET oldest = ")?;
            value.trim_end().trim_end_matches(';').parse::<i64>().ok()
        });
        assert_eq!(raises.next_back(), Some(BESIDE));
    }
}
