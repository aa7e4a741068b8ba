//! Empty databases, one for each test, removed at its end.

use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

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
    /// A database of this name.
    Postgres(String),
    /// Somebody else looks after it, under this URL of PostgreSQL.
    Elsewhere(String),
}

impl Database {
    /// A new one.
    ///
    /// # Panics
    /// Where there is no PostgreSQL.
    pub async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Postgres => {
                let name = format!("tollgate_{}", uuid::Uuid::now_v7().simple());
                execute(format!("CREATE DATABASE {name}")).await;
                Self::Postgres(name)
            }
        }
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
            Self::Postgres(name) => {
                let server = server();
                let (base, query) = server.split_once('?').unwrap_or((&server, ""));
                let (base, _) = base.rsplit_once('/').unwrap();
                let mark = if query.is_empty() { "" } else { "?" };
                format!("{base}/{name}{mark}{query}")
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Self::Postgres(name) = self {
            let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            // A runtime of its own: the test's cannot be waited on from within.
            let dropping = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(execute(sql));
            });
            // A server that has gone has no database to drop.
            let _ = dropping.join();
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

async fn execute(sql: String) {
    let mut connection = PgConnection::connect(&server()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}
