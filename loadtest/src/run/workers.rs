//! Workers that are connected, or poll, and for whom there is nothing: what that costs the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
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
use crate::scenario::Kind;
use crate::service::NAMESPACE;

/// Streams of one connection; the service takes 1,024.
const EACH: u32 = 500;
/// How many streams are opened at once.
const AT_ONCE: usize = 200;
/// How long a poll waits: the packages' default.
const POLL: Duration = Duration::from_secs(50);
/// Until all that came with the workers has passed.
const SETTLED: Duration = Duration::from_secs(10);

type Polls = Client<HttpConnector, Full<Bytes>>;

impl Stage {
    /// Reads what the service uses before they come, and with them.
    pub(super) async fn watch_workers(&mut self, load: &Load<'_>) -> anyhow::Result<Row> {
        let (count, watched) = (load.variant.events, Duration::from_secs(load.variant.seconds.into()));
        self.database.settle().await?;
        let before = self.cores(watched).await?;
        let broken = Arc::new(AtomicUsize::new(0));
        // They go when this is dropped.
        let _workers = if load.variant.kind == Kind::Polls {
            self.pollers(count, &broken).await?
        } else {
            self.streams(count, &broken).await?
        };
        tokio::time::sleep(SETTLED).await;
        kernel::reset_peak(self.service.pid())?;
        let reading = Reading::take(self).await?;
        let with = self.cores(watched).await?;
        let used = reading.used(self, 0).await?;
        let parent = format!("namespaces/{NAMESPACE}");
        let mut client = WorkerServiceClient::new(self.service.channel()).max_decoding_message_size(64 << 20);
        let listed = client.list_workers(ListWorkersRequest { parent }).await?.into_inner();
        let there = listed.workers.len() + usize::try_from(listed.more_count)?;
        // One whose poll is over is not there before its next one has come.
        let away_max = if load.variant.kind == Kind::Polls { count / 100 } else { 0 };
        let (fewest, most) = (usize::try_from(count - away_max)?, usize::try_from(count)?);
        ensure!((fewest..=most).contains(&there), "{there} of {count} workers are there");
        let broken = broken.load(Ordering::Relaxed);
        ensure!(broken == 0, "{broken} of {count} workers broke off");
        let mut row = Row::new(&load.variant.name, load.round, None, used, Vec::new());
        row.idle_cpu = Some(with * 100.0);
        row.notes.push(format!("{:.2} % of a core before the workers came", before * 100.0));
        Ok(row)
    }

    async fn streams(&self, count: u32, broken: &Arc<AtomicUsize>) -> anyhow::Result<JoinSet<()>> {
        let (turns, mut streams) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        let mut channel = self.service.channel();
        for number in 0..count {
            if number % EACH == 0 {
                channel = Endpoint::from_shared(self.service.url().to_owned())?.connect_lazy();
            }
            let turn = turns.clone().acquire_owned().await?;
            let (channel, broken) = (channel.clone(), broken.clone());
            streams.spawn(async move {
                let _ended = idle(channel, number, turn).await;
                broken.fetch_add(1, Ordering::Relaxed);
            });
        }
        Ok(streams)
    }

    /// Each has a connection; they come evenly over the time of one poll.
    async fn pollers(&self, count: u32, broken: &Arc<AtomicUsize>) -> anyhow::Result<JoinSet<()>> {
        let client: Polls = Client::builder(TokioExecutor::new()).build_http();
        let uri = format!("{}/v1/namespaces/{NAMESPACE}/queues/idle:acquire", self.service.url());
        let (uri, mut pollers) = (Uri::try_from(uri)?, JoinSet::new());
        for number in 0..count {
            let (client, uri, broken) = (client.clone(), uri.clone(), broken.clone());
            pollers.spawn(async move {
                let _ended = poll(client, uri, number).await;
                broken.fetch_add(1, Ordering::Relaxed);
            });
            tokio::time::sleep(POLL / count).await;
        }
        Ok(pollers)
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

/// One worker that polls, as the packages do; it ends when an answer is another one than that there is nothing.
async fn poll(client: Polls, uri: Uri, number: u32) -> anyhow::Result<()> {
    let ask = format!(r#"{{"maxEvents":1,"wait":"{}s","worker":"idle-{number}"}}"#, POLL.as_secs());
    loop {
        let request = Request::post(uri.clone()).header(CONTENT_TYPE, "application/json");
        let answer = client.request(request.body(Full::from(ask.clone()))?).await?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        let body = answer.into_body().collect().await?.to_bytes();
        let events = serde_json::from_slice::<serde_json::Value>(&body)?.get("events").cloned();
        ensure!(events.is_none_or(|events| events == serde_json::json!([])), "there were events");
    }
}
