//! A database of a test's own.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tollgate_store::Store;
use uuid::Uuid;

const VARIABLE: &str = "TOLLGATE_TEST_POSTGRES";

/// Where a test's store lives.
pub(crate) struct Place {
    /// Opens the store.
    pub(crate) url: String,
    kind: Kind,
}

enum Kind {
    Sqlite { directory: tempfile::TempDir },
    Postgres { server: String, database: String },
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:{}/store.db", directory.path().display()),
            kind: Kind::Sqlite { directory },
        }
    }

    pub(crate) async fn postgres() -> Self {
        let server = std::env::var(VARIABLE).unwrap_or_else(|_| {
            panic!("{VARIABLE} names no PostgreSQL server; ./tests/run starts one and sets it")
        });
        let database = format!("tollgate_test_{}", Uuid::new_v4().simple());
        on_postgres(&server, &format!("CREATE DATABASE {database}")).await;
        let (base, options) =
            server.split_once('?').map_or((server.as_str(), ""), |(base, options)| (base, options));
        let start = base.find("://").unwrap() + 3;
        let host = base[start..].find('/').map_or(base, |slash| &base[..start + slash]);
        let options = if options.is_empty() { String::new() } else { format!("?{options}") };
        Self { url: format!("{host}/{database}{options}"), kind: Kind::Postgres { server, database } }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        tollgate_store::open(&self.url, 8).await.unwrap()
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.kind, Kind::Postgres { .. })
    }

    /// Does what no store would, past the store.
    pub(crate) async fn sql(&self, text: &str) {
        match &self.kind {
            Kind::Postgres { .. } => on_postgres(&self.url, text).await,
            Kind::Sqlite { .. } => {
                let mut connection = self.sqlite_connection().await;
                connection.execute(AssertSqlSafe(text)).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// One number, past the store.
    pub(crate) async fn number(&self, text: &str) -> i64 {
        match &self.kind {
            Kind::Postgres { .. } => {
                let mut connection = self.postgres_connection().await;
                let number =
                    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                number
            }
            Kind::Sqlite { .. } => {
                let mut connection = self.sqlite_connection().await;
                let number =
                    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                number
            }
        }
    }

    pub(crate) async fn postgres_connection(&self) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn sqlite_connection(&self) -> sqlx::SqliteConnection {
        sqlx::SqliteConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn remove(self) {
        match self.kind {
            Kind::Postgres { server, database } => {
                on_postgres(&server, &format!("DROP DATABASE {database} WITH (FORCE)")).await;
            }
            Kind::Sqlite { directory } => directory.close().unwrap(),
        }
    }
}

async fn on_postgres(url: &str, text: &str) {
    let mut connection = sqlx::PgConnection::connect(url).await.expect(VARIABLE);
    connection.execute(AssertSqlSafe(text)).await.unwrap();
    connection.close().await.unwrap();
}
