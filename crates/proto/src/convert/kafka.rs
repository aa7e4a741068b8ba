//! Decides which brokers and topic a Kafka target may have, and what its records may carry beside the event. Whether a broker may
//! be reached, and whether this server speaks to Kafka at all, is decided elsewhere.

use std::collections::BTreeSet;

use tollgate_core::model::{ContentMode, KEY_NAMES, KafkaTarget, is_key_template};

use super::check::Check;
use super::duration_of_ms;
use super::headers::{headers_but, kept, shown_headers};
use crate::v1;

/// The most brokers that a target names.
pub const SERVERS_MAX: usize = 16;
/// The longest name of a topic, as Kafka itself has it.
pub const TOPIC_MAX_CHARS: usize = 249;
const KEY_MAX_BYTES: usize = 512;
const SERVERS: &str = "target.kafka.bootstrap_servers";
const HEADERS: &str = "target.kafka.headers";
/// Why what is hidden must be given again.
const ELSEWHERE: &str =
    "because the target has other brokers or another topic than those that it was stored for";

/// A Kafka target of a schedule. Values of headers that the message says to keep are taken from `stored`.
pub(super) fn target(
    check: &mut Check,
    message: &v1::KafkaTarget,
    stored: Option<&KafkaTarget>,
) -> KafkaTarget {
    servers(check, &message.bootstrap_servers);
    if !is_topic(&message.topic) {
        let expected =
            format!("1 to {TOPIC_MAX_CHARS} characters of a-z, A-Z, 0-9 and . _ -, not . or .. alone");
        check.refuse("target.kafka.topic", &message.topic, expected);
    }
    let key = message.key.as_str();
    if key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) || !is_key_template(key) {
        let names: Vec<String> = KEY_NAMES.iter().map(|name| format!("{{{name}}}")).collect();
        let expected = format!(
            "at most {KEY_MAX_BYTES} bytes of text, in which braces stand only in {}",
            names.join(", ")
        );
        check.refuse("target.kafka.key", key, expected);
    }
    headers_but(check, HEADERS, &message.headers, |name| name == "content-type" || name.starts_with("ce_"));
    let binary = "KAFKA_CONTENT_MODE_BINARY, or nothing";
    let content_mode = match check.choice("target.kafka.content_mode", message.content_mode, binary) {
        v1::KafkaContentMode::Unspecified => ContentMode::Structured,
        v1::KafkaContentMode::Binary => ContentMode::Binary,
    };
    let before = stored.map(|stored| &stored.headers);
    let elsewhere = stored.is_some_and(|stored| is_elsewhere(stored, message)).then_some(ELSEWHERE);
    let (deadline, default) = (message.deadline.as_ref(), KafkaTarget::DEADLINE_DEFAULT_MS);
    KafkaTarget {
        bootstrap_servers: message.address(),
        topic: message.topic.clone(),
        key: (!key.is_empty()).then(|| key.to_owned()),
        headers: kept(check, HEADERS, &message.headers, (before, elsewhere)),
        content_mode,
        deadline_ms: check.ms("target.kafka.deadline", deadline, default, &KafkaTarget::DEADLINE_MS),
    }
}

/// Whether a message leads to other brokers or to another topic.
pub(super) fn is_elsewhere(stored: &KafkaTarget, message: &v1::KafkaTarget) -> bool {
    stored.bootstrap_servers != message.address() || stored.topic != message.topic
}

/// A Kafka target as callers see it.
pub(super) fn to_message(kafka: &KafkaTarget) -> v1::KafkaTarget {
    v1::KafkaTarget {
        bootstrap_servers: kafka.servers().map(str::to_owned).collect(),
        topic: kafka.topic.clone(),
        key: kafka.key.clone().unwrap_or_default(),
        headers: shown_headers(&kafka.headers),
        content_mode: match kafka.content_mode {
            ContentMode::Structured => v1::KafkaContentMode::Unspecified,
            ContentMode::Binary => v1::KafkaContentMode::Binary,
        }
        .into(),
        deadline: Some(duration_of_ms(kafka.deadline_ms)),
    }
}

fn servers(check: &mut Check, servers: &[String]) {
    if !(1..=SERVERS_MAX).contains(&servers.len()) {
        check.refuse(
            SERVERS,
            servers.len(),
            format!("1 to {SERVERS_MAX} brokers, such as kafka-1.example:9092"),
        );
    }
    let mut seen = BTreeSet::new();
    for (at, server) in servers.iter().enumerate() {
        let field = format!("{SERVERS}[{at}]");
        if !KafkaTarget::is_server(server) {
            check.refuse(&field, server, "a host and a port, such as kafka-1.example:9092 or [::1]:9092");
        } else if !seen.insert(server) {
            check.refuse(&field, server, "each broker once");
        }
    }
}

/// Whether a topic may have this name.
pub fn is_topic(text: &str) -> bool {
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TOPIC_MAX_CHARS).contains(&text.len()) && text.bytes().all(in_name) && !matches!(text, "." | "..")
}
