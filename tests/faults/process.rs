//! The service's processes: started again whenever they have died, as a supervisor would.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_harness::machine::Machine;
use tollgate_harness::{Serve, now_us, process};
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::{GetHandlerStatusRequest, HandlerStatus};
use tonic::transport::{Channel, Endpoint};

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
    pub(crate) store: String,
    port: u16,
    advertise: String,
    lease: Duration,
    folder: PathBuf,
    names: Option<Arc<Names>>,
    child: Option<process::Process>,
    /// It has served since it was last started.
    ready: bool,
    /// Written at its end: by the processes, and by the campaign.
    log: File,
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
        let log = folder.join(format!("process-{number}.log"));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
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
            log,
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
            child.kill9()?;
        }
        self.note("killed");
        Ok(())
    }

    /// Asks it to stop, and waits until it has ended well.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status = child.terminate(STOP_MAX).await;
        let status = status.with_context(|| format!("a planned stop of process {}", self.number))?;
        ensure!(status.success(), "a planned stop of process {} ended with {status}", self.number);
        Ok(())
    }

    /// Stops it in its tracks, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<()> {
        self.note(if frozen { "frozen" } else { "thawed" });
        self.child.as_ref().map_or(Ok(()), |child| child.signal(if frozen { "STOP" } else { "CONT" }))
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
            // It has ended, or is about to.
            if let Some(mut child) = self.child.take() {
                child.kill9()?;
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
        let status = child.exited()?;
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
        // A log that cannot be written is no reason to end the campaign.
        let _ = (&self.log).write_all(format!("======== {text}, {}\n", now_us()).as_bytes());
    }

    fn point_file(&self) -> PathBuf {
        self.folder.join(format!("point-{}", self.number))
    }

    fn spawn(&mut self) -> Result<()> {
        self.ready = false;
        let binary = std::env::var_os("TOLLGATE_FAULTS_BIN").context(
            "TOLLGATE_FAULTS_BIN is not set; run the campaign with ./tests/run faults, which builds the binary with fault points",
        )?;
        let command = match &self.names {
            Some(names) => names.command(binary),
            None => Command::new(binary),
        };
        let (listen, lease) = (format!("127.0.0.1:{}", self.port), format!("{}ms", self.lease.as_millis()));
        let serve = Serve::new(command, &self.store, &listen)
            .flags(["--advertise", &self.advertise, "--lease-ttl", &lease])
            .flags(["--window", "5s", "--ahead", "10s", "--shutdown-grace", "5s"])
            .variables(self.machine.environment())
            .variables([("TOLLGATE_FAULT_POINT", self.point_file())]);
        self.child = Some(serve.start(self.log.try_clone()?)?);
        self.note("started");
        Ok(())
    }
}

fn channel(port: u16, patience: Duration) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
    Ok(endpoint.timeout(patience).connect_timeout(Duration::from_secs(1)).connect_lazy())
}
