//! What ends of SQS calls mean, and how deliveries are gathered; against a scripted server.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tollgate_core::model::{Delivery, Sent, SqsTarget};
use tollgate_target::{TargetOptions, Targets};

use crate::samples::{delivery, doubt, event, not_sent, permanent, refusal, sqs, targets, with};
use crate::server::{FullPort, Reply, Request, Server, answer, closed_port};
use crate::sqs_environment::{has_keys, has_no_keys};

const QUEUE: &str = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders";

fn ids(request: &Request) -> Vec<String> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let entries = body["Entries"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| entry["Id"].as_str().unwrap().to_owned()).collect()
}

fn taken(ids: &[String]) -> Value {
    ids.iter().map(|id| json!({"Id": id, "MessageId": "m", "MD5OfMessageBody": "x"})).collect()
}

fn takes_all(request: &Request) -> Reply {
    answer(200, "", &json!({"Successful": taken(&ids(request))}).to_string())
}

fn error(status: u16, code: &str) -> Reply {
    let headers = "content-type: application/x-amz-json-1.0\r\n";
    answer(
        status,
        headers,
        &json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": "because"}).to_string(),
    )
}

fn target(server: &Server) -> SqsTarget {
    sqs(QUEUE, server.origin())
}

fn large(target: SqsTarget, index: u32, bytes: usize) -> Delivery {
    let mut delivery = event(target, index);
    std::sync::Arc::make_mut(&mut delivery.spec).payload.json = format!("\"{}\"", "x".repeat(bytes));
    delivery
}

#[tokio::test]
async fn entries_of_one_batch_end_differently() {
    if !has_keys() {
        return;
    }
    let server = Server::new(|request| {
        let failed = |id: &str, fault: bool, code: &str| json!({"Id": id, "SenderFault": fault, "Code": code, "Message": "m"});
        let body = json!({
            "Successful": taken(&["0".into()]),
            "Failed": [failed("1", true, "InvalidMessageContents"), failed("2", true, "RequestThrottled"),
                failed("3", false, "InternalError"), failed("99", true, "InvalidMessageContents")],
        });
        assert!(request.line.is_empty() || ids(request).len() == 5);
        answer(200, "", &body.to_string())
    })
    .await;
    let targets = targets();
    let mut sent = join_all((0..5).map(|index| targets.send(event(target(&server), index)))).await;
    assert!(doubt(sent.pop().unwrap()).contains("does not mention"));
    assert!(refusal(sent.pop().unwrap()).0.contains("InternalError"));
    assert!(refusal(sent.pop().unwrap()).0.contains("RequestThrottled"));
    assert_eq!(permanent(sent.pop().unwrap()), "SQS: InvalidMessageContents: m");
    assert_eq!(sent, [Sent::Accepted]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn calls_that_fail_are_refused_or_unclear_and_never_repeated() {
    if !has_keys() {
        return;
    }
    for (reply, word) in [
        (error(400, "RequestThrottled"), "RequestThrottled"),
        (error(403, "AccessDeniedException"), "AccessDenied"),
        (answer(403, "", "<html>no</html>"), "HTTP 403"),
        (answer(302, "location: http://127.0.0.1:1/\r\n", ""), "HTTP 302"),
    ] {
        let server = Server::always(reply).await;
        let (message, _) = refusal(targets().send(delivery(target(&server))).await);
        assert!(message.contains(word), "{message}");
        assert_eq!(server.requests().len(), 1, "{message}");
    }
    for reply in [
        error(500, "InternalFailure"),
        error(503, "ServiceUnavailable"),
        answer(408, "", ""),
        answer(502, "", "<html>"),
        answer(200, "", "this is not JSON"),
        Reply::Reset,
        Reply::WriteAndClose(Vec::new()),
        Reply::WriteAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()),
        Reply::Hang,
    ] {
        let server = Server::always(reply).await;
        let mut target = target(&server);
        target.deadline_ms = 1_000;
        let message = doubt(targets().send(delivery(target)).await);
        assert!(message.starts_with("SQS: "), "{message}");
        assert_eq!(server.requests().len(), 1, "{message}");
    }
}

#[tokio::test]
async fn what_was_never_written_is_refused() {
    if !has_keys() {
        return;
    }
    let (message, _) = refusal(
        targets().send(delivery(sqs(QUEUE, format!("http://127.0.0.1:{}", closed_port().await)))).await,
    );
    assert!(message.starts_with("not sent to SQS: "), "{message}");
    let full = FullPort::new().await;
    let mut slow = sqs(QUEUE, format!("http://127.0.0.1:{}", full.port));
    slow.deadline_ms = 400;
    let (message, _) = refusal(targets().send(delivery(slow.clone())).await);
    assert_eq!(message, "not sent to SQS: no connection within 400 ms");
    slow.deadline_ms = 10_000;
    let impatient = with(|options| options.connect_timeout_ms = 200);
    let (message, _) = refusal(impatient.send(delivery(slow)).await);
    assert!(message.starts_with("not sent to SQS: "), "{message}");
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    if !has_no_keys() {
        return;
    }
    let server = Server::new(takes_all).await;
    let (message, _) = not_sent(targets().send(delivery(target(&server))).await);
    assert!(message.starts_with("not sent to SQS: ") && message.contains("credentials"), "{message}");
    let mut nowhere = target(&server);
    (nowhere.region, nowhere.queue_url) = (None, format!("{}/1/q", server.origin()));
    let (message, _) = refusal(targets().send(delivery(nowhere)).await);
    assert!(message.starts_with("region: "), "{message}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn private_endpoints_are_refused_unless_configured() {
    if !has_keys() {
        return;
    }
    let server = Server::new(takes_all).await;
    let strict = Targets::new(TargetOptions::default()).unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.169.254",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fd00::1]",
        "[fe80::1]",
        "[ff02::1]",
    ] {
        let target = sqs(QUEUE, format!("http://{host}:{}", server.port));
        let message = permanent(strict.send(delivery(target)).await);
        assert!(message.contains("endpoint_url") && message.contains("address"), "{message}");
    }
    let mut region = target(&server);
    region.region = Some("x.example/#".into());
    assert!(permanent(targets().send(delivery(region)).await).contains("region"));
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn what_waits_is_sent_together_as_far_as_it_fits() {
    if !has_keys() {
        return;
    }
    let sizes =
        |server: &Server| server.requests().iter().map(|request| ids(request).len()).collect::<Vec<_>>();
    let server = Server::new(takes_all).await;
    let many = targets();
    let sent = join_all((0..25).map(|index| many.send(event(target(&server), index)))).await;
    assert_eq!(sent, vec![Sent::Accepted; 25]);
    let mut counts = sizes(&server);
    counts.sort();
    assert_eq!(counts, [5, 10, 10]);

    let server = Server::new(takes_all).await;
    let fat = targets();
    let sent = join_all((0..5).map(|index| fat.send(large(target(&server), index, 100 * 1024)))).await;
    assert_eq!(sent, vec![Sent::Accepted; 5]);
    let mut counts = sizes(&server);
    counts.sort();
    assert_eq!(counts, [1, 2, 2]);
    assert_eq!(fat.send(large(target(&server), 6, 600 * 1024)).await, Sent::Accepted);
    let message = permanent(fat.send(large(target(&server), 7, 1024 * 1024)).await);
    assert!(message.contains("1048576"), "{message}");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_queue_has_a_bounded_number_of_calls_under_way_and_a_fifo_queue_one() {
    if !has_keys() {
        return;
    }
    for (queue, calls) in [(QUEUE.to_owned(), 64), (format!("{QUEUE}.fifo"), 1)] {
        let server = Server::always(Reply::Hang).await;
        let mut target = sqs(queue, server.origin());
        target.deadline_ms = 60_000;
        let targets = targets();
        let sends = join_all((0..1_000).map(|index| targets.send(event(target.clone(), index))));
        // Until all are there that may be under way, and a while longer.
        let enough = async {
            while server.requests().len() < calls {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        tokio::select! {
            sent = sends => panic!("{:?}", sent.first()),
            () = enough => {}
        }
        let sizes: Vec<usize> = server.requests().iter().map(|request| ids(request).len()).collect();
        assert_eq!(sizes, vec![10; calls]);
    }
}

/// Beyond the first eight, a call waits until it is full.
#[tokio::test]
async fn many_calls_are_full_ones() {
    if !has_keys() {
        return;
    }
    let server = Server::always(Reply::Hang).await;
    let mut target = target(&server);
    target.deadline_ms = 60_000;
    let targets = targets();
    let send = |index: u32| {
        let (targets, delivery) = (targets.clone(), event(target.clone(), index));
        tokio::spawn(async move { targets.send(delivery).await });
    };
    let calls = async |count: usize| {
        while server.requests().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for index in 0..8 {
        send(index);
        calls(index as usize + 1).await;
    }
    (8..17).for_each(send);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.requests().len(), 8, "nine wait");
    send(17);
    calls(9).await;
    let sizes: Vec<usize> = server.requests().iter().map(|request| ids(request).len()).collect();
    assert_eq!(sizes, [1, 1, 1, 1, 1, 1, 1, 1, 10]);
}

#[tokio::test]
async fn only_endpoints_that_are_set_up_get_a_request() {
    if !has_keys() {
        return;
    }
    let (own, other) = (Server::new(takes_all).await, Server::new(takes_all).await);
    let known = own.origin();
    let targets = with(|options| options.sqs_endpoints = Some(vec![format!("{known}/")]));
    assert_eq!(targets.send(delivery(target(&own))).await, Sent::Accepted);
    let message = permanent(targets.send(delivery(target(&other))).await);
    assert!(message.contains("sqs_endpoints") && message.contains(&other.origin()), "{message}");
    assert_eq!(other.connections(), 0);
}
