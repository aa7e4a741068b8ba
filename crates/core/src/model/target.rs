//! Where events go and what they carry.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ItemsFrom;
use super::kafka::KafkaTarget;
use super::origin::origin;
use super::pull::PullTarget;

/// When an event's token comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReleaseMode {
    /// EXPLICIT under a policy and for workers that pull, else ON_RESPONSE.
    #[default]
    TargetDefault,
    /// When the target has accepted the event (an HTTP answer 2xx, an SQS entry taken, a Kafka record acknowledged).
    OnResponse,
    /// When the consumer calls ReleaseToken.
    Explicit,
}

/// An HTTP endpoint. Its `Debug` text holds neither the secret nor what the headers say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTarget {
    /// `http://` or `https://`.
    pub url: String,
    /// Sent with each request.
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, String>,
    /// Standard Webhooks secret: `whsec_` and base64, or none for no signature.
    #[serde(default)]
    pub secret: Option<String>,
    /// From the start of the request to the end of the answer, in milliseconds.
    pub deadline_ms: i64,
    /// Whether it is spoken to by HTTP/2.
    #[serde(default, skip_serializing_if = "Http2::is_auto")]
    pub http2: Http2,
    /// How its events are gathered into requests; each has one of its own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<HttpBatch>,
}

/// How many events go into one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpBatch {
    /// At most.
    pub max_events: u32,
    /// Bytes of their JSON, at most; a larger event goes alone.
    pub max_bytes: u32,
    /// How long the first of them waits for others, in milliseconds.
    pub max_wait_ms: i64,
}

impl HttpBatch {
    /// The most events.
    pub const EVENTS_MAX: u32 = 1_000;
    /// The fewest and the most bytes, and how many by default.
    pub const BYTES: std::ops::RangeInclusive<u32> = 1_024..=4 << 20;
    /// As many bytes by default.
    pub const BYTES_DEFAULT: u32 = 1 << 20;
    /// The longest wait.
    pub const WAIT_MAX_MS: i64 = 1_000;
}

/// Whether an HTTP target is spoken to by HTTP/2, many requests on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Http2 {
    /// Where the two sides agree on it as they begin TLS.
    #[default]
    Auto,
    /// Always, over clear text: it is known to speak it.
    PriorKnowledge,
    /// Never.
    Never,
}

impl Http2 {
    /// As most are.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl HttpTarget {
    /// Without headers and without a signature.
    pub fn plain(url: String, deadline_ms: i64) -> Self {
        Self { url, headers: [].into(), secret: None, deadline_ms, http2: Http2::Auto, batch: None }
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .field("secret", &self.secret.as_ref().map(|_| "redacted"))
            .field("deadline_ms", &self.deadline_ms)
            .field("http2", &self.http2)
            .field("batch", &self.batch)
            .finish()
    }
}

/// An SQS queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqsTarget {
    /// The queue's URL; one that ends in `.fifo` is a FIFO queue.
    pub queue_url: String,
    /// The queue's region; from the URL or the environment where absent.
    #[serde(default)]
    pub region: Option<String>,
    /// Another endpoint than AWS's, for emulators.
    #[serde(default)]
    pub endpoint_url: Option<String>,
    /// FIFO message group; the schedule's name where absent.
    #[serde(default)]
    pub message_group_id: Option<String>,
    /// Whether, in a FIFO queue, an event whose item has a key is in that key's group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group_by_key: bool,
    /// Of one SendMessageBatch call, in milliseconds.
    pub deadline_ms: i64,
}

/// What a target speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Target {
    /// A CloudEvent by POST.
    Http {
        /// Where to.
        http: HttpTarget,
        /// When the token comes back.
        #[serde(default)]
        release: ReleaseMode,
    },
    /// A CloudEvent as an SQS message.
    Sqs {
        /// Where to.
        sqs: SqsTarget,
        /// When the token comes back.
        #[serde(default)]
        release: ReleaseMode,
    },
    /// A CloudEvent as a Kafka record.
    Kafka {
        /// Where to.
        kafka: KafkaTarget,
        /// When the token comes back.
        #[serde(default)]
        release: ReleaseMode,
    },
    /// A CloudEvent for a worker that takes it.
    Pull {
        /// From where.
        pull: PullTarget,
        /// When the token comes back.
        #[serde(default)]
        release: ReleaseMode,
    },
}

impl Target {
    /// Whether an event of this target holds its token until the consumer releases it.
    pub fn releases_explicitly(&self, has_policy: bool) -> bool {
        let (Self::Http { release, .. }
        | Self::Sqs { release, .. }
        | Self::Kafka { release, .. }
        | Self::Pull { release, .. }) = self;
        match release {
            ReleaseMode::Explicit => true,
            ReleaseMode::OnResponse => false,
            // A worker says in any case when it is done.
            ReleaseMode::TargetDefault => has_policy || matches!(self, Self::Pull { .. }),
        }
    }

    /// The longest that one delivery takes, in milliseconds.
    pub fn deadline_ms(&self) -> i64 {
        match self {
            Self::Http { http, .. } => http.deadline_ms,
            Self::Sqs { sqs, .. } => sqs.deadline_ms,
            Self::Kafka { kafka, .. } => kafka.deadline_ms,
            Self::Pull { pull, .. } => pull.deadline_ms(),
        }
    }

    /// What fails as one: scheme, host and port of a URL, a queue, or Kafka's brokers; with what it requires, where workers pull
    /// from it.
    pub fn address(&self) -> &str {
        match self {
            Self::Http { http, .. } => origin(&http.url),
            Self::Sqs { sqs, .. } => &sqs.queue_url,
            Self::Kafka { kafka, .. } => &kafka.bootstrap_servers,
            Self::Pull { pull, .. } => pull.address(),
        }
    }

    /// The queue from which workers take its events, where they do.
    pub fn pull(&self) -> Option<&PullTarget> {
        match self {
            Self::Http { .. } | Self::Sqs { .. } | Self::Kafka { .. } => None,
            Self::Pull { pull, .. } => Some(pull),
        }
    }

    /// Whether an event that the target has accepted may still wait there for its consumer.
    pub fn queues(&self) -> bool {
        match self {
            Self::Http { .. } | Self::Pull { .. } => false,
            Self::Sqs { .. } | Self::Kafka { .. } => true,
        }
    }
}

/// What the user's events carry: checked when the schedule was written. Its `Debug` text is its length.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PayloadForm", into = "PayloadForm")]
pub struct Payload {
    /// JSON that each event carries; empty means nothing.
    pub json: String,
    /// What each event carries of its own, a line an event as in the pages of [`crate::items`]; empty means nothing. Shared, as
    /// the specs of deliveries are copied.
    pub items: Arc<str>,
    /// Where a list of what each event carries of its own is fetched, anew for each run; then there are no `items`.
    pub from: Option<Arc<ItemsFrom>>,
    /// The most tokens that one of `items` says that its event takes; 0 where none says so.
    pub units_max: u32,
}

impl Payload {
    /// Without items.
    pub fn of(json: impl Into<String>) -> Self {
        Self { json: json.into(), ..Self::default() }
    }

    /// How much there is.
    pub fn bytes(&self) -> usize {
        self.json.len() + self.items.len()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes())
    }
}

/// A payload as it is stored. With items, or a list of them, it has no `json`, so that a version that does not know items cannot
/// take it for one without.
#[derive(Serialize, Deserialize)]
struct PayloadForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<ItemsFrom>,
    // Items that are sealed do not say it.
    #[serde(default, skip_serializing_if = "is_zero")]
    units_max: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_zero(units: &u32) -> bool {
    *units == 0
}

impl From<Payload> for PayloadForm {
    fn from(payload: Payload) -> Self {
        let Payload { json, items, from, units_max } = payload;
        let from = from.map(Arc::unwrap_or_clone);
        if items.is_empty() && from.is_none() {
            Self { json: Some(json), under: None, items: None, from, units_max }
        } else {
            let items = Some(items.as_ref().to_owned()).filter(|items| !items.is_empty());
            Self { json: None, under: Some(json), items, from, units_max }
        }
    }
}

impl TryFrom<PayloadForm> for Payload {
    type Error = &'static str;

    fn try_from(form: PayloadForm) -> Result<Self, &'static str> {
        let PayloadForm { json, under, items, from, units_max } = form;
        match (json, under, items, from) {
            (Some(json), None, None, None) => Ok(Self { units_max, ..Self::of(json) }),
            (None, Some(json), Some(items), None) => {
                Ok(Self { items: items.into(), units_max, ..Self::of(json) })
            }
            (None, Some(json), None, Some(from)) => {
                Ok(Self { from: Some(Arc::new(from)), units_max, ..Self::of(json) })
            }
            _ => Err("a payload is json, or under and items, or under and from"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_origin() {
        let origins = ["http://a:1/x/y", "http://a:1?x", "http://a:1"].map(origin);
        assert_eq!(origins, ["http://a:1"; 3]);
    }

    #[test]
    fn a_payload_with_items_is_none_for_those_who_know_no_items() {
        #[derive(Debug, Deserialize)]
        struct Before {
            json: String,
        }
        let both = Payload::of("{}").with_items("k\t3\t1\n");
        let from = ItemsFrom::http("http://a/".to_owned());
        let listed = Payload { from: Some(Arc::new(from)), ..Payload::of("{}") };
        for payload in [Payload::default(), Payload::of("{}"), both, listed] {
            let text = serde_json::to_string(&payload).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Payload>(&text).ok(), Some(payload.clone()), "{text}");
            let before = serde_json::from_str::<Before>(&text).map(|before| before.json);
            let has_items = !payload.items.is_empty() || payload.from.is_some();
            assert_eq!(before.ok(), (!has_items).then_some(payload.json), "{text}");
        }
        assert!(serde_json::from_str::<Payload>(r#"{"under": ""}"#).is_err());
        assert!(serde_json::from_str::<Payload>(r#"{"json": "", "items": "k\t1\n"}"#).is_err());
    }
}
