//! What a build without Kafka does with a delivery to it.
#![cfg(not(feature = "kafka"))]

use crate::samples::{delivery, kafka, not_sent, targets};

#[tokio::test]
async fn a_process_that_was_built_without_kafka_says_so_and_blames_no_target() {
    let sent = targets().send(delivery(kafka("127.0.0.1:9092"))).await;
    assert!(not_sent(sent).0.contains("built without Kafka"));
}
