//! An expression as it was written, to be put into words: "every 15 minutes" says more than 4 values.
//!
//! In: the text of an expression. Out: what each field selects, and the shape in which it was written. Not here: the words.

use super::calendar::Weekdays;
use super::expression::five_fields;
use super::field::{Field, FieldKind};

/// What a field selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `*`.
    Any,
    /// `*/n`.
    Each(u32),
    /// One range without a step, from its first to its last value.
    Range(u32, u32),
    /// Anything else: the values in order.
    List(Vec<u32>),
}

/// A weekday, with which of the month it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weekday {
    /// 0 every, 1 to 5 that one of the month, 6 the last.
    pub which: u32,
    /// 0 Sunday to 6 Saturday.
    pub day: u32,
}

/// The days of the month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dates {
    /// Those with a number; none where `L` stands alone.
    pub numbered: Option<Shape>,
    /// Whether `L`, the last day, is among them.
    pub last: bool,
}

/// The five fields as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The minutes.
    pub minute: Shape,
    /// The hours.
    pub hour: Shape,
    /// The days of the month; none for `*`.
    pub dates: Option<Dates>,
    /// The months, from 1.
    pub month: Shape,
    /// The weekdays, those of every week first, each week from Monday; none for `*`.
    pub weekdays: Option<Vec<Weekday>>,
    /// Whether one of dates and weekdays is enough: neither text begins with `*`.
    pub either_day: bool,
}

impl Written {
    /// Reads an expression; none where it is not one.
    pub fn read(text: &str) -> Option<Self> {
        let [minute, hour, date, month, weekday] = five_fields(text)?;
        Some(Self {
            minute: shape(FieldKind::Minute, minute)?,
            hour: shape(FieldKind::Hour, hour)?,
            dates: if date == "*" { None } else { Some(dates(date)?) },
            month: shape(FieldKind::Month, month)?,
            weekdays: if weekday == "*" { None } else { Some(weekdays(weekday)?) },
            either_day: !date.starts_with('*') && !weekday.starts_with('*'),
        })
    }
}

fn shape(kind: FieldKind, text: &str) -> Option<Shape> {
    let values = values(Field::parse(kind, text).ok()?.bits());
    if text == "*" {
        return Some(Shape::Any);
    }
    if let Some(step) = text.strip_prefix("*/")
        && let Ok(step) = step.parse()
    {
        return Some(Shape::Each(step));
    }
    let is_plain_range = text.contains('-') && !text.contains([',', '/']);
    Some(match values.as_slice() {
        [first, .., last] if is_plain_range => Shape::Range(*first, *last),
        _ => Shape::List(values),
    })
}

fn dates(text: &str) -> Option<Dates> {
    let is_last = |member: &&str| member.eq_ignore_ascii_case("L");
    let last = text.split(',').any(|member| is_last(&member));
    let numbered: Vec<&str> = text.split(',').filter(|member| !is_last(member)).collect();
    let numbered =
        if numbered.is_empty() { None } else { Some(shape(FieldKind::DayOfMonth, &numbered.join(","))?) };
    Some(Dates { numbered, last })
}

fn weekdays(text: &str) -> Option<Vec<Weekday>> {
    let Weekdays { every, nth, last } = Field::parse(FieldKind::DayOfWeek, text).ok()?.weekdays();
    let sets = std::iter::once(every).chain(nth).chain(std::iter::once(last));
    let found = (0..).zip(sets).flat_map(|(which, set)| {
        // A week begins on Monday.
        let days = [1, 2, 3, 4, 5, 6, 0].into_iter().filter(move |day| set >> day & 1 == 1);
        days.map(move |day| Weekday { which, day })
    });
    Some(found.collect())
}

fn values(bits: u64) -> Vec<u32> {
    (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_shapes() {
        let hour = |text: &str| shape(FieldKind::Hour, text);
        assert_eq!(hour("*"), Some(Shape::Any));
        assert_eq!(hour("*/6"), Some(Shape::Each(6)));
        assert_eq!(hour("9-17"), Some(Shape::Range(9, 17)));
        assert_eq!(hour("17,9"), Some(Shape::List(vec![9, 17])));
        assert_eq!(hour("0-6/3,20/2"), Some(Shape::List(vec![0, 3, 6, 20, 22])));
        assert_eq!(shape(FieldKind::Month, "mar,JUL"), Some(Shape::List(vec![3, 7])));
        assert_eq!(hour("noon"), None);
        assert_eq!(hour("24"), None);
    }

    #[test]
    fn dates_and_the_last_one() {
        let numbered = Some(Shape::Range(1, 5));
        assert_eq!(dates("1-5,L"), Some(Dates { numbered, last: true }));
        assert_eq!(dates("l"), Some(Dates { numbered: None, last: true }));
        assert_eq!(dates("*/2"), Some(Dates { numbered: Some(Shape::Each(2)), last: false }));
    }

    #[test]
    fn weekdays_are_in_order() {
        let days = |text: &str| {
            let pairs = weekdays(text)?.into_iter().map(|weekday| (weekday.which, weekday.day));
            Some(pairs.collect::<Vec<_>>())
        };
        assert_eq!(days("SUN,mon"), Some(vec![(0, 1), (0, 0)]));
        assert_eq!(days("5-7"), Some(vec![(0, 5), (0, 6), (0, 0)]));
        assert_eq!(days("MON#1,5L,FRI#L"), Some(vec![(1, 1), (6, 5)]));
    }

    #[test]
    fn an_expression_is_read_whole() {
        let daily = Written::read("@daily");
        assert!(daily.is_some_and(|written| written.minute == Shape::List(vec![0]) && !written.either_day));
        assert!(Written::read("0 3 13 * FRI").is_some_and(|written| written.either_day));
        assert_eq!(Written::read("0 3 * *"), None);
        assert_eq!(Written::read("@fortnightly"), None);
    }
}
