//! Decides how a refusal reads: a code, a message, and each field that is wrong with what is allowed, as the REST API has it.

use serde_json::{Value, json};
use tollgate_proto::FieldError;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The most fields that are told of.
const DETAILS_MAX: usize = 50;
/// The most bytes of a fault in an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// The most characters of a message, and of what is said of a field.
const MESSAGE_MAX_CHARS: usize = 2_000;
const DESCRIPTION_MAX_CHARS: usize = 600;

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    message: String,
    /// Field and what is wrong.
    pub(crate) details: Vec<(String, String)>,
}

impl Fault {
    /// Fields of a command that are wrong.
    pub(crate) fn of_fields(details: Vec<(String, String)>) -> Self {
        let texts = details.iter().map(|(field, said)| match field.as_str() {
            "" => said.clone(),
            field => format!("{field}: {said}"),
        });
        let message = texts.take(DETAILS_MAX).collect::<Vec<_>>().join("; ");
        Self { code: Code::InvalidArgument, message, details }
    }

    /// One field that is wrong.
    pub(crate) fn of_field(field: &str, said: impl Into<String>) -> Self {
        Self::of_fields(vec![(field.to_owned(), said.into())])
    }

    /// What no key and no message changes.
    pub(crate) fn not_allowed(field: &str, said: impl Into<String>) -> Self {
        Self { code: Code::PermissionDenied, ..Self::of_field(field, said) }
    }

    /// What the service says otherwise than by a status.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// What the service said.
    pub(crate) fn of_status(status: &Status) -> Self {
        let violations = status.get_details_bad_request().map(|of| of.field_violations).unwrap_or_default();
        let details = violations.into_iter().map(|one| (one.field, one.description)).collect();
        Self { code: status.code(), message: status.message().to_owned(), details }
    }

    /// The same, with its fields where the command has them.
    pub(crate) fn within(mut self, place: impl Fn(&str) -> String) -> Self {
        for (field, _) in &mut self.details {
            *field = place(field);
        }
        if self.details.is_empty() {
            return self;
        }
        Self { code: self.code, ..Self::of_fields(self.details) }
    }

    /// The same, of a command about an event: what the service calls its `name`, the command has as its `resource`.
    pub(crate) fn of_event(self) -> Self {
        if !self.details.is_empty() {
            return self.within(|field| match field {
                "name" => "resource".to_owned(),
                other => other.to_owned(),
            });
        }
        // Of what is not there the service has a sentence alone.
        let said = match self.message.strip_prefix("name: ") {
            Some(said) => said,
            None if self.code == Code::NotFound => self.message.as_str(),
            None => return self,
        };
        Self { code: self.code, ..Self::of_field("resource", said) }
    }

    /// As clients of the REST API read it.
    pub(crate) fn to_json(&self) -> Value {
        self.to_json_within(ANSWER_BYTES_MAX)
    }

    /// The same, with fewer details and a shorter message where it would have more bytes.
    pub(crate) fn to_json_within(&self, bytes_max: usize) -> Value {
        let (mut details, mut chars) = (self.details.len().min(DETAILS_MAX), MESSAGE_MAX_CHARS);
        loop {
            let json = self.with(details, chars);
            if json.to_string().len() <= bytes_max || (details, chars) == (0, 0) {
                return json;
            }
            (details, chars) = if details > 0 { (details * 3 / 4, chars) } else { (0, chars / 2) };
        }
    }

    fn with(&self, details_max: usize, chars_max: usize) -> Value {
        let details = self.details.iter().take(details_max).map(|(field, said)| {
            json!({"field": short(field, DESCRIPTION_MAX_CHARS), "description": short(said, DESCRIPTION_MAX_CHARS)})
        });
        let details: Vec<Value> = details.collect();
        let message = short(&self.message, chars_max);
        json!({"code": i32::from(self.code), "status": word(self.code), "message": message, "details": details})
    }

    /// For the log.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", word(self.code), short(&self.message, DESCRIPTION_MAX_CHARS))
    }
}

impl From<FieldError> for Fault {
    fn from(error: FieldError) -> Self {
        let description = error.description();
        Self::of_field(&error.field, description)
    }
}

/// The beginning of a text.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The word of a code, as the API's own documents have it.
pub(crate) fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_service_are_placed_in_the_command() {
        let status: Status = FieldError::new("schedule.events", 0, "1 to 10,000,000").into();
        let fault = Fault::of_status(&status).within(|field| format!("resource.{field}"));
        let said = "\"0\" is not allowed, expected 1 to 10,000,000";
        assert_eq!(
            fault.to_json(),
            json!({"code": 3, "status": "INVALID_ARGUMENT", "message": format!("resource.schedule.events: {said}"),
                   "details": [{"field": "resource.schedule.events", "description": said}]})
        );
    }

    #[test]
    fn an_event_is_the_resource_of_the_command() {
        let of = |status: Status| {
            let fault = Fault::of_status(&status).of_event();
            (fault.code, fault.text(), fault.details.into_iter().map(|(field, _)| field).collect::<Vec<_>>())
        };
        let told = |code, text: &str, fields: &[&str]| {
            (code, text.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>())
        };
        for said in ["name: \"x\" is not an event", "\"x\" is not an event"] {
            let expected = "NOT_FOUND: resource: \"x\" is not an event";
            assert_eq!(of(Status::not_found(said)), told(Code::NotFound, expected, &["resource"]));
        }
        let status = FieldError::new("name", "x", "an event").into();
        let expected = "INVALID_ARGUMENT: resource: \"x\" is not allowed, expected an event";
        assert_eq!(of(status), told(Code::InvalidArgument, expected, &["resource"]));
        let status = FieldError::new("attempt", 0, "at least 1").into();
        let expected = "INVALID_ARGUMENT: attempt: \"0\" is not allowed, expected at least 1";
        assert_eq!(of(status), told(Code::InvalidArgument, expected, &["attempt"]));
        let status = Status::failed_precondition("the event holds no token");
        let expected = "FAILED_PRECONDITION: the event holds no token";
        assert_eq!(of(status), told(Code::FailedPrecondition, expected, &[]));
    }

    #[test]
    fn a_fault_is_never_large() {
        let many = (0..500).map(|at| (format!("{at}").repeat(2_000), "é".repeat(10_000))).collect();
        let fault = Fault::of_fields(many);
        let text = fault.to_json().to_string();
        assert!(text.len() <= ANSWER_BYTES_MAX, "{}", text.len());
        let text = fault.to_json_within(4_000).to_string();
        let read: Option<Value> = serde_json::from_str(&text).ok();
        assert!(
            text.len() <= 4_000 && read.is_some_and(|read| read["status"] == "INVALID_ARGUMENT"),
            "{text}"
        );
        let quotes = Fault::new(Code::Aborted, "\"".repeat(9_000)).to_json_within(1_000).to_string();
        assert!(quotes.len() <= 1_000, "{quotes}");
    }
}
