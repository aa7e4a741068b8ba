//! Kafka targets, against brokers that speak Kafka's protocol.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which measure with the machine's clocks"
)]

#[path = "../../../../tests/kafka/broker.rs"]
mod broker;
mod neighbours;
mod outcomes;
mod records;
#[expect(dead_code, reason = "what the tests of other targets use")]
#[path = "../targets/samples.rs"]
mod samples;
