//! A process that serves, and its API.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::NamedTempFile;
use tollgate_proto::v1::event_emitter_service_client::EventEmitterServiceClient;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::{GetHandlerStatusRequest, HandlerStatus};
use tonic::transport::{Channel, Endpoint};

use crate::process::{Process, show_end};
use crate::{Database, Link, Serve, binary, kernel};

/// A line of the log ends with this and the address.
const LISTENING: &str = "listening on ";
/// This machine.
const LOOPBACK: [&str; 2] = ["--allow-private-addresses", "127.0.0.0/8,::1/128"];
/// A port that nobody has.
pub const FREE_PORT: &str = "127.0.0.1:0";
const START_MAX: Duration = Duration::from_secs(120);
/// A planned stop takes 10 s of grace at most, and some more where other tests run.
const STOP_MAX: Duration = Duration::from_secs(30);

/// A running service; killed when dropped.
pub struct Service {
    process: Process,
    log: NamedTempFile,
    url: String,
    channel: Channel,
}

impl Service {
    /// Starts a process, and waits until it listens; it need not own anything.
    ///
    /// # Errors
    /// One that does not come up.
    pub async fn launch(serve: Serve) -> Result<Self> {
        let log = NamedTempFile::new()?;
        let mut process = serve.start(OpenOptions::new().append(true).open(log.path())?)?;
        let url = listening(&mut process, log.path())?;
        let channel = Endpoint::from_shared(url.clone())?.connect_lazy();
        Ok(Self { process, log, url, channel })
    }

    /// Waits until it owns every queue shard.
    ///
    /// # Errors
    /// Where that does not come about.
    pub async fn owns_all(&self) -> Result<()> {
        let end = Instant::now() + START_MAX;
        loop {
            if let Ok(status) = self.status().await {
                let owned = status.shards.iter().filter(|shard| shard.owner == status.handler).count();
                if owned > 0 && owned == status.shards.len() {
                    return Ok(());
                }
            }
            ensure!(Instant::now() < end, "not every queue shard has an owner");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What its handler says of all queue shards.
    ///
    /// # Errors
    /// A service that does not answer.
    pub async fn status(&self) -> Result<HandlerStatus> {
        let request = GetHandlerStatusRequest { parent: String::new(), busy_only: true };
        Ok(self.handler().get_handler_status(request).await?.into_inner())
    }

    /// Asks it to stop, and waits until it has ended well.
    ///
    /// # Errors
    /// One that does not.
    pub async fn end(&mut self, patience: Duration) -> Result<()> {
        let status = self.process.terminate(patience).await.context("a planned stop")?;
        ensure!(status.success(), "a planned stop ended with {status}");
        Ok(())
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts all roles on the database, and waits until they serve.
    pub async fn start(database: &Database) -> Self {
        Self::start_with(database, &[]).await
    }

    /// As [`Service::start`], with more flags.
    ///
    /// # Panics
    /// When it does not serve within two minutes.
    pub async fn start_with(database: &Database, flags: &[&str]) -> Self {
        let service = Self::join(database, flags).await;
        service.owns_all().await.unwrap();
        service
    }

    /// Starts a process beside others, and waits until it serves; it need not own anything.
    ///
    /// # Panics
    /// When it does not serve within two minutes.
    pub async fn join(database: &Database, flags: &[&str]) -> Self {
        Self::join_on(database, flags, &[]).await
    }

    /// As [`Service::join`], with variables of its own.
    ///
    /// # Panics
    /// As there.
    pub async fn join_on(database: &Database, flags: &[&str], variables: &[(&str, String)]) -> Self {
        Self::begin(Command::new(binary()), database, flags, variables).await
    }

    /// As [`Service::start`], in a process that may open so many files and cannot have more.
    ///
    /// # Panics
    /// As there.
    pub async fn start_with_files(database: &Database, files: usize) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -Sn {files} && ulimit -Hn {files} && exec \"$0\" \"$@\"")]);
        shell.arg(binary());
        let service = Self::begin(shell, database, &[], &[]).await;
        service.owns_all().await.unwrap();
        service
    }

    async fn begin(
        command: Command,
        database: &Database,
        flags: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        // A machine that stands still for a second or two takes no shard from anybody, and a restart is soon there.
        let lease = if flags.contains(&"--lease-ttl") { [].as_slice() } else { &["--lease-ttl", "4s"] };
        // The consumers of tests are here; where callers are asked who they are, that must be said.
        let here = if flags.contains(&"--allow-private-addresses") { [].as_slice() } else { &LOOPBACK };
        let serve = Serve::new(command, &database.url(), FREE_PORT).flags(lease).flags(here).flags(flags);
        Self::launch(serve.variables(variables.iter().map(|(name, value)| (name, value)))).await.unwrap()
    }

    /// Where it serves gRPC.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where consumers release; they follow when it is pointed at another service.
    pub fn link(&self) -> Link {
        Link::new(self.channel.clone())
    }

    /// The connection.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The Schedule Master.
    pub fn master(&self) -> ScheduleMasterServiceClient<Channel> {
        ScheduleMasterServiceClient::new(self.channel.clone())
    }

    /// The Event Handler.
    pub fn handler(&self) -> EventHandlerServiceClient<Channel> {
        EventHandlerServiceClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    /// The Event Emitter.
    pub fn emitter(&self) -> EventEmitterServiceClient<Channel> {
        EventEmitterServiceClient::new(self.channel.clone())
    }

    /// Memory that the process has resident, in bytes.
    ///
    /// # Panics
    /// When it has ended.
    pub fn rss_bytes(&self) -> u64 {
        kernel::rss_bytes(self.pid()).unwrap()
    }

    /// How many files the process has open.
    ///
    /// # Panics
    /// When it has ended.
    pub fn open_files(&self) -> usize {
        kernel::open_files(self.pid()).unwrap()
    }

    /// Processor time that the process has used.
    pub fn cpu(&self) -> Duration {
        Duration::from_secs_f64(kernel::cpu_s(self.pid()))
    }

    /// What it has logged.
    ///
    /// # Panics
    /// When the file of the log cannot be read.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Stops it in the middle of whatever it does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn freeze(&self) {
        self.process.signal("STOP").unwrap();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it has ended.
    pub fn thaw(&self) {
        self.process.signal("CONT").unwrap();
    }

    /// Ends it as a power cut would.
    ///
    /// # Panics
    /// When it has ended by itself.
    pub fn kill9(mut self) {
        self.process.kill9().unwrap();
    }

    /// Asks it to stop.
    ///
    /// # Panics
    /// When it has not ended within half a minute, or not well.
    pub async fn stop(mut self) {
        self.end(STOP_MAX).await.unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end(self.log.path(), &self.url);
        }
    }
}

/// Where it says that it listens.
fn listening(process: &mut Process, log: &Path) -> Result<String> {
    let end = Instant::now() + START_MAX;
    loop {
        let text = std::fs::read_to_string(log)?;
        if let Some((_, rest)) = text.split_once(LISTENING)
            && let Some((line, _)) = rest.split_once('\n')
        {
            return Ok(line.split_whitespace().next().unwrap_or_default().to_owned());
        }
        if let Some(status) = process.exited()? {
            bail!("tollgate serve ended with {status}:\n{text}");
        }
        ensure!(Instant::now() < end, "tollgate serve does not say where it listens:\n{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
