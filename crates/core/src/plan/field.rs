//! One cron field: from its text to a set.
//!
//! In: the text of one field. Out: the set, and the two facts about the text that decide later: whether its first
//! character is `*`, and whether it is nothing but `*`.
//! Invariant: what is not in the grammar is refused with the offending list member and what is allowed.
//! Not here: how fields combine (`expression`).

use super::calendar::{Dates, Weekdays};

/// Which of the five fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl FieldKind {
    /// The field's name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day-of-month",
            Self::Month => "month",
            Self::DayOfWeek => "day-of-week",
        }
    }

    fn allowed(self) -> &'static str {
        match self {
            Self::Minute => "0-59",
            Self::Hour => "0-23",
            Self::DayOfMonth => "1-31, or L",
            Self::Month => "1-12 or JAN-DEC",
            Self::DayOfWeek => "0-7 or SUN-SAT, or one of them with #1 to #5 or #L, or 0L to 7L",
        }
    }

    fn bounds(self) -> (u32, u32) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
        }
    }
}

/// The text of a field that stands by itself, without the blanks around the members of its list, as in `3, 6, 9`. In cron text
/// blanks part the fields.
pub fn plain_list(text: &str) -> String {
    text.split(',').map(|member| member.trim_matches([' ', '\t'])).collect::<Vec<_>>().join(",")
}

/// Why a field is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CronFieldError {
    pub(crate) value: String,
    pub(crate) expected: &'static str,
}

/// A parsed field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// The text begins with `*`.
    pub(crate) star: bool,
    /// The text is nothing but `*`.
    pub(crate) unrestricted: bool,
    /// The plain values as bits; bit 0 of day-of-month is `L`, 7 of day-of-week is folded onto 0.
    values: u64,
    /// Day-of-week only: `d#k` and `d#L`.
    ordinals: Weekdays,
}

impl Field {
    /// Parses the text of a field.
    pub(crate) fn parse(kind: FieldKind, text: &str) -> Result<Self, CronFieldError> {
        let mut field = Self { star: text.starts_with('*'), unrestricted: text == "*", ..Self::default() };
        for member in text.split(',') {
            field
                .add(kind, member)
                .map_err(|expected| CronFieldError { value: member.to_owned(), expected })?;
        }
        if kind == FieldKind::DayOfWeek && field.values >> 7 & 1 == 1 {
            field.values = field.values & 0x7f | 1;
        }
        Ok(field)
    }

    /// The plain values.
    pub(crate) fn bits(&self) -> u64 {
        self.values
    }

    /// Day-of-month as a set.
    pub(crate) fn dates(&self) -> Dates {
        // The casts lose nothing: bits 0-31 only.
        Dates(self.values as u32)
    }

    /// Day-of-week as a set.
    pub(crate) fn weekdays(&self) -> Weekdays {
        // The casts lose nothing: bits 0-6 only.
        Weekdays { every: self.values as u8, ..self.ordinals }
    }

    fn add(&mut self, kind: FieldKind, member: &str) -> Result<(), &'static str> {
        if kind == FieldKind::DayOfMonth && member.eq_ignore_ascii_case("L") {
            self.values |= 1;
            return Ok(());
        }
        if kind == FieldKind::DayOfWeek && self.add_ordinal(member)? {
            return Ok(());
        }
        let (range, step) = match member.split_once('/') {
            Some((range, step)) => (range, Some(step_of(step)?)),
            None => (member, None),
        };
        let (low, high) = bounds_of(kind, range, step.is_some())?;
        if low > high {
            return Err("a range from the lower to the higher value");
        }
        for value in (low..=high).step_by(step.unwrap_or(1)) {
            self.values |= 1 << value;
        }
        Ok(())
    }

    /// Takes `d#k`, `d#L` and `nL`; false if the member has none of these forms.
    fn add_ordinal(&mut self, member: &str) -> Result<bool, &'static str> {
        let kind = FieldKind::DayOfWeek;
        if let Some((day, which)) = member.split_once('#') {
            let bit = 1_u8 << (value(kind, day)? % 7);
            if which.eq_ignore_ascii_case("L") {
                self.ordinals.last |= bit;
                return Ok(true);
            }
            let set = number(which)
                .and_then(|k| usize::try_from(k).ok()?.checked_sub(1))
                .and_then(|index| self.ordinals.nth.get_mut(index))
                .ok_or("#1 to #5 or #L after a weekday")?;
            *set |= bit;
            return Ok(true);
        }
        let Some(day) = member.strip_suffix(['L', 'l']) else { return Ok(false) };
        let day = number(day).filter(|day| *day <= 7).ok_or(kind.allowed())?;
        self.ordinals.last |= 1 << (day % 7);
        Ok(true)
    }
}

/// The values that a member without its step spans.
fn bounds_of(kind: FieldKind, range: &str, stepped: bool) -> Result<(u32, u32), &'static str> {
    let (_, max) = kind.bounds();
    if range == "*" {
        return Ok(kind.bounds());
    }
    match range.split_once('-') {
        Some((low, high)) => Ok((value(kind, low)?, value(kind, high)?)),
        None => value(kind, range).map(|low| (low, if stepped { max } else { low })),
    }
}

/// A number within the field's bounds, or a name.
fn value(kind: FieldKind, text: &str) -> Result<u32, &'static str> {
    let (min, max) = kind.bounds();
    let named = |names: &[&str], first: u32| {
        (first..).zip(names).find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(value, _)| value)
    };
    match kind {
        FieldKind::Month => named(&MONTHS, 1),
        FieldKind::DayOfWeek => named(&WEEKDAYS, 0),
        _ => None,
    }
    .or_else(|| number(text))
    .filter(|value| (min..=max).contains(value))
    .ok_or(kind.allowed())
}

/// A step; one beyond every field's range acts like any other that leaves only the start.
fn step_of(text: &str) -> Result<usize, &'static str> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) || text.bytes().all(|b| b == b'0') {
        return Err("a step of 1 or more");
    }
    Ok(text.parse::<u32>().map_or(usize::MAX, |step| usize::try_from(step).unwrap_or(usize::MAX)))
}

/// ASCII digits only; leading zeros allowed.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
