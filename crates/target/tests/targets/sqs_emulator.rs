//! SQS against an emulator.

use std::collections::BTreeMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use futures::future::join_all;
use serde_json::Value;
use tollgate_core::model::{Delivery, DeliveryItem, Sent, SqsTarget};

use crate::samples::{delivery, event, refusal, sqs, targets};
use crate::sqs_environment::{Emulator, has_keys};

async fn queue(client: &Client, name: &str) -> String {
    let mut create = client.create_queue().queue_name(name);
    if name.ends_with(".fifo") {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
    }
    create.send().await.unwrap().queue_url().unwrap().to_owned()
}

/// Takes all messages out of a queue, in the order in which it gives them.
async fn drain(client: &Client, queue_url: &str) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        let got = client
            .receive_message()
            .queue_url(queue_url)
            .max_number_of_messages(10)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .unwrap();
        if got.messages().is_empty() {
            return all;
        }
        for message in got.messages() {
            let receipt = message.receipt_handle().unwrap();
            client.delete_message().queue_url(queue_url).receipt_handle(receipt).send().await.unwrap();
            all.push(message.clone());
        }
    }
}

fn attributes(message: &Message) -> BTreeMap<String, (String, String)> {
    let attributes = message.message_attributes().unwrap();
    let text = |value: &aws_sdk_sqs::types::MessageAttributeValue| {
        (value.data_type().to_owned(), value.string_value().unwrap().to_owned())
    };
    attributes.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn body(message: &Message) -> Value {
    serde_json::from_str(message.body().unwrap()).unwrap()
}

fn full(target: SqsTarget, index: u32) -> Delivery {
    let mut delivery = event(target, index);
    std::sync::Arc::make_mut(&mut delivery.spec).policy_id = Some("erp".into());
    delivery.cursor = Some("page 7".into());
    delivery
}

#[tokio::test]
async fn a_standard_queue_gets_every_event_once() {
    if !has_keys() {
        return;
    }
    let emulator = Emulator::start();
    let client = emulator.client().await;
    let queue_url = queue(&client, "orders").await;
    let (targets, target) = (targets(), sqs(&queue_url, &emulator.endpoint));
    let sent = join_all((0..25).map(|index| targets.send(full(target.clone(), index)))).await;
    assert_eq!(sent, vec![Sent::Accepted; 25]);
    let mut messages = drain(&client, &queue_url).await;
    messages.sort_by_key(|message| body(message)["index"].as_u64());
    assert_eq!(messages.len(), 25);
    for (index, message) in (0..).zip(&messages) {
        let expected = full(target.clone(), index);
        let text = |value: &str| ("String".to_owned(), value.to_owned());
        let number = |value: u32| ("Number".to_owned(), value.to_string());
        let wanted = [
            ("tollgate-event-id", text(expected.event_id.as_str())),
            ("tollgate-attempt", number(2)),
            ("tollgate-schedule", text("namespaces/acme/schedules/nightly")),
            ("tollgate-run", text(&format!("namespaces/acme/runs/{}", expected.event_id.run()))),
            ("tollgate-index", number(index)),
            ("tollgate-count", number(7)),
            ("tollgate-launch-time", text("2026-05-28T20:26:40.250000Z")),
            ("tollgate-policy", text("namespaces/acme/policies/erp")),
            ("tollgate-cursor", text("page 7")),
        ];
        assert_eq!(attributes(message), wanted.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(body(message)["id"], expected.event_id.as_str());
        assert_eq!(body(message)["data"]["order"], 17);
    }
    let mut plain = delivery(target);
    plain.cursor = Some("\u{1}".into());
    assert_eq!(targets.send(plain).await, Sent::Accepted);
    let plain = drain(&client, &queue_url).await.remove(0);
    assert!(
        !attributes(&plain).contains_key("tollgate-policy")
            && !attributes(&plain).contains_key("tollgate-cursor")
    );
    assert_eq!(body(&plain)["cursor"], "\u{1}");
}

#[tokio::test]
async fn a_fifo_queue_keeps_order_and_drops_only_repeats_of_one_attempt() {
    if !has_keys() {
        return;
    }
    let emulator = Emulator::start();
    let client = emulator.client().await;
    let queue_url = queue(&client, "orders.fifo").await;
    let (targets, target) = (targets(), sqs(&queue_url, &emulator.endpoint));
    let sent = join_all((0..25).map(|index| targets.send(event(target.clone(), index)))).await;
    assert_eq!(sent, vec![Sent::Accepted; 25]);
    // The same attempt again, as after a crash between sending and recording; and the next attempt.
    assert_eq!(targets.send(event(target.clone(), 24)).await, Sent::Accepted);
    let mut next = event(target.clone(), 24);
    next.attempt = 3;
    assert_eq!(targets.send(next).await, Sent::Accepted);
    let messages = drain(&client, &queue_url).await;
    let order: Vec<_> = messages.iter().map(|message| body(message)["index"].as_u64().unwrap()).collect();
    assert_eq!(order, (0..25).chain([24]).collect::<Vec<_>>());
    assert_eq!(body(messages.last().unwrap())["attempt"], 3);
    let group = |message: &Message| {
        message.attributes().unwrap()[&MessageSystemAttributeName::MessageGroupId].clone()
    };
    assert!(messages.iter().all(|message| group(message) == "namespaces/acme/schedules/nightly"));
    let mut grouped = target;
    grouped.message_group_id = Some("tenant-7".into());
    assert_eq!(targets.send(event(grouped.clone(), 30)).await, Sent::Accepted);
    assert_eq!(group(&drain(&client, &queue_url).await[0]), "tenant-7");
    grouped.group_by_key = true;
    let item = |key: &str| DeliveryItem { key: key.into(), payload: "".into(), data: "[7]".into() };
    for (index, key, expected) in [(31, "acme", "acme"), (32, "", "tenant-7")] {
        let mut of_key = event(grouped.clone(), index);
        of_key.item = Some(Box::new(item(key)));
        assert_eq!(targets.send(of_key).await, Sent::Accepted);
        let message = drain(&client, &queue_url).await.remove(0);
        assert_eq!(
            (group(&message), &body(&message)["data"]),
            (expected.to_owned(), &serde_json::json!([7]))
        );
        assert_eq!(body(&message)["key"].as_str().unwrap_or_default(), key);
    }
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_a_refusal() {
    if !has_keys() {
        return;
    }
    let emulator = Emulator::start();
    let target = sqs(format!("{}/123456789012/nowhere", emulator.endpoint), &emulator.endpoint);
    let (message, _) = refusal(targets().send(delivery(target)).await);
    assert!(message.contains("HTTP 400") && message.contains("NonExistentQueue"), "{message}");
}
