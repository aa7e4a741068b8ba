//! Has the producer of a cluster.
//!
//! In: orders. Out: records handed to Kafka's client, once their topics have been seen. Invariant: a request has one record, so
//! that what brokers say of it is said of no other's. Not here: what reports mean (`verdict`), whose turn it is (`cluster`).

use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaResult;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;
use tollgate_clock::instant_now;
use tollgate_core::model::{KafkaTarget, Sent};

use super::order::{Handed, Taken};
use super::record::{RECORD_MAX_BYTES, Record};
use super::seen::{Listener, Seen};
use super::{plain, verdict};
use crate::kafka_login::KafkaAccess;
use crate::not_sent;

/// Why a record was not sent whose turn did not come in time.
pub(super) const TOO_SLOW: &str =
    "not sent to Kafka: its turn did not come while its deadline left time for it";
/// How long brokers are waited for, at most; and the least that says something of them.
const LOOK_MAX: Duration = Duration::from_secs(5);
const LOOK_MIN: Duration = Duration::from_millis(500);
/// Of the brokers that a target names, those that a producer is told: the client has a thread for each.
pub(super) const SERVERS_MAX: usize = 4;
/// Records that a producer holds: no more than deliveries under way, which other bounds keep below this.
const RECORDS_MAX: &str = "100000";
/// And their kilobytes.
const KILOBYTES_MAX: &str = "131072";
/// For how long a broker waits for its replicas, at most: less than it may be silent.
const REPLICAS_MS: u64 = 8_000;

/// Deliveries with equal keys share a producer: none is shared by those that log in otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClusterKey {
    /// In order, with commas between them.
    pub(super) servers: String,
    /// For how long a producer tries to have a record written.
    pub(super) patience_ms: u64,
    /// How its brokers are spoken to.
    pub(super) access: Arc<KafkaAccess>,
}

impl ClusterKey {
    /// That of a target, in whatever order it names its brokers.
    pub(super) fn of(target: &KafkaTarget, patience_ms: u64, access: Arc<KafkaAccess>) -> Self {
        let mut servers: Vec<String> = target.servers().map(str::to_ascii_lowercase).collect();
        servers.sort_unstable();
        servers.dedup();
        Self { servers: servers.join(","), patience_ms, access }
    }

    /// Whether a producer is told only a part of the brokers.
    pub(super) fn has_parts(&self) -> bool {
        self.servers.split(',').count() > SERVERS_MAX
    }

    /// The brokers that a producer is told: another part of them in each round.
    fn part(&self, round: usize) -> String {
        let all: Vec<&str> = self.servers.split(',').collect();
        let count = all.len().min(SERVERS_MAX);
        let part = (0..count).filter_map(|at| all.get((round * count + at) % all.len()).copied());
        part.collect::<Vec<_>>().join(",")
    }
}

/// What a producer is told.
pub(super) fn config(key: &ClusterKey, round: usize, connect_timeout: Duration) -> ClientConfig {
    let mut config = plain::config(&key.part(round), &key.access, connect_timeout);
    plain::writes(&mut config);
    for (name, value) in [
        ("queue.buffering.max.messages", RECORDS_MAX),
        ("queue.buffering.max.kbytes", KILOBYTES_MAX),
        ("message.timeout.ms", &key.patience_ms.to_string()),
        ("request.timeout.ms", &key.patience_ms.min(REPLICAS_MS).to_string()),
        ("message.max.bytes", &(RECORD_MAX_BYTES + 64 * 1024).to_string()),
        ("retry.backoff.ms", &verdict::RETRY_MS.to_string()),
        ("retry.backoff.max.ms", &verdict::RETRY_MS.to_string()),
    ] {
        config.set(name, value);
    }
    config
}

/// What a thread has while it is at work.
pub(super) struct Producer {
    client: FutureProducer<Listener>,
    pub(super) seen: Arc<Seen>,
    pub(super) since: Instant,
}

impl Producer {
    pub(super) fn new(config: &ClientConfig) -> KafkaResult<Self> {
        let seen = Arc::new(Seen::default());
        let client = config.create_with_context(Listener(seen.clone()))?;
        Ok(Self { client, seen, since: instant_now() })
    }

    /// Looks whether an order's topic can be written to; blocks. None where it can.
    pub(super) fn look(&self, order: &Taken) -> KafkaResult<Option<Sent>> {
        let topic = &order.record.topic;
        if self.seen.knows(topic) {
            return Ok(None);
        }
        // So that its sender hears the answer before it gives up.
        let left = order.turn_until.saturating_duration_since(instant_now()) * 4 / 5;
        if left < LOOK_MIN {
            return Ok(Some(not_sent(TOO_SLOW)));
        }
        self.seen.begin(topic);
        let metadata = self.client.client().fetch_metadata(Some(topic), left.min(LOOK_MAX))?;
        let code = match metadata.topics().first() {
            Some(found) => match found.error() {
                Some(error) => Some(Code::from(error)),
                None => {
                    let has_leader = found.partitions().iter().any(|partition| partition.leader() >= 0);
                    (!has_leader).then_some(Code::LeaderNotAvailable)
                }
            },
            None => Some(Code::UnknownTopic),
        };
        if let Some(code) = code {
            self.seen.doubt(topic);
            return Ok(Some(verdict::of_topic(topic, code)));
        }
        self.seen.found();
        Ok(None)
    }

    /// Hands an order over, as long as it has leave to be sent.
    pub(super) fn hand_over(&self, order: Taken) {
        // Looking at the topic may have taken its time.
        if instant_now() >= order.turn_until {
            return order.keep(not_sent(TOO_SLOW));
        }
        if let Err(why) = order.leave.check(order.deadline) {
            return order.keep(not_sent(format!("not sent to Kafka: {why}")));
        }
        let Record { topic, key, headers, value } = &order.record;
        let mut all = OwnedHeaders::new_with_capacity(headers.len());
        for (name, value) in headers {
            all = all.insert(Header { key: name, value: Some(value) });
        }
        let mut record = FutureRecord::<str, [u8]>::to(topic).payload(value).headers(all);
        if let Some(key) = key {
            record = record.key(key);
        }
        let since = instant_now();
        let handed = match self.client.send_result(record) {
            Ok(report) => Handed::Over { report, since, seen: self.seen.clone() },
            Err((error, _)) => {
                self.seen.doubt(topic);
                Handed::Kept(verdict::of_handing_over(&error))
            }
        };
        order.answer(handed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(servers: &str) -> ClusterKey {
        let target = KafkaTarget {
            bootstrap_servers: servers.to_owned(),
            topic: "t".to_owned(),
            key: None,
            headers: std::collections::BTreeMap::new(),
            content_mode: tollgate_core::model::ContentMode::Structured,
            deadline_ms: 5_000,
        };
        ClusterKey::of(&target, 1_000, Arc::default())
    }

    #[test]
    fn what_is_acknowledged_is_with_all_replicas_and_once() {
        let config = config(&key("127.0.0.1:1"), 0, Duration::from_secs(1));
        assert_eq!((config.get("acks"), config.get("enable.idempotence")), (Some("all"), Some("true")));
        assert_eq!(config.get("message.timeout.ms"), Some("1000"));
        assert!(Producer::new(&config).is_ok(), "the client takes every setting");
    }

    #[test]
    fn the_same_brokers_are_one_cluster_of_which_a_producer_is_told_four_at_a_time() {
        assert_eq!(key("b:1,A:1,b:1"), key("a:1,b:1"));
        assert_eq!(key("b:1,a:1").part(7), "a:1,b:1");
        let many = key("f:1,e:1,d:1,c:1,b:1,a:1");
        assert!(many.has_parts() && !key("d:1,c:1,b:1,a:1").has_parts());
        assert_eq!([0, 1].map(|round| many.part(round)), ["a:1,b:1,c:1,d:1", "e:1,f:1,a:1,b:1"]);
    }
}
