//! A target that hangs, and a name that does, beside neighbours of the same process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate_core::model::{Delivery, HttpTarget, Sent};
use tollgate_target::Lookup;
use uuid::Uuid;

use crate::samples::{event, http, not_sent, with};
use crate::server::{Reply, Server, answer};

/// An event of another schedule.
fn of(schedule: u128, namespace: &str, target: HttpTarget, index: u32) -> Delivery {
    let mut event = event(target, index);
    let spec = Arc::make_mut(&mut event.spec);
    (spec.schedule_uid, spec.namespace) = (Uuid::from_u128(schedule), namespace.into());
    event
}

#[tokio::test]
async fn a_target_that_says_nothing_leaves_connections_to_the_others() {
    let (hung, healthy) = (Server::always(Reply::Hang).await, Server::always(answer(200, "", "")).await);
    let targets = with(|options| options.connections_max = 16);
    let deadline_ms = 12_000;
    let target = HttpTarget { deadline_ms, ..http(hung.url()) };
    let began = Instant::now();
    // More than there are places, by four schedules of the neighbour's namespace.
    let crowd = (0..200).map(|n| targets.send(of(1 + u128::from(n % 4), "acme", target.clone(), n)));
    let neighbour = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for n in 0..50 {
            let sent = targets.send(of(7, "acme", http(healthy.url()), n)).await;
            assert_eq!(sent, Sent::Accepted, "event {n}");
        }
        began.elapsed()
    };
    let (crowd, took) = futures::future::join(join_all(crowd), neighbour).await;
    assert!(took < Duration::from_millis(5_600), "it waited for the crowd: {took:?}");
    let (unclear, unsent): (Vec<_>, Vec<_>) =
        crowd.into_iter().partition(|sent| matches!(sent, Sent::Unclear { .. }));
    assert_eq!((unclear.len(), hung.connections()), (12, 12), "three quarters of the places");
    for sent in unsent {
        assert!(not_sent(sent).0.contains("all in use"), "no failure of the target's");
    }
}

#[tokio::test]
async fn a_name_that_hangs_stops_no_other_name() {
    let healthy = Server::always(answer(200, "", "")).await;
    let targets = with(|options| {
        (options.connect_timeout_ms, options.lookups_max) = (800, 4);
        options.lookup = Lookup::by(|name| {
            if name.starts_with("hang") {
                std::thread::sleep(Duration::from_secs(8));
            }
            Ok(vec!["127.0.0.1".parse().unwrap()])
        });
    });
    let url = |name: &str| http(format!("http://{name}:{}/", healthy.port));
    let began = Instant::now();
    // 2,000 events to a name, and as many to a hundred names.
    let crowd = (0..4_000).map(|n| {
        let name = if n < 2_000 { "hang".to_owned() } else { format!("hang-{}", n % 100) };
        targets.send(of(1, "bad", url(&name), n))
    });
    let neighbour = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for n in 0..10 {
            let sent = targets.send(of(2, "good", url(&format!("good-{n}")), n)).await;
            assert_eq!(sent, Sent::Accepted, "event {n}");
        }
        began.elapsed()
    };
    let (crowd, took) = futures::future::join(join_all(crowd), neighbour).await;
    assert!(took < Duration::from_secs(6), "it waited for the names that hang: {took:?}");
    assert!(crowd.into_iter().all(|sent| not_sent(sent).0.contains("hang")));
    assert!(began.elapsed() < Duration::from_secs(7), "nobody waits for the lookup itself");
}
