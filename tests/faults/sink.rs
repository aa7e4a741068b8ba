//! The consumer: takes deliveries on a port of its own, and as workers, misbehaves on order, writes everything down, releases by
//! gRPC.
//!
//! It does its work once for each event, whatever comes again, as consumers of an at-least-once service should.

mod answer;
mod conduct;
mod release;
mod together;
mod worker;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tollgate_harness::{event, http, now_us};

use crate::journal::{Event, Journal, Met, Task};
use answer::{Body, Broken};
pub(crate) use conduct::{Conduct, SILENT, kind};
pub(crate) use release::Doors;
pub(crate) use worker::{POLLED, PULLED};

/// Schedules of the campaign give up waiting for an answer after this long.
pub(crate) const DEADLINE: Duration = Duration::from_millis(1_000);
/// What the sink does to be too late.
const TOO_LATE: Duration = Duration::from_millis(1_300);
/// The longest work on one event, in milliseconds.
const WORK_MAX_MS: u64 = 120;
/// Work on one that is kept without an answer ends between these: while the shard's next owner takes it.
const KEPT_MS: std::ops::Range<u64> = 3_000..7_000;

/// A connection that ends so soon after an answer may have been given up before it.
pub(crate) const HEARD_US: i64 = 250_000;
/// Healthy schedules whose consumer is known by name. It closes its connections, so that the name is looked up again.
pub(crate) const NAMED: &str = "healthy-named-";

/// A consumer. Clones share it.
#[derive(Clone)]
pub(crate) struct Sink {
    journal: Arc<Mutex<Journal>>,
    doors: Doors,
    seed: u64,
    orders: Arc<Mutex<Orders>>,
}

/// What the campaign wants of the consumer at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    /// Every delivery is met so.
    pub(crate) outage: Option<Conduct>,
    /// Deliveries of [`kind::HOLE`] are taken, and nothing is said.
    pub(crate) is_hole: bool,
    /// Each call to the queue of [`kind::SLOW_QUEUE`] takes so long.
    pub(crate) slow_call: Duration,
    /// Releases go to this process only.
    pub(crate) door: Option<usize>,
}

/// Where the consumer listens: limits of the service that hold for one address do not meet at another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// For everything that goes through the proxy.
    pub(crate) common: SocketAddr,
    /// For what must not be disturbed.
    pub(crate) healthy: SocketAddr,
    /// For what may say nothing.
    pub(crate) hole: SocketAddr,
}

/// A delivery that has been read.
struct Delivery {
    event: Event,
    attempt: u32,
    /// The answer releases.
    on_response: bool,
}

impl Sink {
    /// Listens on free ports.
    pub(crate) async fn start(seed: u64, doors: Doors) -> Result<(Self, Ports)> {
        let sink = Self { journal: Arc::default(), doors, seed, orders: Arc::default() };
        let ports =
            Ports { common: sink.listen().await?, healthy: sink.listen().await?, hole: sink.listen().await? };
        Ok((sink, ports))
    }

    async fn listen(&self) -> Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the sink")?;
        let address = listener.local_addr()?;
        let served = self.clone();
        tokio::spawn(http::accept(listener, move |stream| serve(served.clone(), stream)));
        Ok(address)
    }

    /// The journal.
    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the consumer does as it is told here.
    pub(crate) fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn conduct(&self, delivery: &Delivery) -> Conduct {
        let orders = *self.orders();
        let is = |kind: &str| delivery.event.schedule.starts_with(kind);
        if is(kind::HOLE) && orders.is_hole {
            return Conduct::Hang;
        }
        let outage = orders.outage.filter(|_| !is(kind::HEALTHY));
        outage.unwrap_or_else(|| Conduct::of(self.seed, &delivery.event, delivery.attempt))
    }

    fn work_time(&self, event: &Event) -> Duration {
        let drawn = conduct::draw(self.seed, &event.id, 0);
        Duration::from_millis(match &event.schedule {
            name if name.starts_with(kind::HANDED) => KEPT_MS.start + drawn % (KEPT_MS.end - KEPT_MS.start),
            name if kind::GOOD.iter().any(|kind| name.starts_with(kind)) => 0,
            _ => drawn % WORK_MAX_MS,
        })
    }

    /// Works on an event and releases it, in a task of its own.
    fn work_later(&self, number: u32, event: Event) {
        let sink = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(sink.work_time(&event)).await;
            sink.release(number, &event).await;
        });
    }

    /// Releases again what has been done, unless that is being done.
    fn release_again(&self, number: u32, event: Event) {
        let sink = self.clone();
        tokio::spawn(async move { sink.release(number, &event).await });
    }

    /// Writes down a delivery that is met so.
    fn arrived(&self, conduct: Conduct, event: &Event, attempt: u32) -> (u32, Task) {
        let mut journal = self.journal();
        if let Some(kind) = conduct.misbehaviour() {
            journal.misbehaves(kind);
        }
        // Work that has been done is taken, whatever the consumer had in mind.
        let met = if journal.is_done(&event.id) { Met::Taken } else { conduct.met() };
        journal.arrived(event, attempt, met, now_us())
    }

    /// Meets a delivery by HTTP.
    async fn meet(&self, delivery: Delivery) -> Result<Response<Body>, Broken> {
        let conduct = self.conduct(&delivery);
        let Delivery { event, attempt, on_response } = delivery;
        let (number, task) = self.arrived(conduct, &event, attempt);
        if task == Task::ReleaseAgain {
            return Ok(self.already_done(number, event, attempt, on_response));
        }
        match conduct {
            Conduct::Prompt | Conduct::Slow | Conduct::Huge if on_response => {
                tokio::time::sleep(self.work_time(&event)).await;
                let (mut journal, now_us) = (self.journal(), now_us());
                journal.finishes(number, now_us);
                journal.answers(number, attempt, now_us);
            }
            Conduct::Late | Conduct::Keep if !on_response => {
                if self.journal().begins_work(number) {
                    self.work_later(number, event);
                }
            }
            Conduct::Refuse(_) | Conduct::Redirect | Conduct::HugeRefusal => {
                self.journal().refuses(number, now_us());
            }
            _ => {
                if task == Task::Work {
                    self.work_later(number, event);
                }
                if conduct == Conduct::Slow {
                    tokio::time::sleep(DEADLINE / 3).await;
                }
                if matches!(conduct.met(), Met::Taken | Met::Abandoned) {
                    self.journal().answers(number, attempt, now_us());
                }
            }
        }
        if conduct == Conduct::Late {
            tokio::time::sleep(TOO_LATE).await;
            if on_response {
                // A sender that was frozen before its deadline hears it all the same.
                self.journal().finishes(number, now_us());
            }
        }
        answer::of(conduct).await
    }

    fn already_done(&self, number: u32, event: Event, attempt: u32, on_response: bool) -> Response<Body> {
        self.journal().answers(number, attempt, now_us());
        if !on_response {
            self.release_again(number, event);
        }
        answer::accepted()
    }
}

/// One connection, until it ends. Where that is soon after an answer, its sender may not have heard it.
async fn serve(sink: Sink, stream: TcpStream) {
    let latest: Arc<Mutex<Latest>> = Arc::default();
    http::serve(stream, |request| take(sink.clone(), latest.clone(), request)).await;
    let latest = std::mem::take(&mut *latest.lock().unwrap_or_else(PoisonError::into_inner));
    let now_us = now_us();
    if !latest.closes {
        for (id, attempt) in &latest.attempts {
            sink.journal().hung_up(id, *attempt, (latest.at_us, now_us));
        }
    }
}

/// What has been answered last on a connection.
#[derive(Default)]
struct Latest {
    attempts: Vec<(String, u32)>,
    at_us: i64,
    /// The connection ends with it, as the answer says.
    closes: bool,
}

async fn take(
    sink: Sink,
    latest: Arc<Mutex<Latest>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Broken> {
    let is_sqs = request.headers().contains_key("x-amz-target");
    let body = request.into_body().collect().await?.to_bytes();
    let answered = |attempts, closes| {
        let at_us = now_us();
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Latest { attempts, at_us, closes };
    };
    if is_sqs {
        let (answer, attempts) = sink.take_messages(&body).await?;
        answered(attempts, false);
        return Ok(answer);
    }
    if let Ok(Value::Array(events)) = serde_json::from_slice(&body) {
        let (answer, attempts) = sink.take_events(&events).await?;
        answered(attempts, false);
        return Ok(answer);
    }
    match read(&body) {
        Ok(delivery) => {
            let attempts = vec![(delivery.event.id.clone(), delivery.attempt)];
            let closes = delivery.event.schedule.starts_with(NAMED);
            let mut answer = sink.meet(delivery).await?;
            if closes {
                answer.headers_mut().insert("connection", hyper::header::HeaderValue::from_static("close"));
            }
            answered(attempts, closes);
            Ok(answer)
        }
        Err(problem) => {
            sink.journal().problems.push(problem);
            Ok(answer::bad_request())
        }
    }
}

/// The delivery in a body.
fn read(body: &[u8]) -> Result<Delivery, String> {
    let arrival = event::read(body)?;
    let run = arrival.run.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Delivery {
        attempt: arrival.attempt,
        on_response: !arrival.explicit_release,
        event: Event {
            id: arrival.event_id,
            policy: arrival.policy,
            key: arrival.key,
            schedule: arrival.schedule,
            run,
            launch_us: arrival.launch_us,
            index: arrival.index,
            count: arrival.count,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consumer that nothing reaches.
    pub(super) fn sink() -> Sink {
        Sink { journal: Arc::default(), doors: Doors(Vec::new()), seed: 1, orders: Arc::default() }
    }

    /// One of a run of four events.
    pub(super) fn event(index: u32) -> Event {
        Event {
            id: format!("07-run-{index}-seal"),
            policy: PULLED.to_owned(),
            key: String::new(),
            schedule: "s".to_owned(),
            run: "07-run".to_owned(),
            launch_us: 0,
            index,
            count: 4,
        }
    }
}
