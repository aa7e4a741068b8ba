//! What workers share has bounds: whoever takes too much leaves room to the others.

#![expect(clippy::unwrap_used, reason = "tests")]

mod earlier;
mod late;
mod roomless;

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_clock::Clock;
use tollgate_proto::v1;
use tonic::transport::ClientTlsConfig;

use super::book::{PoolOf, QueueKey, WorkerId};
use super::handing::{Handed, Limit, Outcome};
use super::sessions::{Profile, Refused};
use super::{Desk, Elsewhere};
use crate::{Peers, Stores};

async fn desk(clock: &Clock) -> (Desk, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("tollgate.db").display());
    let store = tollgate_store::open(&url, 1).await.unwrap();
    let secret = store.installation().await.unwrap().secret.try_into().unwrap();
    let peers = Peers::new(&Stores::of(store), secret, ClientTlsConfig::new());
    let elsewhere = Elsewhere::new(peers.clone(), "own".to_owned());
    (Desk::new(peers.routes().clone(), clock.clone(), elsewhere), folder)
}

fn worker(namespace: &str, labels: &[&str]) -> Profile {
    Profile {
        queue: QueueKey { namespace: namespace.into(), queue: "render".into() },
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        name: String::new(),
        polls: false,
    }
}

fn event(attempt: u32) -> v1::WorkEvent {
    v1::WorkEvent { name: "00-x".to_owned(), attempt, ..v1::WorkEvent::default() }
}

/// An event on its way, and what its giver hears.
fn handed(attempt: u32, limit: Limit) -> (Box<Handed>, oneshot::Receiver<Outcome>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(Handed { event: event(attempt), limit, way: Arc::default(), reply }), answer)
}

/// A unit of room is taken, of a worker without labels.
fn room(desk: &Desk) -> WorkerId {
    let Profile { queue, labels, .. } = worker("team", &[]);
    let of = PoolOf { queue, requires: labels, known_us: 0 };
    let (call, workers, _from) = desk.call((1, &of), 1);
    desk.call_ends(call, (1, &of));
    workers[0]
}

#[tokio::test]
async fn a_namespace_with_too_many_workers_leaves_room_for_those_of_another() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let mut streams = Vec::new();
    let refused = loop {
        match desk.join(worker("greedy", &[]), 1) {
            Ok(joined) => streams.push(joined),
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused, streams.len()), (Refused::TooMany, 15_000), "three quarters of 20,000");
    for _ in 0..3_000 {
        streams.push(desk.join(worker("modest", &[]), 1).unwrap());
    }
    assert_eq!(desk.join(worker("greedy", &[]), 1).unwrap_err(), Refused::TooMany);
    assert_eq!(desk.counts(), (18_000, 18_000, 0));
    for (id, _) in &streams[..5_000] {
        desk.leave(*id);
    }
    desk.join(worker("greedy", &[]), 1).unwrap();
    assert_eq!(desk.list("modest", None).len(), 3_000);
}

#[tokio::test]
async fn a_queue_with_too_many_kinds_of_workers_is_full_and_no_other() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let kinds: Vec<String> = (0..64).map(|kind| format!("kind-{kind}")).collect();
    let _there: Vec<_> = kinds.iter().map(|kind| desk.join(worker("team", &[kind]), 1).unwrap()).collect();
    let refused = desk.join(worker("team", &["one-more"]), 1).unwrap_err();
    assert_eq!(refused.to_string(), "the workers of this queue have 64 different sets of labels already");
    let _known = desk.join(worker("team", &["kind-7"]), 1).unwrap();
    let _other = desk.join(worker("other", &["one-more"]), 1).unwrap();
    assert_eq!(desk.list("team", Some("render")).len(), 65);
}

#[tokio::test]
async fn one_process_is_lent_so_much_room_at_once_and_the_rest_is_for_others() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (_id, _events) = desk.join(worker("team", &["gpu"]), 10_000).unwrap();
    let ask = |pool: u128, want| v1::TakeRoomRequest {
        process: "greedy".to_owned(),
        namespace: "team".to_owned(),
        queue: "render".to_owned(),
        requires: vec!["gpu".to_owned()],
        want,
        wait_ms: 0,
        pool: pool.to_be_bytes().to_vec(),
    };
    let lent = desk.lend(ask(1, u32::MAX)).await.unwrap();
    assert_eq!((lent.rooms.len(), lent.able), (1_000, true));
    let next = desk.lend(ask(2, 3)).await.unwrap();
    assert_eq!(next.rooms.len(), 3, "a neighbour finds room");
    desk.returned(&lent.rooms);
    assert_eq!(desk.counts().1, 9_997);
}

#[tokio::test]
async fn what_no_worker_here_has_is_told_to_the_process_that_asks() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (_id, _events) = desk.join(worker("team", &["gpu"]), 1).unwrap();
    let request = v1::TakeRoomRequest {
        process: "other".to_owned(),
        namespace: "team".to_owned(),
        queue: "render".to_owned(),
        requires: vec!["gpux".to_owned()],
        want: 1,
        wait_ms: 0,
        pool: 1_u128.to_be_bytes().to_vec(),
    };
    let answer = desk.lend(request).await.unwrap();
    assert!(!answer.able && answer.rooms.is_empty());
    assert_eq!(
        (answer.workers_count, answer.missing, answer.near),
        (1, vec!["gpux".to_owned()], vec!["gpu".to_owned()])
    );
}
