//! A FIFO queue whose calls are slow, and a shard that changes hands meanwhile: what had not left by then does not leave any
//! more, so that no attempt overtakes a later one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate_harness::resources::{ms, once, policy, soon, sqs};
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::target::Target as TargetKind;
use tollgate_proto::v1::{ReleaseMode, RunState, Target};

/// How long a call takes.
const CALL: Duration = Duration::from_millis(100);
const SCHEDULES: usize = 8;
const EVENTS: u32 = 200;
/// As long as it is by itself: a machine that stands for a few seconds takes no shard from anybody.
const LEASE: [&str; 2] = ["--lease-ttl", "6s"];

/// Attempts by event, in the order in which they came.
type Seen = Arc<Mutex<HashMap<String, Vec<u32>>>>;

/// Speaks as much of SQS as a sender needs, slowly.
async fn queue() -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let all = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = all.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| take(request, seen.clone()));
                let server = hyper::server::conn::http1::Builder::new();
                let _closed = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (endpoint, seen)
}

async fn take(request: Request<Incoming>, seen: Seen) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes()).unwrap();
    let mut taken = Vec::new();
    for entry in body["Entries"].as_array().unwrap() {
        let text = |name: &str| entry["MessageAttributes"][name]["StringValue"].as_str().unwrap().to_owned();
        let attempt = text("tollgate-attempt").parse().unwrap();
        seen.lock().unwrap().entry(text("tollgate-event-id")).or_default().push(attempt);
        taken.push(json!({"Id": entry["Id"], "MessageId": "m"}));
    }
    tokio::time::sleep(CALL).await;
    let body = json!({ "Successful": taken }).to_string();
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0".parse().unwrap());
    Ok(response)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_queue_gets_every_attempt_in_its_order_though_shards_change_hands() {
    let database = Database::new(Kind::Postgres).await;
    let first = Service::start_with(&database, &LEASE).await;
    let (endpoint, seen) = queue().await;
    let at = soon(10_000);
    for number in 0..SCHEDULES {
        let name = format!("s{number}");
        first.create_policy(&name, policy(EVENTS)).await.unwrap();
        let mut target = sqs("http://sqs/123456789012/slow.fifo", &endpoint);
        if let Some(TargetKind::Sqs(sqs)) = &mut target.target {
            sqs.deadline = Some(ms(4_000));
        }
        let target = Target { release: ReleaseMode::OnResponse.into(), ..target };
        first.create_schedule(&name, once(at, EVENTS, &name, target)).await.unwrap();
    }
    let arrived = || seen.lock().unwrap().len();
    wait_for("the first calls", 30, async || (arrived() >= 50).then_some(())).await;
    // It takes about half of the shards, whose deliveries are still queued in the first process.
    let second = Service::join(&database, &LEASE).await;
    for number in 0..SCHEDULES {
        let run = second.finished(&format!("s{number}"), 240).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    }
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), SCHEDULES * EVENTS as usize, "every event came");
    let overtaken: Vec<_> = seen.iter().filter(|(_, attempts)| !attempts.is_sorted()).collect();
    assert!(overtaken.is_empty(), "{} were overtaken: {:?}", overtaken.len(), overtaken.first());
    // The calls all succeed: only one that was under way when its process was given no more time has a reason to come again.
    let again = seen.values().filter(|attempts| attempts.len() > 1).count();
    assert!(again <= 100, "{again} came more than once, without a reason");
    first.stop().await;
    second.stop().await;
}
