//! `tollgate serve`, about to be started: which program, which store, and nothing of this machine's own keys.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::process::Process;

/// Queues of tests take any keys; nothing of this machine's may be used.
pub(crate) const AWS: [(&str, &str); 5] = [
    ("AWS_ACCESS_KEY_ID", "testing"),
    ("AWS_SECRET_ACCESS_KEY", "testing"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
    ("AWS_CONFIG_FILE", "/dev/null"),
    ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
];

/// A process of the service that has not been started yet.
#[derive(Debug)]
pub struct Serve(Command);

impl Serve {
    /// By this command, which may be more than the program, over this store, at this address and port.
    pub fn new(mut command: Command, store: &str, listen: &str) -> Self {
        command.args(["serve", "--store", store, "--listen", listen]).envs(AWS);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command)
    }

    /// With more flags.
    pub fn flags(mut self, flags: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(flags);
        self
    }

    /// With more variables of its environment.
    pub fn variables<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.0.envs(variables);
        self
    }

    /// Starts it, and waits for nothing. It writes its log into this file.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(mut self, log: File) -> Result<Process> {
        Process::start(self.0.stderr(log))
    }
}

/// The service's program: the one that is given, or the one that was built with this program.
///
/// # Errors
/// Where there is none.
pub fn program(given: Option<&Path>) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // Tests are in a folder below.
    let beside = || own.ancestors().skip(1).take(2).map(|folder| folder.join("tollgate"));
    let found = given.map(Path::to_owned).or_else(|| beside().find(|path| path.exists()));
    let path = found.unwrap_or_else(|| own.with_file_name("tollgate"));
    ensure!(
        path.exists(),
        "{} does not exist; build it, name it with TOLLGATE_BIN, or run the tests with ./tests/run",
        path.display()
    );
    Ok(path)
}

/// The service's program, for tests.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    program(std::env::var_os("TOLLGATE_BIN").as_deref().map(Path::new)).unwrap()
}
