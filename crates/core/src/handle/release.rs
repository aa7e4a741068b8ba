//! Releases and heartbeats: what consumers say of the tokens that they hold.

use serde::{Deserialize, Serialize};

use crate::model::{Run, RunId};

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
    /// What the work has come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<EventResult>>,
}

/// What an event's work has come to: kept with the event, for people and for the run that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventResult {
    /// JSON as it is stored: sealed where secrets are.
    pub body: String,
    /// How many bytes the JSON has.
    pub bytes: u32,
    /// How many items are in it: the elements of an array, or one.
    pub items: u32,
}

impl EventResult {
    /// The most bytes of one.
    pub const BYTES_MAX: usize = crate::model::PAYLOAD_MAX_BYTES;
    /// The most bytes of those of a run together.
    pub const RUN_BYTES_MAX: u32 = 16 * 1024 * 1024;
    /// The most items in those of a run together.
    pub const RUN_ITEMS_MAX: u32 = 100_000;
    /// The most bytes of one that waits in the inbox of a shard whose owner cannot be reached.
    pub const WAITING_BYTES_MAX: u32 = 16 * 1024;

    /// Whether the results of a run have room for it beside the others.
    ///
    /// # Errors
    /// What it would be too much of: the field, how much there is, and what is allowed.
    pub fn fits(&self, run: &Run) -> Result<(), String> {
        let (bytes, items) =
            (run.result_bytes.saturating_add(self.bytes), run.result_count.saturating_add(self.items));
        let why = |much: u32, what: &str, most: u32| {
            format!(
                "result: {much} {what} with those of the run so far; at most {most} {what} in the results of a run: release \
                 without it, or with a smaller one"
            )
        };
        if bytes > Self::RUN_BYTES_MAX {
            return Err(why(bytes, "bytes", Self::RUN_BYTES_MAX));
        }
        if items > Self::RUN_ITEMS_MAX {
            return Err(why(items, "items", Self::RUN_ITEMS_MAX));
        }
        Ok(())
    }
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
    /// A guard refused `next_check_time`, or there is no room for the result; nothing changed and the token is still held.
    Refused {
        /// Names the guard, the value and what is allowed.
        message: String,
    },
}
