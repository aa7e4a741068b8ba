//! One delivery of one event: what a target gets, and what it says.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{EventId, Predecessor, RunSpec};

/// Everything that a target needs to deliver one event once.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The event's id, the same on every delivery.
    pub event_id: EventId,
    /// 1 for the first delivery; grows.
    pub attempt: u32,
    /// The event's index in its run.
    pub index: u32,
    /// How many events the run has.
    pub events: u32,
    /// The event's own launch time (with `spread`, later than the run's).
    pub launch_us: i64,
    /// How often the event has come again as its consumer asked.
    pub checks: u32,
    /// The cursor that an earlier run of the schedule left; the latest one where the event has come again.
    pub cursor: Option<String>,
    /// The run of which the end made this one.
    pub predecessor: Option<Box<Predecessor>>,
    /// Whether the consumer must release the token.
    pub explicit_release: bool,
    /// Schedule, policy, target, payload.
    pub spec: Arc<RunSpec>,
    /// What it carries of its own.
    pub item: Option<Box<DeliveryItem>>,
}

/// What an event of a submitted run carries beside the payload of its schedule.
#[derive(Clone, PartialEq, Eq)]
pub struct DeliveryItem {
    /// Whose it is; may be empty.
    pub key: String,
    /// JSON that all events of the run carry, laid over the schedule's; may be empty.
    pub payload: Arc<str>,
    /// JSON of its own, laid over that.
    pub data: String,
}

impl Delivery {
    /// Whose the event is: the key of its item, or of its schedule; may be empty.
    pub fn key(&self) -> &str {
        let own = self.item.as_ref().map(|item| item.key.as_str());
        own.filter(|key| !key.is_empty()).unwrap_or_else(|| self.spec.key())
    }
}

impl fmt::Debug for DeliveryItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeliveryItem({} bytes)", self.data.len())
    }
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Sent {
    /// The target took it.
    Accepted,
    /// The target answered and did not take it, or the bytes provably never reached it.
    /// The consumer is not working on the event, so its token can be freed.
    Refused {
        /// For people: status and the start of the answer, or why it was not sent.
        message: String,
        /// The target's own wish when to try again.
        retry_after_ms: Option<i64>,
        /// It makes no sense to try again (an address that is refused, a body that is too large).
        permanent: bool,
    },
    /// As refused, of one event among others of its request that were taken: what it wishes holds back no other.
    RefusedAlone {
        /// For people: what the target said of it.
        message: String,
        /// The target's own wish when to try it again.
        retry_after_ms: Option<i64>,
    },
    /// Nothing left this process, for a reason that is not the target's: no place, no answer of a name server, no file
    /// descriptor, a deadline or a lease that ended first. It says nothing about the target, so it counts as no failure.
    NotSent {
        /// For people.
        message: String,
        /// How long nothing is sent to the target, where it asked for a pause.
        retry_after_ms: Option<i64>,
    },
    /// Nobody knows whether the consumer has it: time-out or reset after the request was written, a gateway's
    /// error, an SQS 5xx. The token stays.
    Unclear {
        /// For people.
        message: String,
        /// The target's own wish when to try again.
        retry_after_ms: Option<i64>,
    },
}

impl Sent {
    /// What went wrong, for people; none where the target took it.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Accepted => None,
            Self::Refused { message, .. }
            | Self::RefusedAlone { message, .. }
            | Self::NotSent { message, .. }
            | Self::Unclear { message, .. } => Some(message),
        }
    }
}
