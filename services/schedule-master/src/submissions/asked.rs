//! What a submission's header asks for, and whether a repetition asks for the same.

use prost_types::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_core::model::DAY_US;
use tollgate_proto::convert::schedule::PRIORITIES;
use tollgate_proto::convert::{self, Name, names, payload};
use tollgate_proto::{FieldError, v1};
use tonic::Status;
use uuid::Uuid;

use super::digest_of;

/// The most characters of a request id.
const REQUEST_ID_MAX_CHARS: usize = 128;
/// How far ahead a run may fall due.
const AHEAD_MAX_US: i64 = 366 * DAY_US;
const REQUEST_ID: &str = "1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'";

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    /// Of the schedule.
    pub(super) name: String,
    pub(super) request_id: String,
    pub(super) launch_us: Option<i64>,
    pub(super) priority: Option<u8>,
    /// JSON; may be empty.
    pub(super) payload: String,
    pub(super) resume_from: u32,
    /// Whether no run is made yet: not compared.
    pub(super) hold: bool,
}

/// What is kept of it, to be compared.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Compared {
    launch_us: Option<i64>,
    priority: Option<u8>,
    /// Not the text, which may be a secret.
    payload: String,
}

impl Asked {
    /// Checks a header.
    pub(super) fn of(header: v1::SubmissionHeader, now_us: i64) -> Result<Self, FieldError> {
        let v1::SubmissionHeader {
            name,
            request_id: header_id,
            launch_time,
            priority,
            payload,
            resume_from,
            hold,
        } = header;
        let request_id = match header_id.as_str() {
            "" => Uuid::new_v4().to_string(),
            _ => request_id("header.request_id", &header_id)?,
        };
        let launch_us = launch_time.as_ref().map(|time| launch_us(time, now_us)).transpose()?;
        let priority = priority.map(|given| {
            let allowed = u8::try_from(given).ok().filter(|_| PRIORITIES.contains(&given));
            allowed.ok_or_else(|| FieldError::new("header.priority", given, "0 (last) to 9 (first)"))
        });
        Ok(Self {
            name,
            request_id,
            launch_us,
            priority: priority.transpose()?,
            payload: payload::to_core("header.payload", payload.as_ref())?.json,
            resume_from,
            hold,
        })
    }

    /// What a repetition is compared with.
    pub(super) fn to_compare(&self) -> String {
        // A struct of numbers and texts is JSON.
        serde_json::to_string(&self.compared()).unwrap_or_default()
    }

    fn compared(&self) -> Compared {
        let Self { launch_us, priority, payload, .. } = self;
        Compared { launch_us: *launch_us, priority: *priority, payload: digest_of(payload) }
    }

    /// Whether a submission that began with `before` was the same.
    ///
    /// # Errors
    /// ALREADY_EXISTS that names what differs.
    pub(super) fn is_the_same(&self, before: &str) -> Result<(), Status> {
        let unreadable = |error| Status::internal(format!("submissions.asked: {error}"));
        let before: Compared = serde_json::from_str(before).map_err(unreadable)?;
        let now = self.compared();
        let moment = |us: Option<i64>| us.map_or("none".to_owned(), |us| convert::timestamp(us).to_string());
        let number = |given: Option<u8>| given.map_or("none".to_owned(), |given| given.to_string());
        let difference = if before.launch_us != now.launch_us {
            format!("launch_time: it was {}, and is {}", moment(before.launch_us), moment(now.launch_us))
        } else if before.priority != now.priority {
            format!("priority: it was {}, and is {}", number(before.priority), number(now.priority))
        } else if before.payload != now.payload {
            "payload: it was another one".to_owned()
        } else {
            return Ok(());
        };
        Err(differs(&self.request_id, &difference))
    }
}

/// Another submission has this request id.
pub(super) fn differs(request_id: &str, difference: &str) -> Status {
    Status::already_exists(format!(
        "header.request_id: a submission {request_id:?} is there already, with other content: {difference}"
    ))
}

fn launch_us(time: &Timestamp, now_us: i64) -> Result<i64, FieldError> {
    let launch_us = convert::required_time_us("header.launch_time", Some(time))?;
    if launch_us > now_us.saturating_add(AHEAD_MAX_US) {
        return Err(FieldError::new("header.launch_time", time, "a moment within the next 366 days"));
    }
    // A little while ago is now: clocks differ, and uploads take time.
    if launch_us < now_us.saturating_sub(DAY_US) {
        let expected = "a moment to come, or of the last 24 hours";
        return Err(FieldError::new("header.launch_time", time, expected));
    }
    Ok(launch_us)
}

fn request_id(field: &str, text: &str) -> Result<String, FieldError> {
    let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if text.is_empty() || text.len() > REQUEST_ID_MAX_CHARS || !text.bytes().all(is_of_id) {
        return Err(FieldError::new(field, text, REQUEST_ID));
    }
    Ok(text.to_owned())
}

/// The schedule and the request id in a submission's name.
///
/// # Errors
/// Any other text.
pub(super) fn submission_name(field: &str, text: &str) -> Result<(Name, String), FieldError> {
    let wrong = || {
        let expected = format!(
            "namespaces/{{namespace}}/schedules/{{schedule}}/submissions/{{request_id}}, the last {REQUEST_ID}"
        );
        FieldError::new(field, text, expected)
    };
    let (schedule, id) = text.split_once("/submissions/").ok_or_else(wrong)?;
    let name = names::schedule(field, schedule).map_err(|_| wrong())?;
    Ok((name, request_id(field, id).map_err(|_| wrong())?))
}
