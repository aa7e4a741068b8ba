//! The database under the service: a file of SQLite, a private PostgreSQL, or one that is given.
//!
//! A private server has PostgreSQL's defaults, so that commits are as durable as they are for users.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context, ensure};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};
use tempfile::TempDir;
use tollgate_harness::machine::{self, Machine};
use tollgate_harness::postgres::Server;
use tollgate_harness::{Kind, Own, kernel};

use crate::distance::{self, Far};

/// Where the service keeps everything; removed when dropped, the server last.
pub(crate) struct Database {
    /// To PostgreSQL, for figures.
    connection: Option<Box<PgConnection>>,
    /// The server's first process, where it runs on this machine.
    postmaster: Option<u32>,
    store: tollgate_harness::Database,
    /// The service's way to it, where that is longer.
    way: Option<String>,
    _server: Option<(Server, TempDir)>,
}

impl Database {
    /// A new, empty one: `sqlite`, `postgres`, or the URL of a server whose user may create databases.
    ///
    /// # Errors
    /// What keeps it from being made.
    pub(crate) async fn new(store: &str, far: Far) -> anyhow::Result<Self> {
        if store == "sqlite" {
            ensure!(
                far.network_us == 0 && far.sync_ms == 0,
                "--network-us, --sync-ms: SQLite is not far away"
            );
            let store = tollgate_harness::Database::new(Kind::Sqlite).await;
            return Ok(Self { connection: None, postmaster: None, store, way: None, _server: None });
        }
        ensure!(far.sync_ms == 0 || store == "postgres", "--sync-ms: only for --store postgres");
        let server = if store == "postgres" { Some(private(far.sync_ms)?) } else { None };
        let admin_url = server.as_ref().map_or(store.to_owned(), |(server, _)| server.url("postgres"));
        let own = Own::on(&admin_url).await.context("--store")?;
        let mut connection = Box::new(PgConnection::connect(own.url()).await?);
        let backend: i32 = sqlx::query("SELECT pg_backend_pid()").fetch_one(&mut *connection).await?.get(0);
        let backend = u32::try_from(backend)?;
        let here = kernel::program(backend).is_some_and(|program| program.starts_with("postgres"));
        let postmaster = kernel::parent(backend).filter(|_| here);
        let way = if far.network_us > 0 { Some(longer_way(own.url(), far.network_us).await?) } else { None };
        let store = tollgate_harness::Database::Postgres(own);
        Ok(Self { connection: Some(connection), postmaster, store, way, _server: server })
    }

    /// As `--store` of the service takes it.
    pub(crate) fn url(&self) -> String {
        self.way.clone().unwrap_or_else(|| self.store.url())
    }

    /// `sqlite` or `postgres`.
    pub(crate) fn kind(&self) -> &'static str {
        if self.connection.is_some() { "postgres" } else { "sqlite" }
    }

    /// CPU seconds of all its processes, where it has some of its own on this machine.
    pub(crate) fn cpu_s(&self) -> Option<f64> {
        self.postmaster.map(kernel::cpu_s)
    }

    /// Makes it start the next round with nothing left to do.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        if let Some(connection) = &mut self.connection {
            sqlx::raw_sql("CHECKPOINT").execute(&mut **connection).await.context("CHECKPOINT")?;
        }
        Ok(())
    }

    /// Gives a database that has been opened once and holds nothing so many queue shards. Nobody may have it open.
    ///
    /// There is no setting for it: the number is written with the identity of an installation, and stays for ever.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn set_shards(&mut self, shards: u16) -> anyhow::Result<()> {
        let mut sql = format!(
            "UPDATE installation SET shards = {shards}; DELETE FROM queue_shards WHERE shard_id >= {shards};"
        );
        if let Some(connection) = &mut self.connection {
            // Those that are missing are made at the next start.
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut **connection).await?;
            return Ok(());
        }
        // Here every start makes those of a new installation, whatever the number is.
        sql.push_str(&format!(
            "CREATE TRIGGER no_more_shards BEFORE INSERT ON queue_shards WHEN NEW.shard_id >= {shards}
             BEGIN SELECT RAISE(IGNORE); END;"
        ));
        for shard in 0..shards {
            sql.push_str(&format!(
                "INSERT OR IGNORE INTO queue_shards (shard_id, owner, lease_id, epoch, seq)
                 VALUES ({shard}, '', zeroblob(16), 0, 0);"
            ));
        }
        let mut connection = SqliteConnection::connect(&self.url()).await?;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// Makes it what it would be some quiet minutes after much was stored. Nobody may have it open.
    ///
    /// # Errors
    /// What database and disk say.
    pub(crate) async fn age(&mut self) -> anyhow::Result<()> {
        if let tollgate_harness::Database::Sqlite(folder) = &self.store {
            for entry in fs::read_dir(folder.path())? {
                fs::File::open(entry?.path())?.sync_all()?;
            }
        }
        if let Some(connection) = &mut self.connection {
            sqlx::raw_sql("VACUUM (ANALYZE)").execute(&mut **connection).await.context("VACUUM")?;
        }
        self.settle().await
    }

    /// Bytes of log written so far.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn wal_bytes(&mut self) -> anyhow::Result<Option<i64>> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let row = sqlx::query("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint");
        Ok(Some(row.fetch_one(&mut **connection).await?.get(0)))
    }

    /// Rows of the launch index that were read so far.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn children_read(&mut self) -> anyhow::Result<Option<i64>> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let row = sqlx::query(
            "SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0)::bigint
             FROM pg_stat_user_tables WHERE relname = 'schedule_children'",
        );
        Ok(Some(row.fetch_one(&mut **connection).await?.get(0)))
    }
}

/// A server that is as durable as PostgreSQL is for users.
/// A server of its own, each sync of whose disk takes so much longer.
fn private(sync_ms: u64) -> anyhow::Result<(Server, TempDir)> {
    let folder = tempfile::Builder::new().prefix("tollgate-load.").tempdir()?;
    // PostgreSQL's user looks into it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let mut variables = Vec::new();
    if sync_ms > 0 {
        let machine = Machine::new(&machine::compile(folder.path())?, folder.path().join("machine"))?;
        machine.slow_disk(i64::try_from(sync_ms)?)?;
        variables.extend(machine.environment());
    }
    Ok((Server::start(folder.path(), "-c max_connections=200", &variables)?, folder))
}

/// The URL of a database by a way that is longer there and back.
async fn longer_way(url: &str, network_us: u64) -> anyhow::Result<String> {
    let (_, rest) = url.split_once("://").context("--store: a URL is needed")?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let mut found = tokio::net::lookup_host(host).await.context("--store")?;
    let server = found.next().context("--store: its host has no address")?;
    let way = distance::way_to(server, Duration::from_micros(network_us))?;
    Ok(url.replacen(host, &way.to_string(), 1))
}
