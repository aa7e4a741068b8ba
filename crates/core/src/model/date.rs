//! Dates on which a schedule does not fire, as people write them.

use std::fmt;
use std::str::FromStr;

use chrono::{Datelike as _, Days, NaiveDate};
use serde::{Deserialize, Serialize};

/// Days from the year 1 to 1970, by chrono's count.
const EPOCH_DAYS: i32 = 719_163;

/// Dates that follow each other: `2026-12-25`, or `2026-12-24..2027-01-01`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DateRange {
    first: NaiveDate,
    last: NaiveDate,
}

/// Why a text is no such dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a date such as 2026-12-25, or the first and the last of several, such as 2026-12-24..2027-01-01")]
pub struct DateRangeError;

impl DateRange {
    /// The first day, and the first one after it, counted from 1970-01-01.
    pub fn days(self) -> (i64, i64) {
        let day = |date: NaiveDate| i64::from(date.num_days_from_ce() - EPOCH_DAYS);
        (day(self.first), day(self.last) + 1)
    }
}

/// A date in the years 1 to 9999, with all its digits.
fn date(text: &str) -> Option<NaiveDate> {
    let is_date = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| is_date)?;
    (date.year() >= 1 && date.checked_add_days(Days::new(1)).is_some()).then_some(date)
}

impl FromStr for DateRange {
    type Err = DateRangeError;

    fn from_str(text: &str) -> Result<Self, DateRangeError> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let range = date(first.trim()).zip(date(last.trim())).filter(|(first, last)| first <= last);
        range.map(|(first, last)| Self { first, last }).ok_or(DateRangeError)
    }
}

impl fmt::Display for DateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "{first}") } else { write!(f, "{first}..{last}") }
    }
}

impl TryFrom<String> for DateRange {
    type Error = DateRangeError;

    fn try_from(text: String) -> Result<Self, DateRangeError> {
        text.parse()
    }
}

impl From<DateRange> for String {
    fn from(range: DateRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<DateRange>().map(|range| (range.to_string(), range.days()));
        assert_eq!(read("1970-01-01"), Ok(("1970-01-01".into(), (0, 1))));
        assert_eq!(read("1969-12-31 .. 1970-01-02"), Ok(("1969-12-31..1970-01-02".into(), (-1, 2))));
        assert_eq!(read("2028-02-29..2028-02-29"), Ok(("2028-02-29".into(), (21_243, 21_244))));
        let wrong = [
            "",
            "2026-02-29",
            "2026-1-5",
            "26-01-05",
            "2026-12-25..",
            "..2026-12-25",
            "2026-12-25..2026-12-24",
            "2026-12-25T00:00:00Z",
            "0000-01-01",
            "+2026-01-1",
            "25.12.2026",
            "2026-12-25...2026-12-26",
        ];
        for text in wrong {
            assert_eq!(read(text), Err(DateRangeError), "{text}");
        }
    }

    #[test]
    fn dates_are_stored_as_text() {
        let range: DateRange = "2026-12-24..2027-01-01".parse().unwrap();
        let stored = serde_json::to_string(&range).unwrap();
        assert_eq!(stored, "\"2026-12-24..2027-01-01\"");
        assert_eq!(serde_json::from_str::<DateRange>(&stored).unwrap(), range);
    }
}
