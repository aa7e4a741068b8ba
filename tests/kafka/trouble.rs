//! Brokers that are down, that refuse and that leave doubt: nothing is lost, and what is in doubt keeps its token.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Error};
use tollgate_harness::resources::{once, policy, schedule_name, soon};
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::{ReleaseMode, RunState, Schedule, TargetGauge};

use crate::broker::Broker;
use crate::service::{document, kafka, patient, seen, start, target, targets};

on_both_stores!(
    brokers_that_are_down_get_everything_once_they_are_up,
    an_unclear_record_keeps_its_token_and_comes_again,
    what_brokers_refuse_frees_its_token,
);

/// A run of some events to this topic, which hold their tokens until they are acknowledged.
fn schedule(broker: &Broker, events: u32) -> Schedule {
    let target = target(kafka(&broker.servers(), "orders"), ReleaseMode::OnResponse);
    Schedule { retry: patient(), ..once(soon(1_000), events, "few", target) }
}

/// Has the producer of these brokers connected, and an event written.
async fn warm(service: &Service, broker: &Broker) {
    let warm = target(kafka(&broker.servers(), "orders"), ReleaseMode::OnResponse);
    service.create_schedule("warm", once(soon(1_000), 1, "few", warm)).await.unwrap();
    service.finished("warm", 60).await;
    // If that was in doubt, as on a busy machine it may be, it is seen for a minute.
    wait_for("no doubt of the first one", 90, async || {
        targets(service).await.iter().all(|gauge| gauge.unclear_per_second == 0.0).then_some(())
    })
    .await;
}

async fn brokers_that_are_down_get_everything_once_they_are_up(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 2), Database::new(kind).await);
    let service = start(&database).await;
    service.create_policy("few", policy(5)).await.unwrap();
    broker.0.broker_down(-1).unwrap();
    service.create_schedule("s", schedule(&broker, 20)).await.unwrap();
    let down =
        seen(&service, &broker.servers(), |gauge| gauge.refusing && !gauge.last_error.is_empty()).await;
    assert!(down.last_error.contains("no broker of"), "{down:?}");
    assert_eq!((down.accepted_per_second, down.unclear_per_second), (0.0, 0.0), "nothing is in doubt");
    broker.0.broker_up(-1).unwrap();
    let run = service.finished("s", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 20), "{run:?}");
    let ids = broker.records("orders", 2, 20).await;
    let ids: BTreeSet<String> = ids.iter().map(|record| document(record)["id"].to_string()).collect();
    assert_eq!(ids.len(), 20, "none is lost");
    assert!(service.log().contains("no Kafka broker answers"), "the log says it");
    service.stop().await;
}

async fn an_unclear_record_keeps_its_token_and_comes_again(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 1), Database::new(kind).await);
    let service = start(&database).await;
    service.create_policy("few", policy(1)).await.unwrap();
    warm(&service, &broker).await;
    // Written, and the answer comes too late.
    broker.0.broker_round_trip_time(-1, Duration::from_secs(3)).unwrap();
    service.create_schedule("s", schedule(&broker, 2)).await.unwrap();
    // The token is kept.
    let in_doubt = |gauge: &TargetGauge| gauge.unclear_per_second > 0.0 && gauge.held_count == 1;
    let doubt = seen(&service, &broker.servers(), in_doubt).await;
    assert!(doubt.last_error.contains("MessageTimedOut"), "{doubt:?}");
    broker.0.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    let run = service.finished("s", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 2), "{run:?}");
    let records = broker.records("orders", 1, 4).await;
    let events = records.iter().map(document);
    let all: Vec<(u64, String)> = events
        .filter(|event| event["schedule"] == schedule_name("s"))
        .map(|event| (event["attempt"].as_u64().unwrap(), event["id"].as_str().unwrap().to_owned()))
        .collect();
    let first = &all[0].1;
    let attempts: Vec<u64> = all.iter().filter(|(_, id)| id == first).map(|(attempt, _)| *attempt).collect();
    assert!(attempts.len() >= 2 && attempts.is_sorted_by(|a, b| a < b), "one id, growing attempts: {all:?}");
    let other = all.iter().position(|(_, id)| id != first).unwrap();
    assert_eq!(other, all.len() - 1, "the other had to wait for the token: {all:?}");
    service.stop().await;
}

async fn what_brokers_refuse_frees_its_token(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 1), Database::new(kind).await);
    let service = start(&database).await;
    service.create_policy("few", policy(1)).await.unwrap();
    // What is refused is told from what is in doubt by how soon the answer comes: not the first one of a new producer.
    warm(&service, &broker).await;
    broker.0.request_errors(Api::Produce, &[Error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION]);
    broker.0.request_errors(Api::Produce, &[Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    service.create_schedule("s", schedule(&broker, 3)).await.unwrap();
    let run = service.finished("s", 60).await;
    let counts = run.counts.unwrap();
    // One was refused and tried again, one was refused for good, and the third came at once.
    assert_eq!(
        (run.state(), counts.succeeded, counts.dead),
        (RunState::FinishedWithFailures, 2, 1),
        "{run:?}"
    );
    assert_eq!(broker.records_now("orders").await.len(), 1 + 2);
    service.stop().await;
}
