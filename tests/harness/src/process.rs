//! A child process: started, asked to stop, frozen, killed. It is killed when dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// Shows the end of a process's log beside a test that fails.
pub(crate) fn show_end(log: &Path, of: &str) {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(40)..].join("\n");
    #[expect(clippy::print_stderr, reason = "shown with the failed test")]
    {
        eprintln!("the end of the log of {of}:\n{tail}");
    }
}

/// A child process; killed when dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// A program that cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = PathBuf::from(command.get_program());
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", program.display()))?))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// What it writes to standard output, where that is a pipe; once.
    ///
    /// # Errors
    /// Where it is none, or has been taken.
    pub fn output(&mut self) -> Result<ChildStdout> {
        self.0.stdout.take().context("the process has no output")
    }

    /// How it ended; none while it runs.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.0.try_wait().context("cannot wait for a process")
    }

    /// Sends a signal, such as `TERM`.
    ///
    /// # Errors
    /// A process that has ended.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().context("kill")?;
        ensure!(status.success(), "kill -{name} {pid} failed");
        Ok(())
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    /// One that does not.
    pub async fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.signal("TERM")?;
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            ensure!(Instant::now() < end, "a process does not end within {patience:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends it as a power cut would.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn kill9(&mut self) -> Result<ExitStatus> {
        self.0.kill().context("kill -KILL")?;
        self.0.wait().context("cannot wait for a process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.kill9();
    }
}
