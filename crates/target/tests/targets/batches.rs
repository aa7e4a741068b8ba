//! Several events in a request: CloudEvents, batched content mode.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_core::model::{Delivery, HttpBatch, HttpTarget, Payload, Sent};
use tollgate_target::{Leave, Targets};
use uuid::Uuid;

use crate::samples::*;
use crate::server::{Reply, Request, Server, answer};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

fn batched(url: String, max_events: u32, max_wait_ms: i64) -> HttpTarget {
    let batch = HttpBatch { max_events, max_bytes: 1 << 20, max_wait_ms };
    HttpTarget { batch: Some(batch), ..HttpTarget::plain(url, 2_000) }
}

/// Events 0 to `count` at once.
async fn all(targets: &Targets, target: &HttpTarget, count: u32) -> Vec<Sent> {
    futures::future::join_all((0..count).map(|index| targets.send(event(target.clone(), index)))).await
}

/// The events of a request.
fn events(request: &Request) -> Vec<Value> {
    serde_json::from_slice(&request.body).unwrap()
}

fn indexes(server: &Server) -> Vec<Vec<u64>> {
    let of =
        |request: &Request| events(request).iter().map(|event| event["index"].as_u64().unwrap()).collect();
    server.requests().iter().map(of).collect()
}

#[tokio::test]
async fn events_that_are_ready_together_share_a_request() {
    let (targets, server) = (targets(), Server::always(answer(200, "", "")).await);
    let target = HttpTarget { secret: Some(SECRET.to_owned()), ..batched(server.url(), 20, 0) };
    let sent = all(&targets, &target, 50).await;
    assert!(sent.iter().all(|sent| *sent == Sent::Accepted), "{sent:?}");
    let requests = server.requests();
    assert_eq!(requests.iter().map(|request| events(request).len()).collect::<Vec<_>>(), [20, 20, 10]);
    let all: BTreeSet<u64> = indexes(&server).into_iter().flatten().collect();
    assert_eq!(all, (0..50).collect());
    let ids: BTreeSet<&str> = requests.iter().map(|request| request.headers["webhook-id"].as_str()).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| id.starts_with("batch-")), "{ids:?}");
    for request in &requests {
        assert_eq!(request.headers["content-type"], "application/cloudevents-batch+json; charset=utf-8");
        assert!(request.headers["webhook-signature"].starts_with("v1,"));
        for event in events(request) {
            assert_eq!((&event["specversion"], &event["attempt"]), (&json!("1.0"), &json!(2)), "{event}");
        }
    }
}

#[tokio::test]
async fn an_answer_names_single_events() {
    let server = Server::new(|request| {
        // The server asks before there is one.
        if request.body.is_empty() {
            return Reply::Hang;
        }
        let ids: Vec<String> =
            events(request).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
        let named = json!({"events": [
            {"id": ids[0], "status": "REFUSED", "message": "busy", "retryAfterMs": 1500},
            {"id": ids[1], "status": "REFUSED"},
            {"id": ids[2], "status": "ACCEPTED"},
            {"id": ids[3], "status": "MAYBE"},
            {"id": "another", "status": "REFUSED"},
        ]});
        answer(207, "", &named.to_string())
    })
    .await;
    let mut sent = all(&targets(), &batched(server.url(), 10, 0), 6).await.into_iter();
    let alone =
        |message: &str, retry_after_ms| Sent::RefusedAlone { message: message.to_owned(), retry_after_ms };
    assert_eq!(sent.next().unwrap(), alone("busy", Some(1_500)));
    assert_eq!(sent.next().unwrap(), alone("refused in the answer to its batch", None));
    assert_eq!(sent.next().unwrap(), Sent::Accepted);
    assert!(doubt(sent.next().unwrap()).contains("MAYBE"));
    assert!(sent.all(|sent| sent == Sent::Accepted), "those that it does not name");
}

#[tokio::test]
async fn an_answer_that_names_none_counts_for_all() {
    let target = |server: &Server| batched(server.url(), 10, 0);
    let busy = Server::always(answer(503, "retry-after: 7\r\n", "busy")).await;
    for sent in all(&targets(), &target(&busy), 5).await {
        assert_eq!(refusal(sent), ("HTTP 503: busy".to_owned(), Some(7_000)));
    }
    let gone = Server::always(Reply::Reset).await;
    for sent in all(&targets(), &target(&gone), 5).await {
        assert!(doubt(sent).starts_with("no answer: "));
    }
    for text in ["thanks", "[1]", "{}", "{\"events\": []}", "{\"taken\": 5}"] {
        let polite = Server::always(answer(200, "", text)).await;
        assert!(
            all(&targets(), &target(&polite), 5).await.iter().all(|sent| *sent == Sent::Accepted),
            "{text}"
        );
    }
    // It meant to name some.
    for text in ["{\"events\": [{\"id\": \"a\", \"status\"", "{\"events\": 5}", "{\"events\": [{\"id\": 5}]}"]
    {
        let odd = Server::always(answer(200, "", text)).await;
        for sent in all(&targets(), &target(&odd), 5).await {
            assert!(doubt(sent).starts_with("the answer to the batch cannot be read: "), "{text}");
        }
    }
    assert_eq!((busy.requests().len(), gone.requests().len()), (1, 1));
}

#[tokio::test]
async fn a_request_has_no_more_bytes_than_its_target_takes() {
    let (targets, server) = (targets(), Server::always(answer(200, "", "")).await);
    let batch = HttpBatch { max_events: 100, max_bytes: 4_000, max_wait_ms: 0 };
    let target = HttpTarget { batch: Some(batch), ..batched(server.url(), 100, 0) };
    let large = |index: u32, bytes: usize| {
        let mut delivery = event(target.clone(), index);
        Arc::make_mut(&mut delivery.spec).payload = Payload::of(format!("\"{}\"", "x".repeat(bytes)));
        delivery
    };
    let sizes = [1_000, 1_000, 1_000, 9_000, 1_000, 1_000];
    let sent = sizes.iter().zip(0..).map(|(bytes, index)| targets.send(large(index, *bytes)));
    assert!(futures::future::join_all(sent).await.iter().all(|sent| *sent == Sent::Accepted));
    assert_eq!(indexes(&server), [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
}

#[tokio::test]
async fn the_first_waits_for_others_as_long_as_its_target_says() {
    let (targets, server) = (targets(), Server::always(answer(200, "", "")).await);
    let target = HttpTarget { deadline_ms: 10_000, ..batched(server.url(), 3, 1_500) };
    let later = async |index: u32, ms: u64| {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        targets.send(event(target.clone(), index)).await
    };
    let began = std::time::Instant::now();
    let sent = futures::future::join_all([later(0, 0), later(1, 50), later(2, 100), later(3, 150)]).await;
    assert!(sent.iter().all(|sent| *sent == Sent::Accepted), "{sent:?}");
    assert_eq!(indexes(&server), [vec![0, 1, 2], vec![3]]);
    let took = began.elapsed();
    assert!((Duration::from_millis(1_640)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn events_of_two_schedules_share_no_request() {
    let (targets, server) = (targets(), Server::always(answer(200, "", "")).await);
    let target = batched(server.url(), 100, 0);
    let of = |schedule: u128, generation: i64, index: u32| -> Delivery {
        let mut delivery = event(target.clone(), index);
        let spec = Arc::make_mut(&mut delivery.spec);
        (spec.schedule_uid, spec.generation) = (Uuid::from_u128(schedule), generation);
        delivery
    };
    let sent = (0..12).map(|index| targets.send(of(u128::from(index % 2), i64::from(index / 6), index)));
    assert!(futures::future::join_all(sent).await.iter().all(|sent| *sent == Sent::Accepted));
    let mut requests = indexes(&server);
    requests.sort();
    assert_eq!(requests, [vec![0, 2, 4], vec![1, 3, 5], vec![6, 8, 10], vec![7, 9, 11]]);
}

#[tokio::test]
async fn an_event_whose_leave_has_ended_is_left_out() {
    let (targets, server) = (targets(), Server::always(answer(200, "", "")).await);
    let target = HttpTarget { deadline_ms: 10_000, ..batched(server.url(), 100, 1_000) };
    let revoked = Leave::always();
    let (first, second) = (event(target.clone(), 0), event(target.clone(), 1));
    let (kept, left_out, ()) =
        tokio::join!(targets.send(first), targets.send_by_leave(second, revoked.clone()), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            revoked.revoke();
        });
    assert_eq!(kept, Sent::Accepted);
    assert!(not_sent(left_out).0.contains("released before its turn came"));
    assert_eq!(indexes(&server), [vec![0]]);
}
