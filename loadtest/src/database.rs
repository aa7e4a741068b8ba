//! The database under the service: a file of SQLite, a private PostgreSQL, or one that is given.
//!
//! A private server has PostgreSQL's defaults, so that commits are as durable as they are for users.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};
use tempfile::TempDir;

use crate::process;

/// As whom PostgreSQL runs where this process is root.
const USER: &str = "tollgate_test";

/// Where the service keeps everything.
pub(crate) enum Database {
    Sqlite(TempDir),
    Postgres {
        url: String,
        name: String,
        /// To the database, for figures.
        connection: Box<PgConnection>,
        /// To the server, to drop the database at the end.
        admin_url: String,
        /// The server's first process, where it runs on this machine.
        postmaster: Option<u32>,
        _server: Option<Server>,
    },
}

/// A private PostgreSQL; stopped when dropped.
pub(crate) struct Server {
    bin: PathBuf,
    folder: TempDir,
    url: String,
}

impl Database {
    /// A new, empty one: `sqlite`, `postgres`, or the URL of a server whose user may create databases.
    ///
    /// # Errors
    /// What keeps it from being made.
    pub(crate) async fn new(store: &str) -> anyhow::Result<Self> {
        if store == "sqlite" {
            return Ok(Self::Sqlite(tempfile::tempdir()?));
        }
        let server = if store == "postgres" { Some(Server::start()?) } else { None };
        let admin_url = server.as_ref().map_or(store, |server| &server.url).to_owned();
        let mut admin = PgConnection::connect(&admin_url).await.context("--store")?;
        let name = format!("tollgate_load_{}", uuid::Uuid::now_v7().simple());
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await?;
        let (base, _) = admin_url.rsplit_once('/').context("--store: a URL with a database is needed")?;
        let url = format!("{base}/{name}");
        let mut connection = Box::new(PgConnection::connect(&url).await?);
        let backend: i32 = sqlx::query("SELECT pg_backend_pid()").fetch_one(&mut *connection).await?.get(0);
        let backend = u32::try_from(backend)?;
        let here = process::program(backend).is_some_and(|program| program.starts_with("postgres"));
        let postmaster = process::parent(backend).filter(|_| here);
        Ok(Self::Postgres { url, name, connection, admin_url, postmaster, _server: server })
    }

    /// As `--store` of the service takes it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("tollgate.db").display()),
            Self::Postgres { url, .. } => url.clone(),
        }
    }

    /// `sqlite` or `postgres`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// CPU seconds of all its processes, where it has some of its own on this machine.
    pub(crate) fn cpu_s(&self) -> Option<f64> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres { postmaster, .. } => postmaster.map(process::cpu_s),
        }
    }

    /// Makes it start the next round with nothing left to do.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        if let Self::Postgres { connection, .. } = self {
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
        if let Self::Postgres { connection, .. } = self {
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
        match self {
            Self::Sqlite(folder) => {
                for entry in fs::read_dir(folder.path())? {
                    fs::File::open(entry?.path())?.sync_all()?;
                }
            }
            Self::Postgres { connection, .. } => {
                sqlx::raw_sql("VACUUM (ANALYZE)").execute(&mut **connection).await.context("VACUUM")?;
            }
        }
        self.settle().await
    }

    /// Bytes of log written so far.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn wal_bytes(&mut self) -> anyhow::Result<Option<i64>> {
        let Self::Postgres { connection, .. } = self else { return Ok(None) };
        let row = sqlx::query("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint");
        Ok(Some(row.fetch_one(&mut **connection).await?.get(0)))
    }

    /// Rows of the launch index that were read so far.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) async fn children_read(&mut self) -> anyhow::Result<Option<i64>> {
        let Self::Postgres { connection, .. } = self else { return Ok(None) };
        let row = sqlx::query(
            "SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0)::bigint
             FROM pg_stat_user_tables WHERE relname = 'schedule_children'",
        );
        Ok(Some(row.fetch_one(&mut **connection).await?.get(0)))
    }

    /// Removes it.
    pub(crate) async fn remove(self) {
        let Self::Postgres { name, connection, admin_url, _server, .. } = self else { return };
        // A private server goes with all it has; a given one may have gone.
        let _gone = connection.close().await;
        if let Ok(mut admin) = PgConnection::connect(&admin_url).await {
            let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            let _gone = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await;
        }
    }
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let bin = programs().context("there is no PostgreSQL on this machine; install it, or give a URL")?;
        let folder = tempfile::Builder::new().prefix("tollgate-load.").tempdir()?;
        if is_root() {
            let known = run(Command::new("id").arg(USER)).is_ok();
            if !known {
                run(Command::new("useradd").args(["--system", "--no-create-home", USER]))?;
            }
            run(Command::new("chown").arg(USER).arg(folder.path()))?;
        }
        let mut server = Self { bin, folder, url: String::new() };
        let data = server.data();
        let flags = ["-U", "tollgate", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        run(server.command("initdb").arg("-D").arg(&data).args(flags))?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let settings = format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories='' -c max_connections=200"
        );
        let log = data.join("server.log");
        let mut start = server.command("pg_ctl");
        start.arg("-D").arg(&data).arg("-l").arg(&log).args(["-w", "-t", "60", "-o", &settings, "start"]);
        run(&mut start)
            .with_context(|| format!("PostgreSQL says: {}", fs::read_to_string(&log).unwrap_or_default()))?;
        server.url = format!("postgres://tollgate@127.0.0.1:{port}/postgres");
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// PostgreSQL refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", USER, "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir("/");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data();
        // Nothing can be done about a server that does not stop; its folder goes in any case.
        let _gone = run(self.command("pg_ctl").arg("-D").arg(data).args(["-m", "immediate", "-w", "stop"]));
    }
}

/// Runs a program to its end.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_owned();
    // Not a pipe for all: a server that stays would keep it open.
    let errors = tempfile::NamedTempFile::new()?;
    let status = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(errors.reopen()?)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        let said = fs::read_to_string(errors.path()).unwrap_or_default();
        bail!("{} ended with {status}: {}", command_line(command), said.trim());
    }
    Ok(())
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn is_root() -> bool {
    let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
    own.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// The folder with the newest server.
fn programs() -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for root in ["/usr/lib/postgresql", "/usr"] {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let (path, name) = (entry.path().join("bin"), entry.file_name());
            let name = name.to_string_lossy();
            let version: u32 = name.trim_start_matches("pgsql-").parse().unwrap_or_default();
            if has_server(&path) {
                found.push((version, path));
            }
        }
    }
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).find(|folder| has_server(folder));
    let found = found.pop().map(|(_, path)| path).or_else(on_path);
    ensure!(found.is_some(), "no folder has initdb, pg_ctl and postgres");
    found.context("none")
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).exists())
}
