//! What this machine can do at most: the same client loop against the same sink, and no store.
//!
//! As many requests as the scenario says are under way at once, each followed by the next as soon as it is answered.
//! Events are as small as they can be: 300 bytes in all.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::sink::wall_us;

/// Length of an event's body.
const BODY_BYTES: usize = 300;
/// Events of one SendMessageBatch call.
const BATCH: u32 = 10;

/// Arguments of `yardstick`.
#[derive(Args, Clone, Debug)]
pub(crate) struct YardstickArgs {
    /// The consumer
    #[arg(long, value_name = "URL")]
    target: Uri,

    /// How many events
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    events: u32,

    /// Events under way at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u32,

    /// At this pace, instead of as fast as it goes
    #[arg(long, value_name = "N")]
    per_second: Option<u32>,

    /// Send batches as SQS takes them
    #[arg(long)]
    sqs: bool,

    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
}

/// What the yardstick says at its end, in one line of JSON on standard output.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Said {
    pub(crate) start_us: i64,
    pub(crate) failed: u32,
    pub(crate) cpu_s: f64,
}

type Http = Client<HttpConnector, Full<Bytes>>;

/// Sends all events.
///
/// # Errors
/// What keeps it from starting.
pub(crate) fn run(args: &YardstickArgs) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads).enable_all().build()?;
    let (start_us, failed) = runtime.block_on(send_all(args.clone()))?;
    let said = Said { start_us, failed, cpu_s: tollgate_harness::kernel::cpu_s(std::process::id()) };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&said)?)?;
    Ok(())
}

async fn send_all(args: YardstickArgs) -> anyhow::Result<(i64, u32)> {
    ensure!(
        !args.sqs || args.events.is_multiple_of(BATCH),
        "--events: a multiple of {BATCH} is needed with --sqs"
    );
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Http = Client::builder(TokioExecutor::new()).build(connector);
    let failed = Arc::new(AtomicU32::new(0));
    let start_us = wall_us();
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(per_second) = args.per_second {
        let mut due = ticks(args.events, per_second);
        while let Some((number, at_us)) = due.recv().await {
            let (client, failed, target) = (client.clone(), failed.clone(), args.target.clone());
            tasks.spawn(async move { send(&client, target, event(number, &time(at_us)), &failed).await });
        }
    } else {
        let (next, time) = (Arc::new(AtomicU32::new(0)), time(start_us));
        let step = if args.sqs { BATCH } else { 1 };
        for _ in 0..args.in_flight.div_ceil(step) {
            let (client, failed, args) = (client.clone(), failed.clone(), args.clone());
            let (next, time) = (next.clone(), time.clone());
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(step, Ordering::Relaxed);
                    if number >= args.events {
                        return;
                    }
                    let body = if args.sqs { batch(number, &time) } else { event(number, &time) };
                    send(&client, args.target.clone(), body, &failed).await;
                }
            });
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok((start_us, failed.load(Ordering::Relaxed)))
}

/// Numbers and times at an even pace, from a thread of its own: tokio's timer is too coarse.
fn ticks(events: u32, per_second: u32) -> mpsc::UnboundedReceiver<(u32, i64)> {
    let (out, due) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let first_us = wall_us() + 100_000;
        for number in 0..events {
            let at_us = first_us + i64::from(number) * 1_000_000 / i64::from(per_second);
            let wait_us = u64::try_from(at_us - wall_us()).unwrap_or_default();
            std::thread::sleep(Duration::from_micros(wait_us));
            if out.send((number, at_us)).is_err() {
                return;
            }
        }
    });
    due
}

async fn send(client: &Http, target: Uri, body: Bytes, failed: &AtomicU32) {
    let request = Request::post(target).header("content-type", "application/json").body(Full::new(body));
    let Ok(request) = request else { return };
    let good = match client.request(request).await {
        Ok(answer) => answer.status().is_success() && answer.into_body().collect().await.is_ok(),
        Err(_) => false,
    };
    if !good {
        failed.fetch_add(1, Ordering::Relaxed);
    }
}

fn time(us: i64) -> String {
    let time = DateTime::from_timestamp_micros(us).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// An event of the least size in which the sink finds what it looks for.
fn event(number: u32, time: &str) -> Bytes {
    let mut body = Vec::with_capacity(BODY_BYTES);
    body.extend_from_slice(br#"{"id":"yardstick-"#);
    body.extend_from_slice(number.to_string().as_bytes());
    body.extend_from_slice(br#"","time":""#);
    body.extend_from_slice(time.as_bytes());
    body.extend_from_slice(br#"","attempt":1,"pad":""#);
    body.resize(BODY_BYTES - 2, b'x');
    body.extend_from_slice(br#""}"#);
    Bytes::from(body)
}

fn batch(first: u32, time: &str) -> Bytes {
    let entries = (0..BATCH).map(|id| {
        let body = String::from_utf8_lossy(&event(first + id, time)).replace('"', "\\\"");
        format!(r#"{{"Id":"{id}","MessageBody":"{body}"}}"#)
    });
    let entries: Vec<String> = entries.collect();
    Bytes::from(format!(r#"{{"QueueUrl":"http://127.0.0.1/1/q","Entries":[{}]}}"#, entries.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::event::Seen;

    #[test]
    fn the_sink_finds_what_it_looks_for() {
        let body = event(7, &time(1_780_000_000_000_001));
        assert_eq!(body.len(), BODY_BYTES);
        let seen = Seen { id: "yardstick-7", launch_us: 1_780_000_000_000_001, attempt: 1 };
        assert_eq!(Seen::find(&body), Some(seen));
        assert!(serde_json::from_slice::<serde_json::Value>(&batch(0, &time(0))).is_ok());
    }
}
