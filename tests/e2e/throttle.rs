//! Four schedules under one policy: every event once, and never more in flight than the policy allows.

use std::collections::BTreeMap;

use tollgate_harness::resources::{http, once, policy, soon, sqs};
use tollgate_harness::{Conduct, Consumer, Database, Emulator, Kind, Notes, Releases, Service, SqsConsumer};
use tollgate_proto::v1::{ReleaseStatus, RunState, Target};

const SCHEDULES: [&str; 4] = ["north", "east", "south", "west"];
const EVENTS: u32 = 500;
const LIMIT: u32 = 25;

/// Runs the schedules against a target, and checks what its consumer noted.
async fn check(service: &Service, notes: &Notes, target: Target) {
    service.create_policy("gentle", policy(LIMIT)).await.unwrap();
    let at = soon(4_000);
    for id in SCHEDULES {
        service.create_schedule(id, once(at, EVENTS, "gentle", target.clone())).await.unwrap();
    }
    for id in SCHEDULES {
        let run = service.finished(id, 180).await;
        assert_eq!(
            (run.state(), run.events, run.in_flight_count),
            (RunState::Finished, EVENTS, 0),
            "{run:?}"
        );
        assert_eq!(run.counts.unwrap().succeeded, EVENTS, "{run:?}");
        assert_eq!(service.runs(id).await.len(), 1);
    }
    let all: BTreeMap<String, usize> = SCHEDULES.map(|id| (id.to_owned(), EVENTS as usize)).into();
    assert_eq!(notes.events_by_schedule(), all);
    notes.assert_clean();
    notes.assert_once();
    assert!(notes.in_flight_max() <= LIMIT as usize, "{} in flight", notes.in_flight_max());
    // Far below the limit, nothing would have been tested.
    assert!(notes.in_flight_max() >= LIMIT as usize / 2, "only {} in flight", notes.in_flight_max());
    assert_eq!(service.held_count().await, 0);
}

async fn over_http(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(1..20)).await;
    check(&service, &consumer.notes, http(&consumer)).await;
    // The service finishes a run before the consumer has read its last answer.
    let all = EVENTS as usize * SCHEDULES.len();
    tollgate_harness::wait_for("answers to all releases", 5, async || {
        (consumer.notes.releases().len() == all).then_some(())
    })
    .await;
    assert_eq!(consumer.notes.released(ReleaseStatus::Released), all);
    service.stop().await;
}

async fn over_http_released_in_batches(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Batch, |_| Conduct::work(1..20)).await;
    check(&service, &consumer.notes, http(&consumer)).await;
    service.stop().await;
}

async fn over_sqs(kind: Kind) {
    let (database, emulator) = (Database::new(kind).await, Emulator::start().await);
    let service = Service::start(&database).await;
    let queue = emulator.queue("work").await;
    let consumer =
        SqsConsumer::start(&emulator, &queue, service.link(), Releases::Stream, |_| Conduct::work(100..150));
    check(&service, &consumer.notes, sqs(&queue, &emulator.endpoint)).await;
    service.stop().await;
}

on_both_stores!(over_http, over_http_released_in_batches, over_sqs);
