//! What a record has: key, headers, value.

use std::sync::Arc;

use serde_json::Value;
use tollgate_core::model::{ContentMode, Delivery, DeliveryItem, KafkaTarget, Payload, Sent};

use crate::broker::Broker;
use crate::samples::{delivery, event, kafka, permanent, targets, with};

#[tokio::test]
async fn a_record_is_the_document_that_http_targets_get() {
    let broker = Broker::with("orders", 1);
    let target =
        KafkaTarget { headers: [("x-team".into(), "blue".into())].into(), ..kafka(broker.servers()) };
    let event = delivery(target);
    assert_eq!(targets().send(event.clone()).await, Sent::Accepted);
    let [record] = &broker.records("orders", 1, 1).await[..] else { panic!("not one record") };
    assert_eq!(record.key, None, "the event has no key");
    assert_eq!(record.header("x-team"), Some("blue"));
    assert_eq!(record.header("content-type"), Some("application/cloudevents+json; charset=utf-8"));
    assert_eq!(record.headers.len(), 2);
    let value: Value = serde_json::from_str(record.value.as_deref().unwrap()).unwrap();
    assert_eq!(value, serde_json::from_str::<Value>(&targets().document(event).unwrap()).unwrap());
    assert_eq!((&value["attempt"], &value["data"]["order"]), (&2.into(), &17.into()));
}

#[tokio::test]
async fn in_binary_mode_attributes_are_headers() {
    let broker = Broker::with("orders", 1);
    let targets = with(|options| options.source = "https://tollgate.example".to_owned());
    let target = KafkaTarget {
        content_mode: ContentMode::Binary,
        // With every name that there is.
        key: Some("{namespace}/{schedule}/{index}/{run}/{event}/{key}".into()),
        ..kafka(broker.servers())
    };
    let mut first = delivery(target.clone());
    first.cursor = Some("größe 7".into());
    assert_eq!(targets.send(first.clone()).await, Sent::Accepted);
    let mut empty = event(target, 4);
    Arc::make_mut(&mut empty.spec).payload = Payload::default();
    assert_eq!(targets.send(empty.clone()).await, Sent::Accepted);
    let [record, other] = &broker.records("orders", 1, 2).await[..] else { panic!("not two records") };
    assert_eq!(
        (record.key.as_deref(), record.value.as_deref()),
        (Some(key_of(&first).as_str()), Some(r#"{"order":17}"#))
    );
    let document: Value = serde_json::from_str(&targets.document(first).unwrap()).unwrap();
    for (name, value) in document.as_object().unwrap() {
        let header = match name.as_str() {
            "data" => continue,
            "datacontenttype" => "content-type".to_owned(),
            name => format!("ce_{name}"),
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(record.header(&header), Some(text.as_str()), "{name}");
    }
    assert_eq!(record.headers.len(), document.as_object().unwrap().len() - 1);
    assert_eq!(record.header("ce_cursor"), Some("größe 7"));
    // A record without a value would delete its key in a compacted topic.
    assert_eq!(other.header("content-type"), None, "there is nothing of which it would say what it is");
    assert_eq!((other.key.as_deref(), other.value.as_deref()), (Some(key_of(&empty).as_str()), Some("")));
}

fn key_of(event: &Delivery) -> String {
    format!("acme/nightly/{}/{}/{}/", event.index, event.event_id.run(), event.event_id)
}

#[tokio::test]
async fn events_of_one_key_are_in_one_partition() {
    let broker = Broker::with("orders", 8);
    let targets = targets();
    for index in 0..24 {
        let mut event = event(kafka(broker.servers()), index);
        let key = format!("tenant-{}", index % 6);
        event.item = Some(Box::new(DeliveryItem { payload: "".into(), data: "{}".into(), key }));
        assert_eq!(targets.send(event).await, Sent::Accepted);
    }
    let records = broker.records("orders", 8, 24).await;
    assert_eq!(records.len(), 24);
    // As the producers of Java have it: murmur2 of the key.
    let partitions = (0..6).map(|tenant| {
        let key = format!("tenant-{tenant}");
        records.iter().find(|record| record.key.as_ref() == Some(&key)).unwrap().partition
    });
    assert_eq!(partitions.collect::<Vec<_>>(), [0, 3, 6, 1, 6, 0]);
    for tenant in 0..6 {
        let key = format!("tenant-{tenant}");
        let of_key: Vec<_> = records.iter().filter(|record| record.key.as_ref() == Some(&key)).collect();
        assert_eq!(of_key.len(), 4, "{key}");
        assert!(of_key.iter().all(|record| record.partition == of_key[0].partition), "{of_key:?}");
    }
}

#[tokio::test]
async fn what_no_broker_would_take_is_not_sent() {
    let mut event = delivery(kafka("127.0.0.1:1"));
    Arc::make_mut(&mut event.spec).payload = Payload::of(format!("\"{}\"", "x".repeat(1_000_000)));
    let message = permanent(targets().send(event).await);
    assert!(
        message.starts_with("payload: the record has 100") && message.contains("at most 1000000"),
        "{message}"
    );
}
