//! `tollgate commands` as a process, with a file of queues.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::process::{Process, show_end};
use crate::serve::AWS;
use crate::{binary, wait_for};

/// A planned stop takes 10 s of grace at most, and a few more to give back what is left; longer where other tests run.
const STOP_MAX: Duration = Duration::from_secs(40);

/// A process that takes commands from queues; killed when dropped.
pub struct Commands {
    process: Process,
    log: NamedTempFile,
}

impl Commands {
    /// Starts it with this file, for the service at this URL, with more flags.
    pub fn start(file: &Path, server: &str, flags: &[&str]) -> Self {
        Self::of(Command::new(binary()), file, server, flags)
    }

    /// The same, of another build.
    pub fn of(mut command: Command, file: &Path, server: &str, flags: &[&str]) -> Self {
        let log = NamedTempFile::new().unwrap();
        command.args(["commands", "--server", server, "-f"]).arg(file).args(flags).envs(AWS);
        let into = OpenOptions::new().append(true).open(log.path()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(into);
        Self { process: Process::start(&mut command).unwrap(), log }
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// An outage of the service, once or a few times, has a line at its beginning and one at its end.
    ///
    /// # Panics
    /// When that is not so.
    pub async fn assert_outages_told(&self) {
        // One that has just begun ends in a moment.
        let (began, log) = wait_for("a line for the end of each outage", 20, async || {
            let log = self.log();
            let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
            let (began, ended) = (lines("the service: UNAVAILABLE"), lines("the service: works again"));
            (began == ended).then_some((began, log))
        })
        .await;
        // A line for each call that failed would be many times as many.
        assert!((1..=10).contains(&began), "{began}: {log}");
    }

    /// The address of its metrics, once it says so.
    pub async fn metrics(&self) -> String {
        wait_for("the address of the metrics", 20, async || {
            let log = self.log();
            let (_, rest) = log.split_once("metrics at ")?;
            rest.split_whitespace().next().map(str::to_owned)
        })
        .await
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends it as a power cut would.
    pub fn kill9(mut self) {
        self.process.kill9().unwrap();
    }

    /// Asks it to stop, and waits until it has ended well.
    ///
    /// # Panics
    /// When it does not.
    pub async fn stop(mut self) {
        let status = self.process.terminate(STOP_MAX).await.unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end(self.log.path(), "the commands");
        }
    }
}
