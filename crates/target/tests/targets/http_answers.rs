//! What complete answers mean.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate_core::model::Sent;

use crate::samples::{delivery, doubt, event, http, not_sent, refusal, targets, with};
use crate::server::{Reply, Server, answer, closed_port};

#[tokio::test]
async fn statuses_are_accepted_refused_or_unclear() {
    for status in [200, 201, 202, 204, 299] {
        let server = Server::always(answer(status, "", if status == 204 { "" } else { "fine" })).await;
        assert_eq!(targets().send(delivery(http(server.url()))).await, Sent::Accepted, "{status}");
    }
    for status in [400, 401, 404, 409, 410, 413, 429, 500, 501, 503] {
        let server = Server::always(answer(status, "", "no\tthanks")).await;
        let refused = refusal(targets().send(delivery(http(server.url()))).await);
        assert_eq!(refused, (format!("HTTP {status}: no thanks"), None));
    }
    for status in [408, 502, 504, 524] {
        let server = Server::always(answer(status, "retry-after: 3\r\n", "gateway")).await;
        let sent = targets().send(delivery(http(server.url()))).await;
        let message = format!("HTTP {status}: gateway");
        assert_eq!(sent, Sent::Unclear { message, retry_after_ms: Some(3_000) });
    }
}

#[tokio::test]
async fn messages_hold_200_characters_of_the_body() {
    let server = Server::always(answer(500, "", &"long ".repeat(1000))).await;
    let (message, _) = refusal(targets().send(delivery(http(server.url()))).await);
    assert_eq!(message.chars().count(), "HTTP 500: ".len() + 200);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = Server::always(answer(200, "", "")).await;
        let location = format!("location: {}\r\n", elsewhere.url());
        let server = Server::always(answer(status, &location, "")).await;
        let (message, _) = refusal(targets().send(delivery(http(server.url()))).await);
        assert!(
            message.contains("redirects are not followed") && message.contains(&elsewhere.url()),
            "{message}"
        );
        assert_eq!(elsewhere.connections(), 0);
    }
}

#[tokio::test]
async fn a_host_that_asks_for_a_pause_gets_it() {
    for status in [429, 503] {
        let server = Server::always(answer(status, "retry-after: 30\r\n", "busy")).await;
        let other = Server::always(answer(200, "", "")).await;
        let targets = targets();
        let refused = refusal(targets.send(delivery(http(server.url()))).await);
        assert_eq!(refused, (format!("HTTP {status}: busy"), Some(30_000)));
        // Another path, and another spelling of the same port, are the same host.
        let (message, wish_ms) =
            not_sent(targets.clone().send(delivery(http(format!("{}/x", server.origin())))).await);
        assert!(message.contains("asked for a pause"), "{message}");
        assert!((1..=30_000).contains(&wish_ms.unwrap()), "{wish_ms:?}");
        assert_eq!(server.requests().len(), 1);
        assert_eq!(
            targets.send(delivery(http(other.url()))).await,
            Sent::Accepted,
            "another port is another host"
        );
        let mut neighbour = delivery(http(server.url()));
        std::sync::Arc::make_mut(&mut neighbour.spec).namespace = "neighbour".into();
        assert_eq!(
            refusal(targets.send(neighbour).await).0,
            format!("HTTP {status}: busy"),
            "it has not asked for one"
        );
    }
}

#[tokio::test]
async fn a_pause_ends() {
    let server = Server::new(|request| {
        if request.line.contains("busy") {
            answer(429, "retry-after: 1\r\n", "")
        } else {
            answer(200, "", "")
        }
    })
    .await;
    let targets = targets();
    let start = Instant::now();
    refusal(targets.send(delivery(http(format!("{}/busy", server.origin())))).await);
    loop {
        match targets.send(delivery(http(server.url()))).await {
            Sent::Accepted => break,
            refused => {
                let (_, wish_ms) = not_sent(refused);
                tokio::time::sleep(Duration::from_millis(wish_ms.unwrap().unsigned_abs())).await;
            }
        }
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn without_a_wish_there_is_no_pause() {
    let server = Server::always(answer(429, "", "")).await;
    let targets = targets();
    for _ in 0..2 {
        assert_eq!(refusal(targets.send(delivery(http(server.url()))).await), ("HTTP 429".into(), None));
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_long_answer_is_cut_and_its_connection_dropped() {
    let server =
        Server::always(Reply::Flood("HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n")).await;
    let targets = with(|options| options.answer_max_bytes = 1_000);
    for connections in [1, 2] {
        assert_eq!(targets.send(delivery(http(server.url()))).await, Sent::Accepted);
        assert_eq!(server.connections(), connections);
    }
    let server = Server::always(Reply::Flood("HTTP/1.1 500 No\r\n\r\n")).await;
    let (message, _) = refusal(targets.send(delivery(http(server.url()))).await);
    assert_eq!(message, format!("HTTP 500: {}", "x".repeat(200)));
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::always(answer(200, "", "ok")).await;
    let targets = targets();
    for index in 0..3 {
        assert_eq!(targets.send(event(http(server.url()), index)).await, Sent::Accepted);
    }
    assert_eq!(server.requests().iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0, 0]);
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_costs_nothing() {
    let server = Server::always(Reply::WriteAndClose(crate::server::text(200, "", "ok"))).await;
    let targets = targets();
    for index in 0..3 {
        assert_eq!(targets.send(event(http(server.url()), index)).await, Sent::Accepted);
        // The close has to arrive; a request that meets it half way is rightly unclear.
        while server.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn connections_that_nobody_uses_are_closed_after_a_while() {
    let server = Server::new(|_| answer(200, "", "taken")).await;
    let targets = with(|options| options.idle_connections_per_host_max = 3);
    let deliveries = (0..5).map(|_| targets.send(delivery(http(server.url()))));
    assert!(join_all(deliveries).await.iter().all(|sent| *sent == Sent::Accepted));
    let until = async |open: usize| {
        while server.open() != open {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // This many are kept, and after some seconds none.
    tokio::time::timeout(Duration::from_millis(3_500), until(3)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), until(0)).await.unwrap();
    assert_eq!(targets.send(delivery(http(server.url()))).await, Sent::Accepted);
}

#[tokio::test]
async fn many_at_once_are_all_delivered_once() {
    let server = Server::always(answer(200, "", "ok")).await;
    let targets = targets();
    let all = join_all((0..100).map(|index| targets.send(event(http(server.url()), index)))).await;
    assert!(all.iter().all(|sent| *sent == Sent::Accepted), "{all:?}");
    let mut ids: Vec<_> =
        server.requests().iter().map(|request| request.headers["webhook-id"].clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), server.requests().len()), (100, 100));
}

#[tokio::test]
async fn a_bad_host_does_not_delay_another() {
    let (bad, good) = (Server::always(Reply::Hang).await, Server::always(answer(200, "", "")).await);
    let targets = targets();
    let mut slow = http(bad.url());
    slow.deadline_ms = 5_000;
    let start = Instant::now();
    let hanging = join_all((0..50).map(|index| targets.send(event(slow.clone(), index))));
    let quick = async {
        let sent = targets.send(delivery(http(good.url()))).await;
        assert_eq!(sent, Sent::Accepted);
        start.elapsed()
    };
    let (hung, quick) = futures::join!(hanging, quick);
    assert!(quick < Duration::from_millis(4_500), "{quick:?}");
    hung.into_iter().for_each(|sent| drop(doubt(sent)));
    refusal(targets.send(delivery(http(format!("http://127.0.0.1:{}/", closed_port().await)))).await);
}
