//! Collects refusals, and holds the checks that several resources share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use prost_types::{Duration, Timestamp};

use crate::field::FieldError;

/// The most bytes of a description, a reason or a message.
pub(super) const TEXT_MAX_BYTES: usize = 4096;
const LABELS_MAX: usize = 64;
const LABEL_KEY_MAX: usize = 63;
const LABEL_VALUE_MAX: usize = 255;
/// 0001-01-01 to 9999-12-31, the range of a `google.protobuf.Timestamp`.
const SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// What was refused so far, under the path of one message.
pub(super) struct Check {
    prefix: String,
    errors: Vec<FieldError>,
}

impl Check {
    /// For the fields of the message at `prefix`.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), errors: Vec::new() }
    }

    /// The full path of a field.
    pub(super) fn path(&self, field: &str) -> String {
        if self.prefix.is_empty() { field.to_owned() } else { format!("{}.{field}", self.prefix) }
    }

    /// Notes a refusal.
    pub(super) fn refuse(&mut self, field: &str, value: impl Display, expected: impl Into<String>) {
        self.errors.push(FieldError::new(self.path(field), value, expected));
    }

    /// The value, or none and the refusal noted.
    pub(super) fn keep<T>(&mut self, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// What was converted, unless something was refused. `None` without a refusal counts as one.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            None if self.errors.is_empty() => {
                Err(vec![FieldError::new(self.prefix, "", "a complete message")])
            }
            _ => Err(self.errors),
        }
    }

    /// A description or another free text.
    pub(super) fn text(&mut self, field: &str, text: &str) {
        if text.len() > TEXT_MAX_BYTES {
            self.refuse(field, text, format!("at most {TEXT_MAX_BYTES} bytes"));
        }
    }

    /// The number, which must lie in `range`; `default` where it is absent.
    pub(super) fn number(
        &mut self,
        field: &str,
        given: Option<u32>,
        default: u32,
        range: &RangeInclusive<u32>,
    ) -> u32 {
        let number = given.unwrap_or(default);
        if !range.contains(&number) {
            self.refuse(field, number, format!("{} to {}", range.start(), range.end()));
        }
        number
    }

    /// The span in milliseconds; `default` where it is absent or refused.
    pub(super) fn ms(
        &mut self,
        field: &str,
        given: Option<&Duration>,
        default: i64,
        range: &RangeInclusive<i64>,
    ) -> i64 {
        let path = self.path(field);
        given.and_then(|span| self.keep(span_ms(&path, span, range))).unwrap_or(default)
    }

    /// The span in whole seconds; none where it is absent or refused.
    pub(super) fn s(
        &mut self,
        field: &str,
        given: Option<&Duration>,
        range: &RangeInclusive<i64>,
    ) -> Option<i64> {
        let path = self.path(field);
        given.and_then(|span| self.keep(span_s(&path, span, range)))
    }

    /// The moment in microseconds; none where it is absent or refused.
    pub(super) fn us(&mut self, field: &str, given: Option<&Timestamp>) -> Option<i64> {
        let path = self.path(field);
        given.and_then(|time| self.keep(time_us(&path, time)))
    }

    /// As [`Self::us`], for whole seconds.
    pub(super) fn whole_second_us(&mut self, field: &str, given: Option<&Timestamp>) -> Option<i64> {
        if given.is_some_and(|time| time.nanos != 0) {
            self.refuse(field, given.map(ToString::to_string).unwrap_or_default(), "a whole second");
            return None;
        }
        self.us(field, given)
    }

    /// The enum's value; its default (UNSPECIFIED) where the number is not one of it.
    pub(super) fn choice<E: TryFrom<i32> + Default>(&mut self, field: &str, number: i32, names: &str) -> E {
        E::try_from(number).unwrap_or_else(|_| {
            self.refuse(field, number, names);
            E::default()
        })
    }

    /// Labels.
    pub(super) fn labels(&mut self, labels: &BTreeMap<String, String>) {
        if labels.len() > LABELS_MAX {
            self.refuse("labels", labels.len(), format!("at most {LABELS_MAX} labels"));
        }
        for (key, value) in labels {
            let printable =
                key.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '=' && c != '"');
            if key.is_empty() || key.chars().count() > LABEL_KEY_MAX || !printable {
                let expected =
                    format!("keys of 1 to {LABEL_KEY_MAX} characters without blanks, = and quotes");
                self.refuse("labels", key, expected);
            }
            if value.chars().count() > LABEL_VALUE_MAX || value.chars().any(char::is_control) {
                let expected = format!("at most {LABEL_VALUE_MAX} characters without control characters");
                self.refuse(&format!("labels.{key}"), value, expected);
            }
        }
    }
}

/// A span in whole milliseconds within `range`.
pub(super) fn span_ms(path: &str, span: &Duration, range: &RangeInclusive<i64>) -> Result<i64, FieldError> {
    let ms = (span.nanos % 1_000_000 == 0 && consistent(span))
        .then(|| span.seconds.checked_mul(1_000)?.checked_add(i64::from(span.nanos / 1_000_000)))
        .flatten();
    ms.filter(|ms| range.contains(ms)).ok_or_else(|| {
        let [min, max] = [*range.start(), *range.end()].map(spoken_ms);
        FieldError::new(path, shown(span), format!("{min} to {max} in whole milliseconds"))
    })
}

/// A span in whole seconds within `range`.
pub(super) fn span_s(path: &str, span: &Duration, range: &RangeInclusive<i64>) -> Result<i64, FieldError> {
    if span.nanos == 0 && range.contains(&span.seconds) {
        return Ok(span.seconds);
    }
    let [min, max] = [*range.start(), *range.end()].map(|seconds| spoken_ms(seconds.saturating_mul(1_000)));
    Err(FieldError::new(path, shown(span), format!("{min} to {max} in whole seconds")))
}

/// A moment in microseconds.
pub(super) fn time_us(path: &str, time: &Timestamp) -> Result<i64, FieldError> {
    let fits = SECONDS.contains(&time.seconds) && (0..1_000_000_000).contains(&time.nanos);
    if !fits || time.nanos % 1_000 != 0 {
        let given = format!("{} s {} ns", time.seconds, time.nanos);
        let expected = "a moment in the years 1 to 9999 in whole microseconds";
        return Err(FieldError::new(path, given, expected));
    }
    Ok(time.seconds * 1_000_000 + i64::from(time.nanos / 1_000))
}

fn consistent(span: &Duration) -> bool {
    span.nanos.unsigned_abs() < 1_000_000_000
        && (span.seconds == 0 || span.nanos == 0 || (span.seconds < 0) == (span.nanos < 0))
}

fn shown(span: &Duration) -> String {
    match (span.nanos, consistent(span)) {
        (0, _) => format!("{}s", span.seconds),
        (_, true) => span.to_string(),
        _ => format!("{} s {} ns", span.seconds, span.nanos),
    }
}

/// Whole days as such: nobody counts in years of 365.25 days.
fn spoken_ms(ms: i64) -> String {
    const DAY_MS: i64 = 24 * 3_600_000;
    if ms > DAY_MS && ms % DAY_MS == 0 {
        return format!("{} days", ms / DAY_MS);
    }
    humantime::format_duration(std::time::Duration::from_millis(ms.unsigned_abs())).to_string()
}
