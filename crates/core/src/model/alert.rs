//! An alert: who is told of what.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{HttpTarget, SqsTarget};

/// Which troubles an alert tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertTroubles {
    /// Words of kinds; all where empty. A word that only another version knows is kept.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// No warnings.
    #[serde(default)]
    pub critical_only: bool,
    /// Those of the whole installation, too.
    #[serde(default)]
    pub installation: bool,
}

/// Which ends of runs an alert tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AlertRuns {
    /// None.
    #[default]
    None,
    /// Each that finishes.
    Finished,
    /// Each that finishes with events that failed, died, expired or were lost.
    FinishedWithFailures,
}

/// A Slack-compatible webhook. Its URL is its secret, so its `Debug` text does not hold it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackTarget {
    /// An `https://` or `http://` address, with what authorises the sender in its path or query.
    pub url: String,
    /// From the start of the request to the end of the answer, in milliseconds.
    pub deadline_ms: i64,
}

impl fmt::Debug for SlackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackTarget")
            .field("url", &"redacted")
            .field("deadline_ms", &self.deadline_ms)
            .finish()
    }
}

/// Where the messages of an alert go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum AlertTarget {
    /// A CloudEvent by POST.
    Http {
        /// Where to.
        http: HttpTarget,
    },
    /// A text for people by POST.
    Slack {
        /// Where to.
        slack: SlackTarget,
    },
    /// A CloudEvent as an SQS message.
    Sqs {
        /// Where to.
        sqs: SqsTarget,
    },
}

impl AlertTarget {
    /// How long one attempt may take, in milliseconds.
    pub fn deadline_ms(&self) -> i64 {
        match self {
            Self::Http { http } => http.deadline_ms,
            Self::Slack { slack } => slack.deadline_ms,
            Self::Sqs { sqs } => sqs.deadline_ms,
        }
    }
}

/// Who is told of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Chosen by the service.
    pub uid: Uuid,
    /// The namespace's id.
    pub namespace: String,
    /// The alert's id within its namespace.
    pub id: String,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// Which troubles; none where absent.
    #[serde(default)]
    pub troubles: Option<AlertTroubles>,
    /// Which ends of runs.
    #[serde(default)]
    pub runs: AlertRuns,
    /// Of these schedules (ids).
    #[serde(default)]
    pub schedules: Vec<String>,
    /// Or of these policies (ids).
    #[serde(default)]
    pub policies: Vec<String>,
    /// Or of schedules that have all these labels. Where nothing of the three is given: of all.
    #[serde(default)]
    pub schedule_labels: BTreeMap<String, String>,
    /// Where to.
    pub target: AlertTarget,
    /// How long is waited for others that can go in the same message, in milliseconds.
    pub group_wait_ms: i64,
    /// How often is repeated what stays, in milliseconds; 0: never.
    pub repeat_ms: i64,
    /// Whether the end of a trouble is told.
    pub send_resolved: bool,
    /// Nothing is decided and nothing is sent.
    pub disabled: bool,
    /// When it was made, or enabled after it had been disabled.
    #[serde(default)]
    pub enabled_us: i64,
    /// Labels for the user's own filters.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Grows by one with every change; also the etag.
    pub generation: i64,
    /// When it was made.
    pub created_us: i64,
    /// When it was last changed.
    pub updated_us: i64,
}

impl Alert {
    /// Default of `group_wait_ms`: 30 seconds.
    pub const GROUP_WAIT_MS: i64 = 30_000;
    /// Default of `repeat_ms`: four hours.
    pub const REPEAT_MS: i64 = 4 * 3_600_000;
}
