//! Decides what somebody reads when the API says no, or nothing.

use http::StatusCode;
use prost::{Message, Name};
use serde_json::Value;
use tollgate_proto::json;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// What is wrong with one field of a form or of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// As the service names it: `schedule.time_zone`, `triggers[0].cron`.
    pub(crate) name: String,
    /// What is wrong, and what is allowed.
    pub(crate) message: String,
}

impl Field {
    /// Its path inside the resource.
    pub(crate) fn path(&self) -> &str {
        ["schedule.", "policy.", "calendar.", "alert."]
            .iter()
            .find_map(|start| self.name.strip_prefix(start))
            .unwrap_or(&self.name)
    }

    /// Whether it is this field of the resource, or something in it.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        let rest = self.path().strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// Why a page cannot be shown, or an action was not taken.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// What the browser is told.
    pub(crate) status: StatusCode,
    /// One sentence.
    pub(crate) title: String,
    /// What is wrong, field by field where fields are named.
    pub(crate) lines: Vec<String>,
    /// The fields that are named.
    pub(crate) fields: Vec<Field>,
}

impl Problem {
    /// A value of a form that cannot be what is meant.
    pub(crate) fn invalid(field: &str, value: &str, expected: &str) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            title: "Not changed.".to_owned(),
            lines: vec![format!("{field}: {value:?} is not allowed, expected {expected}")],
            fields: Vec::new(),
        }
    }

    /// Fields that are wrong.
    pub(crate) fn of_fields(fields: Vec<Field>) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            title: "Not changed.".to_owned(),
            lines: fields.iter().map(|field| format!("{}: {}", field.name, field.message)).collect(),
            fields,
        }
    }

    /// On one line.
    pub(crate) fn text(&self) -> String {
        if self.lines.is_empty() { self.title.clone() } else { self.lines.join("; ") }
    }
}

/// The message that members describe, or all that is wrong with them.
pub(crate) fn read<M: Message + Name + Default>(members: Value) -> Result<M, Problem> {
    match json::read(members) {
        (Some(message), errors) if errors.is_empty() => Ok(message),
        (_, errors) => {
            let fields = errors.into_iter().map(|error| Field { name: error.field, message: error.message });
            Err(Problem::of_fields(fields.collect()))
        }
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        let details = status.get_details_bad_request().map(|details| details.field_violations);
        let details = details.unwrap_or_default().into_iter();
        let fields: Vec<Field> =
            details.map(|field| Field { name: field.field, message: field.description }).collect();
        let mut lines: Vec<String> =
            fields.iter().map(|field| format!("{}: {}", field.name, field.message)).collect();
        if lines.is_empty() && !status.message().is_empty() {
            lines.push(status.message().to_owned());
        }
        let (http, title) = match status.code() {
            Code::NotFound => (StatusCode::NOT_FOUND, "There is no such thing here."),
            Code::InvalidArgument => (StatusCode::UNPROCESSABLE_ENTITY, "The service refused it."),
            Code::Aborted => {
                (StatusCode::CONFLICT, "Somebody else changed it in the meantime. Look, and try again.")
            }
            Code::AlreadyExists | Code::FailedPrecondition => {
                (StatusCode::CONFLICT, "The service refused it as things are now.")
            }
            Code::Unauthenticated | Code::PermissionDenied => {
                (StatusCode::FORBIDDEN, "The service does not let the console do this.")
            }
            Code::Unimplemented => {
                (StatusCode::BAD_GATEWAY, "The process that the console asks does not play this role.")
            }
            Code::Unavailable => (StatusCode::BAD_GATEWAY, "The service cannot be reached now."),
            Code::DeadlineExceeded | Code::Cancelled => (
                StatusCode::GATEWAY_TIMEOUT,
                "The service did not answer in time. What was asked may still happen.",
            ),
            _ => (StatusCode::BAD_GATEWAY, "The service could not do it."),
        };
        Self { status: http, title: title.to_owned(), lines, fields }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_proto::FieldError;

    use super::*;

    #[test]
    fn refused_fields_are_named() {
        let status = tollgate_proto::field::invalid_argument(&[FieldError::new(
            "policy.max_in_flight",
            0,
            "at least 1",
        )]);
        let problem = Problem::from(status);
        assert_eq!(problem.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(problem.text(), "policy.max_in_flight: \"0\" is not allowed, expected at least 1");
    }
}
