//! How events look to callers, and what releases may be.

use prost_types::Value;
use prost_types::value::Kind;
use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow, TokenState};
use tollgate_core::handle::release::{EventResult, Release, ReleaseOutcome};
use tollgate_core::model::{EventId, Run, RunId};

use super::check::Check;
use super::{names, payload, timestamp};
use crate::field::FieldError;
use crate::v1;

/// What the store has of an event.
#[derive(Clone, Copy, Debug)]
pub enum EventRecord<'a> {
    /// Not acquired, and its launch time lies ahead.
    Scheduled,
    /// Not acquired, and due.
    Waiting,
    /// It has a row among the tokens.
    Token {
        /// The row.
        row: &'a TokenRow,
        /// Whether its consumer has been silent for too long.
        suspect: bool,
    },
    /// It has ended.
    Done(&'a HistoryRow),
}

/// An event as callers see it. `launch_us` is its own launch time, which with `spread` is later than the run's.
pub fn to_message(id: &EventId, run: &Run, index: u32, launch_us: i64, record: EventRecord<'_>) -> v1::Event {
    let mut event = v1::Event {
        name: names::of_event(&run.namespace, id.as_str()),
        event_id: id.to_string(),
        run: names::of_run(&run.namespace, run.named_shard(), run.id),
        schedule: names::of_schedule(&run.namespace, &run.schedule_id),
        index,
        launch_time: Some(timestamp(launch_us)),
        ..v1::Event::default()
    };
    match record {
        EventRecord::Scheduled => event.set_state(v1::EventState::Scheduled),
        EventRecord::Waiting => event.set_state(v1::EventState::Waiting),
        EventRecord::Token { row, suspect } => {
            event.set_state(match row.state {
                TokenState::Waiting => v1::EventState::Retrying,
                _ if suspect => v1::EventState::Suspect,
                TokenState::Acquired => v1::EventState::Acquired,
                TokenState::Held => v1::EventState::Held,
            });
            event.attempt = row.attempt;
            event.acquire_time = Some(timestamp(row.acquired_us));
            event.deliver_time = row.delivered_us.map(timestamp);
            event.due_time = (row.state == TokenState::Waiting).then(|| timestamp(row.due_us));
            event.message.clone_from(&row.message);
        }
        EventRecord::Done(row) => {
            event.set_state(ended(row.outcome));
            event.attempt = row.attempt;
            event.acquire_time = row.acquired_us.map(timestamp);
            event.deliver_time = row.delivered_us.map(timestamp);
            event.finish_time = Some(timestamp(row.finished_us));
            event.message.clone_from(&row.message);
        }
    }
    event
}

/// The state of an event that ended so.
pub fn ended(outcome: Outcome) -> v1::EventState {
    match outcome {
        Outcome::Succeeded => v1::EventState::Succeeded,
        Outcome::Failed => v1::EventState::Failed,
        Outcome::Dead => v1::EventState::Dead,
        Outcome::Expired => v1::EventState::Expired,
        Outcome::Cancelled => v1::EventState::Cancelled,
        Outcome::Lost => v1::EventState::Lost,
    }
}

/// The state that `state=…` in a filter names, with or without its prefix, in any case.
///
/// # Errors
/// Any other text, in `filter`.
pub fn state_in_filter(text: &str) -> Result<v1::EventState, FieldError> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("EVENT_STATE_").unwrap_or(&name);
    v1::EventState::from_str_name(&format!("EVENT_STATE_{name}"))
        .filter(|state| *state != v1::EventState::Unspecified)
        .ok_or_else(|| {
            let expected = "state=SCHEDULED, WAITING, ACQUIRED, HELD, SUSPECT, RETRYING, SUCCEEDED, FAILED, \
                            DEAD, EXPIRED, CANCELLED or LOST";
            FieldError::new("filter", text, expected)
        })
}

/// The release of the event (`run`, `index`), whose fields lie under `prefix` (empty, or `releases[3]`).
///
/// # Errors
/// Every field that is wrong. Guards that depend on the schedule or the time are the shard's.
pub fn release_to_core(
    prefix: &str,
    message: &v1::ReleaseTokenRequest,
    (run, index): (RunId, u32),
) -> Result<Release, Vec<FieldError>> {
    let mut check = Check::new(prefix);
    let outcome = check.choice("outcome", message.outcome, "SUCCEEDED, FAILED or RETRY");
    let outcome = match outcome {
        v1::ReleaseOutcome::Unspecified | v1::ReleaseOutcome::Succeeded => ReleaseOutcome::Succeeded,
        v1::ReleaseOutcome::Failed => ReleaseOutcome::Failed,
        v1::ReleaseOutcome::Retry => ReleaseOutcome::Retry,
    };
    if message.attempt == Some(0) {
        check.refuse("attempt", 0, "at least 1, or nothing for the attempt in flight");
    }
    check.text("message", &message.message);
    check.text("cursor", message.cursor.as_deref().unwrap_or_default());
    let next_check_us = check.us("next_check_time", message.next_check_time.as_ref());
    if next_check_us.is_some() && outcome != ReleaseOutcome::Succeeded {
        let given = message.next_check_time.as_ref().map(ToString::to_string).unwrap_or_default();
        check.refuse("next_check_time", given, "none with another outcome than SUCCEEDED");
    }
    let result = check.keep(result(&check.path("result"), message.result.as_ref())).flatten();
    let ends_well = outcome == ReleaseOutcome::Succeeded && next_check_us.is_none();
    if let Some(given) = result.as_ref().filter(|_| !ends_well) {
        let given = format!("{} bytes", given.bytes);
        check.refuse("result", given, "none with another outcome than SUCCEEDED, or with next_check_time");
    }
    check.finish(Some(Release {
        run,
        index,
        attempt: message.attempt,
        outcome,
        message: message.message.clone(),
        next_check_us,
        cursor: message.cursor.clone(),
        result,
    }))
}

/// A result in `field`, in clear.
fn result(field: &str, value: Option<&Value>) -> Result<Option<Box<EventResult>>, FieldError> {
    let Some(given) = value else { return Ok(None) };
    let body = payload::to_core(field, value)?.json.to_string();
    let items = match &given.kind {
        Some(Kind::ListValue(list)) => list.values.len(),
        _ => 1,
    };
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Some(Box::new(EventResult { bytes: count(body.len()), items: count(items), body })))
}
