//! Targets from outside: real sockets on this machine, and an SQS emulator.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests, which measure with the machine's clocks"
)]

mod addresses;
mod batches;
mod event;
mod frames;
mod http2;
mod http_answers;
mod http_crowd;
mod http_failures;
mod kafka;
mod leave;
mod neighbours;
mod post;
#[cfg_attr(feature = "kafka", expect(dead_code, reason = "what the tests of Kafka targets use"))]
mod samples;
mod server;
mod sqs_answers;
mod sqs_emulator;
mod sqs_environment;
