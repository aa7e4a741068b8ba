//! The demo's consumer: takes events on a real port, works for a random while, releases by gRPC, and measures.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate_clock::Clock;
use tollgate_proto::v1;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tonic::transport::Channel;

/// What the consumer has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Deliveries, with repeated ones.
    pub(super) deliveries: u64,
    /// Distinct events.
    pub(super) events: u64,
    /// Deliveries of an event that had come before.
    pub(super) duplicates: u64,
    /// Events that it works on.
    pub(super) in_flight: u32,
    /// The most at once.
    pub(super) in_flight_max: u32,
    /// Releases that were answered RELEASED.
    pub(super) released: u64,
    /// Releases that were not.
    pub(super) release_problems: Vec<String>,
    /// Events that came before their launch time.
    pub(super) early: u64,
    /// Arrival less launch time, in microseconds, in the order of arrival.
    pub(super) lateness_us: Vec<i64>,
}

#[derive(Default)]
struct Notebook {
    measured: Measured,
    /// How often each event has come.
    seen: HashMap<String, u32>,
}

/// A consumer that runs until it is dropped.
pub(super) struct Consumer {
    /// Where it takes events.
    pub(super) address: SocketAddr,
    notebook: Arc<Mutex<Notebook>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(serde::Deserialize)]
struct Event {
    id: String,
    /// The launch time, RFC 3339.
    time: String,
    attempt: u32,
}

impl Consumer {
    /// Takes events on a free port of this machine.
    pub(super) async fn start(channel: Channel, work_mean_ms: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let notebook = Arc::new(Mutex::new(Notebook::default()));
        let task = tokio::spawn(accept(listener, notebook.clone(), channel, work_mean_ms));
        Ok(Self { address, notebook, task })
    }

    /// What it has seen so far.
    pub(super) fn measured(&self) -> Measured {
        self.notebook.lock().unwrap_or_else(PoisonError::into_inner).measured.clone()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, notebook: Arc<Mutex<Notebook>>, channel: Channel, work_mean_ms: u64) {
    while let Ok((stream, _)) = listener.accept().await {
        let (notebook, channel) = (notebook.clone(), channel.clone());
        tokio::spawn(async move {
            let service =
                service_fn(move |request| take(request, notebook.clone(), channel.clone(), work_mean_ms));
            // A connection that breaks is the sender's business: it sends again.
            let _closed = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Takes one event: answers at once, works, releases.
async fn take(
    request: Request<Incoming>,
    notebook: Arc<Mutex<Notebook>>,
    channel: Channel,
    work_mean_ms: u64,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let arrived_us = Clock::system().wall_us();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let event: Option<Event> = body.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(event) = event else { return Ok(answer(StatusCode::BAD_REQUEST)) };
    let Ok(launch) = chrono::DateTime::parse_from_rfc3339(&event.time) else {
        return Ok(answer(StatusCode::BAD_REQUEST));
    };
    let lateness_us = arrived_us - launch.timestamp_micros();
    let first = notebook.lock().unwrap_or_else(PoisonError::into_inner).arrived(&event, lateness_us);
    if first {
        tokio::spawn(work(event, notebook, channel, work_mean_ms));
    }
    Ok(answer(StatusCode::ACCEPTED))
}

async fn work(event: Event, notebook: Arc<Mutex<Notebook>>, channel: Channel, work_mean_ms: u64) {
    let work_ms = rand::random_range(work_mean_ms / 2..=work_mean_ms * 3 / 2);
    tokio::time::sleep(Duration::from_millis(work_ms)).await;
    // The work is done: from here on the event is no longer in flight for its consumer.
    notebook.lock().unwrap_or_else(PoisonError::into_inner).measured.in_flight -= 1;
    let request = v1::ReleaseTokenRequest {
        name: event.id.clone(),
        attempt: Some(event.attempt),
        ..v1::ReleaseTokenRequest::default()
    };
    let released = EventHandlerServiceClient::new(channel).release_token(request).await;
    let mut notebook = notebook.lock().unwrap_or_else(PoisonError::into_inner);
    match released.map(|answer| answer.into_inner().status()) {
        Ok(v1::ReleaseStatus::Released) => notebook.measured.released += 1,
        Ok(status) => {
            notebook.measured.release_problems.push(format!("{}: {}", event.id, status.as_str_name()))
        }
        Err(status) => notebook.measured.release_problems.push(format!("{}: {}", event.id, status.message())),
    }
}

impl Notebook {
    /// Whether this is the event's first delivery.
    fn arrived(&mut self, event: &Event, lateness_us: i64) -> bool {
        let times = self.seen.entry(event.id.clone()).or_default();
        *times += 1;
        let measured = &mut self.measured;
        measured.deliveries += 1;
        if *times > 1 {
            measured.duplicates += 1;
            return false;
        }
        measured.events += 1;
        measured.early += u64::from(lateness_us < 0);
        measured.lateness_us.push(lateness_us);
        measured.in_flight += 1;
        measured.in_flight_max = measured.in_flight_max.max(measured.in_flight);
        true
    }
}

fn answer(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}
