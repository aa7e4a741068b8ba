//! Nothing leaves after its deadline, nor without its leave, wherever it has waited.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tollgate_core::model::Sent;
use tollgate_target::{Leave, Lookup};

use crate::samples::{delivery, event, http, not_sent, sqs, targets, with};
use crate::server::{Reply, Request, Server, answer};
use crate::sqs_environment::has_keys;

const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo";

/// Takes all messages of a batch.
fn takes_all(request: &Request) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    let taken: Vec<Value> = entries.iter().map(|e| json!({"Id": e["Id"], "MessageId": "m"})).collect();
    answer(200, "", &json!({ "Successful": taken }).to_string())
}

/// The indexes that a server has got, in their order.
fn indexes(server: &Server) -> Vec<u64> {
    let mut all = Vec::new();
    for request in server.requests() {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        for entry in body["Entries"].as_array().unwrap() {
            let index = entry["MessageAttributes"]["tollgate-index"]["StringValue"].as_str().unwrap();
            all.push(index.parse().unwrap());
        }
    }
    all
}

/// Calls of 100 ms each, one at a time: far more is waiting than its deadline lets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_too_long_in_a_queue_is_not_sent() {
    if !has_keys() {
        return;
    }
    let server = Server::new(|request| {
        if !request.line.is_empty() {
            // Another thread of the runtime goes on.
            std::thread::sleep(Duration::from_millis(100));
        }
        takes_all(request)
    })
    .await;
    let mut target = sqs(QUEUE, server.origin());
    target.deadline_ms = 2_000;
    let (targets, began) = (targets(), Instant::now());
    let all = join_all((0..1_000).map(|index| targets.send(event(target.clone(), index)))).await;
    // All of them would take ten seconds. On a busy machine the word comes a moment late.
    assert!(began.elapsed() < Duration::from_secs(6), "whoever waits knows it in time");
    // Nothing comes later, either.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let accepted: Vec<u64> =
        (0..).zip(&all).filter(|(_, sent)| **sent == Sent::Accepted).map(|(index, _)| index).collect();
    assert_eq!(indexes(&server), accepted, "in their order, and no other");
    assert!((10..300).contains(&accepted.len()), "{}", accepted.len());
    for sent in all.into_iter().filter(|sent| *sent != Sent::Accepted) {
        let why = not_sent(sent).0;
        assert!(why.contains("deadline"), "{why}");
    }
}

#[tokio::test]
async fn a_call_without_leave_is_not_made_though_it_is_connected() {
    if !has_keys() {
        return;
    }
    let (server, targets) = (Server::new(takes_all).await, targets());
    let target = sqs(QUEUE, server.origin());
    let sent = targets.send_by_leave(delivery(target.clone()), Leave::now(|| false)).await;
    assert!(not_sent(sent).0.contains("may have lost the queue shard"));
    assert_eq!((server.connections(), server.requests().len()), (1, 0));
    assert_eq!(targets.send(delivery(target)).await, Sent::Accepted);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_request_without_leave_is_not_written_though_it_is_connected() {
    let (server, targets) = (Server::always(answer(200, "", "")).await, targets());
    let sent = targets.send_by_leave(delivery(http(server.url())), Leave::now(|| false)).await;
    assert!(not_sent(sent).0.contains("may have lost the queue shard"));
    let revoked = Leave::always();
    revoked.revoke();
    let sent = targets.send_by_leave(delivery(http(server.url())), revoked).await;
    assert!(not_sent(sent).0.contains("released before its turn"));
    assert_eq!(server.requests().len(), 0);
    assert_eq!(targets.send(delivery(http(server.url()))).await, Sent::Accepted);
    assert_eq!((server.connections(), server.requests().len()), (1, 1), "the connection was kept");
}

#[tokio::test]
async fn leave_that_ends_during_a_lookup_is_not_used() {
    let server = Server::always(answer(200, "", "")).await;
    let trusted = Arc::new(AtomicBool::new(true));
    let ends = trusted.clone();
    let targets = with(|options| {
        options.lookup = Lookup::by(move |_| {
            ends.store(false, Ordering::SeqCst);
            Ok(vec!["127.0.0.1".parse().unwrap()])
        });
    });
    let leave = Leave::now(move || trusted.load(Ordering::SeqCst));
    let target = http(format!("http://slow.example:{}/", server.port));
    assert!(not_sent(targets.send_by_leave(delivery(target), leave).await).0.contains("may have lost"));
    assert_eq!(server.requests().len(), 0);
}
