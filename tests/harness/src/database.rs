//! Empty databases, one for each test, removed at its end.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::proxy::Proxy;

/// Which store a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Embedded.
    Sqlite,
    /// At `TOLLGATE_TEST_POSTGRES`.
    Postgres,
}

/// An empty database.
#[derive(Debug)]
pub enum Database {
    /// A file in a folder of its own.
    Sqlite(TempDir),
    /// A database of a server.
    Postgres(Own),
    /// Somebody else looks after it, under this URL of PostgreSQL.
    Elsewhere(String),
}

/// A database that was made here, and is dropped with this.
#[derive(Debug)]
pub struct Own {
    server: String,
    name: String,
    url: String,
}

impl Own {
    /// An empty one of the server at this URL, which names a database and somebody who may make more.
    ///
    /// # Errors
    /// What the server says.
    pub async fn on(server: &str) -> Result<Self> {
        let name = format!("tollgate_{}", uuid::Uuid::now_v7().simple());
        let (base, query) =
            server.split_once('?').map_or((server, None), |(base, query)| (base, Some(query)));
        let (base, _) = base.rsplit_once('/').context("a URL with a database is needed")?;
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let url = format!("{base}/{name}{query}");
        execute(server, format!("CREATE DATABASE {name}")).await?;
        Ok(Self { server: server.to_owned(), name, url })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let server = self.server.clone();
        // A runtime of its own: the caller's cannot be waited on from within.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(execute(&server, sql))
        });
        // A server that has gone has no database to drop.
        let _ = dropping.join();
    }
}

impl Database {
    /// A new one.
    ///
    /// # Panics
    /// Where there is no PostgreSQL.
    pub async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Postgres => Self::Postgres(Own::on(&server()).await.unwrap()),
        }
    }

    /// A network before it that can be broken, and the database as it is reached that way.
    ///
    /// # Panics
    /// With SQLite.
    pub async fn behind_a_proxy(&self) -> (Proxy, Self) {
        let url = self.url();
        let (_, rest) = url.split_once('@').unwrap();
        let (address, _) = rest.split_once('/').unwrap();
        let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
        let through = url.replacen(address, &proxy.address.to_string(), 1);
        (proxy, Self::Elsewhere(through))
    }

    /// Carries out a statement beside the service, and returns how many rows it touched.
    pub async fn sql(&self, sql: &str) -> u64 {
        let statement = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(folder) => {
                let mut connection = SqliteConnection::connect_with(&file(folder)).await.unwrap();
                let done = sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                done.rows_affected()
            }
            Self::Postgres(_) | Self::Elsewhere(_) => {
                let mut connection = PgConnection::connect(&self.url()).await.unwrap();
                sqlx::raw_sql(statement).execute(&mut connection).await.unwrap().rows_affected()
            }
        }
    }

    /// The names of all tables, without partitions and without those of the migrations.
    pub async fn tables(&self) -> Vec<String> {
        let sqlite = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\' \
                      AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        let postgres = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition \
                        AND relnamespace = 'public'::regnamespace AND relname NOT LIKE '\\_sqlx%'";
        match self {
            Self::Sqlite(folder) => {
                let mut connection = SqliteConnection::connect_with(&file(folder)).await.unwrap();
                sqlx::query_scalar(sqlite).fetch_all(&mut connection).await.unwrap()
            }
            Self::Postgres(_) | Self::Elsewhere(_) => {
                let mut connection = PgConnection::connect(&self.url()).await.unwrap();
                sqlx::query_scalar(postgres).fetch_all(&mut connection).await.unwrap()
            }
        }
    }

    /// How many rows a table has.
    pub async fn count(&self, table: &str) -> i64 {
        let statement = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        match self {
            Self::Sqlite(folder) => {
                let mut connection = SqliteConnection::connect_with(&file(folder)).await.unwrap();
                sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap()
            }
            Self::Postgres(_) | Self::Elsewhere(_) => {
                let mut connection = PgConnection::connect(&self.url()).await.unwrap();
                sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap()
            }
        }
    }

    /// As `--store` takes it.
    pub fn url(&self) -> String {
        match self {
            Self::Elsewhere(url) => url.clone(),
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("tollgate.db").display()),
            Self::Postgres(own) => own.url.clone(),
        }
    }
}

/// How to open the file beside the service.
fn file(folder: &TempDir) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(folder.path().join("tollgate.db"))
        .busy_timeout(Duration::from_secs(10))
}

fn server() -> String {
    std::env::var("TOLLGATE_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("TOLLGATE_TEST_POSTGRES is not set. Run the tests with ./tests/run, which starts a PostgreSQL")
    })
}

async fn execute(server: &str, sql: String) -> Result<()> {
    let mut connection = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    Ok(())
}
