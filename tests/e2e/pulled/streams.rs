//! What is said on a stream: heartbeats keep tokens, capacity is kept at each moment, and what is another stream's, or what there
//! is not, is no worker's to accept.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tollgate_harness::resources::policy;
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, ExtendTokenRequest, ListWorkersRequest, Policy, ReleaseStatus, ReleaseTokenRequest, Worker,
    WorkerCapacity,
};
use tonic::Code;

use super::talk::{Talk, accept, patient};
use super::worker::{Place, hello, place};
use super::{acquire, succeeded, trigger};

/// The workers of the queue that are there.
async fn listed(service: &Service) -> Vec<Worker> {
    let request = ListWorkersRequest { parent: "namespaces/default/queues/render".to_owned() };
    let mut workers = WorkerServiceClient::new(service.channel());
    workers.list_workers(request).await.unwrap().into_inner().workers
}

/// Waits until a worker does so many events at once and has so many: then it has room for no more, and has been given these.
async fn is_full(service: &Service, (capacity, has): (u32, u32), given: u64) {
    let shown = wait_for("the worker's word to be heard", 30, async || {
        let worker = listed(service).await.into_iter().find(|worker| worker.worker == "w")?;
        (worker.capacity == capacity && worker.events_count == has).then_some(worker)
    })
    .await;
    assert_eq!((shown.room, shown.given_count), (0, given), "{shown:?}");
}

/// The attempts of the events of a run, the smallest first.
async fn attempts(service: &Service, run: &str) -> Vec<u32> {
    let mut attempts: Vec<u32> = service.events(run).await.iter().map(|event| event.attempt).collect();
    attempts.sort_unstable();
    attempts
}

/// Two events: of one its worker says again and again that it works on it, and of the other nothing. That one comes again and
/// again, and shows that the time in which the first would have is over.
async fn heartbeats_on_a_stream_keep_the_token(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let limits = Policy { token_ttl: seconds(1), suspect_period: seconds(6), ..policy(2) };
    service.create_policy("p", limits).await.unwrap();
    // With room for whatever comes again.
    let mut worker = Talk::open(&service, hello("w", &[], 8)).await;
    let run = trigger(&service, "s", patient(2, "p", &[])).await;
    let (kept, silent) = (worker.takes().await, worker.takes().await);
    assert_eq!((kept.attempt, silent.attempt, kept.token_ttl), (1, 1, seconds(1)));
    let (mut came, began) = (vec![silent.attempt], Instant::now());
    while came.len() < 3 {
        let extended = worker.extends(&kept, 1).await;
        assert!(extended.remaining.is_some(), "{extended:?}");
        while let Some(event) = worker.came.pop_front() {
            assert_eq!(event.name, silent.name, "what has its heartbeats comes again");
            worker.tell(accept(&event, event.attempt));
            came.push(event.attempt);
        }
        assert!(began.elapsed() < Duration::from_secs(120), "what is silent does not come again: {came:?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(came, [1, 2, 3]);
    // Of an attempt that is over, the work is not needed.
    let over = worker.extends(&silent, 1).await;
    assert!(over.remaining.is_none() && !over.message.is_empty(), "{over:?}");
    assert_eq!(worker.releases(&silent, 1).await, ReleaseStatus::Late);
    assert_eq!(worker.releases(&silent, 3).await, ReleaseStatus::Released);
    assert_eq!(worker.releases(&kept, 1).await, ReleaseStatus::Released);
    assert_eq!(succeeded(&service, "s", 20).await, 2);
    assert_eq!(attempts(&service, &run.name).await, [1, 3]);
    service.stop().await;
}

/// Takes an event by a poll and releases it: whoever has room for an event is given one meanwhile.
async fn passes_by(service: &Service, place: &Place) -> String {
    let polled = wait_for("an event for a poll", 30, async || acquire(place, 1, 5_000).await.pop()).await;
    let request = ReleaseTokenRequest { name: polled.name.clone(), ..ReleaseTokenRequest::default() };
    let status = service.handler().release_token(request).await.unwrap().into_inner().status();
    assert_eq!(status, ReleaseStatus::Released);
    polled.name
}

/// From zero to three, down to one while it has three, to zero, to two: at no moment is it given more than it says.
async fn a_stream_is_given_what_it_has_said_last(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(50)).await.unwrap();
    let (place, mut names) = (place(&service), Vec::new());
    let mut worker = Talk::open(&service, hello("w", &[], 0)).await;
    let run = trigger(&service, "s", patient(12, "p", &[])).await;
    let says = |worker: &Talk, capacity| worker.tell(Say::Capacity(WorkerCapacity { capacity }));
    for _ in 0..3 {
        names.push(passes_by(&service, &place).await);
    }
    is_full(&service, (0, 0), 0).await;
    says(&worker, 3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(worker.takes().await);
    }
    is_full(&service, (3, 3), 3).await;
    says(&worker, 1);
    is_full(&service, (1, 3), 3).await;
    for left in [2, 1] {
        let done = held.pop().unwrap();
        assert_eq!(worker.releases(&done, 1).await, ReleaseStatus::Released);
        names.extend([done.name, passes_by(&service, &place).await]);
        is_full(&service, (1, left), 3).await;
    }
    // It has none, and does one at once.
    let done = held.pop().unwrap();
    assert_eq!(worker.releases(&done, 1).await, ReleaseStatus::Released);
    let fourth = worker.takes().await;
    names.extend([done.name, fourth.name.clone()]);
    is_full(&service, (1, 1), 4).await;
    says(&worker, 0);
    is_full(&service, (0, 1), 4).await;
    assert_eq!(worker.releases(&fourth, 1).await, ReleaseStatus::Released);
    names.push(passes_by(&service, &place).await);
    is_full(&service, (0, 0), 4).await;
    says(&worker, 2);
    for last in [worker.takes().await, worker.takes().await] {
        assert_eq!(worker.releases(&last, 1).await, ReleaseStatus::Released);
        names.push(last.name);
    }
    assert_eq!(succeeded(&service, "s", 20).await, 12);
    assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (12, 12), "{names:?}");
    assert_eq!(attempts(&service, &run.name).await, [1; 12]);
    service.stop().await;
}

/// Of what another stream was given nothing may be accepted, nor under an attempt that nobody was given; heartbeats and releases
/// go by any stream, for the attempt that is in flight.
async fn an_event_is_accepted_by_its_own_stream_and_released_by_any(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let mut one = Talk::open(&service, hello("one", &[], 1)).await;
    let mut other = Talk::open(&service, hello("other", &[], 1)).await;
    let run = trigger(&service, "s", patient(2, "p", &[])).await;
    let (first, second) = (one.takes().await, other.takes().await);
    assert_ne!(first.name, second.name);
    other.tell(accept(&first, 1));
    let end = other.ends().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    let said = "expected an event that this stream was given";
    assert!(end.message().starts_with("accept.name: ") && end.message().contains(said), "{end}");
    // Whose event it is has heard nothing of that; and what the other one had accepted is its own on any stream.
    assert!(one.extends(&first, 1).await.remaining.is_some());
    let mut third = Talk::open(&service, hello("third", &[], 0)).await;
    assert!(third.extends(&second, 1).await.remaining.is_some());
    assert_eq!(third.releases(&second, 1).await, ReleaseStatus::Released);
    assert_eq!(third.releases(&second, 1).await, ReleaseStatus::AlreadyReleased);
    // Of an attempt that nobody was given nothing is known, and nothing changes.
    assert_eq!(third.releases(&first, 2).await, ReleaseStatus::Late);
    let ahead = third.extends(&first, 2).await;
    assert!(ahead.remaining.is_none() && !ahead.message.is_empty(), "{ahead:?}");
    // A wrong word on a heartbeat is no word on the event.
    let mut hasty = Talk::open(&service, hello("hasty", &[], 0)).await;
    let ttl = Some(prost_types::Duration::default());
    hasty.tell(Say::Extend(ExtendTokenRequest { name: first.name.clone(), attempt: Some(1), ttl }));
    let end = hasty.ends().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    assert!(end.message().starts_with("extend.ttl: "), "{end}");
    one.tell(accept(&first, 2));
    let end = one.ends().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    let said = "expected an attempt under which this stream was given the event";
    assert!(end.message().starts_with("accept.attempt: ") && end.message().contains(said), "{end}");
    assert!(third.extends(&first, 1).await.remaining.is_some(), "its token is held all the same");
    assert_eq!(third.releases(&first, 1).await, ReleaseStatus::Released);
    assert_eq!(succeeded(&service, "s", 20).await, 2);
    assert_eq!(attempts(&service, &run.name).await, [1, 1]);
    service.stop().await;
}

/// A release elsewhere frees the token; the room of whose event it is comes back when that one says so itself.
async fn a_release_elsewhere_leaves_the_room_to_its_own_stream(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let mut worker = Talk::open(&service, hello("w", &[], 1)).await;
    let mut other = Talk::open(&service, hello("other", &[], 0)).await;
    trigger(&service, "s", patient(3, "p", &[])).await;
    let first = worker.takes().await;
    assert_eq!(other.releases(&first, 1).await, ReleaseStatus::Released);
    // Another one has room, and is given an event meanwhile.
    passes_by(&service, &place(&service)).await;
    is_full(&service, (1, 1), 1).await;
    assert_eq!(service.held_count().await, 0);
    assert_eq!(worker.releases(&first, 1).await, ReleaseStatus::AlreadyReleased);
    let last = worker.takes().await;
    assert_eq!(worker.releases(&last, 1).await, ReleaseStatus::Released);
    assert_eq!(succeeded(&service, "s", 20).await, 3);
    service.stop().await;
}

/// A worker that accepts what it was never given is sent away. What it had accepted is its own, what it had not comes again, and
/// its neighbour goes on.
async fn a_wrong_word_ends_its_stream_and_half_does_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let run = trigger(&service, "s", patient(3, "p", &[])).await;
    let mut wrong = Talk::open(&service, hello("wrong", &[], 2)).await;
    let (accepted, unsaid) = (wrong.takes().await, wrong.event().await);
    let mut neighbour = Talk::open(&service, hello("neighbour", &[], 1)).await;
    let own = neighbour.takes().await;
    // To say it twice is no mistake.
    wrong.tell(accept(&accepted, 1));
    assert!(wrong.extends(&accepted, 1).await.remaining.is_some());
    // As many as it does at once it has: a third one is none of its.
    wrong.tell(Say::Accept(AcceptEvent { name: "00-x".to_owned(), attempt: 1 }));
    let end = wrong.ends().await;
    assert_eq!(end.code(), Code::InvalidArgument, "{end}");
    assert!(end.message().starts_with("accept.name: \"00-x under attempt 1\" is not allowed"), "{end}");
    wait_for("its stream to be gone", 20, async || {
        let names: Vec<String> = listed(&service).await.into_iter().map(|worker| worker.worker).collect();
        (names == ["neighbour"]).then_some(())
    })
    .await;
    assert!(neighbour.extends(&own, 1).await.remaining.is_some());
    assert_eq!(neighbour.releases(&own, 1).await, ReleaseStatus::Released);
    let again = neighbour.takes().await;
    assert_eq!((&again.name, again.attempt), (&unsaid.name, 2));
    assert_eq!(neighbour.releases(&again, 2).await, ReleaseStatus::Released);
    assert!(neighbour.extends(&accepted, 1).await.remaining.is_some());
    assert_eq!(neighbour.releases(&accepted, 1).await, ReleaseStatus::Released);
    assert_eq!(succeeded(&service, "s", 20).await, 3);
    assert_eq!(attempts(&service, &run.name).await, [1, 1, 2]);
    service.stop().await;
}

on_both_stores!(
    heartbeats_on_a_stream_keep_the_token,
    a_stream_is_given_what_it_has_said_last,
    an_event_is_accepted_by_its_own_stream_and_released_by_any,
    a_release_elsewhere_leaves_the_room_to_its_own_stream,
    a_wrong_word_ends_its_stream_and_half_does_nothing,
);
