//! The service's processes: started again whenever they have died, as a supervisor would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{GetHandlerStatusRequest, HandlerStatus};
use tonic::transport::{Channel, Endpoint};

use crate::machine::Machine;
use crate::names::Names;

/// A planned stop takes at most this long.
const STOP_MAX: Duration = Duration::from_secs(12);
/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(5);
/// How long one may take that waits for a lock.
const PATIENCE: Duration = Duration::from_secs(25);

/// One process of the service, or the place of one that is down.
pub(crate) struct Process {
    number: usize,
    store: String,
    port: u16,
    advertise: String,
    lease: Duration,
    folder: PathBuf,
    names: Option<Arc<Names>>,
    child: Option<Child>,
    /// It has served since it was last started.
    ready: bool,
    log: Arc<Mutex<std::fs::File>>,
    /// What it runs on.
    pub(crate) machine: Machine,
    /// Its gRPC port.
    pub(crate) channel: Channel,
}

impl Process {
    /// A place for a process that listens on this port, and that others reach there. Nothing is started.
    pub(crate) fn new(
        number: usize,
        store: String,
        (port, advertise): (u16, String),
        lease: Duration,
        folder: &Path,
        machine: Machine,
        names: Option<Arc<Names>>,
    ) -> Result<Self> {
        let log = std::fs::File::create(folder.join(format!("process-{number}.log")))?;
        let channel = channel(port, CALL_MAX)?;
        Ok(Self {
            number,
            store,
            port,
            advertise,
            lease,
            folder: folder.to_owned(),
            names,
            child: None,
            ready: false,
            log: Arc::new(Mutex::new(log)),
            machine,
            channel,
        })
    }

    /// Starts it, again and again while the store does not answer, and waits until it serves.
    pub(crate) async fn start(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if self.child.is_none() {
                self.spawn()?;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.exited()?.is_some() {
                // It says why in its log; a store that is down is no place to start.
                tokio::time::sleep(Duration::from_millis(300)).await;
            } else if self.status().await.is_some() {
                self.ready = true;
                return Ok(());
            }
        }
        bail!("process {} does not serve within a minute; see its log", self.number)
    }

    /// Starts it, and waits for nothing.
    pub(crate) fn start_alone(&mut self) -> Result<()> {
        self.spawn()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill9(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        self.note("killed");
        Ok(())
    }

    /// Asks it to stop, and waits until it has ended well.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.signal("TERM")?;
        let end = Instant::now() + STOP_MAX;
        while Instant::now() < end {
            if let Some(status) = self.exited()? {
                anyhow::ensure!(
                    status.success(),
                    "a planned stop of process {} ended with {status}",
                    self.number
                );
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.kill9()?;
        bail!("a planned stop of process {} did not end within {STOP_MAX:?}", self.number)
    }

    /// Stops it in its tracks, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<()> {
        self.note(if frozen { "frozen" } else { "thawed" });
        self.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// Arms a fault point: it ends the process at this pass.
    pub(crate) fn arm(&self, point: &str, pass: u32) -> Result<()> {
        // What an earlier order left behind.
        let _ = std::fs::remove_file(self.point_file().with_extension("fired"));
        std::fs::write(self.point_file(), format!("{point} {pass}")).context("the fault point's file")
    }

    /// Disarms it. True if it has ended the process.
    pub(crate) fn disarm(&mut self) -> Result<bool> {
        std::fs::write(self.point_file(), "")?;
        let fired = self.point_file().with_extension("fired").exists();
        if fired {
            if let Some(mut child) = self.child.take() {
                child.wait()?;
            }
            self.note("ended at a fault point");
        }
        Ok(fired)
    }

    /// Whether it runs.
    pub(crate) fn is_up(&mut self) -> Result<bool> {
        self.exited()?;
        Ok(self.child.is_some())
    }

    /// How it ended, where it has ended by itself.
    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    /// Whether it had served before it ended.
    pub(crate) fn was_ready(&self) -> bool {
        self.ready
    }

    /// What its handler says of itself.
    pub(crate) async fn status(&self) -> Option<HandlerStatus> {
        let mut handler = EventHandlerServiceClient::new(self.channel.clone());
        let call = handler.get_handler_status(GetHandlerStatusRequest::default());
        tokio::time::timeout(Duration::from_secs(3), call).await.ok()?.ok().map(tonic::Response::into_inner)
    }

    /// Whether it says that it is ready; not either where it says nothing.
    pub(crate) async fn says_ready(&self) -> bool {
        tokio::time::timeout(Duration::from_secs(2), self.ask_readyz())
            .await
            .is_ok_and(|said| said.is_ok_and(|ok| ok))
    }

    async fn ask_readyz(&self) -> Result<bool> {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request =
            format!("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer.starts_with(b"HTTP/1.1 200"))
    }

    /// A connection on which calls may take longer.
    pub(crate) fn patient_channel(&self) -> Result<Channel> {
        channel(self.port, PATIENCE)
    }

    /// Puts a line of the campaign into its log.
    pub(crate) fn note(&self, text: &str) {
        write(&self.log, &format!("======== {text}, {}", tollgate_tests::now_us()));
    }

    fn point_file(&self) -> PathBuf {
        self.folder.join(format!("point-{}", self.number))
    }

    fn signal(&self, name: &str) -> Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status()?;
        anyhow::ensure!(status.success(), "kill -{name} of process {} failed", self.number);
        Ok(())
    }

    fn spawn(&mut self) -> Result<()> {
        self.ready = false;
        let (port, lease) = (self.port, self.lease.as_millis());
        let binary = std::env::var_os("TOLLGATE_FAULTS_BIN").context(
            "TOLLGATE_FAULTS_BIN is not set; run the campaign with ./tests/run faults, which builds the binary with fault points",
        )?;
        let mut command = match &self.names {
            Some(names) => names.command(binary),
            None => Command::new(binary),
        };
        let mut child = command
            .args(["serve", "--store", &self.store, "--listen", &format!("127.0.0.1:{port}")])
            .args(["--advertise", &self.advertise, "--lease-ttl", &format!("{lease}ms")])
            .args(["--window", "5s", "--ahead", "10s", "--shutdown-grace", "5s"])
            .envs(self.machine.environment())
            .env("TOLLGATE_FAULT_POINT", self.point_file())
            .env("AWS_ACCESS_KEY_ID", "testing")
            .env("AWS_SECRET_ACCESS_KEY", "testing")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("tollgate does not start")?;
        if let Some(lines) = child.stderr.take() {
            let log = self.log.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    write(&log, &line);
                }
            });
        }
        self.child = Some(child);
        self.note("started");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill9();
    }
}

fn channel(port: u16, patience: Duration) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
    Ok(endpoint.timeout(patience).connect_timeout(Duration::from_secs(1)).connect_lazy())
}

fn write(log: &Mutex<std::fs::File>, line: &str) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    // A log that cannot be written is no reason to end the campaign.
    let _ = writeln!(log, "{line}");
}
