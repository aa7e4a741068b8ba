//! Power cuts in the middle of a throttled batch.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_harness::resources::{http, once, policy, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::RunState;

const EVENTS: u32 = 400;
const LIMIT: u32 = 20;
const CUTS: usize = 3;

async fn nothing_is_lost_and_the_limit_holds(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(5..60)).await;
    service.create_policy("gentle", policy(LIMIT)).await.unwrap();
    service.create_schedule("batch", once(soon(1_000), EVENTS, "gentle", http(&consumer))).await.unwrap();
    for cut in 1..=CUTS {
        let seen = cut * EVENTS as usize / (CUTS + 2);
        wait_for("some of the batch", 60, async || {
            (consumer.notes.attempts().len() >= seen && consumer.notes.in_flight() > 0).then_some(())
        })
        .await;
        service.kill9();
        // What was on its way arrives, and work goes on while there is no service.
        tokio::time::sleep(Duration::from_millis(100)).await;
        service = Service::start(&database).await;
        link.follow(&service);
    }
    let run = service.finished("batch", 90).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{run:?}");
    assert_eq!(service.runs("batch").await.len(), 1);
    // The same ids whatever the delivery: one for each event of the run, in the run's own list.
    let listed: BTreeSet<String> =
        service.events(&run.name).await.into_iter().map(|event| event.event_id).collect();
    let seen: BTreeSet<String> = consumer.notes.attempts().into_keys().collect();
    assert_eq!(seen, listed);
    assert_eq!(seen.len(), EVENTS as usize);
    let indexes: BTreeSet<u32> = consumer.notes.arrivals().iter().map(|arrival| arrival.index).collect();
    assert_eq!(indexes, (0..EVENTS).collect());
    consumer.notes.assert_clean();
    let in_flight_max = consumer.notes.in_flight_max();
    assert!(in_flight_max <= LIMIT as usize, "{in_flight_max} in flight");
    assert_eq!(service.held_count().await, 0);
    service.stop().await;
}

/// What was acknowledged is there after a power cut: a schedule, a pause, a release.
async fn what_was_answered_is_kept(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(0..1)).await;
    service.create_policy("gentle", policy(1)).await.unwrap();
    service.create_schedule("first", once(soon(500), 1, "gentle", http(&consumer))).await.unwrap();
    wait_for("a release", 30, async || consumer.notes.releases().pop()).await;
    let at = soon(3_000);
    service.create_schedule("second", once(at, 3, "gentle", http(&consumer))).await.unwrap();
    service.kill9();
    let service = Service::start(&database).await;
    link.follow(&service);
    assert_eq!(service.finished("first", 10).await.counts.unwrap().succeeded, 1);
    assert_eq!(service.finished("second", 30).await.counts.unwrap().succeeded, 3);
    consumer.notes.assert_clean();
    let first = consumer.notes.arrivals().into_iter().filter(|arrival| arrival.schedule == "first").count();
    assert_eq!(first, 1, "released, killed, and sent again");
    service.stop().await;
}

on_both_stores!(nothing_is_lost_and_the_limit_holds, what_was_answered_is_kept);
