//! HTTP/2: what comes of many deliveries on a connection, and of servers that end some of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::model::{Delivery, Http2, HttpTarget, Payload, Sent};
use tollgate_target::{Leave, Targets};

use crate::frames::{
    Act, CANCEL, Frames, INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, go_away, more_window, ok, ok_with_body,
    reset, streams_max, window,
};
use crate::samples::*;
use crate::server::{Reply, Server, answer};

fn known(url: String, deadline_ms: i64) -> HttpTarget {
    HttpTarget { http2: Http2::PriorKnowledge, ..HttpTarget::plain(url, deadline_ms) }
}

async fn send(targets: &Targets, delivery: Delivery) -> Sent {
    targets.send(delivery).await
}

/// One to this server.
async fn one(targets: &Targets, server: &Frames) -> Sent {
    send(targets, delivery(known(server.url(), 2_000))).await
}

/// Events 0 to `count` at once.
async fn many(targets: &Targets, url: &str, count: u32, deadline_ms: i64) -> Vec<Sent> {
    let all = (0..count).map(|index| send(targets, event(known(url.to_owned(), deadline_ms), index)));
    futures::future::join_all(all).await
}

/// The event with a payload of this many bytes.
fn large(target: HttpTarget, index: u32, bytes: usize) -> Delivery {
    let mut delivery = event(target, index);
    Arc::make_mut(&mut delivery.spec).payload = Payload::of(format!("\"{}\"", "x".repeat(bytes)));
    delivery
}

fn answers_all() -> impl Fn(&crate::frames::Came) -> Vec<Act> + Send + Sync + 'static {
    |came| vec![Act::Write(ok(came.stream))]
}

#[tokio::test]
async fn many_deliveries_share_a_connection() {
    let (targets, server) = (targets(), Frames::new(&[], answers_all()).await);
    for _ in 0..3 {
        let sent = many(&targets, &server.url(), 64, 5_000).await;
        assert!(sent.iter().all(|sent| *sent == Sent::Accepted), "{sent:?}");
    }
    assert_eq!((server.connections(), server.came().len()), (1, 192));
    let bodies: BTreeSet<String> = server.came().into_iter().map(|came| came.body).collect();
    assert_eq!(bodies.len(), 64, "each its own");
    assert!(bodies.iter().all(|body| body.contains("\"specversion\"")), "{bodies:?}");
}

/// What a server allows is kept, also at the very first moment; who has no part opens another connection.
#[tokio::test]
async fn no_more_streams_are_open_than_the_server_allows() {
    let (targets, server) = (targets(), Frames::new(&[streams_max(4)], |_| Vec::new()).await);
    for sent in many(&targets, &server.url(), 32, 3_000).await {
        assert_eq!(doubt(sent), "no complete answer within 3000 ms");
    }
    assert_eq!((server.open_most(), server.connections(), server.came().len()), (4, 8, 32));
}

#[tokio::test]
async fn a_stream_that_the_server_refuses_is_a_refusal() {
    let server = Frames::new(&[], |came| vec![Act::Write(reset(came.stream, REFUSED_STREAM))]).await;
    let (message, retry_after_ms) = refusal(one(&targets(), &server).await);
    assert!(message.starts_with("not sent: ") && message.contains("refused"), "{message}");
    assert_eq!((retry_after_ms, server.came().len()), (None, 1), "it is not tried again at once");
}

#[tokio::test]
async fn a_stream_that_the_server_ends_otherwise_is_unclear() {
    for reason in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
        let server = Frames::new(&[], move |came| vec![Act::Write(reset(came.stream, reason))]).await;
        let targets = targets();
        assert!(doubt(one(&targets, &server).await).starts_with("no answer: "));
        // The connection goes on.
        doubt(one(&targets, &server).await);
        assert_eq!((server.connections(), server.came().len()), (1, 2));
    }
    // After the head of the answer.
    let cut = |came: &crate::frames::Came| {
        vec![Act::Write([ok_with_body(came.stream), reset(came.stream, CANCEL)].concat())]
    };
    let message = doubt(one(&targets(), &Frames::new(&[], cut).await).await);
    assert!(message.starts_with("HTTP 200, and then no complete answer: "), "{message}");
}

/// Each connection takes three requests, says that it goes away, and looks at no other.
#[tokio::test]
async fn what_a_server_that_goes_away_has_not_looked_at_goes_to_another_connection() {
    let script = |came: &crate::frames::Came| match came.stream {
        stream @ (1 | 3) => vec![Act::Write(ok(stream))],
        stream @ 5 => vec![Act::Write([go_away(5, NO_ERROR), ok(stream)].concat())],
        _ => Vec::new(),
    };
    let (targets, server) = (targets(), Frames::new(&[], script).await);
    for _ in 0..5 {
        let sent = many(&targets, &server.url(), 6, 5_000).await;
        assert!(sent.iter().all(|sent| *sent == Sent::Accepted), "{sent:?}");
    }
    let looked_at = server.came().iter().filter(|came| came.stream <= 5).count();
    assert_eq!(looked_at, 30, "each is looked at once");
    assert!(server.connections() >= 10, "{}", server.connections());
}

#[tokio::test]
async fn a_server_that_always_goes_away_refuses() {
    let server = Frames::new(&[], |_| vec![Act::Write(go_away(0, NO_ERROR)), Act::Close]).await;
    let (message, _) = refusal(one(&targets(), &server).await);
    assert!(message.contains("closed before they take it"), "{message}");
    assert_eq!((server.connections(), server.came().len()), (4, 4), "three further tries");
}

/// It has said that it looks at the stream.
#[tokio::test]
async fn what_a_server_that_goes_away_may_have_looked_at_is_unclear() {
    for after in
        [go_away(1, NO_ERROR), go_away(1, INTERNAL_ERROR), go_away(u32::MAX >> 1, NO_ERROR), Vec::new()]
    {
        let server = Frames::new(&[], move |_| vec![Act::Write(after.clone()), Act::Close]).await;
        assert!(doubt(one(&targets(), &server).await).starts_with("no answer: "));
        assert_eq!(server.came().len(), 1);
    }
}

#[tokio::test]
async fn a_body_waits_for_the_window_it_is_given() {
    let (targets, server) = (targets(), Frames::new(&[window(1_000)], answers_all()).await);
    let sent = send(&targets, large(known(server.url(), 5_000), 0, 200_000)).await;
    assert_eq!(sent, Sent::Accepted);
    assert!(server.came()[0].body.len() > 200_000);
    // Of one that takes no more than a part, nobody knows what it makes of that; its stream is reset.
    let server = Frames::without_window(&[window(1_000)], |_| Vec::new()).await;
    let message = doubt(send(&targets, large(known(server.url(), 1_500), 0, 200_000)).await);
    assert_eq!(message, "no complete answer within 1500 ms");
    let until = Instant::now() + Duration::from_secs(10);
    while server.reset().is_empty() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.reset(), [(1, CANCEL)]);
    // It was never whole.
    assert_eq!(server.came().len(), 0);
}

/// Nothing leaves later than its deadline: a connection that takes no bytes is given up with what it holds.
#[tokio::test]
async fn a_connection_that_takes_no_bytes_is_given_up() {
    let server = Frames::new(&[window(1 << 30)], |came| match came.connection {
        0 => vec![Act::Write([more_window(0, 1 << 29), ok(came.stream)].concat()), Act::Freeze],
        _ => vec![Act::Write(ok(came.stream))],
    })
    .await;
    let targets = targets();
    assert_eq!(one(&targets, &server).await, Sent::Accepted);
    // More than the sockets between them hold.
    let stuck = (0..200).map(|index| send(&targets, large(known(server.url(), 2_000), index, 60_000)));
    let stuck = futures::future::join_all(stuck).await;
    assert!(stuck.iter().all(|sent| matches!(sent, Sent::Unclear { .. })), "{stuck:?}");
    let next = one(&targets, &server).await;
    assert_eq!((next, server.connections()), (Sent::Accepted, 2));
}

/// Whoever comes after a silence looks for another connection, as a request of its own would have.
#[tokio::test]
async fn a_connection_that_was_silent_takes_no_further_ones() {
    let server = Frames::without_window(&[], |came| match came.connection {
        0 => Vec::new(),
        _ => vec![Act::Write(ok(came.stream))],
    })
    .await;
    let targets = targets();
    doubt(send(&targets, delivery(known(server.url(), 1_000))).await);
    assert_eq!((one(&targets, &server).await, server.connections()), (Sent::Accepted, 2));
    // One of many that is not answered is no silence.
    let slow = Frames::new(&[], |came| match came.stream {
        1 => Vec::new(),
        stream => vec![Act::Write(ok(stream))],
    })
    .await;
    let slow_one = send(&targets, delivery(known(slow.url(), 2_000)));
    let others = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(one(&targets, &slow).await, Sent::Accepted);
        }
    };
    let (slow_one, ()) = futures::future::join(slow_one, others).await;
    doubt(slow_one);
    assert_eq!((one(&targets, &slow).await, slow.connections()), (Sent::Accepted, 1));
}

#[tokio::test]
async fn a_server_that_does_not_speak_it_refuses() {
    let targets = targets();
    let old = Server::always(answer(200, "", "")).await;
    let (message, _) = refusal(send(&targets, delivery(known(old.url(), 2_000))).await);
    assert!(message.contains("does not speak HTTP/2"), "{message}");
    // Nor does one that says nothing.
    let silent = Server::always(Reply::Hang).await;
    let impatient = with(|options| options.connect_timeout_ms = 300);
    let all = many(&impatient, &silent.url(), 20, 5_000).await;
    let refused = all.into_iter().map(|sent| refusal(sent).0).collect::<BTreeSet<_>>();
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), ["not sent: no connection within 300 ms"]);
    assert_eq!(silent.connections(), 1, "they wait for one together");
    // Without being told to, it is not spoken in clear text.
    let plain = HttpTarget { http2: Http2::Auto, ..known(old.url(), 2_000) };
    assert_eq!(send(&targets, delivery(plain)).await, Sent::Accepted);
}

#[tokio::test]
async fn nothing_is_written_once_the_leave_has_ended() {
    let server = Frames::new(&[], answers_all()).await;
    let targets = targets();
    let leave = Leave::now(|| false);
    let (message, _) = not_sent(targets.send_by_leave(delivery(known(server.url(), 2_000)), leave).await);
    assert!(message.contains("may have lost the queue shard"), "{message}");
    assert_eq!((server.connections(), server.came().len()), (1, 0));
}
