//! Workers that are connected, and for whom there is nothing: what that costs the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tollgate_harness::kernel;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{ListWorkersRequest, WorkRequest, WorkerHello};
use tonic::transport::{Channel, Endpoint};

use super::meter::Reading;
use super::round::Stage;
use crate::load::Load;
use crate::report::Row;
use crate::service::NAMESPACE;

/// Streams of one connection; the service takes 1,024.
const EACH: u32 = 500;
/// How many streams are opened at once.
const AT_ONCE: usize = 200;
/// Until all that came with the streams has passed.
const SETTLED: Duration = Duration::from_secs(10);

impl Stage {
    /// Reads what the service uses before they come, and with them.
    pub(super) async fn watch_workers(&mut self, load: &Load<'_>) -> anyhow::Result<Row> {
        let (count, watched) = (load.variant.events, Duration::from_secs(load.variant.seconds.into()));
        self.database.settle().await?;
        let before = self.cores(watched).await?;
        let (broken, mut streams) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut channel = self.service.channel();
        for number in 0..count {
            if number % EACH == 0 {
                channel = Endpoint::from_shared(self.service.url().to_owned())?.connect_lazy();
            }
            let turn = turns.clone().acquire_owned().await?;
            let (channel, broken) = (channel.clone(), broken.clone());
            streams.spawn(async move {
                let ended = idle(channel, number, turn).await;
                broken.fetch_add(1, Ordering::Relaxed);
                ended
            });
        }
        tokio::time::sleep(SETTLED).await;
        kernel::reset_peak(self.service.pid())?;
        let reading = Reading::take(self).await?;
        let with = self.cores(watched).await?;
        let used = reading.used(self, 0).await?;
        let parent = format!("namespaces/{NAMESPACE}");
        let mut client = WorkerServiceClient::new(self.service.channel()).max_decoding_message_size(64 << 20);
        let listed = client.list_workers(ListWorkersRequest { parent }).await?.into_inner();
        let there = listed.workers.len() + usize::try_from(listed.more_count)?;
        ensure!(there == usize::try_from(count)?, "{there} of {count} workers are there");
        let broken = broken.load(Ordering::Relaxed);
        ensure!(broken == 0, "{broken} streams broke");
        let mut row = Row::new(&load.variant.name, load.round, None, used, Vec::new());
        row.idle_cpu = Some(with * 100.0);
        row.notes.push(format!("{:.2} % of a core before the workers came", before * 100.0));
        Ok(row)
    }

    /// How much of a core service and database use.
    async fn cores(&mut self, watched: Duration) -> anyhow::Result<f64> {
        let (reading, began) = (Reading::take(self).await?, Instant::now());
        tokio::time::sleep(watched).await;
        let (service_s, database_s) = reading.cpu_s(self).await?;
        Ok((service_s + database_s) / began.elapsed().as_secs_f64())
    }
}

/// One worker; it ends when its stream breaks. It has its turn until it is known.
async fn idle(
    channel: Channel,
    number: u32,
    turn: tokio::sync::OwnedSemaphorePermit,
) -> Result<(), tonic::Status> {
    let hello = WorkerHello {
        queue: format!("namespaces/{NAMESPACE}/queues/idle"),
        capacity: 1,
        labels: Vec::new(),
        worker: format!("idle-{number}"),
    };
    let (say, said) = mpsc::unbounded_channel();
    let _open = say.send(WorkRequest { message: Some(Say::Hello(hello)) });
    let mut told =
        WorkerServiceClient::new(channel).work(UnboundedReceiverStream::new(said)).await?.into_inner();
    drop(turn);
    while told.message().await?.is_some() {}
    Ok(())
}
