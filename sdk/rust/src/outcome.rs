//! What the work on an event came to, and the release that says so.

use std::error::Error as StdError;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Bytes of a message that Tollgate takes.
const MESSAGE_MAX: usize = 4_096;

/// How the work went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Done.
    #[default]
    Succeeded,
    /// Failed for good: the event is not tried again.
    Failed,
    /// Failed: the event is tried again as the schedule's retry policy says.
    Retry,
}

/// What the work on an event came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    status: Status,
    message: String,
    result: Option<Value>,
    cursor: Option<String>,
    next_check_time: Option<SystemTime>,
}

impl Outcome {
    /// Failed for good, or to be tried again.
    pub fn new(status: Status) -> Self {
        Self { status, ..Self::default() }
    }

    /// A result of at most 256 KiB. Only with SUCCEEDED, and without a next check time.
    #[must_use]
    pub fn result(self, result: impl Into<Value>) -> Self {
        Self { result: Some(result.into()), ..self }
    }

    /// A text of at most 4 KiB for the schedule's next run.
    #[must_use]
    pub fn cursor(self, cursor: impl Into<String>) -> Self {
        Self { cursor: Some(cursor.into()), ..self }
    }

    /// The same event comes again then. Only with SUCCEEDED.
    #[must_use]
    pub fn next_check_time(self, at: SystemTime) -> Self {
        Self { next_check_time: Some(at), ..self }
    }

    /// Words for people. They are cut at 4 KiB.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<Value> for Outcome {
    fn from(result: Value) -> Self {
        Self::default().result(result)
    }
}

/// Why the work did not succeed. Any error becomes one by `?`, and has the event tried again.
#[derive(Debug)]
pub struct Failure {
    for_good: bool,
    message: String,
}

impl Failure {
    /// The event is tried again, as the schedule's retry policy says.
    pub fn retry(message: impl Into<String>) -> Self {
        Self { for_good: false, message: message.into() }
    }

    /// The event fails for good: it is not tried again.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { for_good: true, message: message.into() }
    }
}

impl<E: StdError> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(below) = cause {
            message = format!("{message}: {below}");
            cause = below.source();
        }
        Self::retry(message)
    }
}

/// The body of a release.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Release {
    pub(crate) attempt: u32,
    pub(crate) outcome: Status,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_check_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
}

impl Release {
    pub(crate) fn retry(attempt: u32, message: &str) -> Self {
        Self { attempt, outcome: Status::Retry, message: cut(message), ..Self::default() }
    }

    pub(crate) fn of(attempt: u32, came: Result<Outcome, Failure>) -> Self {
        let outcome = match came {
            Ok(outcome) => outcome,
            Err(failure) => {
                let status = if failure.for_good { Status::Failed } else { Status::Retry };
                Outcome::new(status).message(failure.message)
            }
        };
        // What Tollgate does not take with this status is left out.
        let is_done = outcome.status == Status::Succeeded;
        let next_check_time = outcome.next_check_time.filter(|_| is_done).map(rfc3339);
        let result = outcome.result.filter(|_| is_done && next_check_time.is_none());
        Self {
            attempt,
            outcome: outcome.status,
            message: cut(&outcome.message),
            cursor: outcome.cursor,
            next_check_time,
            result,
        }
    }

    /// Whether another attempt is other work: what came before is not done.
    pub(crate) fn is_open(&self) -> bool {
        self.outcome != Status::Succeeded || self.next_check_time.is_some()
    }
}

/// As much of a message as Tollgate takes, to the end of a character.
pub(crate) fn cut(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned()
}

fn rfc3339(at: SystemTime) -> String {
    let micros = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    };
    // One that no calendar has is refused by the server, as any that is too late.
    let time = DateTime::<Utc>::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC);
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{Failure, Outcome, Release, Status, cut};

    #[test]
    fn what_a_handler_says_is_what_is_released() {
        let written = |came| serde_json::to_string(&Release::of(3, came)).unwrap_or_default();
        let full = Outcome::from(serde_json::json!({"pages": 3})).cursor("p2").message("half");
        let full = full.next_check_time(UNIX_EPOCH + Duration::from_secs(60));
        for (came, expected) in [
            (Ok(().into()), r#"{"attempt":3,"outcome":"SUCCEEDED"}"#),
            (
                Ok(serde_json::json!({"pages": 3}).into()),
                r#"{"attempt":3,"outcome":"SUCCEEDED","result":{"pages":3}}"#,
            ),
            (
                Ok(full),
                r#"{"attempt":3,"outcome":"SUCCEEDED","message":"half","cursor":"p2","nextCheckTime":"1970-01-01T00:01:00.000000Z"}"#,
            ),
            (
                Ok(Outcome::new(Status::Failed).message("no").result(7).next_check_time(UNIX_EPOCH)),
                r#"{"attempt":3,"outcome":"FAILED","message":"no"}"#,
            ),
            (Err(Failure::failed("no file")), r#"{"attempt":3,"outcome":"FAILED","message":"no file"}"#),
            (
                Err(std::io::Error::other("disk full").into()),
                r#"{"attempt":3,"outcome":"RETRY","message":"disk full"}"#,
            ),
        ] {
            assert_eq!(written(came), expected);
        }
    }

    #[test]
    fn messages_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&format!("a{}", "é".repeat(4_000))).len(), 4_095);
    }
}
