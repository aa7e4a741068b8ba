//! Five fields together: from the text form or the structured form to a rule that can be asked for its fires.
//!
//! In: an expression or the five fields by name. Out: [`Expression`]: the calendar, the facts about each field's
//! text that classes and clock changes depend on. Invariant: an accepted expression fires some day.
//! Not here: the grammar of one field (`field`), children (`child`).

use super::PlanError;
use super::calendar::Calendar;
use super::field::{Field, FieldKind, plain_list};
use crate::nearest::nearest;

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The texts of an expression's five fields, a macro's among them; none where there are more or fewer.
pub(crate) fn five_fields(text: &str) -> Option<[&str; 5]> {
    let mut fields = text.split([' ', '\t']).filter(|field| !field.is_empty());
    let first = fields.next()?;
    if first.starts_with('@') {
        let (_, five) = MACROS.iter().find(|(name, _)| *name == first)?;
        return if fields.next().is_none() { five_fields(five) } else { None };
    }
    let five = [first, fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    if fields.next().is_none() { Some(five) } else { None }
}

/// What may help who wrote a text that has not five fields.
fn meant(text: &str) -> String {
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.as_slice() {
        [one] if one.starts_with('@') => match nearest(one, MACROS.iter().map(|(name, _)| *name)) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        },
        [_, rest @ ..] if rest.len() == 5 => {
            let five = rest.join(" ");
            format!("; these are six: without seconds it is \"{five}\"")
        }
        [] => String::new(),
        fields => format!("; there are {} here", fields.len()),
    }
}

/// A parsed expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    /// What matches.
    pub(crate) calendar: Calendar,
    /// The minute or hour text begins with `*`: the job fires by the clock's reading, not once a nominal minute.
    pub(crate) wildcard: bool,
    /// The hour is exactly `*`.
    pub(crate) any_hour: bool,
    /// The day-of-month is exactly `*`.
    pub(crate) any_date: bool,
    /// The month is exactly `*`.
    pub(crate) any_month: bool,
    /// The day-of-week is exactly `*`.
    pub(crate) any_weekday: bool,
}

impl Expression {
    /// Parses the text form. `path` names the field in errors.
    pub(crate) fn from_text(path: &str, text: &str) -> Result<Self, PlanError> {
        let refused = || PlanError {
            field: path.to_owned(),
            value: text.to_owned(),
            expected: format!(
                "five fields (minute hour day-of-month month day-of-week) or one of @yearly, @annually, \
                 @monthly, @weekly, @daily, @midnight, @hourly{}",
                meant(text)
            ),
        };
        let [minute, hour, date, month, weekday] = five_fields(text).ok_or_else(refused)?;
        let field = |kind: FieldKind, member: &str| {
            Field::parse(kind, member).map_err(|error| PlanError {
                field: format!("{path}: {}", kind.name()),
                value: error.value,
                expected: error.expected.to_owned(),
            })
        };
        let parsed = Self::new(
            field(FieldKind::Minute, minute)?,
            field(FieldKind::Hour, hour)?,
            field(FieldKind::DayOfMonth, date)?,
            field(FieldKind::Month, month)?,
            field(FieldKind::DayOfWeek, weekday)?,
        );
        parsed.if_it_ever_fires(path, || text.to_owned())
    }

    /// Parses the structured form, given as (month, day_of_month, day_of_week, hour, minute).
    ///
    /// Minute `*` means minute 0, exactly as if `0` were written: it does not make the job a wildcard job.
    pub(crate) fn from_fields(path: &str, fields: [Option<&str>; 5]) -> Result<Self, PlanError> {
        let field = |kind: FieldKind, name: &str, text: &str| {
            Field::parse(kind, text).map_err(|error| PlanError {
                field: format!("{path}.{name}"),
                value: error.value,
                expected: error.expected.to_owned(),
            })
        };
        let fields = fields.map(|text| text.map_or_else(|| "*".to_owned(), plain_list));
        let [month, date, weekday, hour, minute] = fields.each_ref().map(String::as_str);
        let minute = if minute == "*" { "0" } else { minute };
        let parsed = Self::new(
            field(FieldKind::Minute, "minute", minute)?,
            field(FieldKind::Hour, "hour", hour)?,
            field(FieldKind::DayOfMonth, "day_of_month", date)?,
            field(FieldKind::Month, "month", month)?,
            field(FieldKind::DayOfWeek, "day_of_week", weekday)?,
        );
        parsed.if_it_ever_fires(path, || format!("month {month}, day_of_month {date}, day_of_week {weekday}"))
    }

    fn new(minute: Field, hour: Field, date: Field, month: Field, weekday: Field) -> Self {
        // The casts lose nothing: bits 0-23 and 1-12 only.
        let calendar = Calendar {
            minutes: minute.bits(),
            hours: hour.bits() as u32,
            months: month.bits() as u16,
            dates: date.dates(),
            weekdays: weekday.weekdays(),
            either_day: !date.star && !weekday.star,
        };
        Self {
            calendar,
            wildcard: minute.star || hour.star,
            any_hour: hour.unrestricted,
            any_date: date.unrestricted,
            any_month: month.unrestricted,
            any_weekday: weekday.unrestricted,
        }
    }

    fn if_it_ever_fires(self, path: &str, text: impl Fn() -> String) -> Result<Self, PlanError> {
        if self.calendar.ever() {
            return Ok(self);
        }
        Err(PlanError {
            field: path.to_owned(),
            value: text(),
            expected: "an expression that fires some day; no date ever matches this one".to_owned(),
        })
    }
}
