//! The service under load: [`tollgate_harness::Service`], and the calls that a load test makes.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tollgate_harness::{FREE_PORT, Serve};
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::{ApplyResourcesRequest, ListWindowsRequest, PauseDispatchRequest, Window};

/// The namespace of all load.
pub(crate) const NAMESPACE: &str = "default";
/// Resources that the service takes in one call.
const APPLIED_MAX: usize = 100_000;
const DIVIDED_MAX: Duration = Duration::from_secs(60);
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A planned stop takes 10 s of grace at most.
const STOP_MAX: Duration = Duration::from_secs(30);
/// When the queue shards of several processes have stayed where they are for so long, they are divided.
const REST: Duration = Duration::from_secs(3);

/// A running service; killed when dropped.
pub(crate) struct Service {
    service: tollgate_harness::Service,
    /// As it was started.
    program: PathBuf,
    store: String,
}

impl Deref for Service {
    type Target = tollgate_harness::Service;

    fn deref(&self) -> &Self::Target {
        &self.service
    }
}

impl Service {
    /// Starts all roles, and waits until every shard has an owner.
    ///
    /// # Errors
    /// A service that does not come up.
    pub(crate) async fn start(program: &Path, store: &str, flags: &[String]) -> anyhow::Result<Self> {
        let service = Self::launch(program, store, flags).await?;
        service.owns_all().await?;
        Ok(service)
    }

    /// Starts one more process of the same store, which owns nothing yet.
    ///
    /// # Errors
    /// A service that does not come up.
    pub(crate) async fn launch(program: &Path, store: &str, flags: &[String]) -> anyhow::Result<Self> {
        let serve = Serve::new(Command::new(program), store, FREE_PORT).flags(flags);
        let serve = serve.variables([("AWS_REGION", "eu-central-1")]);
        let service = tollgate_harness::Service::launch(serve).await?;
        Ok(Self { service, program: program.to_owned(), store: store.to_owned() })
    }

    /// Has so many queue shards used, as an operator does.
    ///
    /// # Errors
    /// A command that fails.
    pub(crate) fn use_shards(&self, to: u16) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["store", "shards", "--to", &to.to_string(), "--store", &self.store]);
        let done = command.output()?;
        ensure!(done.status.success(), "store shards --to {to}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    /// Ends as planned.
    ///
    /// # Errors
    /// A service that does not.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.service.end(STOP_MAX).await
    }

    /// Waits until so many processes share the queue shards, and no shard moves any more.
    ///
    /// # Errors
    /// Shards that do not come to rest.
    pub(crate) async fn divided(&self, processes: usize) -> anyhow::Result<()> {
        let (end, mut since, mut last) = (Instant::now() + DIVIDED_MAX, Instant::now(), Vec::new());
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

    /// Nothing is sent from now on.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn pause_dispatch(&self) -> anyhow::Result<()> {
        self.handler().pause_dispatch(PauseDispatchRequest { reason: "load test".to_owned() }).await?;
        Ok(())
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

    /// The latest scan windows.
    ///
    /// # Errors
    /// A service that does not answer.
    pub(crate) async fn windows(&self) -> anyhow::Result<Vec<Window>> {
        Ok(self.emitter().list_windows(ListWindowsRequest::default()).await?.into_inner().windows)
    }
}
