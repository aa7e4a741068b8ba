//! A PostgreSQL of the campaign's own, to be stopped in every way.

mod others;

use std::path::Path;

use anyhow::{Context as _, Result};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tollgate_harness::machine::Machine;
use tollgate_harness::postgres::Server;

/// Small, so that checkpoints and crashes are frequent.
const SETTINGS: &str = "-c max_connections=100 -c shared_buffers=64MB -c restart_after_crash=on -c max_wal_size=256MB \
                        -c checkpoint_timeout=30s";

/// A server, with an empty database named tollgate.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) server: Server,
    /// What it runs on.
    pub(crate) machine: Machine,
}

impl Postgres {
    /// Makes a cluster in this folder and starts it.
    pub(crate) async fn start(folder: &Path, machine: Machine) -> Result<Self> {
        let server = Server::start(folder, SETTINGS, &machine.environment())?;
        let mut connection = PgConnection::connect(&server.url("postgres")).await?;
        sqlx::raw_sql("CREATE DATABASE tollgate").execute(&mut connection).await?;
        Ok(Self { server, machine })
    }

    /// Ends the connection of the service that commits just now, or where none does, any. True if there was one.
    pub(crate) async fn end_a_backend(&self) -> Result<bool> {
        let mut connection = PgConnection::connect(&self.server.url("tollgate")).await?;
        let sql = "SELECT pid, query ILIKE 'COMMIT%' AND state = 'active' FROM pg_stat_activity \
                   WHERE application_name = 'tollgate' ORDER BY 2 DESC, random() LIMIT 1";
        let Some(row) = sqlx::query(sql).fetch_optional(&mut connection).await? else { return Ok(false) };
        let (pid, committing): (i32, Option<bool>) = (row.try_get(0)?, row.try_get(1)?);
        let sql = AssertSqlSafe(format!("SELECT pg_terminate_backend({pid})"));
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        Ok(committing.unwrap_or_default())
    }

    async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.server.url("tollgate")).await.context("the campaign's own connection")
    }
}
