//! A PostgreSQL of the campaign's own, to be stopped in every way.

mod others;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::machine::Machine;

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Connections are closed, transactions rolled back.
    Fast,
    /// As a power cut would; it recovers when it starts.
    Immediate,
}

/// A server; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Postgres {
    bin: PathBuf,
    /// PostgreSQL does not run as root.
    user: Option<String>,
    data: PathBuf,
    port: u16,
    /// What it runs on.
    pub(crate) machine: Machine,
}

impl Postgres {
    /// Makes a cluster in this folder and starts it, with an empty database named tollgate.
    pub(crate) async fn start(folder: &Path, machine: Machine) -> Result<Self> {
        let bin = std::env::var_os("TOLLGATE_TEST_POSTGRES_BIN").context(
            "TOLLGATE_TEST_POSTGRES_BIN is not set; run the campaign with ./tests/run faults, which finds PostgreSQL",
        )?;
        let user = std::env::var("TOLLGATE_TEST_POSTGRES_USER").ok();
        let server =
            Self { bin: bin.into(), user, data: folder.join("postgres"), port: free_port()?, machine };
        std::fs::create_dir(&server.data)?;
        if let Some(user) = &server.user {
            let status = Command::new("chown").arg(user).arg(&server.data).status()?;
            ensure!(status.success(), "the folder of PostgreSQL cannot be given to {user}");
        }
        server.run("initdb", &["-U", "tollgate", "--auth=trust", "--encoding=UTF8", "--locale=C"])?;
        server.up()?;
        let mut connection = PgConnection::connect(&server.url("postgres")).await?;
        sqlx::raw_sql("CREATE DATABASE tollgate").execute(&mut connection).await?;
        Ok(server)
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn up(&self) -> Result<()> {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories='' -c max_connections=100 \
             -c shared_buffers=64MB -c restart_after_crash=on -c max_wal_size=256MB -c checkpoint_timeout=30s",
            self.port
        );
        let log = self.data.join("server.log").display().to_string();
        self.run("pg_ctl", &["-w", "-t", "60", "-l", &log, "-o", &options, "start"])
    }

    /// Stops it, and waits until it is down.
    pub(crate) fn down(&self, how: Stop) -> Result<()> {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        self.run("pg_ctl", &["-w", "-t", "60", "-m", mode, "stop"])
    }

    /// Whether its main process lives.
    pub(crate) fn is_up(&self) -> Result<bool> {
        let file = self.data.join("postmaster.pid");
        let Ok(text) = std::fs::read_to_string(&file) else { return Ok(false) };
        let pid: u32 = text.lines().next().unwrap_or_default().trim().parse().context("postmaster.pid")?;
        Ok(Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Ends the connection of the service that commits just now, or where none does, any. True if there was one.
    pub(crate) async fn end_a_backend(&self) -> Result<bool> {
        let mut connection = PgConnection::connect(&self.url("tollgate")).await?;
        let sql = "SELECT pid, query ILIKE 'COMMIT%' AND state = 'active' FROM pg_stat_activity \
                   WHERE application_name = 'tollgate' ORDER BY 2 DESC, random() LIMIT 1";
        let Some(row) = sqlx::query(sql).fetch_optional(&mut connection).await? else { return Ok(false) };
        let (pid, committing): (i32, Option<bool>) = (row.try_get(0)?, row.try_get(1)?);
        let sql = AssertSqlSafe(format!("SELECT pg_terminate_backend({pid})"));
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        Ok(committing.unwrap_or_default())
    }

    async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(&self.url("tollgate")).await.context("the campaign's own connection")
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://tollgate@127.0.0.1:{}/{database}", self.port)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--", "env"]);
                command
            }
            None => Command::new("env"),
        };
        for (name, value) in self.machine.environment() {
            command.arg(format!("{name}={value}"));
        }
        // The server keeps what it inherits: a pipe would never end.
        let output = self.data.with_extension("out");
        let file = std::fs::File::create(&output)?;
        let status = command
            .arg(self.bin.join(program))
            .arg("-D")
            .arg(&self.data)
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
            .with_context(|| format!("{program} does not start"))?;
        if status.success() {
            return Ok(());
        }
        bail!("{program} {}: {}", arguments.join(" "), std::fs::read_to_string(output)?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may be down.
        let _ = self.down(Stop::Immediate);
    }
}

/// A port that nobody has now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
