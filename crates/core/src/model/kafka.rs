//! A Kafka topic as a target, and what the keys of its records are made of.
//!
//! A record's key is a template: text in which names in braces stand for what the event has. Which names there are is decided
//! here; what an event has for each of them, where it is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How an event stands in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ContentMode {
    /// The value is a CloudEvents document, as the body is that HTTP targets get.
    #[default]
    Structured,
    /// The value is what the event carries; its attributes are headers.
    Binary,
}

impl ContentMode {
    /// As most are.
    pub fn is_structured(&self) -> bool {
        *self == Self::Structured
    }
}

/// A Kafka topic. Its `Debug` text does not hold what the headers say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaTarget {
    /// `host:port` of brokers from which the others are learned, with commas between them.
    pub bootstrap_servers: String,
    /// Where the records go.
    pub topic: String,
    /// What the keys of records are made of; [`KafkaTarget::KEY`] where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Sent with each record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How an event stands in a record.
    #[serde(default, skip_serializing_if = "ContentMode::is_structured")]
    pub content_mode: ContentMode,
    /// From the start of a delivery until the brokers must have acknowledged the record, in milliseconds.
    pub deadline_ms: i64,
}

/// The longest name of a host.
const HOST_MAX_BYTES: usize = 253;

impl KafkaTarget {
    /// What keys are made of where the target does not say it: the key of the event, such as a tenant.
    pub const KEY: &'static str = "{key}";
    /// The shortest deadline and the longest, in milliseconds. Kafka's client looks once a second which records are late.
    pub const DEADLINE_MS: std::ops::RangeInclusive<i64> = 5_000..=15 * 60_000;
    /// The deadline by default.
    pub const DEADLINE_DEFAULT_MS: i64 = 30_000;

    /// Whether a text is `host:port`; an IPv6 address has brackets around it.
    pub fn is_server(text: &str) -> bool {
        let Some((host, port)) = text.rsplit_once(':') else { return false };
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => (1..=HOST_MAX_BYTES).contains(&host.len()) && host.bytes().all(in_name),
        };
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        is_host && digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    }

    /// The brokers that it names.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.bootstrap_servers.split(',')
    }

    /// The key of a record, of what the event has for each of [`KEY_NAMES`]; none where nothing is left of the template.
    pub fn key_of<'a>(&self, event: impl Fn(&str) -> Cow<'a, str>) -> Option<String> {
        let mut key = String::new();
        for piece in pieces(self.key.as_deref().unwrap_or(Self::KEY)) {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Name(name) => key.push_str(&event(name)),
                // It was refused when the schedule was written.
                Piece::Brace => {}
            }
        }
        Some(key).filter(|key| !key.is_empty())
    }
}

/// The names that a template of keys may have in braces.
pub const KEY_NAMES: [&str; 6] = ["key", "event", "run", "schedule", "namespace", "index"];

/// Whether a text is a template of keys.
pub fn is_key_template(text: &str) -> bool {
    pieces(text).all(|piece| match piece {
        Piece::Text(_) => true,
        Piece::Name(name) => KEY_NAMES.contains(&name),
        Piece::Brace => false,
    })
}

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
    /// A brace that has no other half.
    Brace,
}

fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(inner) = rest.strip_prefix('{') else {
            let end = rest.find(['{', '}']).unwrap_or(rest.len());
            if end == 0 {
                rest = &rest[1..];
                return Some(Piece::Brace);
            }
            let (text, after) = rest.split_at(end);
            rest = after;
            return Some(Piece::Text(text));
        };
        match inner.split_once('}') {
            Some((name, after)) => {
                rest = after;
                Some(Piece::Name(name))
            }
            None => {
                rest = "";
                Some(Piece::Brace)
            }
        }
    })
}

impl fmt::Debug for KafkaTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTarget")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("topic", &self.topic)
            .field("key", &self.key)
            .field("headers", &self.headers.keys())
            .field("content_mode", &self.content_mode)
            .field("deadline_ms", &self.deadline_ms)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> KafkaTarget {
        KafkaTarget {
            bootstrap_servers: "a:9092".to_owned(),
            topic: "t".to_owned(),
            key: None,
            headers: [("x".to_owned(), "hidden".to_owned())].into(),
            content_mode: ContentMode::Structured,
            deadline_ms: KafkaTarget::DEADLINE_DEFAULT_MS,
        }
    }

    #[test]
    fn a_template_is_text_and_known_names() {
        for text in ["", "orders", "{key}", "a-{namespace}/{schedule}-b", "{event}{index}{run}"] {
            assert!(is_key_template(text), "{text}");
        }
        for text in ["{", "}", "a}", "{keys}", "{}", "{{key}}", "{key", "{ key }"] {
            assert!(!is_key_template(text), "{text}");
        }
        let all: Vec<_> = pieces("a{key}b").collect();
        assert_eq!(all, [Piece::Text("a"), Piece::Name("key"), Piece::Text("b")]);
    }

    #[test]
    fn a_key_is_made_of_what_the_event_has() {
        let key = |template: Option<&str>| {
            let target = KafkaTarget { key: template.map(str::to_owned), ..target() };
            target.key_of(|name| if name == "key" { "".into() } else { format!("<{name}>").into() })
        };
        assert_eq!(key(Some("a-{run}{key}/{index}")).as_deref(), Some("a-<run>/<index>"));
        assert_eq!(key(Some("{key}")), None);
        assert_eq!(key(None), None, "by default it is the event's own");
    }

    #[test]
    fn what_headers_say_is_in_no_log() {
        let target = target();
        let text = format!("{target:?}");
        assert!(text.contains("\"x\"") && !text.contains("hidden"), "{text}");
        let json = serde_json::to_string(&target).unwrap_or_default();
        assert_eq!(serde_json::from_str::<KafkaTarget>(&json).ok(), Some(target), "{json}");
    }
}
