//! `tollgate serve` as a process, and the calls that a load test makes.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::NamedTempFile;
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::event_emitter_service_client::EventEmitterServiceClient;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient;
use tollgate_proto::v1::{
    ApplyResourcesRequest, GetHandlerStatusRequest, HandlerStatus, ListWindowsRequest, PauseDispatchRequest,
    Window,
};
use tonic::transport::{Channel, Endpoint};

use crate::process::Process;

/// The namespace of all load.
pub(crate) const NAMESPACE: &str = "default";
const LISTENING: &str = "listening on ";
/// Resources that the service takes in one call.
const APPLIED_MAX: usize = 100_000;
const START_MAX: Duration = Duration::from_secs(60);
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A planned stop takes 10 s of grace at most.
const STOP_MAX: Duration = Duration::from_secs(30);
/// When the queue shards of several processes have stayed where they are for so long, they are divided.
const REST: Duration = Duration::from_secs(3);

/// A running service; killed when dropped.
pub(crate) struct Service {
    process: Process,
    pub(crate) url: String,
    channel: Channel,
    _log: NamedTempFile,
}

impl Service {
    /// Starts all roles, and waits until every shard has an owner.
    ///
    /// # Errors
    /// A service that does not come up.
    pub(crate) async fn start(program: &Path, store: &str, flags: &[String]) -> anyhow::Result<Self> {
        let service = Self::launch(program, store, flags).await?;
        let end = Instant::now() + START_MAX;
        while !service.owns_all().await? {
            ensure!(Instant::now() < end, "not every queue shard has an owner");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(service)
    }

    /// Starts one more process of the same store, which owns nothing yet.
    ///
    /// # Errors
    /// A service that does not come up.
    pub(crate) async fn launch(program: &Path, store: &str, flags: &[String]) -> anyhow::Result<Self> {
        let log = NamedTempFile::new()?;
        let mut process = Process::start(
            Command::new(program)
                .args(["serve", "--store", store, "--listen", "127.0.0.1:0"])
                .args(flags)
                .envs(aws())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(log.path())?),
        )?;
        let url = listening(&mut process, log.path())?;
        let channel = Endpoint::from_shared(url.clone())?.connect().await?;
        Ok(Self { process, url, channel, _log: log })
    }

    /// Ends as planned.
    ///
    /// # Errors
    /// A service that does not.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.process.terminate(STOP_MAX).await.context("tollgate serve")
    }

    /// Waits until so many processes share the queue shards, and no shard moves any more.
    ///
    /// # Errors
    /// Shards that do not come to rest.
    pub(crate) async fn divided(&self, processes: usize) -> anyhow::Result<()> {
        let (end, mut since, mut last) = (Instant::now() + START_MAX, Instant::now(), Vec::new());
        loop {
            let owners: Vec<String> =
                self.status().await?.shards.into_iter().map(|shard| shard.owner).collect();
            let distinct: BTreeSet<&String> = owners.iter().filter(|owner| !owner.is_empty()).collect();
            let complete =
                distinct.len() == processes.min(owners.len()) && owners.iter().all(|o| !o.is_empty());
            if owners != last || !complete {
                (last, since) = (owners, Instant::now());
            } else if since.elapsed() >= REST {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{processes} processes do not divide the queue shards");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs that are due and unfinished.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn launched_runs(&self) -> anyhow::Result<u64> {
        Ok(self.status().await?.launched_runs_count)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Nothing is sent from now on.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn pause_dispatch(&self) -> anyhow::Result<()> {
        let mut handler = EventHandlerServiceClient::new(self.channel.clone());
        handler.pause_dispatch(PauseDispatchRequest { reason: "load test".to_owned() }).await?;
        Ok(())
    }

    async fn owns_all(&self) -> anyhow::Result<bool> {
        let status = self.status().await?;
        let owned = status.shards.iter().filter(|shard| shard.owner == status.handler).count();
        Ok(owned > 0 && owned == status.shards.len())
    }

    async fn status(&self) -> anyhow::Result<HandlerStatus> {
        let mut handler =
            EventHandlerServiceClient::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        Ok(handler
            .get_handler_status(GetHandlerStatusRequest { parent: String::new(), busy_only: true })
            .await?
            .into_inner())
    }

    /// Waits until nothing is in flight, and no more events are due than wait for good.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn drained(&self, waiting: u64) -> anyhow::Result<bool> {
        let end = Instant::now() + DRAIN_MAX;
        loop {
            let status = self.status().await?;
            if status.held_count == 0 && status.waiting_count <= waiting {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Applies resources by streams. Returns how many were made or changed.
    ///
    /// # Errors
    /// The refusals.
    pub(crate) async fn apply(&self, resources: Vec<Resource>) -> anyhow::Result<u32> {
        let mut changed = 0;
        let mut requests = resources.into_iter().map(|resource| ApplyResourcesRequest {
            namespace: NAMESPACE.to_owned(),
            resource: Some(resource),
            ..ApplyResourcesRequest::default()
        });
        while requests.len() > 0 {
            changed += self.apply_some(requests.by_ref().take(APPLIED_MAX).collect()).await?;
        }
        Ok(changed)
    }

    async fn apply_some(&self, requests: Vec<ApplyResourcesRequest>) -> anyhow::Result<u32> {
        let answer = self.master().apply_resources(tokio_stream::iter(requests)).await?.into_inner();
        if let Some(error) = answer.errors.first() {
            bail!(
                "{} resources were refused: {}: {} {}",
                answer.failed_count,
                error.name,
                error.field,
                error.message
            );
        }
        Ok(answer.created_count + answer.updated_count)
    }

    /// For calls that overlap.
    pub(crate) fn master(&self) -> ScheduleMasterServiceClient<Channel> {
        ScheduleMasterServiceClient::new(self.channel.clone())
    }

    /// The latest scan windows.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn windows(&self) -> anyhow::Result<Vec<Window>> {
        let mut emitter = EventEmitterServiceClient::new(self.channel.clone());
        Ok(emitter.list_windows(ListWindowsRequest::default()).await?.into_inner().windows)
    }
}

/// The stub takes any keys; nothing of this machine's may be used.
fn aws() -> [(&'static str, &'static str); 6] {
    [
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ]
}

fn listening(process: &mut Process, log: &Path) -> anyhow::Result<String> {
    let end = Instant::now() + START_MAX;
    loop {
        let text = std::fs::read_to_string(log)?;
        if let Some((_, rest)) = text.split_once(LISTENING)
            && let Some((line, _)) = rest.split_once('\n')
        {
            return Ok(line.split_whitespace().next().unwrap_or_default().to_owned());
        }
        if let Some(status) = process.inner().try_wait().context("cannot wait for the service")? {
            bail!("tollgate serve ended with {status}:\n{text}");
        }
        ensure!(Instant::now() < end, "tollgate serve does not say where it listens:\n{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
