//! Where events go and what they carry.

use std::fmt;

use serde::{Deserialize, Serialize};

/// When an event's token comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReleaseMode {
    /// EXPLICIT under a policy, ON_RESPONSE without one.
    #[default]
    TargetDefault,
    /// When the target has accepted the event (an HTTP answer 2xx, an SQS entry taken).
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
}

impl HttpTarget {
    /// Without headers and without a signature.
    pub fn plain(url: String, deadline_ms: i64) -> Self {
        Self { url, headers: [].into(), secret: None, deadline_ms }
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("headers", &self.headers.keys())
            .field("secret", &self.secret.as_ref().map(|_| "redacted"))
            .field("deadline_ms", &self.deadline_ms)
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
}

impl Target {
    /// Whether an event of this target holds its token until the consumer releases it.
    pub fn releases_explicitly(&self, has_policy: bool) -> bool {
        let (Self::Http { release, .. } | Self::Sqs { release, .. }) = self;
        match release {
            ReleaseMode::Explicit => true,
            ReleaseMode::OnResponse => false,
            ReleaseMode::TargetDefault => has_policy,
        }
    }

    /// The longest that one delivery takes, in milliseconds.
    pub fn deadline_ms(&self) -> i64 {
        match self {
            Self::Http { http, .. } => http.deadline_ms,
            Self::Sqs { sqs, .. } => sqs.deadline_ms,
        }
    }

    /// What fails as one: scheme, host and port of a URL, or a queue.
    pub fn address(&self) -> &str {
        match self {
            Self::Http { http, .. } => origin(&http.url),
            Self::Sqs { sqs, .. } => &sqs.queue_url,
        }
    }

    /// Whether an event that the target has accepted may still wait there for its consumer.
    pub fn queues(&self) -> bool {
        match self {
            Self::Http { .. } => false,
            Self::Sqs { .. } => true,
        }
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    &url[..end]
}

/// The body that the user gave: JSON text, checked when the schedule was written. Its `Debug` text is its length.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// JSON; empty means no payload.
    pub json: String,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.json.len())
    }
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn a_target_is_an_origin() {
        let origins = ["http://a:1/x/y", "http://a:1?x", "http://a:1"].map(origin);
        assert_eq!(origins, ["http://a:1"; 3]);
    }
}
