//! Decides how a refused field is reported: its path, what was given, what is allowed.
//!
//! In: what the checks of `convert`, `filter`, `mask` and `page` found. Out: text, and a gRPC status whose
//! `google.rpc.BadRequest` details have one violation for each field. Invariant: values are cut short and never hold
//! a secret. Not here: the checks.

use std::fmt;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The most characters of a value that an error repeats.
const VALUE_CHARS_MAX: usize = 80;
/// The most characters of a path that a status repeats: parts of it, such as the keys of a map, are the caller's.
const FIELD_CHARS_MAX: usize = 200;
/// The most characters of what is allowed that a status carries.
const EXPECTED_CHARS_MAX: usize = 500;
/// The most violations that a status carries.
const VIOLATIONS_MAX: usize = 100;
/// The most bytes of violations that a status carries. They travel three times, in headers, encoded, and many clients
/// take no more than 8 KiB of these: a status that is larger is lost as a whole.
const BYTES_MAX: usize = 1_700;

/// Why one field is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FieldError {
    /// Its path, as in `schedule.triggers[0].interval.every`.
    pub field: String,
    /// What was given, cut short; empty where nothing was.
    pub value: String,
    /// What is allowed; or, where `said`, what is wrong.
    pub expected: String,
    /// Whether `expected` says all by itself.
    pub said: bool,
}

impl FieldError {
    /// The refusal of `value` in `field`.
    pub fn new(field: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: shortened(&value.to_string(), VALUE_CHARS_MAX),
            expected: expected.into(),
            said: false,
        }
    }

    /// A refusal in a sentence of its own.
    pub fn said(field: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { field: field.into(), value: String::new(), expected: sentence.into(), said: true }
    }

    /// What is wrong, without the field.
    pub fn description(&self) -> String {
        match (self.said, self.value.is_empty()) {
            (true, _) => self.expected.clone(),
            (false, true) => format!("expected {}", self.expected),
            (false, false) => format!("{:?} is not allowed, expected {}", self.value, self.expected),
        }
    }

    /// The same, cut to what fits into a status.
    fn bounded(&self) -> Self {
        Self {
            field: shortened(&self.field, FIELD_CHARS_MAX),
            value: shortened(&self.value, VALUE_CHARS_MAX),
            expected: shortened(&self.expected, EXPECTED_CHARS_MAX),
            said: self.said,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.said && self.field.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.field, self.description())
    }
}

impl From<FieldError> for Status {
    fn from(error: FieldError) -> Self {
        invalid_argument(&[error])
    }
}

/// INVALID_ARGUMENT with the refusals in its message and in its `google.rpc.BadRequest` details: as many as fit, and how
/// many more there are.
pub fn invalid_argument(errors: &[FieldError]) -> Status {
    let mut details = ErrorDetails::new();
    let mut message = String::new();
    let mut shown = 0;
    for error in errors.iter().take(VIOLATIONS_MAX) {
        let error = error.bounded();
        let text = error.to_string();
        if shown > 0 && message.len() + text.len() > BYTES_MAX {
            break;
        }
        let description = error.description();
        details.add_bad_request_violation(error.field, description);
        if shown > 0 {
            message.push_str("; ");
        }
        message.push_str(&text);
        shown += 1;
    }
    if errors.len() > shown {
        message.push_str(&format!("; and {} more", errors.len() - shown));
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_every_field() {
        let status = invalid_argument(&[
            FieldError::new("schedule.events", 0, "1 to 10,000,000"),
            FieldError::new("schedule.target", "", "http or sqs"),
        ]);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            status.message(),
            "schedule.events: \"0\" is not allowed, expected 1 to 10,000,000; \
             schedule.target: expected http or sqs"
        );
        let fields: Vec<String> = status
            .get_details_bad_request()
            .into_iter()
            .flat_map(|details| details.field_violations)
            .map(|violation| violation.field)
            .collect();
        assert_eq!(fields, ["schedule.events", "schedule.target"]);
    }

    #[test]
    fn a_status_fits_into_headers() {
        let errors: Vec<FieldError> = (0..150)
            .map(|n| FieldError::new(format!("schedule.labels.{n}"), "é é".repeat(50), "less"))
            .collect();
        let status = invalid_argument(&errors);
        let shown = status.get_details_bad_request().map_or(0, |details| details.field_violations.len());
        assert!((5..100).contains(&shown), "{shown}");
        assert!(status.message().ends_with(&format!("; and {} more", 150 - shown)), "{status}");
        assert!(status.message().len() + status.details().len() < 6_000);
    }

    #[test]
    fn a_status_with_a_huge_path_fits_too() {
        let error = FieldError::new("é".repeat(10_000), "\u{10ffff}".repeat(100), "x".repeat(10_000));
        let status = invalid_argument(&[error]);
        assert!(status.message().len() + status.details().len() < 6_000, "{status}");
    }

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        let error = FieldError::new("x", "é".repeat(1000), "less");
        assert_eq!(error.value.chars().count(), VALUE_CHARS_MAX + 1);
    }
}
