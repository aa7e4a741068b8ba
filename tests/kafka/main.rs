//! Kafka targets and commands from topics, end to end: the binary with the feature `kafka`, real stores, brokers that speak
//! Kafka's protocol.
#![expect(clippy::unwrap_used, reason = "tests")]

#[macro_use]
extern crate tollgate_harness;

mod authority;
mod broker;
mod commands;
mod delivered;
mod front;
mod mixed;
mod secured;
mod service;
mod trouble;
