//! `tollgate serve` as a process.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_proto::v1::GetHandlerStatusRequest;
use tollgate_proto::v1::event_emitter_service_client::EventEmitterServiceClient;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tonic::transport::{Channel, Endpoint};

use crate::{Database, Link};

/// A line of the log ends with this and the address.
const LISTENING: &str = "listening on ";
/// This machine.
const LOOPBACK: [&str; 2] = ["--allow-private-addresses", "127.0.0.0/8,::1/128"];
const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(15);

/// A running service; killed when dropped.
pub struct Service {
    process: Child,
    log: Arc<Mutex<String>>,
    url: String,
    channel: Channel,
}

impl Service {
    /// Starts all roles on the database, and waits until they serve.
    pub async fn start(database: &Database) -> Self {
        Self::start_with(database, &[]).await
    }

    /// As [`Service::start`], with more flags.
    ///
    /// # Panics
    /// When it does not serve within 30 s.
    pub async fn start_with(database: &Database, flags: &[&str]) -> Self {
        let service = Self::join(database, flags).await;
        service.ready().await;
        service
    }

    /// Starts a process beside others, and waits until it serves; it need not own anything.
    ///
    /// # Panics
    /// When it does not serve within 30 s.
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
        service.ready().await;
        service
    }

    async fn begin(
        mut command: Command,
        database: &Database,
        flags: &[&str],
        variables: &[(&str, String)],
    ) -> Self {
        let lease = if flags.contains(&"--lease-ttl") { [].as_slice() } else { &["--lease-ttl", "2s"] };
        let mut process = command
            .args(["serve", "--store", &database.url(), "--listen", "127.0.0.1:0"])
            .args(lease)
            // The consumers of tests are here; where callers are asked who they are, that must be said.
            .args(if flags.contains(&"--allow-private-addresses") { [].as_slice() } else { &LOOPBACK })
            .args(flags)
            .envs(aws())
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, copy) = (BufReader::new(process.stderr.take().unwrap()), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut log = copy.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let url = listening(&mut process, &log);
        let channel = Endpoint::from_shared(url.clone()).unwrap().connect().await.unwrap();
        Self { process, log, url, channel }
    }

    /// Waits until every queue shard has an owner.
    async fn ready(&self) {
        crate::wait_for("an owner for every queue shard", 30, async || {
            let mut handler = self.handler();
            let status =
                handler.get_handler_status(GetHandlerStatusRequest::default()).await.ok()?.into_inner();
            let owned = status.shards.iter().filter(|shard| shard.owner == status.handler).count();
            (owned > 0 && owned == status.shards.len()).then_some(())
        })
        .await;
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
    pub fn rss_bytes(&self) -> u64 {
        rss_bytes_in(&self.memory_file())
    }

    /// Where the system says how much memory the process has; for [`rss_bytes_in`].
    pub fn memory_file(&self) -> String {
        format!("/proc/{}/status", self.process.id())
    }

    /// How many files the process has open.
    ///
    /// # Panics
    /// When it has ended.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Processor time that the process has used.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // The second field is a name in brackets; user and system time, in hundredths of a second, are 14 and 15.
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let ticks: u64 =
            rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Stops it in the middle of whatever it does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it has ended.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Ends it as a power cut would.
    pub fn kill9(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Asks it to stop.
    ///
    /// # Panics
    /// When it has not ended within 15 s, or not well.
    pub async fn stop(mut self) {
        self.signal("-TERM");
        let status = ended(&mut self.process, STOP_MAX).await;
        assert!(status.is_some_and(|status| status.success()), "a planned stop ended with {status:?}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log.lock().map(|log| log.clone()).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            #[expect(clippy::print_stderr, reason = "shown with the failed test")]
            {
                eprintln!("the end of the log of {}:\n{}", self.url, tail.join("\n"));
            }
        }
    }
}

/// Memory that a process has resident, in bytes; 0 once it has ended.
pub fn rss_bytes_in(memory_file: &str) -> u64 {
    let status = std::fs::read_to_string(memory_file).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().map_or(0, |kib| kib.parse::<u64>().unwrap() * 1024)
}

/// Where the binary is.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    let built = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/debug/tollgate"));
    let path = std::env::var_os("TOLLGATE_BIN").map_or_else(built, PathBuf::from);
    assert!(
        path.exists(),
        "{} does not exist. Run the tests with ./tests/run, which builds it",
        path.display()
    );
    path
}

/// The emulator takes any keys; nothing of this machine's may be used.
fn aws() -> [(&'static str, &'static str); 5] {
    [
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ]
}

fn listening(process: &mut Child, log: &Mutex<String>) -> String {
    let end = Instant::now() + START_MAX;
    loop {
        let text = log.lock().unwrap().clone();
        if let Some((_, rest)) = text.split_once(LISTENING) {
            let url: String = rest.chars().take_while(|c| !c.is_whitespace()).collect();
            if rest.contains('\n') {
                return url;
            }
        }
        let status = process.try_wait().unwrap();
        assert!(status.is_none(), "tollgate serve ended with {status:?}:\n{text}");
        assert!(Instant::now() < end, "tollgate serve does not say where it listens:\n{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn ended(process: &mut Child, within: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + within;
    loop {
        let status = process.try_wait().unwrap();
        if status.is_some() || Instant::now() > end {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
