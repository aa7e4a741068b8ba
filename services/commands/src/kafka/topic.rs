//! Writes answers and dead letters to topics of a cluster.
//!
//! In: messages. Out: whether each is with all in-sync replicas. Invariants: the producer is idempotent; a request has one
//! record, so that what brokers say of it is said of no other's; one that is too large is so for good, everything else is
//! tried again by who asked.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::config::KafkaConfig;
use crate::message::{Envelope, NotSent, Outgoing};

/// How long brokers may take to say what topics there are.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How long a record may wait for room in the client.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// As large as what is read may be: brokers decide what is too large for a topic.
const RECORD_MAX_BYTES: &str = "100000000";
/// As much as may be in hand.
const BUFFER_MAX_KBYTES: &str = "32768";
/// For how long the client tries to have a record written.
const PATIENCE_MS: &str = "10000";
/// For how long a broker waits for its replicas, at most.
const REPLICAS_MS: &str = "8000";

/// A topic to which messages are written.
#[derive(Clone)]
pub(crate) struct Topic {
    producer: Arc<Producer>,
    name: String,
}

/// Writes to all topics of one cluster.
struct Producer {
    config: ClientConfig,
    client: Mutex<FutureProducer<Quiet>>,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topic").field(&self.name).finish()
    }
}

/// What the client says of itself is told with what comes of it.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "Kafka's client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka's client");
    }
}

fn config(kafka: &KafkaConfig) -> ClientConfig {
    let mut config = tollgate_target::kafka_producer(&kafka.bootstrap_servers, &kafka.access);
    for (name, value) in [
        ("message.max.bytes", RECORD_MAX_BYTES),
        // What its sender has compressed may be too large otherwise.
        ("compression.type", "lz4"),
        ("queue.buffering.max.kbytes", BUFFER_MAX_KBYTES),
        ("message.timeout.ms", PATIENCE_MS),
        ("request.timeout.ms", REPLICAS_MS),
    ] {
        config.set(name, value);
    }
    config
}

impl Topic {
    /// A topic of a cluster.
    ///
    /// # Errors
    /// Settings that Kafka's client refuses.
    pub(crate) fn new(kafka: &KafkaConfig, name: &str) -> Result<Self, String> {
        let config = config(kafka);
        let client = config.create_with_context(Quiet).map_err(|error| format!("kafka: {error}"))?;
        Ok(Self {
            producer: Arc::new(Producer { config, client: Mutex::new(client) }),
            name: name.to_owned(),
        })
    }

    /// Another topic of the same cluster.
    pub(crate) fn other(&self, name: &str) -> Self {
        Self { producer: self.producer.clone(), name: name.to_owned() }
    }

    /// Writes messages. Says of each whether it is written.
    pub(crate) async fn send(&self, messages: &[Outgoing]) -> Vec<Result<(), NotSent>> {
        join_all(messages.iter().map(|message| self.send_one(message))).await
    }

    async fn send_one(&self, message: &Outgoing) -> Result<(), NotSent> {
        let Envelope::Kafka { key, headers, is_null } = &message.envelope else {
            return Err(NotSent::Never("it came from no topic".to_owned()));
        };
        // What it had under these names is of an earlier dead letter.
        let has = |name: &str| message.attributes.iter().any(|(one, _)| *one == name);
        let mut all = OwnedHeaders::new_with_capacity(headers.len() + message.attributes.len());
        for (name, value) in headers.iter().filter(|(name, _)| !has(name)) {
            all = all.insert(Header { key: name, value: value.as_ref() });
        }
        for (name, value) in &message.attributes {
            all = all.insert(Header { key: name, value: Some(value) });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(&self.name).headers(all);
        if let Some(key) = key {
            record = record.key(key);
        }
        if !is_null {
            record = record.payload(&message.body);
        }
        let client = self.producer.client();
        match client.send(record, ROOM_WAIT).await {
            Ok(_) => Ok(()),
            Err((error, _)) => {
                let code = error.rdkafka_error_code();
                if code == Some(Code::Fatal) {
                    self.producer.renew(client);
                }
                let said = format!("topic {}: {error}", self.name);
                let is_too_large = code == Some(Code::MessageSizeTooLarge);
                Err(if is_too_large { NotSent::Never(said) } else { NotSent::Later(said) })
            }
        }
    }

    /// Whether it is there.
    pub(crate) async fn look(&self) -> Result<(), String> {
        let (client, name) = (self.producer.client(), self.name.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let metadata = client.client().fetch_metadata(Some(&name), LOOK_MAX);
            let metadata = metadata.map_err(|error| format!("topic {name}: {error}"))?;
            let error = metadata.topics().first().and_then(|topic| topic.error());
            error.map_or(Ok(()), |error| Err(format!("topic {name}: {}", Code::from(error))))
        });
        looked.await.unwrap_or_else(|_| Err("nobody has looked".to_owned()))
    }
}

impl Producer {
    fn client(&self) -> FutureProducer<Quiet> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has another client where this one can send nothing any more. To end one takes a while.
    fn renew(self: &Arc<Self>, ended: FutureProducer<Quiet>) {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let new = if this.client().client().fatal_error().is_some() {
                this.config.create_with_context(Quiet)
            } else {
                return drop(ended);
            };
            match new {
                Ok(new) => {
                    let mut client = this.client.lock().unwrap_or_else(PoisonError::into_inner);
                    let old = std::mem::replace(&mut *client, new);
                    drop(client);
                    drop(old);
                }
                Err(error) => tracing::warn!("Kafka: no new producer: {error}"),
            }
            drop(ended);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_with_all_replicas_and_once() {
        let kafka = KafkaConfig {
            bootstrap_servers: vec!["127.0.0.1:1".to_owned()],
            access: tollgate_target::KafkaAccess::default(),
            topic: "in".to_owned(),
            group: "g".to_owned(),
            reply_topic: None,
            dead_letter_topic: "dead".to_owned(),
        };
        let config = config(&kafka);
        assert_eq!((config.get("acks"), config.get("enable.idempotence")), (Some("all"), Some("true")));
        assert!(Topic::new(&kafka, "dead").is_ok(), "the client takes every setting");
    }
}
