//! Many deliveries to one place at the same instant: how many connections they open, and who waits for one.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate_core::model::{HttpTarget, Sent};

use crate::samples::{doubt, event, http, not_sent, targets};
use crate::server::{Reply, Server, answer};

/// How many may be new at once, and for how long.
const NEW_MAX: u32 = 128;
const NEW_FOR: Duration = Duration::from_millis(100);

/// Answers at `/now`, and nowhere else.
async fn server() -> Server {
    Server::new(|request| if request.line.contains("/now") { answer(200, "", "") } else { Reply::Hang }).await
}

fn now(server: &Server) -> HttpTarget {
    http(format!("{}/now", server.origin()))
}

fn never(server: &Server, deadline_ms: i64) -> HttpTarget {
    HttpTarget { deadline_ms, ..http(format!("{}/never", server.origin())) }
}

/// Waits until so many connections have been accepted.
async fn accepted(server: &Server, connections: u32) {
    let all = async {
        while server.connections() < usize::try_from(connections).unwrap() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
}

#[tokio::test]
async fn new_connections_are_opened_so_many_at_a_time() {
    const ALL: u32 = 2 * NEW_MAX + 1;
    let (server, targets) = (server().await, targets());
    let began = Instant::now();
    let all = join_all((0..ALL).map(|index| targets.send(event(never(&server, 6_000), index))));
    let watch = async {
        for turn in 1..3 {
            accepted(&server, turn * NEW_MAX + 1).await;
            let took = began.elapsed();
            assert!(took >= turn * NEW_FOR, "{} after {took:?}", server.connections());
        }
    };
    let (all, ()) = futures::future::join(all, watch).await;
    assert!(all.into_iter().all(|sent| doubt(sent).starts_with("no complete answer within 6000 ms")));
}

#[tokio::test]
async fn who_may_not_open_one_takes_what_becomes_free() {
    let (server, targets) = (server().await, targets());
    let began = Instant::now();
    let hanging = join_all((1..NEW_MAX).map(|index| targets.send(event(never(&server, 1_000), index))));
    let quick = async {
        accepted(&server, NEW_MAX - 1).await;
        let sent = (0..50).map(|index| targets.send(event(now(&server), index)));
        assert_eq!(join_all(sent).await, vec![Sent::Accepted; 50]);
        (server.connections(), began.elapsed())
    };
    let (_, (connections, took)) = futures::future::join(hanging, quick).await;
    // Not one each: an answer gives its connection to one of them, and a turn to another. On a busy machine the others may have
    // stopped being new meanwhile.
    assert!(connections < 128 + 25 || took >= NEW_FOR, "{connections} after {took:?}");
}

/// Whoever takes a shard over counts on it that nothing is written after its deadline.
#[tokio::test]
async fn a_deadline_runs_while_others_have_their_turn() {
    let (server, targets) = (server().await, targets());
    let began = Instant::now();
    let hanging = join_all((0..NEW_MAX).map(|index| targets.send(event(never(&server, 400), index))));
    let hasty = async {
        accepted(&server, NEW_MAX).await;
        let sent = targets.send(event(never(&server, 20), 1)).await;
        (sent, began.elapsed())
    };
    let (_, (sent, took)) = futures::future::join(hanging, hasty).await;
    // On a busy machine the others may have stopped being new meanwhile.
    assert!(took >= NEW_FOR || not_sent(sent).0.contains("are being opened"), "after {took:?}");
}

#[tokio::test]
async fn who_gives_up_waiting_costs_nobody_anything() {
    let (server, targets) = (server().await, targets());
    let hanging = join_all((0..NEW_MAX).map(|index| targets.send(event(never(&server, 400), index))));
    let hasty = async {
        accepted(&server, NEW_MAX).await;
        let waiting = join_all((0..10).map(|index| targets.send(event(never(&server, 400), index))));
        tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err()
    };
    let (_, gave_up) = futures::future::join(hanging, hasty).await;
    assert!(gave_up);
    let all = join_all((0..2 * NEW_MAX).map(|index| targets.send(event(now(&server), index))));
    let all = tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    assert!(all.iter().all(|sent| *sent == Sent::Accepted));
}
