//! Decides what a queue of workers, their labels and what they say of themselves may be.

use tollgate_core::model::PullTarget;

use super::check::{Check, span_ms};
use super::duration_of_ms;
use super::names::{self, Name};
use crate::field::FieldError;
use crate::v1;

/// How long a worker may have to accept an event, in milliseconds.
const DEADLINE_MS: std::ops::RangeInclusive<i64> = 1..=15 * 60_000;
/// The most events that a worker does at once.
const CAPACITY_MAX: u32 = 10_000;
/// The most events of one answer.
const EVENTS_MAX: u32 = 100;
/// The longest wait of one call, and the usual one, in milliseconds.
const WAIT_MAX_MS: i64 = 60_000;
const WAIT_MS: i64 = 20_000;
const LABEL: &str = "1 to 64 characters of a-z, 0-9 and - _ . / : =";
const WORKER: &str = "at most 64 printable ASCII characters";

/// A target of workers that pull.
pub(super) fn target(check: &mut Check, message: &v1::PullTarget) -> PullTarget {
    let queue = &message.queue;
    if !names::is_id(queue) {
        check.refuse("target.pull.queue", queue, names::ID);
    }
    let requires = labels(&check.path("target.pull.requires"), &message.requires);
    let requires = check.keep(requires).unwrap_or_default();
    let deadline = message.deadline.as_ref();
    let deadline_ms = check.ms("target.pull.deadline", deadline, PullTarget::DEADLINE_MS, &DEADLINE_MS);
    PullTarget::new(queue.clone(), requires, deadline_ms)
}

/// Checks what a worker says with a heartbeat on its stream, but for which event it is.
///
/// # Errors
/// The field that is wrong.
pub fn extend(request: &v1::ExtendTokenRequest) -> Result<(), FieldError> {
    super::heartbeat_ttl_ms(request)
        .map_err(|wrong| FieldError { field: format!("extend.{}", wrong.field), ..wrong })?;
    match request.attempt {
        Some(0) => {
            Err(FieldError::new("extend.attempt", 0, "at least 1, or nothing for the attempt in flight"))
        }
        _ => Ok(()),
    }
}

/// A target of workers that pull, as callers see it.
pub(super) fn to_message(pull: &PullTarget) -> v1::PullTarget {
    v1::PullTarget {
        queue: pull.queue().to_owned(),
        requires: pull.requires().to_vec(),
        deadline: Some(duration_of_ms(pull.deadline_ms())),
    }
}

/// `namespaces/{namespace}/queues/{queue}`.
///
/// # Errors
/// Any other text.
pub fn queue(field: &str, text: &str) -> Result<Name, FieldError> {
    names::full(field, text, "queues")
}

/// What a worker is able to do, in order, each label once.
///
/// # Errors
/// Names the first label that is none, or says that there are too many.
pub fn labels(field: &str, given: &[String]) -> Result<Vec<String>, FieldError> {
    let most = PullTarget::LABELS_MAX;
    if given.len() > most {
        return Err(FieldError::new(
            field,
            format!("{} labels", given.len()),
            format!("at most {most} labels"),
        ));
    }
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./:=".contains(&byte);
    let is_label = |label: &&String| {
        !(1..=PullTarget::LABEL_CHARS_MAX).contains(&label.len()) || !label.bytes().all(fits)
    };
    if let Some(wrong) = given.iter().find(is_label) {
        return Err(FieldError::new(field, wrong, LABEL));
    }
    let mut labels = given.to_vec();
    labels.sort_unstable();
    labels.dedup();
    Ok(labels)
}

/// A worker's name for people; may be empty.
///
/// # Errors
/// A text that is too long, or has other characters.
pub fn worker(field: &str, text: &str) -> Result<String, FieldError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if text.len() > PullTarget::LABEL_CHARS_MAX || !is_plain {
        return Err(FieldError::new(field, text, WORKER));
    }
    Ok(text.to_owned())
}

/// How many events a worker does at once.
///
/// # Errors
/// Too many.
pub fn capacity(field: &str, capacity: u32) -> Result<u32, FieldError> {
    if capacity > CAPACITY_MAX {
        return Err(FieldError::new(field, capacity, format!("0 to {CAPACITY_MAX}")));
    }
    Ok(capacity)
}

/// How many events a call asks for, and how long it waits, in milliseconds.
///
/// # Errors
/// Too many, or too long.
pub fn acquire(request: &v1::AcquireEventsRequest) -> Result<(u32, i64), FieldError> {
    if request.max_events > EVENTS_MAX {
        let expected = format!("1 to {EVENTS_MAX}, or nothing for 1");
        return Err(FieldError::new("max_events", request.max_events, expected));
    }
    let wait_ms = match &request.wait {
        None => WAIT_MS,
        Some(wait) => span_ms("wait", wait, &(0..=WAIT_MAX_MS))?,
    };
    Ok((request.max_events.max(1), wait_ms))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn labels_are_put_in_order_and_bad_ones_named() {
        let of = |given: &[&str]| {
            labels("labels", &given.iter().map(|&label| label.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["gpu", "zone=eu", "gpu"]).unwrap(), ["gpu", "zone=eu"]);
        for wrong in ["", "GPU", "a b", &"x".repeat(65)] {
            let error = of(&["gpu", wrong]).unwrap_err().to_string();
            assert!(error.contains("labels") && error.contains(LABEL), "{error}");
        }
        let many: Vec<String> = (0..17).map(|number| format!("l{number}")).collect();
        assert!(labels("labels", &many).unwrap_err().to_string().contains("at most 16 labels"));
    }

    #[test]
    fn a_call_asks_for_one_event_and_waits_20_s_by_default() {
        let asked = |max_events, seconds: Option<i64>| {
            let wait = seconds.map(|seconds| duration_of_ms(seconds * 1_000));
            acquire(&v1::AcquireEventsRequest { max_events, wait, ..v1::AcquireEventsRequest::default() })
        };
        assert_eq!(asked(0, None).unwrap(), (1, 20_000));
        assert_eq!(asked(100, Some(0)).unwrap(), (100, 0));
        assert!(asked(101, None).unwrap_err().to_string().contains("max_events"));
        assert!(asked(1, Some(61)).unwrap_err().to_string().contains("wait"));
    }
}
