//! What a schedule's Kafka target may be.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use tollgate_core::model::{KafkaTarget, Target};
use tollgate_proto::convert::{Name, schedule};
use tollgate_proto::json::from_json;
use tollgate_proto::{FieldError, v1};

/// A schedule with this target.
fn convert(value: Value) -> Result<KafkaTarget, Vec<FieldError>> {
    let mut message: v1::Schedule = from_json(value).unwrap();
    let daily = v1::trigger::Trigger::Cron("@daily".to_owned());
    message.triggers = vec![v1::Trigger { trigger: Some(daily) }];
    let name = Name { namespace: "a".to_owned(), id: "b".to_owned() };
    match schedule::to_core(&message, &name, None)?.target {
        Target::Kafka { kafka, .. } => Ok(kafka),
        other => panic!("not Kafka: {other:?}"),
    }
}

fn are_named(cases: &[(Value, &str)]) {
    for (with, field) in cases {
        let errors = convert(with.clone()).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, [format!("schedule.{field}")], "{with}");
        assert!(!errors[0].expected.is_empty());
    }
}

/// A Kafka target, with more or other fields.
fn kafka(with: Value) -> Value {
    let mut kafka = json!({"bootstrap_servers": ["a:9092", "[::1]:9093"], "topic": "orders"});
    kafka.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    json!({"target": {"kafka": kafka}})
}

#[test]
fn each_wrong_field_of_a_kafka_target_is_named() {
    let servers = |servers: Value| kafka(json!({"bootstrap_servers": servers}));
    let many: Vec<String> = (0..17).map(|n| format!("a{n}:1")).collect();
    are_named(&[
        (servers(json!([])), "target.kafka.bootstrap_servers"),
        (servers(json!(many)), "target.kafka.bootstrap_servers"),
        (servers(json!(["a:1", "a"])), "target.kafka.bootstrap_servers[1]"),
        (servers(json!(["a:0"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["a:+1"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["a:65536"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["a,b:1"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["SSL://a:1"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!([":1"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["[x]:1"])), "target.kafka.bootstrap_servers[0]"),
        (servers(json!(["a:1", "a:1"])), "target.kafka.bootstrap_servers[1]"),
        (kafka(json!({"topic": ""})), "target.kafka.topic"),
        (kafka(json!({"topic": ".."})), "target.kafka.topic"),
        (kafka(json!({"topic": "a b"})), "target.kafka.topic"),
        (kafka(json!({"topic": "x".repeat(250)})), "target.kafka.topic"),
        (kafka(json!({"key": "{tenant}"})), "target.kafka.key"),
        (kafka(json!({"key": "{key"})), "target.kafka.key"),
        (kafka(json!({"key": "x".repeat(513)})), "target.kafka.key"),
        (kafka(json!({"headers": {"ce_id": "x"}})), "target.kafka.headers"),
        (kafka(json!({"headers": {"Content-Type": "x"}})), "target.kafka.headers"),
        (kafka(json!({"headers": {"x-api-key": "***"}})), "target.kafka.headers.x-api-key"),
        (kafka(json!({"deadline": "4.9s"})), "target.kafka.deadline"),
        (kafka(json!({"deadline": "15m 1ms"})), "target.kafka.deadline"),
    ]);
    let plain = convert(kafka(json!({}))).unwrap();
    assert_eq!((plain.bootstrap_servers.as_str(), plain.deadline_ms), ("a:9092,[::1]:9093", 30_000));
}
