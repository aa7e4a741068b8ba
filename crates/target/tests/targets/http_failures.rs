//! What it means that there is no complete answer: refused as long as nothing can have been written, unclear after.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::model::Sent;

use tollgate_target::Lookup;

use crate::samples::{delivery, doubt, http, not_sent, refusal, targets, with};
use crate::server::{FullPort, Reply, Server, answer, closed_port};

#[tokio::test]
async fn a_closed_port_is_a_refusal() {
    let url = format!("http://127.0.0.1:{}/", closed_port().await);
    let (message, wish_ms) = refusal(targets().send(delivery(http(url))).await);
    assert!(message.starts_with("not sent: ") && message.contains("refused"), "{message}");
    assert_eq!(wish_ms, None);
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_refusal() {
    let says = |words: &'static str| {
        with(move |options| options.lookup = Lookup::by(move |_| Err(std::io::Error::other(words))))
    };
    let targets = says("failed to lookup address information: Name or service not known");
    let (message, _) = refusal(targets.send(delivery(http("http://no-such-host.invalid/"))).await);
    assert!(message.starts_with("not sent: ") && message.contains("no-such-host.invalid"), "{message}");
    // A name server that is away says nothing about the name.
    let targets = says("failed to lookup address information: Temporary failure in name resolution");
    let (message, _) = not_sent(targets.send(delivery(http("http://no-such-host.invalid/"))).await);
    assert!(message.contains("Temporary failure"), "{message}");
}

#[tokio::test]
async fn no_connection_in_time_is_a_refusal() {
    let full = FullPort::new().await;
    let url = format!("http://127.0.0.1:{}/", full.port);
    let targets = with(|options| options.connect_timeout_ms = 300);
    let (message, _) = refusal(targets.send(delivery(http(&url))).await);
    assert!(message.starts_with("not sent: "), "{message}");
    let mut short = http(url);
    short.deadline_ms = 150;
    let (message, _) = refusal(targets.send(delivery(short)).await);
    assert_eq!(message, "not sent: no connection within 150 ms");
}

#[tokio::test]
async fn no_tls_is_a_refusal() {
    let plain =
        Server::always(Reply::WriteAndClose(b"this is not TLS, and never was\r\n\r\n".to_vec())).await;
    let url = format!("https://127.0.0.1:{}/", plain.port);
    let closing = Server::always(Reply::CloseUnread).await;
    let (message, _) =
        refusal(targets().send(delivery(http(format!("https://127.0.0.1:{}/", closing.port)))).await);
    assert!(message.starts_with("not sent: "), "{message}");
    // The server waits for the end of a request head that never comes.
    let mut short = http(url);
    short.deadline_ms = 150;
    let (message, _) = refusal(targets().send(delivery(short)).await);
    assert_eq!(message, "not sent: no connection within 150 ms");
    assert_eq!(plain.requests().len(), 0);
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_is_unclear() {
    for reply in [Reply::Reset, Reply::CloseUnread, Reply::WriteAndClose(Vec::new())] {
        let server = Server::always(reply).await;
        let message = doubt(targets().send(delivery(http(server.url()))).await);
        assert!(message.starts_with("no answer: "), "{message}");
        assert_eq!(server.connections(), 1, "it is sent once");
    }
}

#[tokio::test]
async fn what_was_written_to_a_kept_connection_is_not_sent_again() {
    for last in [Reply::Reset, Reply::WriteAndClose(Vec::new()), Reply::WriteAndClose("HTTP/1.1 2".into())] {
        let before = AtomicUsize::new(0);
        let server = Server::new(move |request| match (request.line.as_str(), &last) {
            // Whether it closes at once is asked before there is a request.
            ("", _) => answer(200, "", "ok"),
            _ if before.fetch_add(1, Ordering::SeqCst) == 0 => answer(200, "", "ok"),
            (_, last) => last.clone(),
        })
        .await;
        let targets = targets();
        assert_eq!(targets.send(delivery(http(server.url()))).await, Sent::Accepted);
        let message = doubt(targets.send(delivery(http(server.url()))).await);
        assert!(message.starts_with("no answer: "), "{message}");
        assert_eq!((server.requests().len(), server.connections()), (2, 1), "it is sent once");
    }
}

#[tokio::test]
async fn a_part_of_an_answer_is_unclear() {
    for (part, word) in [
        ("HTTP/1.1 200 OK\r\ncontent-le", "no answer"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nten bytes!", "HTTP 200, and then no complete answer"),
        ("HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "HTTP 500, and then no"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "no answer"),
    ] {
        let server = Server::always(Reply::WriteAndClose(part.into())).await;
        let message = doubt(targets().send(delivery(http(server.url()))).await);
        assert!(message.starts_with(word), "{part:?}: {message}");
    }
}

#[tokio::test]
async fn the_deadline_holds_for_the_whole_exchange() {
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
    for reply in [Reply::Hang, Reply::Drip("HTTP/1.1 200 OK\r\nx-slow: "), Reply::Drip(body)] {
        let server = Server::always(reply).await;
        let mut target = http(server.url());
        target.deadline_ms = 1_500;
        let start = Instant::now();
        let message = doubt(targets().send(delivery(target)).await);
        assert_eq!(message, "no complete answer within 1500 ms");
        let took = start.elapsed();
        assert!((Duration::from_millis(1_500)..Duration::from_secs(6)).contains(&took), "{took:?}");
        assert_eq!(server.requests().len(), 1);
    }
}
