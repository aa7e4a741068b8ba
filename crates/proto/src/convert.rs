//! Decides what a caller may send, and turns messages into the core's types and back.
//!
//! In: messages. Out: the core's types, or every refusal at once. Invariants: each refusal names the field as the caller
//! wrote it (`schedule.triggers[0].interval.every`), what was given and what is allowed; a secret is never returned;
//! output only fields of an input are ignored. Not here: whether a timing can fire (`tollgate_core::plan`, see
//! [`plan_refusal`]), whether names exist, JSON.

pub mod alert;
pub mod calendar;
mod check;
pub mod event;
mod headers;
pub mod items;
mod items_from;
pub mod kafka;
pub mod names;
mod on_finish;
pub mod payload;
pub mod policy;
pub mod run;
pub mod schedule;
mod target;
mod timing;
pub mod trouble;
pub mod work;

use prost_types::{Duration, Timestamp};
use tollgate_core::model::Pause;
use tollgate_core::plan::PlanError;

pub use headers::{hide_values, is_credential};
pub use items_from::{is_list_elsewhere, list_headers};
pub use names::Name;
pub use target::{hide_all_headers, hide_headers, is_elsewhere};

use crate::field::FieldError;
use crate::v1;

/// The longest id of a request.
const REQUEST_ID_MAX: usize = 128;

/// A moment, in microseconds since the epoch, as a message.
pub fn timestamp(us: i64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "below 10^9")]
    let nanos = (us.rem_euclid(1_000_000) * 1_000) as i32;
    Timestamp { seconds: us.div_euclid(1_000_000), nanos }
}

/// A moment, in microseconds since the epoch, as text.
pub fn moment(us: i64) -> String {
    timestamp(us).to_string()
}

/// A span in milliseconds as a message.
pub fn duration_of_ms(ms: i64) -> Duration {
    #[expect(clippy::cast_possible_truncation, reason = "below 10^9")]
    let nanos = (ms % 1_000 * 1_000_000) as i32;
    Duration { seconds: ms / 1_000, nanos }
}

/// A span in whole seconds as a message.
pub fn duration_of_s(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

/// A required moment in `field`, in microseconds since the epoch.
///
/// # Errors
/// Absence; years outside 1 to 9999; a fraction finer than a microsecond.
pub fn required_time_us(field: &str, time: Option<&Timestamp>) -> Result<i64, FieldError> {
    optional_time_us(field, time)?.ok_or_else(|| FieldError::new(field, "", "a moment"))
}

/// As [`required_time_us`] for a moment that may be absent.
///
/// # Errors
/// As [`required_time_us`], except for absence.
pub fn optional_time_us(field: &str, time: Option<&Timestamp>) -> Result<Option<i64>, FieldError> {
    time.map(|time| check::time_us(field, time)).transpose()
}

/// The silence that a heartbeat asks for, in milliseconds.
///
/// # Errors
/// Anything but whole milliseconds from 1 s to 30 days.
pub fn heartbeat_ttl_ms(request: &v1::ExtendTokenRequest) -> Result<Option<i64>, FieldError> {
    request
        .ttl
        .as_ref()
        .map(|ttl| check::span_ms("ttl", ttl, &(policy::TTL_MIN_MS..=policy::TTL_MAX_MS)))
        .transpose()
}

/// The generation that an etag stands for; none where it is empty.
///
/// # Errors
/// A text that was never an etag.
pub fn etag(field: &str, etag: &str) -> Result<Option<i64>, FieldError> {
    if etag.is_empty() {
        return Ok(None);
    }
    let generation = etag.parse().ok().filter(|generation: &i64| generation.to_string() == etag);
    generation.map(Some).ok_or_else(|| FieldError::new(field, etag, "the etag of an earlier answer"))
}

/// A refusal of the planner with the field's path as the caller wrote it, under `prefix` (`schedule`).
pub fn plan_refusal(prefix: &str, error: PlanError) -> FieldError {
    let mut field = error.field;
    for (core, message) in [
        (".cron.expression", ".cron"),
        (".interval.every_s", ".interval.every"),
        (".interval.anchor_us", ".interval.anchor"),
        (".at.at_us", ".at"),
        ("start_us", "start_time"),
        ("end_us", "end_time"),
    ] {
        field = field.replace(core, message);
    }
    FieldError::new(format!("{prefix}.{field}"), error.value, error.expected)
}

/// A reason or message for people.
///
/// # Errors
/// More than 4 KiB.
pub fn remark(field: &str, text: &str) -> Result<String, FieldError> {
    if text.len() > check::TEXT_MAX_BYTES {
        return Err(FieldError::new(field, text, "at most 4096 bytes"));
    }
    Ok(text.to_owned())
}

/// The id that a caller gives a request; none where it is empty.
///
/// # Errors
/// More than 128 characters, or others than letters, digits, `.`, `_`, `:` and `-`.
pub fn request_id(field: &str, text: &str) -> Result<Option<String>, FieldError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if text.len() > REQUEST_ID_MAX || !text.chars().all(is_plain) {
        let expected = format!("1 to {REQUEST_ID_MAX} letters, digits and . _ : -, or nothing");
        return Err(FieldError::new(field, text, expected));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn pause(pause: Option<&Pause>) -> Option<v1::Pause> {
    pause.map(|pause| v1::Pause {
        reason: pause.reason.clone(),
        actor: pause.actor.clone(),
        since: Some(timestamp(pause.since_us)),
    })
}
