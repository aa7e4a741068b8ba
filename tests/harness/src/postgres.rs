//! A PostgreSQL server of one's own, in a folder, to be stopped in every way; and where its programs are.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::free_port;

/// As whom PostgreSQL runs where this process is root.
const USER: &str = "tollgate_test";

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are closed, transactions rolled back.
    Fast,
    /// As a power cut would; it recovers when it starts.
    Immediate,
}

/// A server; stopped when dropped.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    /// PostgreSQL does not run as root.
    user: Option<String>,
    data: PathBuf,
    port: u16,
    settings: String,
    variables: Vec<(&'static str, String)>,
}

impl Server {
    /// Makes a cluster below this folder, and starts it with these settings (`-c …`) and variables of its environment.
    ///
    /// # Errors
    /// What keeps it from starting.
    pub fn start(folder: &Path, settings: &str, variables: &[(&'static str, String)]) -> Result<Self> {
        let server = Self {
            programs: programs()?,
            user: user()?,
            data: folder.join("postgres"),
            port: free_port()?,
            settings: settings.to_owned(),
            variables: variables.to_vec(),
        };
        fs::create_dir(&server.data)?;
        if let Some(user) = &server.user {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            done(Command::new("chown").arg(user).arg(&server.data), &server.output())?;
        }
        server.run("initdb", &["-U", "tollgate", "--auth=trust", "--encoding=UTF8", "--locale=C"])?;
        server.up()?;
        Ok(server)
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// What it says.
    pub fn up(&self) -> Result<()> {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories='' {}",
            self.port, self.settings
        );
        let log = self.data.join("server.log");
        self.run("pg_ctl", &["-w", "-t", "60", "-l", &log.to_string_lossy(), "-o", &options, "start"])
            .with_context(|| format!("PostgreSQL says: {}", fs::read_to_string(&log).unwrap_or_default()))
    }

    /// Stops it, and waits until it is down.
    ///
    /// # Errors
    /// What it says.
    pub fn down(&self, how: Stop) -> Result<()> {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        self.run("pg_ctl", &["-w", "-t", "60", "-m", mode, "stop"])
    }

    /// Whether its main process lives.
    ///
    /// # Errors
    /// A file of it that cannot be understood.
    pub fn is_up(&self) -> Result<bool> {
        let Ok(text) = fs::read_to_string(self.data.join("postmaster.pid")) else { return Ok(false) };
        let pid: u32 = text.lines().next().unwrap_or_default().trim().parse().context("postmaster.pid")?;
        Ok(Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://tollgate@127.0.0.1:{}/{database}", self.port)
    }

    /// Where its programs write: it keeps what it inherits, and a pipe would never end.
    fn output(&self) -> PathBuf {
        self.data.with_extension("out")
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
        command.args(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(self.programs.join(program)).arg("-D").arg(&self.data).args(arguments).current_dir("/");
        done(&mut command, &self.output())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be down.
        let _gone = self.down(Stop::Immediate);
    }
}

/// Runs a program to its end, which must be good. It writes into this file.
fn done(command: &mut Command, output: &Path) -> Result<()> {
    let file = fs::File::create(output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}: {}", fs::read_to_string(output)?.trim());
    }
    Ok(())
}

/// As whom the server runs; none where this process is not root.
fn user() -> Result<Option<String>> {
    let own = fs::read_to_string("/proc/self/status")?;
    if !own.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return Ok(None);
    }
    let is_known =
        Command::new("id").arg(USER).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success();
    if !is_known {
        let made = Command::new("useradd").args(["--system", "--no-create-home", USER]).status()?;
        anyhow::ensure!(made.success(), "the user {USER}, as whom PostgreSQL would run, cannot be made");
    }
    Ok(Some(USER.to_owned()))
}

/// The folder of the programs: `TOLLGATE_TEST_POSTGRES_BIN`, or the one with the newest server.
fn programs() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("TOLLGATE_TEST_POSTGRES_BIN") {
        return Ok(named.into());
    }
    let mut found = Vec::new();
    for root in ["/usr/lib/postgresql", "/usr"] {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let (path, name) = (entry.path().join("bin"), entry.file_name());
            let version: u32 =
                name.to_string_lossy().trim_start_matches("pgsql-").parse().unwrap_or_default();
            found.extend(has_server(&path).then_some((version, path)));
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).find(|folder| has_server(folder));
    let found = found.into_iter().max().map(|(_, path)| path).or_else(on_path);
    found.context("there is no PostgreSQL on this machine: no folder has initdb, pg_ctl and postgres")
}

fn has_server(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).exists())
}
