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

use super::plain::is_kafka_denial;

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
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    text: String,
    /// A broker refused the login, or one side the other's certificate.
    is_denial: bool,
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
        *lock(&self.words) = Words::default();
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
        match &lock(&self.words).text {
            none if none.is_empty() => String::new(),
            some => format!(" (Kafka's client says: {some})"),
        }
    }

    /// Why there is no TLS or no login with brokers, where that is the latest that went wrong.
    pub(super) fn denial(&self) -> Option<String> {
        let words = lock(&self.words);
        // How long it took is different each time.
        let (text, _) = words.text.split_once(" (after ").unwrap_or((words.text.as_str(), ""));
        words.is_denial.then(|| text.to_owned())
    }

    /// The client says that something went wrong.
    fn hear(&self, code: Option<Code>, reason: &str) {
        self.doubt_all();
        match code {
            Some(Code::Fatal) => self.has_ended.store(true, Ordering::Release),
            Some(Code::AllBrokersDown) => self.is_down.store(true, Ordering::Release),
            _ => {}
        }
        let mut words = lock(&self.words);
        // That all are down says no more than why the last one is.
        if code != Some(Code::AllBrokersDown) || words.text.is_empty() {
            let is_denial = is_kafka_denial(code, reason);
            *words = Words { text: reason.to_owned(), is_denial };
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
        self.0.hear(error.rdkafka_error_code(), reason);
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

    #[test]
    fn why_there_is_no_login_is_kept_until_something_else_is_wrong_or_all_is_well() {
        let said = "sasl_ssl://a:9093/bootstrap: SASL authentication error: no such user";
        let seen = with(&[]);
        seen.hear(Some(Code::Authentication), &format!("{said} (after 3ms in state AUTH_REQ)"));
        seen.hear(Some(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!((seen.denial().as_deref(), seen.is_down()), (Some(said), true));
        assert!(seen.words().contains("no such user"), "{}", seen.words());
        seen.hear(Some(Code::BrokerTransportFailure), "refused");
        assert_eq!(seen.denial(), None);
        seen.hear(Some(Code::SSL), said);
        assert_eq!(seen.denial().as_deref(), Some(said));
        seen.begin("a");
        seen.found();
        assert_eq!((seen.denial(), seen.words().as_str()), (None, ""));
    }
}
