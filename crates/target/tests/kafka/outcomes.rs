//! What becomes of an event when brokers refuse, hang, break off or are not there.

use std::time::{Duration, Instant};

use futures::future::join_all;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Error};
use tollgate_core::model::{KafkaTarget, Sent};
use tollgate_target::{Leave, PrivateAddresses};

use crate::broker::Broker;
use crate::samples::{delivery, doubt, event, kafka, not_sent, permanent, refusal, targets, with};

/// A target whose producer has a second.
fn short(broker: &Broker) -> KafkaTarget {
    KafkaTarget { deadline_ms: 5_000, ..kafka(broker.servers()) }
}

#[tokio::test]
async fn what_brokers_refuse_is_refused() {
    for (error, word, is_for_good) in [
        (Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "MessageSizeTooLarge", true),
        (Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationFailed", false),
        (Error::RD_KAFKA_RESP_ERR_POLICY_VIOLATION, "PolicyViolation", false),
        (Error::RD_KAFKA_RESP_ERR_INVALID_RECORD, "InvalidRecord", false),
    ] {
        let broker = Broker::with("orders", 1);
        broker.0.request_errors(Api::Produce, &[error]);
        let sent = targets().send(delivery(short(&broker))).await;
        let message = if is_for_good { permanent(sent) } else { refusal(sent).0 };
        assert!(message.starts_with("Kafka: ") && message.contains(word), "{message}");
        assert_eq!(broker.records_now("orders").await.len(), 0, "{word}");
    }
}

#[tokio::test]
async fn what_is_said_of_one_record_is_said_of_no_other() {
    let broker = Broker::with("orders", 1);
    let targets = targets();
    let target = KafkaTarget { deadline_ms: 30_000, ..kafka(broker.servers()) };
    assert_eq!(targets.send(event(target.clone(), 0)).await, Sent::Accepted);
    // While requests take a while, records wait for their turn beside each other.
    broker.0.broker_round_trip_time(-1, Duration::from_millis(100)).unwrap();
    broker.0.request_errors(Api::Produce, &[Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let all = join_all((1..=40).map(|index| targets.send(event(target.clone(), index)))).await;
    let (kept, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(|sent| *sent == Sent::Accepted);
    assert_eq!((kept.len(), refused.len()), (39, 1), "{refused:?}");
    let message = permanent(refused.into_iter().next().unwrap());
    assert!(message.contains("MessageSizeTooLarge"), "{message}");
    broker.0.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    assert_eq!(broker.records("orders", 1, 40).await.len(), 40);
}

#[tokio::test]
async fn what_brokers_cannot_say_is_unclear() {
    for (error, word) in [
        (Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, "MessageTimedOut"),
        (Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, "MessageTimedOut"),
        (Error::RD_KAFKA_RESP_ERR__TRANSPORT, "MessageTimedOut"),
        // A proof each time; but the client repeats it by itself, and says in the end that it is late.
        (Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, "MessageTimedOut"),
        (Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, "MessageTimedOut"),
    ] {
        let broker = Broker::with("orders", 1);
        broker.0.request_errors(Api::Produce, &[error; 50]);
        let message = doubt(targets().send(delivery(short(&broker))).await);
        assert!(message.starts_with("Kafka: ") && message.contains(word), "{error:?}: {message}");
    }
}

#[tokio::test]
async fn the_client_repeats_within_the_deadline_and_the_record_is_there_once() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        let broker = Broker::with("orders", 1);
        broker.0.request_errors(Api::Produce, &[error]);
        assert_eq!(targets().send(delivery(kafka(broker.servers()))).await, Sent::Accepted, "{error:?}");
        assert_eq!(broker.records("orders", 1, 1).await.len(), 1, "{error:?}");
    }
}

#[tokio::test]
async fn a_record_that_is_written_and_not_acknowledged_in_time_is_unclear() {
    let broker = Broker::with("orders", 1);
    let targets = targets();
    assert_eq!(targets.send(event(short(&broker), 0)).await, Sent::Accepted);
    broker.0.broker_round_trip_time(-1, Duration::from_secs(4)).unwrap();
    let began = Instant::now();
    let message = doubt(targets.send(event(short(&broker), 1)).await);
    assert!(began.elapsed() < Duration::from_millis(6_500), "later than its deadline: {:?}", began.elapsed());
    assert!(message.contains("MessageTimedOut"), "{message}");
    broker.0.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    assert_eq!(broker.records("orders", 1, 2).await.len(), 2, "it was there: rightly, its token was kept");
}

#[tokio::test]
async fn brokers_that_are_down_are_a_refusal_and_are_found_again() {
    let broker = Broker::with("orders", 1);
    let targets = targets();
    let down =
        |is_down: bool| if is_down { broker.0.broker_down(-1) } else { broker.0.broker_up(-1) }.unwrap();
    down(true);
    let began = Instant::now();
    let (message, _) = refusal(targets.send(event(kafka(broker.servers()), 0)).await);
    assert!(message.contains("no broker of 127.0.0.1:") && message.contains("answers"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    for round in 0..2 {
        down(false);
        let back = Instant::now();
        while targets.send(event(kafka(broker.servers()), 1 + round)).await != Sent::Accepted {
            assert!(back.elapsed() < Duration::from_secs(15), "they are up again");
        }
        down(true);
        // Until the client has seen it.
        tokio::time::sleep(Duration::from_secs(2)).await;
        refusal(targets.send(event(kafka(broker.servers()), 5)).await);
    }
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_a_refusal() {
    let broker = Broker::with("orders", 1);
    broker.0.topic_error("orders", Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let targets = targets();
    let (message, _) = refusal(targets.send(delivery(kafka(broker.servers()))).await);
    assert!(message.contains("topic orders") && message.contains("UnknownTopic"), "{message}");
    broker.0.topic_error("orders", Error::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    assert_eq!(targets.send(delivery(kafka(broker.servers()))).await, Sent::Accepted);
    broker.0.create_topic("led", 1, 1).unwrap();
    broker.0.partition_leader("led", 0, None).unwrap();
    let leaderless = KafkaTarget { topic: "led".into(), ..kafka(broker.servers()) };
    let (message, _) = refusal(targets.send(delivery(leaderless)).await);
    assert!(message.contains("LeaderNotAvailable"), "{message}");
}

/// An idempotent producer cannot do without the call that gives it its id; another one can.
#[tokio::test]
async fn the_producer_is_idempotent() {
    let broker = Broker::with("orders", 1);
    broker.0.apiversion(Api::InitProducerId, None, None).unwrap();
    let other: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", broker.servers()).create().unwrap();
    let record = FutureRecord::<str, str>::to("orders").payload("other");
    other.send(record, Duration::from_secs(5)).await.unwrap();
    let sent = targets().send(delivery(short(&broker))).await;
    assert!(!matches!(sent, Sent::Accepted), "{sent:?}");
    let values: Vec<_> = broker.records("orders", 1, 1).await.into_iter().map(|seen| seen.value).collect();
    assert_eq!(values, [Some("other".to_owned())]);
}

#[tokio::test]
async fn brokers_are_reached_only_where_targets_may_go() {
    let broker = Broker::with("orders", 1);
    let own = broker.servers();
    let known = with(|options| options.kafka_servers = Some(vec!["kafka.example:9092".into()]));
    let message = permanent(known.send(delivery(kafka(own.clone()))).await);
    assert!(message.contains(&own) && message.contains("kafka_servers"), "{message}");
    let known = with(|options| options.kafka_servers = Some(vec![own.clone()]));
    assert_eq!(known.send(delivery(kafka(own.clone()))).await, Sent::Accepted);
    let public = with(|options| options.allow_private_addresses = PrivateAddresses::Refuse);
    let message = permanent(public.send(delivery(kafka(own.clone()))).await);
    assert!(message.contains("loopback"), "{message}");
    // Also where the name leads there, and only one of several does.
    let public = with(|options| {
        options.allow_private_addresses = PrivateAddresses::Refuse;
        options.lookup = tollgate_target::Lookup::by(|name| match name {
            "inside.example" => Ok(vec!["10.0.0.1".parse().unwrap()]),
            _ => Err(std::io::Error::other("Name or service not known")),
        });
    });
    let message = permanent(public.send(delivery(kafka("1.1.1.1:9092,inside.example:9092"))).await);
    assert!(message.contains("inside.example"), "{message}");
    let (message, _) = refusal(public.send(delivery(kafka("nowhere.example:9092"))).await);
    assert!(message.contains("nowhere.example"), "{message}");
}

#[tokio::test]
async fn nothing_is_handed_over_without_leave() {
    let broker = Broker::with("orders", 1);
    let lost = targets().send_by_leave(delivery(kafka(broker.servers())), Leave::now(|| false)).await;
    assert!(not_sent(lost).0.contains("lost the queue shard"));
    let revoked = Leave::always();
    revoked.revoke();
    let revoked = targets().send_by_leave(delivery(kafka(broker.servers())), revoked).await;
    assert!(not_sent(revoked).0.contains("released"));
    assert_eq!(broker.records_now("orders").await.len(), 0);
}
