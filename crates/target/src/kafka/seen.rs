//! What is known of a cluster, by what its producer says and by what becomes of records.
//!
//! In: looks at topics, reports of records, the producer's own words. Out: whether a topic must be looked at again. Invariants:
//! what one topic's brokers refuse has no other topic looked at; a doubt that comes while a topic is looked at is not lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tollgate_clock::instant_now;

/// For how long it is believed that a topic is there, as long as nothing speaks against it.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Topics after which those that were looked at are forgotten.
const KNOWN_MAX: usize = 10_000;

/// What a producer has said of itself, and the topics that were there.
#[derive(Debug, Default)]
pub(super) struct Seen {
    topics: Mutex<Topics>,
    /// No broker could be reached since the last one answered.
    is_down: AtomicBool,
    /// It can send nothing any more.
    has_ended: AtomicBool,
    /// The latest that went wrong.
    words: Mutex<String>,
}

#[derive(Debug, Default)]
struct Topics {
    /// Until when it counts that they were there.
    until: HashMap<String, tokio::time::Instant>,
    /// The one that is looked at, as long as nothing has spoken against it.
    looking: Option<String>,
}

impl Seen {
    /// Whether a topic was there a while ago, and nothing has spoken against it.
    pub(super) fn knows(&self, topic: &str) -> bool {
        self.topics().until.get(topic).is_some_and(|until| *until > instant_now())
    }

    /// A look at a topic begins.
    pub(super) fn begin(&self, topic: &str) {
        self.topics().looking = Some(topic.to_owned());
    }

    /// The topic that is looked at is there.
    pub(super) fn found(&self) {
        self.is_down.store(false, Ordering::Release);
        lock(&self.words).clear();
        let mut topics = self.topics();
        let Some(topic) = topics.looking.take() else { return };
        if topics.until.len() >= KNOWN_MAX {
            topics.until.clear();
        }
        topics.until.insert(topic, instant_now() + KNOWN_FOR);
    }

    /// A record has been written to a topic.
    pub(super) fn renew(&self, topic: &str) {
        if let Some(until) = self.topics().until.get_mut(topic) {
            *until = instant_now() + KNOWN_FOR;
        }
    }

    /// Has a topic be looked at again before the next record.
    pub(super) fn doubt(&self, topic: &str) {
        let mut topics = self.topics();
        topics.until.remove(topic);
        topics.looking.take_if(|looking| looking == topic);
    }

    /// Has all topics be looked at again.
    pub(super) fn doubt_all(&self) {
        *self.topics() = Topics::default();
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// The latest that went wrong, in brackets; nothing where nothing did.
    pub(super) fn words(&self) -> String {
        match &*lock(&self.words) {
            none if none.is_empty() => String::new(),
            some => format!(" (Kafka's client says: {some})"),
        }
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        lock(&self.topics)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears what a producer says of itself.
pub(super) struct Listener(pub(super) Arc<Seen>);

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "Kafka's client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka's client");
        self.0.doubt_all();
        match error.rdkafka_error_code() {
            Some(Code::Fatal) => self.0.has_ended.store(true, Ordering::Release),
            Some(Code::AllBrokersDown) => self.0.is_down.store(true, Ordering::Release),
            _ => {}
        }
        reason.clone_into(&mut lock(&self.0.words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(topics: &[&str]) -> Seen {
        let seen = Seen::default();
        for topic in topics {
            seen.begin(topic);
            seen.found();
        }
        seen
    }

    #[test]
    fn what_one_topic_s_brokers_refuse_has_no_other_looked_at() {
        let seen = with(&["a", "b"]);
        seen.doubt("a");
        assert_eq!((seen.knows("a"), seen.knows("b")), (false, true));
        seen.renew("a");
        assert!(!seen.knows("a"), "an older record says nothing of the doubt");
        seen.doubt_all();
        assert!(!seen.knows("b"));
    }

    #[test]
    fn a_doubt_while_a_topic_is_looked_at_is_not_lost() {
        for (doubt, is_known) in [("a", false), ("b", true)] {
            let seen = with(&[]);
            seen.begin("a");
            seen.doubt(doubt);
            seen.found();
            assert_eq!(seen.knows("a"), is_known, "{doubt}");
        }
        let seen = with(&[]);
        seen.begin("a");
        seen.doubt_all();
        seen.found();
        assert!(!seen.knows("a"));
    }
}
