//! Brokers that say nothing, and a crowd of clusters, beside neighbours of the same process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tollgate_core::model::{Delivery, Sent};
use uuid::Uuid;

use crate::broker::Broker;
use crate::samples::{AnyTarget, event, http, kafka, with};

/// An event of another schedule.
fn of(schedule: u128, namespace: &str, target: impl Into<AnyTarget>, index: u32) -> Delivery {
    let mut event = event(target, index);
    let spec = Arc::make_mut(&mut event.spec);
    (spec.schedule_uid, spec.namespace) = (Uuid::from_u128(schedule), namespace.into());
    event
}

/// Takes connections, and answers none.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    servers
}

/// Answers every request by 200.
async fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _gone =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
            // Until the other side has read it.
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(stream);
            });
        }
    });
    url
}

#[tokio::test]
async fn brokers_that_say_nothing_leave_places_and_threads_to_the_others() {
    let (broker, hung, url) = (Broker::with("orders", 1), silent().await, web().await);
    // 16 places for Kafka.
    let targets = with(|options| options.connections_max = 64);
    // Its producer is there already, as in a process that has been at work.
    assert_eq!(targets.send(of(7, "acme", kafka(broker.servers()), 0)).await, Sent::Accepted);
    let round = async || {
        let began = Instant::now();
        for n in 0..40 {
            let sent = targets.send(of(7, "acme", kafka(broker.servers()), n)).await;
            assert_eq!(sent, Sent::Accepted, "event {n} to brokers of the same namespace");
            let sent = targets.send(of(8, "acme", http(url.clone()), n)).await;
            assert_eq!(sent, Sent::Accepted, "event {n} by HTTP");
        }
        began.elapsed()
    };
    let alone = round().await;
    let crowd = (0..300).map(|n| targets.send(of(1 + u128::from(n % 4), "acme", kafka(hung.clone()), n)));
    let neighbours = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        round().await
    };
    let (crowd, took) = futures::future::join(join_all(crowd), neighbours).await;
    // One that waits for the crowd waits for seconds, and there are 40.
    let most = alone * 5 + Duration::from_secs(3);
    assert!(took < most, "they waited for the crowd: {took:?}, alone {alone:?}");
    let refused = |sent: &Sent| matches!(sent, Sent::Refused { permanent: false, .. });
    let had_turn = crowd.iter().filter(|sent| refused(sent)).count();
    assert!((8..300).contains(&had_turn), "{had_turn} had a turn");
    let others = crowd.iter().filter(|sent| !refused(sent));
    others.for_each(|sent| assert!(matches!(sent, Sent::NotSent { .. }), "nothing is unclear: {sent:?}"));
}

#[tokio::test]
async fn a_crowd_of_clusters_leaves_threads_to_other_namespaces() {
    let broker = Broker::with("orders", 1);
    let targets = with(|_| {});
    let crowd = (0..100).map(|n| {
        // Nobody listens there.
        let servers = format!("127.0.0.{}:1", 2 + n);
        targets.send(of(1, "crowd", kafka(servers), n))
    });
    let neighbour = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        targets.send(of(2, "acme", kafka(broker.servers()), 0)).await
    };
    let (crowd, sent) = futures::future::join(join_all(crowd), neighbour).await;
    assert_eq!(sent, Sent::Accepted);
    let had_none =
        |sent: &&Sent| matches!(sent, Sent::NotSent { message, .. } if message.contains("too many"));
    let had_none = crowd.iter().filter(had_none).count();
    assert!((60..=80).contains(&had_none), "{had_none} of 100 had no thread");
}
