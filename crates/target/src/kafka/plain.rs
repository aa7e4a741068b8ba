//! Has the settings that every client of Kafka has here, also those for topics that the operator names.
//!
//! In: brokers. Out: a client's configuration, to which each client adds its own. Not here: whose addresses may be reached.

use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

/// For how long a broker may be silent before its connection is given up.
const SILENCE_MS: u64 = 10_000;
/// How long connecting to a broker of the operator's may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What a client is told that speaks with these brokers, which have commas between them.
pub(super) fn config(servers: &str, connect_timeout: Duration) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in [
        ("bootstrap.servers", servers),
        ("client.id", "tollgate"),
        ("socket.timeout.ms", &SILENCE_MS.to_string()),
        ("socket.connection.setup.timeout.ms", &connect_timeout.as_millis().max(1_000).to_string()),
        ("socket.keepalive.enable", "true"),
        ("reconnect.backoff.max.ms", "2000"),
        ("log.connection.close", "false"),
    ] {
        config.set(name, value);
    }
    config.set_log_level(RDKafkaLogLevel::Warning);
    config
}

/// What a producer is told besides. Each request has one record, as brokers judge all records of one together.
pub(super) fn writes(config: &mut ClientConfig) {
    for (name, value) in [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("batch.num.messages", "1"),
        ("linger.ms", "0"),
        // As the producers of Java have it, so that a key of theirs is in the same partition.
        ("partitioner", "murmur2_random"),
    ] {
        config.set(name, value);
    }
}

/// The same for brokers that the operator names, and of which nothing is a user's: no address is guarded.
pub fn kafka_client(servers: &[String]) -> ClientConfig {
    config(&servers.join(","), CONNECT_MAX)
}

/// As [`kafka_client`], of a producer.
pub fn kafka_producer(servers: &[String]) -> ClientConfig {
    let mut config = kafka_client(servers);
    writes(&mut config);
    config
}
