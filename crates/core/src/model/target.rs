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
