//! The consumer that everything is measured against: takes events, notes them, and does little else.
//!
//! Each lane has a port of its own. The control port answers `GET /count/LANE` (deliveries and how many of them are done),
//! `GET /dump` (see [`record`]), `POST /reset`, and `POST /finish` (ends the stream of releases).

pub(crate) mod event;
pub(crate) mod lane;
pub(crate) mod record;
mod release;
pub(crate) mod worker;

use std::io::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tollgate_harness::{http, sqs};
use tollgate_proto::v1::ReleaseTokenRequest;
use tonic::transport::Endpoint;

use event::Seen;
use lane::{Lane, Protocol, Release};
use record::{Record, Records};
use release::Releaser;

/// Arguments of `sink`.
#[derive(Args, Debug)]
pub(crate) struct SinkArgs {
    /// The lanes as JSON: `[{"protocol":"http","work_ms":0,"release":"on-response"}]`
    #[arg(long, value_name = "JSON")]
    lanes: String,

    /// Where tokens are released
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7411")]
    server: String,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
}

/// What the sink says of itself when it is ready, in one line of JSON on standard output.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Ready {
    pub(crate) control: u16,
    pub(crate) lanes: Vec<u16>,
}

/// Microseconds since the epoch, of a clock that does not step while the process lives.
pub(crate) fn wall_us() -> i64 {
    static START: LazyLock<(Instant, Duration)> =
        LazyLock::new(|| (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()));
    let (instant, wall) = *START;
    i64::try_from((wall + instant.elapsed()).as_micros()).unwrap_or(i64::MAX)
}

/// Takes events until it is killed.
///
/// # Errors
/// What keeps it from starting.
pub(crate) fn run(args: &SinkArgs) -> anyhow::Result<()> {
    let lanes: Vec<Lane> = serde_json::from_str(&args.lanes).context("--lanes")?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads).enable_all().build()?;
    runtime.block_on(serve(lanes, &args.server))
}

async fn serve(lanes: Vec<Lane>, server: &str) -> anyhow::Result<()> {
    let channel = Endpoint::from_shared(server.to_owned()).context("--server")?.connect_lazy();
    let records = Arc::new(Records::default());
    let releaser = Releaser::new(channel.clone(), records.clone());
    let mut ready = Ready { control: 0, lanes: Vec::new() };
    for (number, lane) in lanes.into_iter().enumerate() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        ready.lanes.push(listener.local_addr()?.port());
        let is_http2 = lane.protocol == Protocol::Http2;
        let consumer = Consumer {
            number: u16::try_from(number)?,
            lane,
            records: records.clone(),
            releaser: releaser.clone(),
        };
        if consumer.lane.protocol == Protocol::Pull {
            let queue = worker::queue(listener.local_addr()?.port());
            worker::start(channel.clone(), &queue, &Arc::new(consumer));
            continue;
        }
        tokio::spawn(accept(listener, is_http2, Arc::new(consumer), Consumer::take));
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    ready.control = listener.local_addr()?.port();
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&ready)?)?;
    accept(listener, false, Arc::new(Control { records, releaser }), Control::take).await;
    Ok(())
}

/// Serves a port for ever.
async fn accept<S, F>(
    listener: TcpListener,
    is_http2: bool,
    state: Arc<S>,
    take: fn(Arc<S>, Request<Incoming>) -> F,
) where
    S: Send + Sync + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, hyper::Error>> + Send + 'static,
{
    http::accept(listener, move |stream| {
        let state = state.clone();
        let take = move |request| take(state.clone(), request);
        async move {
            if is_http2 { http::serve_http2(stream, take).await } else { http::serve(stream, take).await }
        }
    })
    .await;
}

/// One lane.
struct Consumer {
    number: u16,
    lane: Lane,
    records: Arc<Records>,
    releaser: Releaser,
}

impl Consumer {
    async fn take(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let arrival_us = wall_us();
        let group = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
        let body = request.into_body().collect().await?.to_bytes();
        let answered = match self.lane.protocol {
            Protocol::Http | Protocol::Http2 => match Seen::find(&body) {
                Some(seen) => {
                    self.work(&[seen], group, arrival_us).await;
                    let explicit = self.lane.release != Release::OnResponse;
                    Some((if explicit { StatusCode::ACCEPTED } else { StatusCode::OK }, Bytes::new()))
                }
                None => None,
            },
            Protocol::HttpBatch => {
                self.work(&Seen::find_all(&body), group, arrival_us).await;
                let explicit = self.lane.release != Release::OnResponse;
                Some((if explicit { StatusCode::ACCEPTED } else { StatusCode::OK }, Bytes::new()))
            }
            Protocol::Pull => None,
            Protocol::Sqs => match sqs::Batch::read(&body) {
                Some(batch) => {
                    let bodies = batch.entries.iter().map(|entry| entry.body.as_bytes());
                    let seen: Vec<Seen<'_>> = bodies.filter_map(Seen::find).collect();
                    self.work(&seen, group, arrival_us).await;
                    Some((StatusCode::OK, sqs::answer(&batch.entries, [])))
                }
                None => None,
            },
        };
        let (status, body) = answered.unwrap_or((StatusCode::BAD_REQUEST, Bytes::from_static(b"no event")));
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        Ok(response)
    }

    /// Notes events that came together, works on them, and lets go of them.
    async fn work(&self, events: &[Seen<'_>], group: u32, arrival_us: i64) {
        let Lane { work_ms, release, .. } = self.lane;
        let done_at_once = work_ms == 0 && release == Release::OnResponse;
        let mut numbers = Vec::new();
        for seen in events {
            let number = self.records.push(Record {
                id: seen.hash(),
                launch_us: seen.launch_us,
                arrival_us,
                done_us: if done_at_once { wall_us() } else { 0 },
                group,
                lane: self.number,
                attempt: seen.attempt,
            });
            if !done_at_once {
                numbers.push(number);
            }
        }
        if done_at_once {
            return;
        }
        if release == Release::OnResponse {
            tokio::time::sleep(Duration::from_millis(work_ms)).await;
            let now_us = wall_us();
            numbers.into_iter().for_each(|number| self.records.done(number, now_us));
            return;
        }
        for (number, seen) in numbers.into_iter().zip(events) {
            let request = ReleaseTokenRequest {
                name: seen.id.to_owned(),
                attempt: Some(u32::from(seen.attempt)),
                ..ReleaseTokenRequest::default()
            };
            self.release(number, request);
        }
    }

    fn release(&self, number: usize, request: ReleaseTokenRequest) {
        let Lane { work_ms, release, .. } = self.lane;
        if work_ms == 0 && release == Release::Stream {
            return self.releaser.stream(number, request);
        }
        let releaser = self.releaser.clone();
        tokio::spawn(async move {
            if work_ms > 0 {
                tokio::time::sleep(Duration::from_millis(work_ms)).await;
            }
            match release {
                Release::Stream => releaser.stream(number, request),
                Release::Unary | Release::OnResponse => releaser.unary(number, request).await,
            }
        });
    }
}

/// The control port.
struct Control {
    records: Arc<Records>,
    releaser: Releaser,
}

impl Control {
    async fn take(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let body = match (request.method(), request.uri().path()) {
            (&Method::GET, "/dump") => {
                return Ok(Response::new(Full::new(Bytes::from(self.records.dump()))));
            }
            (&Method::GET, path) => {
                let lane = path.strip_prefix("/count/").and_then(|lane| lane.parse().ok());
                let (came, done) = lane.map_or((0, 0), |lane| self.records.counts(lane));
                format!("[{came},{done}]")
            }
            (_, "/reset") => {
                self.records.reset();
                String::new()
            }
            (_, "/finish") => match self.releaser.finish().await {
                Ok((released, refused)) => format!("[{released},{refused}]"),
                Err(error) => {
                    let mut broken = Response::new(Full::new(Bytes::from(error)));
                    *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    return Ok(broken);
                }
            },
            _ => String::new(),
        };
        Ok(Response::new(Full::new(Bytes::from(body))))
    }
}
