//! Releases and heartbeats: what consumers say of the tokens that they hold.

use serde::{Deserialize, Serialize};

use crate::model::RunId;

/// How the consumer's work went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReleaseOutcome {
    /// Done.
    Succeeded,
    /// Failed for good.
    Failed,
    /// Failed; try again as the retry policy says.
    Retry,
}

/// A consumer's release of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The run.
    pub run: RunId,
    /// The event's index.
    pub index: u32,
    /// The attempt that is released; absent means the one in flight.
    pub attempt: Option<u32>,
    /// How it went.
    pub outcome: ReleaseOutcome,
    /// For people.
    pub message: String,
    /// The same event comes again then (before rounding up to the slot).
    pub next_check_us: Option<i64>,
    /// For the schedule's next run.
    pub cursor: Option<String>,
}

impl Release {
    /// As a guard has it that closes the event rather than to let it come again.
    pub(super) fn closed_by(self, guard: &str) -> Self {
        let message =
            if self.message.is_empty() { guard.to_owned() } else { format!("{}; {guard}", self.message) };
        Self { outcome: ReleaseOutcome::Failed, message, next_check_us: None, ..self }
    }
}

/// What a release or a heartbeat came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Recorded: the token is free.
    Released,
    /// Recorded: the token is free, and the event comes again at this moment.
    ComesAgain {
        /// After rounding up to the slot.
        at_us: i64,
    },
    /// Heartbeat taken: silence is allowed until then (remaining milliseconds).
    Extended {
        /// From now.
        remaining_ms: i64,
    },
    /// The event holds no token (any more); the done queue knows more.
    NotHeld,
    /// The event is in flight again under a later attempt, or waits for one; nothing changed.
    Late,
    /// A guard refused `next_check_time`; nothing changed and the token is still held.
    Refused {
        /// Names the guard, the value and what is allowed.
        message: String,
    },
}
